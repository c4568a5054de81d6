"""Messages that vanished, and askers that nobody answered."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Do, Hold, Puppet


@attrs.frozen
class Job(gr.Message[int]):
    number: int


class Unreadable(gr.Message[str]):
    """Says what it is only where it was made, as proxies do."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class here")


async def test_a_message_taken_when_the_nursery_has_just_failed_is_for_the_next_incarnation() -> None:
    """It was lost, with its asker: the closed nursery refused its concurrent handler, in a message loop yet to be cancelled."""
    done: list[int] = []

    class Worker(gr.Actor):
        async def on_start(self) -> None:
            if self.context.incarnation == 1:
                self.context.nursery.start_soon(self.fail)

        async def fail(self) -> None:
            await anyio.sleep(1)
            self.context.ref.tell(Job(1))
            raise ValueError("in the nursery")

        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> int:
            done.append(message.number)
            return message.number

    async with gr.Runtime(gr.Supervisor("app", gr.Child("worker", Worker))) as runtime:
        await anyio.sleep(2)
        assert runtime.ref("app/worker").incarnation == 2
    assert done == [1]


async def test_the_asker_of_a_message_that_cannot_be_dispatched_is_told_of_the_crash() -> None:
    """It waited for its timeout, or for ever."""
    async with gr.Runtime(gr.Supervisor("app", gr.Child("puppet", Puppet))) as runtime:
        with pytest.raises(gr.ActorCrashed) as crashed:
            await runtime.ref("app/puppet").ask(Unreadable(), timeout=None)
        assert str(crashed.value.__cause__) == "no class here"


@pytest.mark.backends("asyncio")
async def test_a_reply_that_nobody_awaits_any_more_is_no_noise_on_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    """An asker natively cancelled in the step in which it had got room and was refused left "exception was never retrieved"."""
    asker: list[asyncio.Task[Any]] = []

    async def pass_by(_self: Puppet) -> None:
        """Leave room, in the same step in which what waits for it is handled."""

    async def refuse(_self: Puppet) -> None:
        asker[0].cancel()
        raise gr.Rejected("no")

    async with gr.Runtime(gr.Supervisor("app", gr.Child("puppet", Puppet, mailbox=gr.Mailbox(1)))) as runtime:
        puppet = runtime.ref("app/puppet")
        hold = Hold()
        puppet.tell(hold)
        await hold.begun.wait()
        puppet.tell(Do(pass_by))
        asker.append(asyncio.create_task(puppet.ask(Do(refuse))))
        await anyio.sleep(1)  # it waits for room
        hold.until.set()
        with pytest.raises(asyncio.CancelledError):
            await asker[0]
    asker.clear()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
