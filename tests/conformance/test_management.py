"""Calls that start, stop, delete and replace children, and what they refuse. Behaviours 86, 87 and 93."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.conformance.calls import CALLS, SLOW, assert_says
from tests.conformance.probes import Hold, Log, Probe, Touch, crash, settle, states
from tests.conformance.witnesses import Watcher, released, settle_after_spinning

# ---------------------------------------------------------------------------------------------------------- start_child


async def test_otp_086_starting_a_child_under_the_name_of_a_running_one_is_refused() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        log.take()
        with pytest.raises(gr.AlreadyStarted) as refusal:
            await runtime.ref("sup").start_child(log.child("a"))
        assert (refusal.value.supervisor, refusal.value.child) == ("sup", "a")
        assert_says(refusal.value, "'a'", "'sup'", "another name", "terminate and delete")
        assert log.take() == []
        assert runtime.ref("sup/a").incarnation == 1


async def test_otp_086_starting_a_child_under_the_name_of_one_that_is_down_is_refused() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        await runtime.ref("sup").terminate_child("a")
        log.take()
        with pytest.raises(gr.AlreadyPresent) as refusal:
            await runtime.ref("sup").start_child(log.child("a"))
        assert (refusal.value.supervisor, refusal.value.child) == ("sup", "a")
        assert_says(refusal.value, "'a'", "'sup'", "restart_child", "delete_child")
        assert log.take() == []
        assert await states(runtime.ref("sup")) == {"a": "down"}


async def test_otp_086_starting_a_child_under_the_name_of_one_that_is_restarting_is_refused() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=SLOW))) as runtime:
        await crash(runtime.ref("sup/a"))
        with pytest.raises(gr.AlreadyPresent):
            await runtime.ref("sup").start_child(log.child("a"))
        assert await states(runtime.ref("sup")) == {"a": "restarting"}


async def test_start_child_returns_the_ref_of_the_new_child() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        ref = await runtime.ref("sup").start_child(log.child("new"))
        assert ref is runtime.ref("sup/new")
        assert await ref.ask(Touch()) == 1


async def test_start_child_takes_a_whole_subtree() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        await runtime.ref("sup").start_child(gr.Supervisor("inner", log.child("a"), log.child("b")))
        assert log.take() == ["start a", "start b"]
        assert await runtime.ref("sup/inner/b").ask(Touch()) == 1


@pytest.mark.parametrize("arguments", [(), ("a",), (Probe,), (gr.Child("a", Watcher, []), gr.Child("b", Watcher, []))])
async def test_start_child_of_a_static_supervisor_takes_one_spec(arguments: tuple[object, ...]) -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        with pytest.raises(gr.BadSpec, match=r"start_child on 'sup' takes one gr\.Child"):
            await runtime.ref("sup").start_child(*arguments)
        assert await states(runtime.ref("sup")) == {}


# ---------------------------------------------------------------------- terminate_child, restart_child and delete_child


async def test_otp_087_a_temporary_child_that_is_terminated_by_hand_is_gone() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("t", restart="temporary"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("t")
        assert await states(sup) == {}
        with pytest.raises(gr.ChildNotFound):
            await sup.delete_child("t")
        with pytest.raises(gr.ChildNotFound):
            await sup.restart_child("t")


async def test_otp_087_the_name_of_a_terminated_temporary_child_is_free_at_once() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("t", restart="temporary"))) as runtime:
        await runtime.ref("sup").terminate_child("t")
        ref = await runtime.ref("sup").start_child(log.child("t"))
        assert await ref.ask(Touch()) == 1


async def test_a_deleted_child_is_no_longer_listed() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("a")
        await sup.delete_child("a")
        assert await states(sup) == {"b": "running"}
        with pytest.raises(gr.NoSuchActor, match="'sup/a'"):
            runtime.ref("sup/a")


async def test_a_running_child_is_neither_deleted_nor_restarted_by_a_call() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        sup = runtime.ref("sup")
        for call in (sup.delete_child, sup.restart_child):
            with pytest.raises(gr.ChildRunning) as refusal:
                await call("a")
            assert (refusal.value.supervisor, refusal.value.child) == ("sup", "a")
            assert_says(refusal.value, "'a'", "'sup'", "terminate_child")
        assert runtime.ref("sup/a").incarnation == 1
        assert await states(sup) == {"a": "running"}


async def test_a_child_that_is_restarting_is_neither_deleted_nor_restarted_by_a_call() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=SLOW))) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        for call in (sup.delete_child, sup.restart_child):
            with pytest.raises(gr.ChildRestarting) as refusal:
                await call("a")
            assert (refusal.value.supervisor, refusal.value.child) == ("sup", "a")
            assert_says(refusal.value, "'a'", "'sup'", "wait", "terminate_child")
        assert await states(sup) == {"a": "restarting"}


async def test_terminating_a_child_that_waits_for_its_backoff_cancels_the_delay() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=SLOW))) as runtime:
        await crash(runtime.ref("sup/a"))
        log.take()
        await runtime.ref("sup").terminate_child("a")
        await anyio.sleep(600.0)
        assert log.take() == []
        assert await states(runtime.ref("sup")) == {"a": "down"}


async def test_a_child_that_is_still_ending_is_neither_terminated_nor_deleted_nor_restarted() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("deaf", shutdown=1.0))) as runtime:
        sup = runtime.ref("sup")
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release, swallow=True))
            await settle()
            for call in (sup.terminate_child, sup.delete_child, sup.restart_child):
                with pytest.raises(gr.ChildStillEnding) as refusal:
                    await call("deaf")
                assert (refusal.value.supervisor, refusal.value.child) == ("sup", "deaf")
                assert_says(refusal.value, "'deaf'", "'sup'", "runtime.tree()", "has ended")
            assert await states(sup) == {"deaf": "stuck"}
        await settle_after_spinning()
        assert await states(sup) == {"deaf": "down"}


async def test_the_name_of_a_child_that_is_still_ending_is_not_free() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("deaf", shutdown=1.0, restart="temporary"))) as runtime:
        sup = runtime.ref("sup")
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await sup.terminate_child("deaf")
            with pytest.raises(gr.ChildStillEnding, match="'deaf' of 'sup'"):
                await sup.start_child(log.child("deaf"))
        await settle_after_spinning()
        await sup.start_child(log.child("deaf"))
        assert await runtime.ref("sup/deaf").ask(Touch()) == 1


async def test_a_temporary_child_that_was_still_ending_is_forgotten_when_it_has_ended() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("deaf", shutdown=1.0, restart="temporary"))) as runtime:
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await runtime.ref("sup").terminate_child("deaf")
        await settle_after_spinning()
        assert await states(runtime.ref("sup")) == {}


async def test_a_call_about_an_unknown_child_says_where_the_known_ones_are_listed() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        sup = runtime.ref("sup")
        for call in (sup.terminate_child, sup.restart_child, sup.delete_child, sup.get_childspec):
            with pytest.raises(gr.ChildNotFound) as refusal:
                await call("b")
            assert (refusal.value.supervisor, refusal.value.child) == ("sup", "b")
            assert_says(refusal.value, "'b'", "'sup'", "which_children")


async def test_a_terminated_child_is_restarted_by_hand_at_its_old_place() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("b")
        ref = await sup.restart_child("b")
        assert ref is runtime.ref("sup/b")
        assert await states(sup) == {"a": "running", "b": "running", "c": "running"}
        assert list(await states(sup)) == ["a", "b", "c"]


async def test_a_child_that_was_deleted_and_started_anew_is_the_latest() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("a")
        await sup.delete_child("a")
        await sup.start_child(log.child("a"))
        assert list(await states(sup)) == ["b", "a"]


async def test_no_call_is_counted_as_a_restart() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=0)) as runtime:
        sup = runtime.ref("sup")
        for _ in range(5):
            await sup.terminate_child("a")
            await sup.restart_child("a")
            await sup.start_child(log.child("b"))
            await sup.terminate_child("b")
            await sup.delete_child("b")
        assert await states(sup) == {"a": "running"}


@pytest.mark.parametrize(
    "call",
    [
        "start_child",
        "terminate_child",
        "restart_child",
        "delete_child",
        "replace_childspec",
        "which_children",
        "count_children",
        "get_childspec",
    ],
)
async def test_every_call_on_an_actor_names_it_and_sends_the_caller_to_its_supervisor(call: str) -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.NotASupervisor) as refusal:
            await CALLS[call](runtime.ref("sup/a"), log)
        assert_says(refusal.value, "'sup/a'", call, "supervisor above it")
        assert await runtime.ref("sup/a").ask(Touch()) == 1


# ------------------------------------------------------------------------------------------------------- replaced specs


async def test_otp_093_a_replaced_spec_leaves_the_running_incarnation_alone() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        await runtime.ref("sup/a").ask(Touch())
        log.take()
        await runtime.ref("sup").replace_childspec(log.child("a", restart="transient", shutdown=1.0))
        assert log.take() == []
        assert await runtime.ref("sup/a").ask(Touch()) == 2


async def test_otp_093_a_replaced_spec_is_used_at_the_next_restart() -> None:
    log, other = Log(), Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        await runtime.ref("sup").replace_childspec(other.child("a"))
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["start a", "die a"]
        assert other.take() == ["start a"]


async def test_otp_093_a_replaced_restart_type_is_heeded_at_the_next_end() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        await runtime.ref("sup").replace_childspec(log.child("a", restart="temporary"))
        await crash(runtime.ref("sup/a"))
        assert await states(runtime.ref("sup")) == {}


async def test_otp_093_a_replaced_spec_of_a_child_that_is_down_does_not_start_it() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        await runtime.ref("sup").terminate_child("a")
        log.take()
        spec = log.child("a", shutdown=1.0)
        await runtime.ref("sup").replace_childspec(spec)
        assert log.take() == []
        assert await states(runtime.ref("sup")) == {"a": "down"}
        assert await runtime.ref("sup").get_childspec("a") is spec


async def test_otp_093_a_spec_of_an_unknown_name_replaces_nothing() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.ChildNotFound, match="'new' of 'sup'"):
            await runtime.ref("sup").replace_childspec(log.child("new"))
        assert await states(runtime.ref("sup")) == {"a": "running"}


async def test_otp_093_an_actor_is_not_replaced_by_a_supervisor() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.BadSpec, match="'a' cannot turn from a supervisor into an actor or back: delete it"):
            await runtime.ref("sup").replace_childspec(gr.Supervisor("a"))
