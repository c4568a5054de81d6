"""Process children: request, SIGTERM, SIGKILL of the process group; `killed` is said of what has been waited for."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import anyio
import pytest

import greenroom as gr
from tests.isolation import workers
from tests.isolation.trees import WORKER, Grip, Service, serving
from tests.isolation.workers import Do, PlainPuppet, Puppet, do

pytestmark = pytest.mark.real_time


async def give_up_on(ref: gr.Ref, message: Do) -> None:
    """Ask, whatever comes of it."""
    with pytest.raises(gr.GreenroomError):
        await ref.ask(message, timeout=None)


def is_gone(pid: int) -> bool:
    """No process of this number is left, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def stop(service: Service) -> gr.ShutdownReport:
    return await service.runtime.stop()


# ---------------------------------------------------------------------------------------------------- stage 1: asked


async def test_p06_an_idle_worker_ends_on_request_after_on_stop() -> None:
    async with serving(partial(Puppet, on_stop=do(workers.tell_that_it_stops))) as service:
        pid = await service.worker.ask(do(workers.pid))
        report = await stop(service)
        assert service.heard == ["stopped"]
    assert report.clean
    assert WORKER in report.stopped
    assert is_gone(pid)


async def test_a_stop_waits_for_the_message_in_hand(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    replies: list[str] = []

    async def ask_it(ref: gr.Ref) -> None:
        replies.append(await ref.ask(do(workers.block_until_told, pipe), timeout=None))

    async with serving(PlainPuppet) as service, anyio.create_task_group() as group:
        group.start_soon(ask_it, service.worker)
        write = await anyio.to_thread.run_sync(Path(pipe).open, "w")  # opens when the handler has
        service.runtime.request_stop()
        await anyio.to_thread.run_sync(write.write, "go on")
        write.close()
    assert replies == ["go on"]
    assert service.runtime.report is not None
    assert service.runtime.report.clean


async def test_an_on_stop_that_fails_is_the_exit() -> None:
    async with serving(partial(Puppet, on_stop=do(workers.fail, "not so fast"))) as service:
        events = service.runtime.events()
        await stop(service)
        exits = [e.exit for e in events.pending() if isinstance(e, gr.ActorEnded) and e.path == WORKER]
    assert [str(exit) for exit in exits] == ["error: RemoteError: ValueError: not so fast"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_that_comes_when_the_actor_has_ended_is_too_late_to_matter(
    capfd: pytest.CaptureFixture[str], number: int
) -> None:
    async with serving(partial(Puppet, on_stop=do(workers.signal_self_on_the_way_out, number))) as service:
        report = await stop(service)
    assert report.clean
    assert WORKER in report.stopped
    assert capfd.readouterr().err == ""


# ------------------------------------------------------------------------------------------------ stage 2: cancelled


@pytest.mark.parametrize(("factory", "work"), [(Puppet, workers.wait_for_ever), (PlainPuppet, workers.block)])
async def test_p06_sigterm_interrupts_the_message_in_hand_and_on_stop_still_runs(
    factory: type[gr.Actor], work: object
) -> None:
    stopping = do(workers.tell_that_it_stops)
    async with serving(partial(factory, on_stop=stopping), shutdown=0.1) as service, anyio.create_task_group() as group:
        group.start_soon(give_up_on, service.worker, do(work, service.witness))  # type: ignore[arg-type]
        await service.hears("waiting")
        report = await stop(service)
        assert service.heard == ["waiting", "interrupted", "stopped"]
    assert report.killed == (WORKER,)


async def test_an_asker_whose_message_was_broken_off_is_told_that_the_actor_was_stopped() -> None:
    async def ask_it(ref: gr.Ref, message: Do) -> None:
        with pytest.raises(gr.ActorCrashed, match="was stopped while it handled a Do"):
            await ref.ask(message, timeout=None)

    async with serving(shutdown=0.1) as service, anyio.create_task_group() as group:
        group.start_soon(ask_it, service.worker, do(workers.wait_for_ever, service.witness))
        await service.hears("waiting")
        await stop(service)


async def test_p16_an_idle_worker_that_is_cancelled_still_runs_on_stop(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    async with serving(partial(Puppet, on_stop=do(workers.leave_a_trace, trace))) as service:
        service.runtime.request_stop()
        service.runtime.request_stop()
        report = await stop(service)
    assert trace.read_text() == "on_stop"
    assert report.killed == (WORKER,)


async def test_p13_a_child_that_is_still_starting_is_told_to_end_too() -> None:
    heard: list[object] = []
    changed: list[anyio.Event] = [anyio.Event()]
    witness = gr.Child("witness", workers.Witness, heard, changed)
    starting = gr.Child("d", partial(Puppet, on_start=do(workers.wait_by_name)), isolation="process", shutdown=0.1)
    tree = gr.Supervisor("service", witness, gr.DynamicSupervisor("pool", starting))
    async with gr.Runtime(tree, kill_time=60) as runtime, anyio.create_task_group() as group:
        group.start_soon(start_in_vain, runtime.ref("service/pool"))
        await changed[0].wait()
        report = await runtime.stop()
    assert heard == ["waiting", "interrupted"]
    assert report.killed == ("service/pool/1",)


async def start_in_vain(pool: gr.Ref) -> None:
    with pytest.raises(gr.GreenroomError):
        await pool.start_child()


# --------------------------------------------------------------------------------------------------- stage 3: killed


async def test_p06_a_worker_that_ignores_sigterm_is_killed_with_what_it_has_forked(tmp_path: Path) -> None:
    grip = Grip(tmp_path)
    async with serving(PlainPuppet, shutdown=0.1, kill_time=0.2) as service, anyio.create_task_group() as group:
        pid = await service.worker.ask(do(workers.pid))
        await service.worker.ask(do(workers.fork_stubborn, grip.path))
        await grip.held()
        group.start_soon(give_up_on, service.worker, do(workers.hang, service.witness))
        await service.hears("waiting")
        events = service.runtime.events()
        report = await stop(service)
        assert is_gone(pid)
        await grip.released()
        exits = [e.exit for e in events.pending() if isinstance(e, gr.ActorEnded) and e.path == WORKER]
    assert report.killed == (WORKER,)
    assert [exit.kind for exit in exits] == ["killed"]
    assert "was killed by SIGKILL: it had not ended when it was told to" in str(exits[0].cause)


async def test_p06_killed_is_said_only_of_what_has_been_waited_for() -> None:
    async with serving(PlainPuppet, shutdown="kill") as service, anyio.create_task_group() as group:
        pid = await service.worker.ask(do(workers.pid))
        group.start_soon(give_up_on, service.worker, do(workers.hang, service.witness))
        await service.hears("waiting")
        service.runtime.request_stop()
        exit = await service.ended()
        assert is_gone(pid)
    assert exit.kind == "killed"


async def test_p08_shutdown_kill_gives_no_on_stop() -> None:
    async with serving(partial(Puppet, on_stop=do(workers.tell_that_it_stops)), shutdown="kill") as service:
        report = await stop(service)
        assert service.heard == []
    assert report.killed == (WORKER,)


async def test_p06_an_on_stop_that_hangs_is_told_to_end_and_killed() -> None:
    child = partial(PlainPuppet, on_stop=do(workers.wait_to_be_killed))
    async with serving(child, shutdown=0.1, kill_time=0.2) as service:
        report = await stop(service)
    assert report.killed == (WORKER,)


async def test_p06_an_on_stop_that_takes_too_long_is_interrupted_first() -> None:
    child = partial(PlainPuppet, on_stop=do(workers.block_by_name))
    async with serving(child, shutdown=0.2, kill_time=60) as service:
        report = await stop(service)
        assert service.heard == ["waiting", "interrupted"]
    assert report.killed == (WORKER,)


async def test_p06_the_third_stage_kills_at_once_whatever_the_times() -> None:
    async with serving(PlainPuppet, shutdown=None, kill_time=60) as service, anyio.create_task_group() as group:
        group.start_soon(give_up_on, service.worker, do(workers.hang, service.witness))
        await service.hears("waiting")
        for _ in range(3):
            service.runtime.request_stop()
        report = await stop(service)
    assert report.killed == (WORKER,)


async def test_p06_code_that_holds_the_interpreter_is_killed(tmp_path: Path) -> None:
    grip = Grip(tmp_path)
    async with serving(PlainPuppet, shutdown=0.1, kill_time=0.1) as service, anyio.create_task_group() as group:
        group.start_soon(give_up_on, service.worker, do(workers.hold_the_interpreter, grip.path))
        await grip.held()
        report = await stop(service)
        await grip.released()
    assert report.killed == (WORKER,)


# ------------------------------------------------------------------------------------------------- the process group


@pytest.mark.parametrize(
    "end", [do(workers.fail, "crash"), do(workers.leave_at_once, 3), do(workers.stop_by_exception)], ids=str
)
async def test_p06_what_a_worker_has_forked_goes_with_it_however_it_ends(end: Do, tmp_path: Path) -> None:
    grip = Grip(tmp_path)
    async with serving() as service:
        await service.worker.ask(do(workers.fork_stubborn, grip.path))
        await grip.held()
        await give_up_on(service.worker, end)
        await grip.released()
