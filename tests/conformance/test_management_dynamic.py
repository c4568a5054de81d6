"""Dynamic children: names, numbers, limits, and many of them. Behaviours 88, 94 and 95."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Literal

import pytest

import greenroom as gr
from tests.conformance.calls import CALLS, SLOW, assert_says, dynamic
from tests.conformance.probes import Boom, Log, Touch, crash, settle, states


async def test_otp_088_terminating_a_dynamic_child_that_is_dead_already_is_fine() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log, restart="temporary")) as runtime:
        dyn = runtime.ref("sup/dyn")
        former = await dyn.start_child()
        await crash(former)
        assert await states(dyn) == {}
        await dyn.terminate_child(former)
        await dyn.terminate_child("1")


async def test_otp_088_terminating_a_live_stranger_is_refused_and_the_stranger_lives() -> None:
    log = Log()
    tree = gr.Supervisor("sup", gr.DynamicSupervisor("dyn", log.child("worker")), log.child("1"))
    async with gr.Runtime(tree) as runtime:
        await runtime.ref("sup/dyn").start_child()
        stranger = runtime.ref("sup/1")
        with pytest.raises(gr.ChildNotFound, match="'sup/1' of 'sup/dyn'"):
            await runtime.ref("sup/dyn").terminate_child(stranger)
        assert await stranger.ask(Touch()) == 1
        assert await states(runtime.ref("sup/dyn")) == {"1": "running"}


async def test_otp_088_terminating_a_number_that_was_never_given_out_is_refused() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        await runtime.ref("sup/dyn").start_child()
        with pytest.raises(gr.ChildNotFound):
            await runtime.ref("sup/dyn").terminate_child("2")


async def test_otp_088_the_ref_of_a_former_life_of_the_supervisor_does_not_reach_the_child_of_today() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        old = await runtime.ref("sup/dyn").start_child()
        await runtime.ref("sup").terminate_child("dyn")
        await runtime.ref("sup").restart_child("dyn")
        new = await runtime.ref("sup/dyn").start_child()
        assert (old.path, new.path) == ("sup/dyn/1", "sup/dyn/1")
        with pytest.raises(gr.ChildNotFound):
            await runtime.ref("sup/dyn").terminate_child(old)
        assert await new.ask(Touch()) == 1


async def test_dynamic_children_are_named_by_their_number_and_numbers_are_not_used_again() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        dyn = runtime.ref("sup/dyn")
        first, second = await dyn.start_child(), await dyn.start_child()
        await dyn.terminate_child(first)
        third = await dyn.start_child()
        assert [ref.path for ref in (first, second, third)] == ["sup/dyn/1", "sup/dyn/2", "sup/dyn/3"]
        assert runtime.ref("sup/dyn/3") is third


async def test_a_dynamic_child_is_terminated_by_name_or_by_ref() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        dyn = runtime.ref("sup/dyn")
        first, second = await dyn.start_child(), await dyn.start_child()
        await dyn.terminate_child("1")
        await dyn.terminate_child(second)
        assert await states(dyn) == {}
        for ref in (first, second):
            with pytest.raises(gr.ActorStopped):
                await ref.ask(Touch())


async def test_a_terminated_dynamic_child_is_forgotten_whatever_its_restart_type() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log, restart="permanent")) as runtime:
        child = await runtime.ref("sup/dyn").start_child()
        await runtime.ref("sup/dyn").terminate_child(child)
        assert await states(runtime.ref("sup/dyn")) == {}
        with pytest.raises(gr.NoSuchActor):
            runtime.ref("sup/dyn/1")


@pytest.mark.parametrize("call", ["restart_child", "delete_child"])
async def test_a_dynamic_child_is_neither_restarted_nor_deleted_by_a_call(
    call: Literal["restart_child", "delete_child"],
) -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        child = await runtime.ref("sup/dyn").start_child()
        with pytest.raises(gr.BadSpec) as refusal:
            await CALLS[call](runtime.ref("sup/dyn"), log, "1")
        assert_says(refusal.value, "'sup/dyn'", call)
        assert await child.ask(Touch()) == 1


async def test_dynamic_children_get_their_own_arguments_after_those_of_the_template() -> None:
    class Keeper(gr.Actor):
        def __init__(self, *args: object) -> None:
            self.args = args

        async def on_start(self) -> object:
            return self.args

    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", Keeper, "shared"))) as runtime:
        ref, info = await runtime.ref("sup/dyn").start_child("own", 2)
        assert ref is runtime.ref("sup/dyn/1")
        assert info == ("shared", "own", 2)


async def test_count_children_of_a_dynamic_supervisor_counts_one_spec() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        for _ in range(3):
            await runtime.ref("sup/dyn").start_child()
        assert await runtime.ref("sup/dyn").count_children() == gr.ChildCounts(
            specs=1, active=3, supervisors=0, workers=3
        )


async def test_otp_095_a_dynamic_supervisor_refuses_one_child_more_than_it_may_have() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log, max_children=2)) as runtime:
        dyn = runtime.ref("sup/dyn")
        first, _ = await dyn.start_child(), await dyn.start_child()
        log.take()
        with pytest.raises(gr.TooManyChildren) as refusal:
            await dyn.start_child()
        assert refusal.value.supervisor == "sup/dyn"
        assert_says(refusal.value, "'worker'", "'sup/dyn'", "max_children", "terminate_child")
        assert log.take() == []
        await dyn.terminate_child(first)
        assert (await dyn.start_child()).path == "sup/dyn/3"


async def test_otp_095_a_dynamic_child_that_is_restarting_still_counts() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log, max_children=1, backoff=SLOW)) as runtime:
        dyn = runtime.ref("sup/dyn")
        await crash(await dyn.start_child())
        assert await states(dyn) == {"1": "restarting"}
        with pytest.raises(gr.TooManyChildren):
            await dyn.start_child()


async def test_otp_095_a_dynamic_child_whose_start_failed_takes_no_place() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log, max_children=1)) as runtime:
        dyn = runtime.ref("sup/dyn")
        log.next_starts("worker", Boom("no"), gr.Ignore())
        with pytest.raises(gr.StartFailed, match="'sup/dyn/1'"):
            await dyn.start_child()
        assert await dyn.start_child() is None
        assert await (await dyn.start_child()).ask(Touch()) == 1


# -------------------------------------------------------------------------------------------------------- many children


async def test_otp_094_ten_times_a_thousand_children_are_started_and_stopped_in_linear_time() -> None:
    class Worker(gr.Actor):
        pass

    seconds = []
    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", Worker))) as runtime:
        dyn = runtime.ref("sup/dyn")
        for _ in range(10):
            began = time.process_time()
            children = [await dyn.start_child() for _ in range(1000)]
            assert (await dyn.count_children()).active == 1000
            for child in children:
                await dyn.terminate_child(child)
            assert (await dyn.count_children()).active == 0
            seconds.append(time.process_time() - began)
        assert child.path == "sup/dyn/10000"
    # Each round does the same work, whatever has come and gone before: OTP allows a factor of 10 for all that disturbs.
    assert max(seconds) < 10 * min(seconds)


async def test_otp_094_a_thousand_children_are_stopped_together_in_about_linear_time() -> None:
    class Worker(gr.Actor):
        pass

    async def seconds_to_stop(number: int) -> float:
        async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", Worker))) as runtime:
            for _ in range(number):
                await runtime.ref("sup/dyn").start_child()
            began = time.process_time()
            await runtime.ref("sup").terminate_child("dyn")
            taken = time.process_time() - began
        return taken

    small, large = await seconds_to_stop(100), await seconds_to_stop(1000)
    assert large < 10 * 10 * small


async def test_otp_094_nothing_is_kept_of_children_that_were_stopped() -> None:
    actors = weakref.WeakSet[gr.Actor]()

    class Worker(gr.Actor):
        async def on_start(self) -> None:
            actors.add(self)

    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", Worker))) as runtime:
        for _ in range(100):
            await runtime.ref("sup/dyn").start_child()
        assert len(actors) == 100
        for number in range(100):
            await runtime.ref("sup/dyn").terminate_child(str(number + 1))
        await settle()
        gc.collect()
        assert len(actors) == 0
        node = runtime.tree().find("sup/dyn")
        assert node is not None
        assert node.children == ()
