"""Calls that come at a bad moment: none of them hangs. Behaviour 109."""

from __future__ import annotations

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.calls import CALLS, SLOW, Renamed, assert_says, failure_of
from tests.conformance.probes import End, Log, below_top, crash, settle, states
from tests.conformance.witnesses import Watcher, released


def with_one_down(log: Log, **options: object) -> gr.Supervisor:
    return gr.Supervisor("sup", log.child("a"), log.child("down"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_succeeds_on_a_supervisor_that_is_well(call: str) -> None:
    log = Log()
    async with gr.Runtime(with_one_down(log)) as runtime:
        await runtime.ref("sup").terminate_child("down")
        assert await failure_of(call, runtime.ref("sup"), log) is None


@pytest.mark.parametrize("call", CALLS)
async def test_otp_109_a_call_that_is_queued_when_the_supervisor_is_told_to_stop_gets_an_error(call: str) -> None:
    log, failures = Log(), list[BaseException | None]()
    sup = with_one_down(log, restart="temporary")
    async with below_top(sup) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("top/sup")
        await ref.terminate_child("down")
        log.take()

        async def ask() -> None:
            failures.append(await failure_of(call, ref, log))

        with released() as started:
            log.next_starts("slow", started)
            group.start_soon(failure_of, "start_child", runtime.ref("top/sup"), Renamed(log, "slow"))
            await settle()
            group.start_soon(ask)
            await settle()
            assert failures == []
            group.start_soon(runtime.ref("top").terminate_child, "sup")
            await settle()
            # The slow start still goes on: the error comes without waiting for it.
            (failure,) = failures
            assert isinstance(failure, gr.ActorStopped)
            assert_says(failure, "'top/sup'", "stopping")
        await settle()
        assert "start new" not in log.entries
        assert "start down" not in log.entries


@pytest.mark.parametrize("call", CALLS)
async def test_otp_109_a_call_that_comes_while_the_supervisor_stops_gets_an_error_at_once(call: str) -> None:
    log = Log()
    async with below_top(with_one_down(log, restart="temporary")) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("top/sup")
        await ref.terminate_child("down")
        with released() as stopped:
            log.next_stops("a", stopped)
            group.start_soon(runtime.ref("top").terminate_child, "sup")
            await settle()
            log.take()
            with anyio.fail_after(0):
                failure = await failure_of(call, ref, log)
            assert isinstance(failure, gr.ActorStopped)
            assert_says(failure, "'top/sup'", "stopping")
        await settle()
        assert log.take() == []


@pytest.mark.parametrize("call", CALLS)
async def test_otp_109_a_call_that_comes_while_the_supervisor_gives_up_gets_an_error_at_once(call: str) -> None:
    log = Log()
    async with below_top(with_one_down(log, restart="temporary", intensity=0)) as runtime:
        ref = runtime.ref("top/sup")
        await ref.start_child(log.child("doomed"))
        await ref.terminate_child("down")
        with released() as stopped:
            log.next_stops("a", stopped)
            await crash(runtime.ref("top/sup/doomed"))
            log.take()
            with anyio.fail_after(0):
                failure = await failure_of(call, ref, log)
            assert isinstance(failure, gr.ActorStopped)
            assert_says(failure, "'top/sup'")
        await settle()
        assert log.take() == []


@pytest.mark.parametrize("call", CALLS)
async def test_otp_109_a_call_that_is_queued_behind_the_crash_that_is_one_too_many_gets_an_error(call: str) -> None:
    log, failures = Log(), list[BaseException | None]()
    sup = with_one_down(log, restart="temporary", intensity=0)
    async with below_top(sup) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("top/sup")
        await ref.start_child(log.child("doomed"))
        await ref.terminate_child("down")

        async def ask() -> None:
            failures.append(await failure_of(call, ref, log))

        with released() as started:
            log.next_starts("slow", started)
            group.start_soon(failure_of, "start_child", ref, Renamed(log, "slow"))
            await settle()
            await crash(runtime.ref("top/sup/doomed"))
            group.start_soon(ask)
            await settle()
            assert failures == []
        await settle()
        (failure,) = failures
        assert isinstance(failure, gr.ActorStopped)
        assert "start new" not in log.entries


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_to_a_supervisor_that_has_ended_gets_an_error_that_tells_how(call: str) -> None:
    log = Log()
    async with below_top(with_one_down(log, restart="temporary")) as runtime:
        ref = runtime.ref("top/sup")
        await runtime.ref("top").terminate_child("sup")
        failure = await failure_of(call, ref, log)
        assert isinstance(failure, gr.ActorStopped)
        assert_says(failure, "'top/sup'", "ended (shutdown)")


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_to_a_supervisor_that_waits_for_its_own_restart_gets_an_error_at_once(call: str) -> None:
    log = Log()
    sup = with_one_down(log, intensity=0)
    async with gr.Runtime(gr.Supervisor("top", sup, backoff=SLOW)) as runtime:
        await crash(runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top")) == {"sup": "restarting"}
        failure = await failure_of(call, runtime.ref("top/sup"), log)
        assert isinstance(failure, gr.ActorStopped)
        assert_says(failure, "'top/sup'", "ended (shutdown")


async def test_the_ref_of_a_supervisor_that_was_restarted_reaches_its_next_incarnation() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("top", with_one_down(log, intensity=0))) as runtime:
        ref = runtime.ref("top/sup")
        await crash(runtime.ref("top/sup/a"))
        assert ref.incarnation == 2
        assert await states(ref) == {"a": "running", "down": "running"}


async def test_a_start_that_is_under_way_when_the_supervisor_is_told_to_stop_gets_an_error() -> None:
    log, failures = Log(), list[BaseException | None]()
    async with below_top(with_one_down(log, restart="temporary")) as runtime, anyio.create_task_group() as group:

        async def ask() -> None:
            failures.append(await failure_of("start_child", runtime.ref("top/sup"), log))

        with released() as started:
            log.next_starts("new", started)
            group.start_soon(ask)
            await settle()
            group.start_soon(runtime.ref("top").terminate_child, "sup")
            await settle()
            assert [type(failure) for failure in failures] == [gr.ActorStopped]
        await settle()
        assert await states(runtime.ref("top")) == {}


async def test_a_caller_that_is_cancelled_while_it_waits_leaves_the_supervisor_well() -> None:
    log = Log()
    log.next_starts("new", 10.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with anyio.move_on_after(1.0) as scope:
            await runtime.ref("sup").start_child(log.child("new"))
        assert scope.cancelled_caught
        assert await states(runtime.ref("sup")) == {"a": "running", "new": "running"}


async def test_a_child_that_calls_its_own_supervisor_from_its_start_is_told_that_it_would_wait_for_ever() -> None:
    @attrs.frozen
    class Why(gr.Message[str]):
        pass

    class Curious(gr.Actor):
        async def on_start(self) -> None:
            self.why = ""
            try:
                await self.context.runtime.ref("sup").which_children()
            except gr.WouldDeadlock as error:
                self.why = str(error)

        @gr.handles
        async def tell_why(self, _message: Why) -> str:
            return self.why

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("curious", Curious))) as runtime:
        why = await runtime.ref("sup/curious").ask(Why())
    for part in ("'sup/curious'", "'sup'", "which_children", "on_start"):
        assert part in why


async def test_a_child_may_call_its_own_supervisor_from_a_handler() -> None:
    class Foreman(gr.Actor):
        @gr.handles
        async def hire(self, message: End) -> None:
            await self.context.runtime.ref("sup").start_child(gr.Child("hired", Watcher, []))

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("foreman", Foreman))) as runtime:
        await runtime.ref("sup/foreman").ask(End())
        assert await states(runtime.ref("sup")) == {"foreman": "running", "hired": "running"}
