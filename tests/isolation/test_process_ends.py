"""Process children: however a worker ends, the exit says what it was."""

from __future__ import annotations

import os
import signal
from functools import partial

import anyio
import pytest

import greenroom as gr
from tests.isolation import workers
from tests.isolation.trees import WORKER, serving
from tests.isolation.workers import Do, Echo, Heard, PlainPuppet, Puppet, do


async def crash_of(ref: gr.Ref, message: Do) -> gr.ActorCrashed:
    """What an asker gets whose message ends the worker."""
    with pytest.raises(gr.ActorCrashed) as crash:
        await ref.ask(message, timeout=None)
    return crash.value


# ---------------------------------------------------------------------------------------------------- by exceptions


async def test_p27_an_exception_is_an_error_exit_that_tells_its_type_text_and_traceback() -> None:
    async with serving() as service:
        await crash_of(service.worker, do(workers.fail, "too bad"))
        exit = await service.ended()
    assert exit.kind == "error"
    assert isinstance(exit.cause, gr.RemoteError)
    assert (exit.cause.type_name, exit.cause.text) == ("ValueError", "too bad")
    assert "in fail" in exit.cause.trace


async def test_the_asker_of_a_crash_gets_its_cause() -> None:
    async with serving() as service:
        crash = await crash_of(service.worker, do(workers.fail, "too bad"))
    assert crash.message_type == "Do"
    assert isinstance(crash.__cause__, gr.RemoteError)
    assert str(crash.__cause__) == "ValueError: too bad"


async def test_p15_a_group_of_one_exception_is_unwrapped() -> None:
    async with serving() as service:
        crash = await crash_of(service.worker, do(workers.fail_in_a_group, "alone"))
    assert str(crash.__cause__) == "ValueError: alone"


async def test_p15_a_group_of_several_exceptions_stays_together() -> None:
    async with serving() as service:
        crash = await crash_of(service.worker, do(workers.fail_in_a_group, "one", "two"))
    assert isinstance(crash.__cause__, gr.RemoteError)
    assert [member.text for member in crash.__cause__.members] == ["one", "two"]


async def test_an_error_of_ours_that_a_handler_lets_out_is_a_crash_too() -> None:
    async with serving() as service:
        crash = await crash_of(service.worker, do(workers.tell_the_unencodable, service.witness))
        exit = await service.ended()
    assert isinstance(crash.__cause__, gr.NotEncodable)
    assert exit.cause is crash.__cause__
    assert any("in tell_the_unencodable" in note for note in crash.__cause__.__notes__)


async def test_a_crash_is_not_printed_by_the_worker(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(restart="temporary") as service:
        await crash_of(service.worker, do(workers.fail, "too bad"))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("factory", [Puppet, PlainPuppet])
async def test_p15_sys_exit_is_an_error_exit_of_the_child_alone(factory: type[gr.Actor]) -> None:
    async with serving(factory) as service:
        await crash_of(service.worker, do(workers.leave, 3))
        exit = await service.ended()
        assert await service.witness.ask(Heard("the tree lives")) == 1
    assert exit.kind == "error"
    assert isinstance(exit.cause, gr.WorkerDied)
    assert "ended itself by sys.exit(3)" in str(exit.cause)


async def test_p15_sys_exit_out_of_a_task_of_the_actor_is_its_exit_too() -> None:
    async with serving() as service:
        await crash_of(service.worker, do(workers.leave_from_a_task, 3))
        exit = await service.ended()
    assert exit.kind == "error"
    assert "ended itself by sys.exit(3)" in str(exit.cause)


async def test_a_memory_limit_makes_a_memory_error_of_what_is_too_much() -> None:
    async with serving(memory_limit=400_000_000) as service:
        crash = await crash_of(service.worker, do(workers.fill_memory))
        exit = await service.ended()
    assert isinstance(crash.__cause__, gr.RemoteError)
    assert crash.__cause__.type_name == "MemoryError"
    assert exit.kind == "error"


# ------------------------------------------------------------------------------------------ by the operating system


@pytest.mark.parametrize("status", [0, 3])
async def test_p27_an_end_by_exit_status_is_an_error_exit_that_names_it(status: int) -> None:
    async with serving() as service:
        crash = await crash_of(service.worker, do(workers.leave_at_once, status))
        exit = await service.ended()
    assert exit.kind == "error"
    assert isinstance(exit.cause, gr.WorkerDied)
    assert exit.cause is crash.__cause__
    assert f"ended by itself with exit status {status}" in str(exit.cause)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_p27_death_by_a_signal_is_a_killed_exit_that_names_it(number: signal.Signals) -> None:
    async with serving() as service:
        await crash_of(service.worker, do(workers.signal_self, int(number)))
        exit = await service.ended()
    assert exit.kind == "killed"
    assert isinstance(exit.cause, gr.WorkerDied)
    assert str(exit.cause) == f"the worker process of 'service/worker' was killed by {number.name}"


async def test_p27_an_idle_worker_that_is_killed_is_found_out() -> None:
    async with serving() as service:
        os.kill(await service.worker.ask(do(workers.pid)), signal.SIGKILL)
        exit = await service.ended()
    assert exit.kind == "killed"
    assert "was killed by SIGKILL" in str(exit.cause)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_p27_an_idle_worker_that_somebody_tells_to_end_runs_on_stop_and_ends(number: signal.Signals) -> None:
    async with serving(partial(Puppet, on_stop=do(workers.tell_that_it_stops))) as service:
        os.kill(await service.worker.ask(do(workers.pid)), number)
        exit = await service.ended()
        assert service.heard == ["stopped"]
    assert exit.kind == "killed"
    assert f"was told to end by {number.name}" in str(exit.cause)


@pytest.mark.parametrize(("factory", "work"), [(Puppet, workers.wait_for_ever), (PlainPuppet, workers.block)])
async def test_p27_a_worker_that_somebody_tells_to_end_breaks_off_the_message_in_hand(
    factory: type[gr.Actor], work: object
) -> None:
    async with serving(factory) as service, anyio.create_task_group() as group:
        pid = await service.worker.ask(do(workers.pid))
        group.start_soon(crash_of, service.worker, do(work, service.witness))  # type: ignore[arg-type]
        await service.hears("waiting")
        os.kill(pid, signal.SIGTERM)
        exit = await service.ended()
        assert service.heard == ["waiting", "interrupted"]
    assert exit.kind == "killed"
    assert "was told to end by SIGTERM" in str(exit.cause)


@pytest.mark.real_time
async def test_a_worker_that_closes_its_wire_is_killed() -> None:
    async with serving() as service:
        await crash_of(service.worker, do(workers.close_the_wire))
        exit = await service.ended()
    assert exit.kind == "killed"
    assert "it had closed its end of the wire" in str(exit.cause)


async def test_an_os_signal_cuts_no_message_in_two() -> None:
    stopping = do(workers.tell_that_it_stops)
    async with serving(partial(PlainPuppet, on_stop=stopping)) as service, anyio.create_task_group() as group:
        pid = await service.worker.ask(do(workers.pid))
        group.start_soon(crash_of, service.worker, do(workers.flood, service.witness))
        await service.hears("waiting")
        os.kill(pid, signal.SIGTERM)
        exit = await service.ended()
        assert service.heard[-1] == "stopped"
    assert "was told to end by SIGTERM" in str(exit.cause)


# ----------------------------------------------------------------------------------------------------- failed starts


async def test_an_exception_in_on_start_is_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed, match="not today"):
        async with serving(partial(Puppet, on_start=do(workers.fail, "not today"))):
            pytest.fail("the tree has started")


async def test_an_exception_in_the_constructor_is_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed, match="unexpected keyword"):
        async with serving(partial(workers.made_with, nonsense=1)):
            pytest.fail("the tree has started")


async def test_a_memory_limit_that_is_too_low_to_start_with_is_a_failed_start() -> None:
    # What gives out first is chance: a MemoryError, or an import that it breaks.
    with pytest.raises(gr.StartFailed):
        async with serving(partial(Puppet, on_start=do(workers.fill_memory)), memory_limit=1_000_000):
            pytest.fail("the tree has started")


async def test_concurrent_handlers_that_only_the_worker_finds_are_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed, match="one message at a time"):
        async with serving(workers.make_crowded):
            pytest.fail("the tree has started")


async def test_a_worker_that_dies_in_its_start_is_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed, match="exit status 4"):
        async with serving(partial(Puppet, on_start=do(workers.leave_at_once, 4))):
            pytest.fail("the tree has started")


@pytest.mark.real_time
async def test_a_start_that_takes_too_long_is_ended() -> None:
    hanging = partial(Puppet, on_start=do(workers.wait_to_be_killed))
    with pytest.raises(gr.StartFailed) as failure:
        async with serving(hanging, start_timeout=0.5, kill_time=0.3):
            pytest.fail("the tree has started")
    assert isinstance(failure.value.__cause__, gr.StartTimeout)


# ---------------------------------------------------------------------------------------------------------- restarts


async def test_p18_messages_that_were_queued_at_the_crash_are_handled_by_the_next_incarnation() -> None:
    async with serving(restart="permanent") as service:
        service.worker.tell(do(workers.leave_at_once, 1))
        service.worker.tell(Heard("queued"))
        assert await service.worker.ask(do(workers.kept)) == ["queued"]
        assert await service.worker.ask(do(workers.incarnation)) == 2


async def test_an_idle_worker_that_was_killed_is_restarted_in_another_process() -> None:
    async with serving(restart="permanent") as service:
        first = await service.worker.ask(do(workers.pid))
        os.kill(first, signal.SIGKILL)
        await service.ended()
        second = await service.worker.ask(do(workers.pid))
        assert first != second
        node = service.runtime.tree().find(WORKER)
        assert node is not None
        assert node.restarts == 1


async def test_p28_a_message_is_still_refused_between_two_incarnations() -> None:
    async with serving(restart="permanent", backoff=gr.Backoff(60, jitter=0)) as service:
        await crash_of(service.worker, do(workers.fail, "too bad"))
        await service.ended()
        with pytest.raises(gr.NotEncodable):
            service.worker.tell(Echo(signal.getsignal))


# ----------------------------------------------------------------------------------------------------------- on_stop


async def test_on_stop_after_a_crash_gets_the_exception_itself() -> None:
    child = partial(Puppet, on_stop=do(workers.tell_the_exit))
    async with serving(child) as service:
        await crash_of(service.worker, do(workers.fail, "too bad"))
        await service.ended()
        assert service.heard == [("error", "ValueError")]
