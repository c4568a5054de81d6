"""OTP b.24-36: who is restarted with whom."""

from __future__ import annotations

import functools

import pytest

import greenroom as gr
from tests.conformance.probes import Crash, End, Log, Probe, Touch, crash, reports, settle, states


def incarnations(runtime: gr.Runtime, names: str) -> list[int]:
    return [runtime.ref(f"sup/{name}").incarnation for name in names]


async def test_otp_024_one_for_one_restarts_only_the_child_that_crashed() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        assert await runtime.ref("sup/b").ask(Touch()) == 1
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["start a", "start b", "die a", "start a"]
        assert incarnations(runtime, "ab") == [2, 1]
        assert await runtime.ref("sup/b").ask(Touch()) == 2


async def test_otp_025_one_for_all_stops_in_reverse_and_starts_in_order() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="one_for_all")
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/b"))
        assert log.take() == ["die b", "stop c", "stop a", "start a", "start b", "start c"]
        assert incarnations(runtime, "abc") == [2, 2, 2]


async def test_otp_026_rest_for_one_restarts_the_child_and_those_after_it() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abcd"), strategy="rest_for_one")
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/b"))
        assert log.take() == ["die b", "stop d", "stop c", "start b", "start c", "start d"]
        assert incarnations(runtime, "abcd") == [1, 2, 2, 2]


async def test_otp_027_rest_for_one_restarts_only_the_last_child_when_that_crashes() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="rest_for_one")
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/c"))
        assert log.take() == ["die c", "start c"]


async def test_otp_032_rest_for_one_leaves_an_earlier_temporary_child_alone() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup", log.child("t", restart="temporary"), log.child("a"), log.child("b"), strategy="rest_for_one"
    )
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "stop b", "start a", "start b"]
        assert await states(runtime.ref("sup")) == {"t": "running", "a": "running", "b": "running"}


async def test_otp_033_rest_for_one_takes_a_child_added_later_for_the_latest() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), strategy="rest_for_one")) as runtime:
        await runtime.ref("sup").start_child(log.child("z"))
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "stop z", "stop b", "start a", "start b", "start z"]


async def test_otp_035_a_dynamic_child_is_restarted_alone_and_with_its_own_arguments() -> None:
    log = Log()
    tree = gr.Supervisor("sup", gr.DynamicSupervisor("pool", functools.partial(Probe, log)))
    async with gr.Runtime(tree) as runtime:
        pool = runtime.ref("sup/pool")
        x, y = await pool.start_child("x"), await pool.start_child("y")
        await crash(y)
        assert log.take() == ["start x", "start y", "die y", "start y"]
        assert (x.incarnation, y.incarnation) == (1, 2)


async def test_otp_036_a_dynamic_child_that_ignores_its_restart_disappears() -> None:
    log = Log()
    tree = gr.Supervisor("sup", gr.DynamicSupervisor("pool", functools.partial(Probe, log)))
    async with gr.Runtime(tree) as runtime:
        pool = runtime.ref("sup/pool")
        x, y = await pool.start_child("x"), await pool.start_child("y")
        log.next_starts("x", gr.Ignore())
        await crash(x)
        assert [info.ref for info in await pool.which_children()] == [y]
        report = await runtime.stop()
        assert report.clean
    assert log.take() == ["start x", "start y", "die x", "ignore x", "stop y"]


# ---------------------------------------------------------------------------------------------- what a group covers


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_group_restart_starts_what_was_down_before_too(strategy: str) -> None:
    log = Log()
    log.next_starts("ignorer", gr.Ignore())
    children = (log.child("a"), log.child("finished", restart="transient"), log.child("stopped"), log.child("ignorer"))
    async with gr.Runtime(gr.Supervisor("sup", *children, strategy=strategy)) as runtime:  # type: ignore[arg-type]
        sup = runtime.ref("sup")
        runtime.ref("sup/finished").tell(End())
        await settle()
        await sup.terminate_child("stopped")
        assert await states(sup) == {"a": "running", "finished": "down", "stopped": "down", "ignorer": "down"}
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "start a", "start finished", "start stopped", "start ignorer"]
        assert set((await states(sup)).values()) == {"running"}


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_group_restart_stops_temporary_children_and_forgets_them(strategy: str) -> None:
    log = Log()
    children = (log.child("a"), log.child("t", restart="temporary"), log.child("c"))
    async with gr.Runtime(gr.Supervisor("sup", *children, strategy=strategy)) as runtime:  # type: ignore[arg-type]
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "stop c", "stop t", "start a", "start c"]
        assert await states(runtime.ref("sup")) == {"a": "running", "c": "running"}
        with pytest.raises(gr.NoSuchActor):
            runtime.ref("sup/t")


async def test_a_group_restart_counts_once_however_many_it_touches() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abcdef"), strategy="one_for_all", intensity=2)
    async with gr.Runtime(tree) as runtime:
        await crash(runtime.ref("sup/a"), runtime.ref("sup/f"))
        assert incarnations(runtime, "abcdef") == [3] * 6


async def test_a_sibling_that_dies_while_it_is_stopped_for_the_group_is_not_counted() -> None:
    log = Log()
    log.next_stops("a", RuntimeError("on its way out"))
    tree = gr.Supervisor("sup", *(log.child(name) for name in "ab"), strategy="one_for_all", intensity=1)
    async with gr.Runtime(tree) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/b"))
        assert incarnations(runtime, "ab") == [2, 2]
        assert [(report.context, report.offender.name) for report in reports(events)] == [
            ("child_terminated", "b"),
            ("shutdown_error", "a"),
        ]


async def test_two_children_of_a_group_that_crash_at_once_are_one_restart() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name) for name in "ab"), strategy="one_for_all", intensity=1)
    async with gr.Runtime(tree) as runtime:
        # Both are dead before their supervisor looks: the end of the second is used up by stopping it with the first.
        for name in "ab":
            runtime.ref(f"sup/{name}").tell(Crash())
        await settle()
        assert incarnations(runtime, "ab") == [2, 2]


async def test_a_stop_in_the_middle_of_a_group_restart_starts_nothing_again() -> None:
    log = Log()
    log.next_stops("c", 2.0)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="one_for_all")
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/b"))
        await runtime.stop()
        assert log.take() == ["die b", "stop c", "stop a"]


async def test_a_stop_while_a_group_restart_starts_children_starts_no_more_of_them() -> None:
    log = Log()
    log.next_starts("b", None, 2.0)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="one_for_all")
    async with gr.Runtime(tree) as runtime:
        await crash(runtime.ref("sup/a"))
        log.take()
        await runtime.stop()
        assert log.take() == ["stop b", "stop a"]


# ------------------------------------------------------------------------------------------------------ the order


async def test_a_child_restarted_by_hand_keeps_its_place() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", *(log.child(name) for name in "abc"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("a")
        await sup.restart_child("a")
        assert [info.name for info in await sup.which_children()] == ["c", "b", "a"]


async def test_a_child_deleted_and_added_again_goes_to_the_end() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", *(log.child(name) for name in "abc"))) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("a")
        await sup.delete_child("a")
        await sup.start_child(log.child("a"))
        assert [info.name for info in await sup.which_children()] == ["a", "c", "b"]


async def test_a_child_restarted_by_its_supervisor_keeps_its_place() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", *(log.child(name) for name in "abc"))) as runtime:
        await crash(runtime.ref("sup/a"))
        assert [info.name for info in await runtime.ref("sup").which_children()] == ["c", "b", "a"]


async def test_a_replaced_spec_keeps_its_place_and_is_used_at_the_next_start() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", *(log.child(name) for name in "abc"))) as runtime:
        sup = runtime.ref("sup")
        await sup.replace_childspec(gr.Child("a", Probe, log, "new a", restart="transient"))
        assert runtime.ref("sup/a").incarnation == 1
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "start new a"]
        assert [info.name for info in await sup.which_children()] == ["c", "b", "a"]
        assert (await sup.get_childspec("a")).restart == "transient"


async def test_a_replaced_spec_with_another_mailbox_is_refused_since_the_mailbox_lives_on() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.BadSpec, match="mailbox of 'sup/a' lives on"):
            await runtime.ref("sup").replace_childspec(log.child("a", mailbox=gr.Mailbox(capacity=3)))


# ------------------------------------------------------------------------------------------- supervisors as children


async def test_a_restart_of_a_supervisor_starts_its_whole_subtree_anew() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("b"), log.child("c"))
    tree = gr.Supervisor("sup", log.child("a"), inner, log.child("d"), strategy="one_for_all")
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["die a", "stop d", "stop c", "stop b", "start a", "start b", "start c", "start d"]
        assert runtime.ref("sup/inner").incarnation == 2
        assert runtime.ref("sup/inner/b").incarnation == 2
