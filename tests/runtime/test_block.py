"""`async with Runtime(tree)`: what goes in, what comes out, and what becomes of the body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, End, Hold, Log, Touch, settle
from tests.conformance.witnesses import released


class Fatal(gr.Message[None]):
    """Raise SystemExit in the handler."""


class Suicidal(gr.Actor):
    @gr.handles
    async def fatal(self, _message: Fatal) -> None:
        raise SystemExit(3)


def failing(log: Log, *children: gr.Child) -> gr.Supervisor:
    """A tree that gives up at the first crash of `sup/a`."""
    return gr.Supervisor("sup", log.child("a"), *children, intensity=0)


# ------------------------------------------------------------------------------------------------------- the ordinary


async def test_the_tree_has_started_when_the_body_begins_and_has_stopped_when_the_block_has_ended() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))):
        assert log.take() == ["start a", "start b"]
    assert log.take() == ["stop b", "stop a"]


async def test_an_empty_tree_runs_and_stops() -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        assert runtime.tree().children == ()
    assert runtime.exit == gr.Exit("shutdown")


async def test_the_bodys_own_exception_leaves_bare_after_the_tree_has_stopped() -> None:
    log = Log()
    with pytest.raises(Boom) as caught:
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"))):
            raise Boom("mine")
    assert caught.value.args == ("mine",)
    assert log.take() == ["start a", "stop a"]


async def test_a_group_that_the_body_raises_leaves_as_it_is() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with gr.Runtime(gr.Supervisor("sup")):
            raise ExceptionGroup("mine", [Boom("1"), Boom("2")])
    assert caught.value.message == "mine"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_keyboard_interrupt_and_system_exit_of_the_body_leave_bare_after_an_ordered_stop(
    kind: type[BaseException],
) -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    with pytest.raises(kind):
        async with runtime:
            raise kind
    assert log.take() == ["start a", "stop a"]
    assert runtime.report is not None
    assert runtime.report.clean


async def test_a_runtime_is_entered_once() -> None:
    runtime = gr.Runtime(gr.Supervisor("sup"))
    async with runtime:
        with pytest.raises(gr.Misuse, match="make a new one for each run"):
            async with runtime:
                pass
    with pytest.raises(gr.Misuse, match="make a new one for each run"):
        async with runtime:
            pass


@pytest.mark.parametrize(
    "use",
    [
        lambda runtime: runtime.ref("sup"),
        lambda runtime: runtime.tree(),
        lambda runtime: runtime.request_stop(),
        lambda runtime: runtime.from_thread,
    ],
    ids=["ref", "tree", "request_stop", "from_thread"],
)
def test_before_the_block_there_is_nothing_to_use(use: Callable[[gr.Runtime], object]) -> None:
    with pytest.raises(gr.RuntimeNotRunning, match="async with Runtime"):
        use(gr.Runtime(gr.Supervisor("sup")))


async def test_before_the_block_there_is_nothing_to_wait_for() -> None:
    runtime = gr.Runtime(gr.Supervisor("sup"))
    for wait in (runtime.stop, runtime.wait, runtime.wait_stopping):
        with pytest.raises(gr.RuntimeNotRunning):
            await wait()


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan"), True, "1"])
def test_a_final_deadline_is_a_number_of_seconds_above_0(deadline: float) -> None:
    with pytest.raises(gr.BadSpec, match="final_deadline"):
        gr.Runtime(gr.Supervisor("sup"), final_deadline=deadline)


def test_the_top_of_a_tree_is_a_supervisor() -> None:
    with pytest.raises(gr.BadSpec, match=r"wrap it in gr\.Supervisor"):
        gr.Runtime(gr.Child("a", Suicidal))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- the tree fails or ends


async def test_p17_when_the_tree_gives_up_the_body_is_cancelled_and_the_block_raises_tree_failed() -> None:
    log = Log()
    left: list[str] = []
    with pytest.raises(gr.TreeFailed) as caught:
        async with gr.Runtime(failing(log)) as runtime:
            runtime.ref("sup/a").tell(Crash(Boom("the crash")))
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                left.append("cancelled")
                raise
    assert left == ["cancelled"]
    assert caught.value.path == "sup"


async def test_p17_the_chain_of_causes_leads_down_to_the_crash() -> None:
    log = Log()
    tree = gr.Supervisor("top", gr.Supervisor("mid", failing(log), intensity=0), intensity=0)
    with pytest.raises(gr.TreeFailed) as caught:
        async with gr.Runtime(tree) as runtime:
            runtime.ref("top/mid/sup/a").tell(Crash(Boom("the crash")))
            await anyio.sleep_forever()
    chain: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        chain.append(error)
        error = error.__cause__
    assert [type(one) for one in chain] == [gr.TreeFailed, *[gr.RestartLimitExceeded] * 3, Boom]
    assert [one.supervisor for one in chain if isinstance(one, gr.RestartLimitExceeded)] == [
        "top",
        "top/mid",
        "top/mid/sup",
    ]


async def test_p17_at_an_automatic_shutdown_the_body_is_cancelled_and_the_block_ends_normally() -> None:
    log = Log()
    child = log.child("a", restart="transient", significant=True)
    went_on = False
    async with gr.Runtime(gr.Supervisor("sup", child, auto_shutdown="any_significant")) as runtime:
        runtime.ref("sup/a").tell(End())
        await anyio.sleep_forever()
        went_on = True
    assert not went_on
    assert runtime.exit == gr.Exit("shutdown")


async def test_p17_a_body_that_waits_for_the_tree_learns_of_its_failure() -> None:
    log = Log()
    seen: list[BaseException] = []
    with pytest.raises(gr.TreeFailed) as caught:
        async with gr.Runtime(failing(log)) as runtime:
            runtime.ref("sup/a").tell(Crash())
            try:
                await runtime.wait()
            except gr.TreeFailed as error:
                seen.append(error)
                raise
    assert seen == [caught.value]
    assert not hasattr(caught.value, "__notes__")


async def test_p17_a_body_that_waits_for_the_tree_goes_on_after_an_automatic_shutdown() -> None:
    log = Log()
    child = log.child("a", restart="transient", significant=True)
    seen: list[str] = []
    async with gr.Runtime(gr.Supervisor("sup", child, auto_shutdown="any_significant")) as runtime:
        runtime.ref("sup/a").tell(End())
        await runtime.wait()
        seen.append("the tree has ended")
    assert seen == ["the tree has ended"]


async def test_p17_the_body_is_cancelled_though_a_child_is_stuck() -> None:
    log = Log()
    runtime = gr.Runtime(failing(log, log.child("stuck", shutdown=1.0)))
    never = anyio.Event()
    with pytest.raises(gr.TreeFailed):
        async with runtime:
            runtime.ref("sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            runtime.ref("sup/a").tell(Crash())
            try:
                await anyio.sleep_forever()
            finally:
                report = runtime.report
                never.set()
    assert report is not None
    assert report.stuck == ("sup/stuck",)


async def test_p17_what_the_body_raises_besides_a_failure_of_the_tree_leaves_with_a_note() -> None:
    log = Log()
    with pytest.raises(Boom) as caught:
        async with gr.Runtime(failing(log)) as runtime:
            runtime.ref("sup/a").tell(Crash())
            try:
                await anyio.sleep_forever()
            finally:
                raise Boom("while it was cancelled")
    (note,) = caught.value.__notes__
    assert note.startswith("greenroom: besides, the tree 'sup' has ended by failure")


async def test_p17_a_group_of_our_cancellation_and_an_error_of_the_bodys_leaves_without_the_cancellation() -> None:
    log = Log()
    with pytest.raises(ExceptionGroup) as caught:
        async with gr.Runtime(failing(log)) as runtime:
            runtime.ref("sup/a").tell(Crash())
            async with anyio.create_task_group() as group:

                async def clean_up() -> None:
                    try:
                        await anyio.sleep_forever()
                    finally:
                        raise Boom("clean-up")

                group.start_soon(clean_up)
                await anyio.sleep_forever()
    assert [type(one) for one in caught.value.exceptions] == [Boom]
    assert log.take() == ["start a", "die a"]


async def test_p17_a_failure_of_the_tree_is_not_lost_in_a_cancellation_of_the_host() -> None:
    log = Log()
    log.next_stops("b", 1.0)
    with pytest.raises(gr.TreeFailed), anyio.CancelScope() as scope:
        async with gr.Runtime(failing(log, log.child("b"))) as runtime:
            runtime.ref("sup/a").tell(Crash())
            await settle()
            scope.cancel()
            await anyio.sleep_forever()


async def test_p30_a_transient_supervisor_that_gave_up_stays_down_and_is_logged_at_error_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    mid = gr.Supervisor("mid", log.child("a"), intensity=0, restart="transient")
    async with gr.Runtime(gr.Supervisor("top", mid, log.child("z"))) as runtime:
        caplog.clear()
        runtime.ref("top/mid/a").tell(Crash(Boom("the crash")))
        await settle()
        node = runtime.tree().find("top/mid")
        assert node is not None
        assert node.state is gr.State.DOWN
        assert await runtime.ref("top/z").ask(Touch()) == 1
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    told = [r for r in errors if r.getMessage().startswith("child_terminated: top/mid shutdown: RestartLimitExceeded")]
    (record,) = told
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], gr.RestartLimitExceeded)
    assert isinstance(record.exc_info[1].__cause__, Boom)


# --------------------------------------------------------------------------------------------------- it does not start


async def test_a_child_that_does_not_start_stops_the_others_and_leaves_the_block_as_start_failed() -> None:
    log = Log()
    log.next_starts("b", Boom("no"))
    entered = False
    with pytest.raises(gr.StartFailed) as caught:
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c"))):
            entered = True
    assert not entered
    assert log.take() == ["start a", "fail b", "stop a"]
    assert caught.value.child == "sup/b"
    assert isinstance(caught.value.__cause__, Boom)


async def test_the_deepest_child_that_did_not_start_is_in_the_chain() -> None:
    log = Log()
    log.next_starts("b", Boom("no"))
    with pytest.raises(gr.StartFailed) as caught:
        async with gr.Runtime(gr.Supervisor("top", gr.Supervisor("mid", log.child("b")))):
            pass
    causes: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert isinstance(causes[-1], Boom)
    assert "top/mid/b" in [one.child for one in causes if isinstance(one, gr.StartFailed)]


async def test_a_failed_start_has_a_report_of_its_rollback() -> None:
    log = Log()
    log.next_starts("b", Boom("no"))
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b")))
    with pytest.raises(gr.StartFailed):
        async with runtime:
            pass
    assert runtime.report is not None
    assert runtime.report.stopped == ("sup/a",)


async def test_a_stop_from_elsewhere_during_the_start_is_said() -> None:
    log = Log()
    log.next_starts("b", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c")))
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await anyio.sleep(0.5)
            await runtime.stop()

        group.start_soon(stop)
        with pytest.raises(gr.StartFailed, match="a stop was requested before it had started"):
            async with runtime:
                pass
    assert log.take() == ["start a", "start b", "stop b", "stop a"]


# --------------------------------------------------------------------------------------------- KeyboardInterrupt and co


async def test_p15_system_exit_of_an_actor_stops_the_tree_in_order_and_leaves_the_block() -> None:
    log = Log()
    with pytest.raises(SystemExit) as caught:
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), gr.Child("s", Suicidal), log.child("z"))) as runtime:
            runtime.ref("sup/s").tell(Fatal())
            await anyio.sleep_forever()
    assert caught.value.code == 3
    assert log.take() == ["start a", "start z", "stop z", "stop a"]


async def test_p15_it_leaves_the_block_although_the_body_raises_something_else() -> None:
    with pytest.raises(SystemExit) as caught:
        async with gr.Runtime(gr.Supervisor("sup", gr.Child("s", Suicidal))) as runtime:
            runtime.ref("sup/s").tell(Fatal())
            try:
                await anyio.sleep_forever()
            finally:
                raise Boom("while it was cancelled")
    (note,) = caught.value.__notes__
    assert "the block was left by Boom: while it was cancelled" in note


async def test_p15_a_start_that_raises_it_leaves_the_block_with_it() -> None:
    log = Log()
    log.next_starts("b", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))):
            pass
    assert log.take() == ["start a", "fail b", "stop a"]


# ------------------------------------------------------------------------------------------------------ several of them


async def test_several_runtimes_run_side_by_side() -> None:
    log = Log()
    async with (
        gr.Runtime(gr.Supervisor("sup", log.child("a"))) as one,
        gr.Runtime(gr.Supervisor("sup", log.child("a"))) as two,
    ):
        one.ref("sup/a").tell(Crash())
        await settle()
        assert one.ref("sup/a").incarnation == 2
        assert two.ref("sup/a").incarnation == 1
        await one.stop()
        assert await two.ref("sup/a").ask(Touch()) == 1


async def test_a_runtime_runs_inside_an_actor_and_ends_with_its_handler() -> None:
    log = Log()

    class Outer(gr.Actor):
        @gr.handles
        async def touch(self, _message: Touch) -> int:
            async with gr.Runtime(gr.Supervisor("inner", log.child("a"))) as inner:
                return await inner.ref("inner/a").ask(Touch()) + 10

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("outer", Outer))) as runtime:
        assert await runtime.ref("sup/outer").ask(Touch()) == 11
        assert log.take() == ["start a", "stop a"]


async def test_a_runtime_inside_an_actor_is_stopped_in_order_when_the_actor_is_cancelled() -> None:
    log = Log()
    log.next_stops("b", 0.5)

    class Outer(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            async with gr.Runtime(gr.Supervisor("inner", log.child("a"), log.child("b"))):
                await message.until.wait()

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("outer", Outer, shutdown=1.0)))
    with released() as never:
        async with runtime:
            runtime.ref("sup/outer").tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
        assert anyio.current_time() - began == 1.5
    assert log.take() == ["stop b", "stop a"]
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/outer",)


async def test_the_actors_of_a_tree_that_has_ended_are_not_found_and_say_so() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        ref = runtime.ref("sup/a")
    with pytest.raises(gr.ActorStopped):
        await ref.ask(Touch())
    with pytest.raises(gr.NoSuchActor):
        runtime.ref("sup/a")


@pytest.mark.backends("asyncio")
async def test_only_asyncio_a_block_leaves_no_request_to_cancel_behind() -> None:
    log = Log()
    child = log.child("a", restart="transient", significant=True)
    async with gr.Runtime(gr.Supervisor("sup", child, auto_shutdown="any_significant")) as runtime:
        runtime.ref("sup/a").tell(End())
        await anyio.sleep_forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
