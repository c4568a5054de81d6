"""OTP b.1-15: how a supervisor starts, and what it does when a start fails."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Log, Touch, crash, exits, settle, states


def top(*children: gr.Child) -> gr.Supervisor:
    """A supervisor for others to be started below."""
    return gr.Supervisor("top", *children, intensity=0)


async def test_otp_001_children_start_in_order_and_the_start_returns_after_the_last() -> None:
    log = Log()
    log.next_starts("a", 1.0)
    log.next_starts("c", 2.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c"))):
        assert anyio.current_time() == 3.0
        assert log.entries == ["start a", "start b", "start c"]
        assert log.when("start b") == [1.0]


async def test_otp_002_a_failing_start_stops_what_was_started_in_reverse_and_reaches_the_starter() -> None:
    log = Log()
    boom = Boom("boom")
    log.next_starts("c", boom)
    sup = gr.Supervisor("sup", *(log.child(name) for name in "abcd"))
    async with gr.Runtime(top()) as runtime:
        events = runtime.events()
        with pytest.raises(gr.StartFailed) as failure:
            await runtime.ref("top").start_child(sup)
        assert log.take() == ["start a", "start b", "fail c", "stop b", "stop a"]
        assert failure.value.child == "top/sup/c"
        assert failure.value.__cause__ is boom
        assert [exit.kind for exit in exits(events, "top/sup")] == ["error"]
        assert await states(runtime.ref("top")) == {}


async def test_otp_002_a_failing_start_of_the_whole_tree_leaves_the_block_unentered() -> None:
    log = Log()
    log.next_starts("b", Boom("boom"))
    with pytest.raises(gr.StartFailed, match="sup/b"):
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))):
            pytest.fail("the block was entered")
    assert log.take() == ["start a", "fail b", "stop a"]


async def test_otp_002_rollback_stops_each_child_by_its_own_shutdown_rule() -> None:
    log = Log()
    log.next_stops("a", 60.0)
    log.next_stops("b", 60.0)
    log.next_starts("d", Boom())
    sup = gr.Supervisor(
        "sup",
        log.child("a", shutdown=3.0),
        log.child("b", shutdown=2.0),
        log.child("c", shutdown="kill"),
        log.child("d"),
    )
    async with gr.Runtime(top()) as runtime:
        with pytest.raises(gr.StartFailed):
            await runtime.ref("top").start_child(sup)
        assert log.when("stop b") == [0.0]
        assert log.when("stop a") == [2.0]
        assert anyio.current_time() == 5.0
        assert "stop c" not in log.entries


async def test_otp_003_what_a_constructor_raises_is_the_reason_of_the_failed_start() -> None:
    log = Log()

    class Broken(gr.Actor):
        def __init__(self) -> None:
            raise Boom("bad")

    sup = gr.Supervisor("sup", log.child("a"), log.child("b"), gr.Child("c", Broken), log.child("d"))
    async with gr.Runtime(top()) as runtime:
        with pytest.raises(gr.StartFailed, match="bad") as failure:
            await runtime.ref("top").start_child(sup)
        assert isinstance(failure.value.__cause__, Boom)
        assert log.take() == ["start a", "start b", "stop b", "stop a"]


async def test_otp_004_a_factory_that_makes_something_else_is_a_failed_start_that_names_it() -> None:
    log = Log()

    def factory() -> Any:
        return 42

    sup = gr.Supervisor("sup", log.child("a"), gr.Child("b", factory))
    async with gr.Runtime(top()) as runtime:
        with pytest.raises(gr.StartFailed, match="made a int"):
            await runtime.ref("top").start_child(sup)
        assert log.take() == ["start a", "stop a"]


async def test_otp_005_duplicate_names_are_refused_before_anything_starts() -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match="two children named 'a'"):
        gr.Supervisor("sup", log.child("a"), log.child("a"))
    assert log.start_calls("a") == 0


async def test_otp_006_one_bad_spec_is_refused_before_anything_starts() -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match="restart='sometimes'"):
        gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c", restart="sometimes"))
    assert log.entries == []


@pytest.mark.parametrize(
    "flags",
    [
        {"intensity": -1},
        {"intensity": 1.5},
        {"intensity": True},
        {"period": 0.0},
        {"period": -1.0},
        {"strategy": "some_for_none"},
        {"auto_shutdown": "sometimes"},
        {"restart": "sometimes"},
        {"shutdown": -1.0},
        {"shutdown": "later"},
        {"backoff": 1.0},
    ],
    ids=str,
)
def test_otp_007_flags_that_cannot_work_are_refused_by_name(flags: dict[str, Any]) -> None:
    (flag,) = flags
    with pytest.raises(gr.BadSpec, match=flag):
        gr.Supervisor("sup", Log().child("a"), **flags)


def test_otp_008_an_unknown_key_is_a_type_error_as_in_any_call() -> None:
    with pytest.raises(TypeError, match="colour"):
        gr.Supervisor("sup", Log().child("a"), colour="green")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Log().child("a", colour="green")


async def test_otp_009_a_permanent_child_that_ignores_its_start_is_kept_down() -> None:
    log = Log()
    log.next_starts("a", gr.Ignore())
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        sup = runtime.ref("sup")
        assert log.take() == ["ignore a", "start b"]
        assert await states(sup) == {"a": "down", "b": "running"}
        assert await sup.count_children() == gr.ChildCounts(specs=2, active=1, supervisors=0, workers=2)


async def test_otp_010_a_temporary_child_that_ignores_its_start_is_not_kept() -> None:
    log = Log()
    log.next_starts("a", gr.Ignore())
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", restart="temporary"), log.child("b"))) as runtime:
        assert await states(runtime.ref("sup")) == {"b": "running"}
        with pytest.raises(gr.NoSuchActor):
            runtime.ref("sup/a")


async def test_otp_011_the_starter_of_a_child_that_ignores_gets_none_and_the_child_ended_normally() -> None:
    log = Log()
    log.next_starts("a", gr.Ignore())
    async with gr.Runtime(gr.Supervisor("sup", intensity=0)) as runtime:
        events = runtime.events()
        assert await runtime.ref("sup").start_child(log.child("a")) is None
        assert exits(events, "sup/a") == [gr.Exit("normal")]


async def test_otp_011_ignore_out_of_a_handler_is_a_crash_like_any_other() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        events = runtime.events()
        runtime.ref("sup/a").tell(Crash(gr.Ignore()))
        await settle()
        assert [exit.kind for exit in exits(events, "sup/a")] == ["error"]
        assert log.take() == ["start a", "die a", "start a"]


async def test_otp_012_the_defaults_of_a_child() -> None:
    log = Log()
    inner = gr.Supervisor("inner")
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), inner)) as runtime:
        sup = runtime.ref("sup")
        worker, supervisor = await sup.get_childspec("a"), await sup.get_childspec("inner")
        assert (worker.restart, worker.shutdown, worker.significant) == ("permanent", 5.0, False)
        assert (supervisor.restart, supervisor.shutdown, supervisor.significant) == ("permanent", None, False)
        kinds = {info.name: info.kind for info in await sup.which_children()}
        assert kinds == {"a": "worker", "inner": "supervisor"}


def test_otp_012_the_defaults_of_a_supervisor() -> None:
    sup = gr.Supervisor("sup")
    assert (sup.strategy, sup.intensity, sup.period, sup.auto_shutdown) == ("one_for_one", 1, 5.0, "never")


class Boomer(gr.Actor):
    """An actor that can crash, and no more."""

    @gr.handles
    async def crash(self, _message: Crash) -> None:
        raise Boom


async def test_otp_013_what_on_start_returns_is_handed_to_whoever_starts_the_child() -> None:
    class Informer(Boomer):
        async def on_start(self) -> object:
            return {"port": 8080}

    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        sup = runtime.ref("sup")
        ref, info = await sup.start_child(gr.Child("a", Informer))
        assert (ref, info) == (runtime.ref("sup/a"), {"port": 8080})
        await crash(ref)
        assert ref.incarnation == 2
        await sup.terminate_child("a")
        assert await sup.restart_child("a") == (ref, {"port": 8080})


async def test_otp_014_failing_start_child_calls_leave_no_spec_and_are_not_counted() -> None:
    log = Log()
    log.next_starts("a", Boom("1"), Boom("2"), Boom("3"))
    async with gr.Runtime(gr.Supervisor("sup", intensity=0)) as runtime:
        sup = runtime.ref("sup")
        for number in "123":
            with pytest.raises(gr.StartFailed, match=number) as failure:
                await sup.start_child(log.child("a"))
            assert isinstance(failure.value.__cause__, Boom)
        assert await sup.which_children() == []
        assert log.take() == ["fail a"] * 3


async def test_otp_015_a_second_child_of_one_name_is_refused_and_the_first_is_unharmed() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        sup, holder = runtime.ref("sup"), runtime.ref("sup/a")
        assert await holder.ask(Touch()) == 1
        with pytest.raises(gr.AlreadyStarted):
            await sup.start_child(log.child("a"))
        assert await holder.ask(Touch()) == 2
        assert runtime.ref("sup/a") is holder
        assert log.take() == ["start a"]


# ------------------------------------------------------------------------------- a stop, and the time a start may take


async def test_a_stop_while_a_child_starts_cancels_it_after_its_shutdown_time_and_starts_no_other() -> None:
    log = Log()
    log.next_starts("b", 60.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b", shutdown=2.0), log.child("c")))
    async with anyio.create_task_group() as group:
        group.start_soon(stop_soon, runtime)
        with pytest.raises(gr.StartFailed, match="a stop was requested"):
            async with runtime:
                pytest.fail("the block was entered")
    assert log.take() == ["start a", "start b", "stop a"]
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/b",)


async def test_start_child_answers_with_an_error_when_its_supervisor_is_stopped_meanwhile() -> None:
    log = Log()
    log.next_starts("a", 60.0)
    async with gr.Runtime(top()) as runtime, anyio.create_task_group() as group:
        group.start_soon(stop_soon, runtime)
        with pytest.raises(gr.ActorStopped, match="is stopping"):
            await runtime.ref("top").start_child(log.child("a", shutdown=2.0))


async def test_a_child_that_finishes_its_start_within_its_shutdown_time_is_stopped_politely() -> None:
    log = Log()
    log.next_starts("b", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b", shutdown=2.0), log.child("c")))
    async with anyio.create_task_group() as group:
        group.start_soon(stop_soon, runtime)
        with pytest.raises(gr.StartFailed, match="a stop was requested"):
            async with runtime:
                pytest.fail("the block was entered")
    assert log.take() == ["start a", "start b", "stop b", "stop a"]


async def stop_soon(runtime: gr.Runtime) -> None:
    await settle()
    runtime.request_stop()


async def test_a_start_that_takes_too_long_fails_with_a_timeout_and_is_cancelled() -> None:
    log = Log()
    log.next_starts("a", 60.0)
    async with gr.Runtime(top()) as runtime:
        with pytest.raises(gr.StartFailed) as failure:
            await runtime.ref("top").start_child(log.child("a", start_timeout=3.0))
        cause = failure.value.__cause__
        assert isinstance(cause, gr.StartTimeout)
        assert (cause.child, cause.timeout) == ("top/a", 3.0)
        assert anyio.current_time() == 3.0
        assert await states(runtime.ref("top")) == {}


async def test_a_start_within_its_time_is_not_disturbed_by_it() -> None:
    log = Log()
    log.next_starts("a", 2.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", start_timeout=3.0))) as runtime:
        await anyio.sleep(10.0)
        assert await states(runtime.ref("sup")) == {"a": "running"}
        assert runtime.ref("sup/a").incarnation == 1


async def test_a_start_that_swallows_its_timeout_counts_as_failed_though_it_ends_well() -> None:
    class Stubborn(gr.Actor):
        async def on_start(self) -> None:
            with contextlib.suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep(60.0)

        async def on_stop(self, exit: gr.Exit) -> None:
            await anyio.sleep(1.0)

    async with gr.Runtime(top()) as runtime:
        with pytest.raises(gr.StartFailed) as failure:
            await runtime.ref("top").start_child(gr.Child("a", Stubborn, start_timeout=3.0))
        assert isinstance(failure.value.__cause__, gr.StartTimeout)
        assert anyio.current_time() == 4.0
        assert await states(runtime.ref("top")) == {}


async def test_a_child_that_crashes_while_a_later_one_starts_is_restarted_when_all_have_started() -> None:
    log = Log()
    log.next_starts("b", 2.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c")))
    async with anyio.create_task_group() as group:
        group.start_soon(crash_first, runtime)
        async with runtime:
            await settle()
            assert log.take() == ["start a", "start b", "die a", "start c", "start a"]


async def crash_first(runtime: gr.Runtime) -> None:
    await settle()
    await crash(runtime.ref("sup/a"))


# ------------------------------------------------------------------------------------------------ children at once


async def test_a_parallel_group_starts_at_once_and_its_supervisor_waits_for_all_of_it() -> None:
    log = Log()
    for name, seconds in {"b": 3.0, "c": 1.0}.items():
        log.next_starts(name, seconds)
    tree = gr.Supervisor("sup", log.child("a"), gr.Parallel(log.child("b"), log.child("c")), log.child("d"))
    async with gr.Runtime(tree):
        assert log.when("start c") == [0.0]
        assert log.when("start d") == [3.0]
        assert anyio.current_time() == 3.0
    assert log.take()[-4:] == ["stop d", "stop c", "stop b", "stop a"]


async def test_when_one_of_a_parallel_group_fails_the_others_are_stopped_with_the_rest() -> None:
    log = Log()
    log.next_starts("b", (2.0, Boom("boom")))
    log.next_starts("c", 3.0)
    tree = gr.Supervisor("sup", log.child("a"), gr.Parallel(log.child("b"), log.child("c")), log.child("d"))
    with pytest.raises(gr.StartFailed, match="sup/b"):
        async with gr.Runtime(tree):
            pytest.fail("the block was entered")
    first, *group, last_but_one, last = log.take()
    assert (first, sorted(group), last_but_one, last) == ("start a", ["fail b", "start c"], "stop c", "stop a")


async def test_supervisors_may_start_at_once_too() -> None:
    log = Log()
    for name in "ab":
        log.next_starts(name, 2.0)
    group = gr.Parallel(gr.Supervisor("x", log.child("a")), gr.Supervisor("y", log.child("b")))
    async with gr.Runtime(gr.Supervisor("sup", group)):
        assert anyio.current_time() == 2.0


def test_only_children_may_be_in_a_parallel_group() -> None:
    with pytest.raises(gr.BadSpec, match="Parallel"):
        gr.Parallel(Boomer)  # type: ignore[arg-type]
