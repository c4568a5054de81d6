"""Process children: messages, replies and errors pass between two interpreters as they would within one."""

from __future__ import annotations

import os
import re
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import greenroom as gr
from tests.isolation import workers
from tests.isolation.trees import WORKER, serving
from tests.isolation.workers import Described, Do, Echo, PlainPuppet, Puppet, Unknown, do


async def test_p25_async_handlers_run_in_a_process_of_their_own() -> None:
    async with serving() as service:
        assert await service.worker.ask(do(workers.pid)) != os.getpid()


async def test_p25_plain_handlers_run_in_a_process_of_their_own() -> None:
    async with serving(PlainPuppet) as service:
        assert await service.worker.ask(do(workers.pid)) != os.getpid()


async def test_the_worker_has_the_same_kind_of_event_loop(backend: str) -> None:
    async with serving() as service:
        assert await service.worker.ask(do(workers.loop_name)) == backend


async def test_p27_arguments_and_the_keywords_of_a_partial_arrive() -> None:
    factory = partial(partial(Described, (1, 2), colour="red"), b"x", size={"a": 1.5})
    async with serving(factory, None) as service:
        with pytest.raises(gr.Rejected) as refusal:
            await service.worker.ask(Unknown())
    assert refusal.value.args == (((1, 2), b"x", None), {"colour": "red", "size": {"a": 1.5}})


async def test_a_function_of_a_module_may_make_the_actor() -> None:
    async with serving(workers.made_by_a_function, "mine") as service:
        with pytest.raises(gr.Rejected) as refusal:
            await service.worker.ask(Unknown())
    assert refusal.value.args == ((), {"label": "mine"})


async def test_messages_and_replies_keep_their_values_and_types() -> None:
    value = {"a": (1, 2.5, None, b"\x00", {3, 4}), "b": [Echo("inner"), Path("x")]}
    async with serving() as service:
        assert await service.worker.ask(Echo(value)) == value


async def test_messages_of_many_megabytes_pass_both_ways() -> None:
    value = "x" * 5_000_000
    async with serving() as service:
        assert await service.worker.ask(Echo(value), timeout=None) == value


async def test_messages_are_handled_in_the_order_they_were_told() -> None:
    async with serving() as service:
        for number in range(100):
            service.worker.tell(workers.Heard(number))
        assert await service.worker.ask(do(workers.kept)) == list(range(100))


async def test_what_the_actor_logs_goes_to_stderr_with_its_path(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.log_a_warning, "look out"))
    assert re.search(r"WARNING \[service/worker\] tests\.worker: look out", capfd.readouterr().err)


async def test_what_the_actor_prints_goes_where_the_parent_prints(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.print_to_both, "hello from far away"))
    assert capfd.readouterr() == ("hello from far away\n", "hello from far away\n")


# ---------------------------------------------------------------------------------------------- what cannot travel


UNENCODABLE = Echo(threading.Lock())


async def test_p28_a_message_that_cannot_be_encoded_is_refused_at_the_call() -> None:
    async with serving() as service:
        ref = service.worker
        with pytest.raises(gr.NotEncodable, match=r"Echo\.value.*lock"):
            ref.tell(UNENCODABLE)
        for call in (ref.send(UNENCODABLE), ref.ask(UNENCODABLE), ref.ask(UNENCODABLE, timeout=None)):
            with pytest.raises(gr.NotEncodable, match=r"Echo\.value.*lock"):
                await call
        assert await ref.ask(Echo("alive")) == "alive"


async def test_p28_a_child_that_is_given_another_isolation_takes_every_message_again() -> None:
    async with serving(restart="permanent") as service:
        supervisor = service.runtime.ref("service")
        await supervisor.replace_childspec(gr.Child("worker", Puppet))
        await supervisor.terminate_child("worker")
        await supervisor.restart_child("worker")
        assert await service.worker.ask(UNENCODABLE) is UNENCODABLE.value


async def test_p28_a_sender_that_waits_for_room_is_refused_before_it_waits(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    async with serving(PlainPuppet, mailbox=gr.Mailbox(capacity=1)) as service:
        service.worker.tell(do(workers.block_until_told, pipe))
        while service.runtime.tree().find(WORKER).message_type is None:  # type: ignore[union-attr]
            await anyio.lowlevel.checkpoint()
        service.worker.tell(Unknown())
        with pytest.raises(gr.NotEncodable):
            await service.worker.send(UNENCODABLE)
        await anyio.to_thread.run_sync(Path(pipe).write_text, "go on")


async def test_p28_a_reply_that_cannot_be_encoded_is_an_error_for_the_asker_and_spares_the_actor() -> None:
    async with serving() as service:
        before = await service.worker.ask(do(workers.pid))
        with pytest.raises(gr.NotEncodable, match="lock"):
            await service.worker.ask(do(workers.unencodable))
        assert await service.worker.ask(do(workers.pid)) == before


async def test_p28_a_result_that_nobody_asked_for_need_not_be_encodable() -> None:
    async with serving() as service:
        service.worker.tell(do(workers.unencodable))
        assert await service.worker.ask(Echo("alive")) == "alive"
        assert service.runtime.dead_letter_counts() == {}


async def test_p28_a_start_info_that_cannot_be_encoded_is_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed) as failure:
        async with serving(partial(Puppet, on_start=do(workers.unencodable))):
            pytest.fail("the tree has started")
    assert isinstance(failure.value.__cause__, gr.StartFailed | gr.NotEncodable)
    assert "lock" in str(failure.value)


# ------------------------------------------------------------------------------------------------- words of handlers


async def test_p20_what_on_start_returns_is_the_start_info() -> None:
    child = gr.Child("d", partial(Puppet, on_start=do(workers.incarnation)), isolation="process")
    async with gr.Runtime(gr.Supervisor("service", gr.DynamicSupervisor("pool", child))) as runtime:
        started = await runtime.ref("service/pool").start_child()
        assert started.info == 1


async def test_p20_ignore_at_the_start_leaves_the_child_down() -> None:
    async with serving(partial(Puppet, on_start=do(workers.ignore)), restart="transient") as service:
        node = service.runtime.tree().find(WORKER)
        assert node is not None
        assert (node.state, node.last_error) == (gr.State.DOWN, None)


async def test_p20_rejected_reaches_the_asker_as_raised_with_its_fields() -> None:
    async with serving() as service:
        with pytest.raises(workers.TooSmall) as refusal:
            await service.worker.ask(do(workers.refuse, 7))
        assert (str(refusal.value), refusal.value.wanted) == ("I want 7", 7)
        assert await service.worker.ask(Echo("alive")) == "alive"


async def test_p20_rejected_with_what_cannot_be_encoded_is_told_in_text() -> None:
    async with serving() as service:
        with pytest.raises(gr.Rejected, match=r"no.*lock"):
            await service.worker.ask(do(workers.refuse_with_the_unencodable))


async def test_p20_a_rejected_tell_is_a_dead_letter() -> None:
    async with serving() as service:
        service.worker.tell(do(workers.refuse, 7))
        await service.worker.ask(Echo("and then"))
        assert service.runtime.dead_letter_counts() == {(WORKER, gr.DeadLetterReason.REJECTED): 1}


async def test_p20_stop_is_a_normal_end() -> None:
    async with serving() as service:
        with pytest.raises(gr.ActorStopped, match="stopped itself"):
            await service.worker.ask(do(workers.stop_by_exception))
        assert await service.ended() == gr.Exit("normal")


async def test_an_ask_that_nobody_handles_names_what_is_handled() -> None:
    async with serving() as service:
        with pytest.raises(gr.UnhandledMessage) as error:
            await service.worker.ask(Unknown())
        assert error.value.handles == ("Do", "Echo", "Heard", "Terminated")


async def test_a_tell_that_nobody_handles_is_a_dead_letter() -> None:
    async with serving() as service:
        service.worker.tell(Unknown())
        await service.worker.ask(Echo("and then"))
        assert service.runtime.dead_letter_counts() == {(WORKER, gr.DeadLetterReason.UNHANDLED): 1}


# ----------------------------------------------------------------------------------------------------- for people


async def test_p29_the_tree_shows_the_message_in_hand(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    replies: list[Any] = []

    async def ask_it(ref: gr.Ref) -> None:
        replies.append(await ref.ask(do(workers.block_until_told, pipe), timeout=None))

    async with serving(PlainPuppet) as service, anyio.create_task_group() as group:
        group.start_soon(ask_it, service.worker)
        while (node := service.runtime.tree().find(WORKER)) is None or node.message_type is None:
            await anyio.lowlevel.checkpoint()
        assert node.message_type == Do.__name__
        await anyio.to_thread.run_sync(Path(pipe).write_text, "go on")
    assert replies == ["go on"]


async def test_an_event_names_the_process() -> None:
    child = gr.Child("d", Puppet, isolation="process")
    async with gr.Runtime(gr.Supervisor("service", gr.DynamicSupervisor("pool", child))) as runtime:
        events = runtime.events()
        ref = await runtime.ref("service/pool").start_child()
        started = [event for event in events.pending() if isinstance(event, gr.ProcessStarted)]
        assert [event.path for event in started] == ["service/pool/1"]
        assert started[0].pid == await ref.ask(do(workers.pid))


@pytest.mark.real_time
async def test_the_reply_to_an_asker_that_has_given_up_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    async with serving(PlainPuppet) as service:
        with pytest.raises(gr.AskTimeout):
            await service.worker.ask(do(workers.block_until_told, pipe), timeout=0.05)
        await anyio.to_thread.run_sync(Path(pipe).write_text, "too late")
        assert await service.worker.ask(do(workers.incarnation)) == 1
