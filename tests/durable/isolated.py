"""Desks on threads and in processes. Workers import this module: it must not import pytest."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pykka
from attrs import frozen

import greenroom as gr


@frozen
class Line(gr.Message[int]):
    """Write this into the desk's file; the reply is how many lines it has."""

    text: str


@frozen
class Forward(gr.Message[str]):
    """Send a line to another desk, as told, and reply what became of it."""

    to: gr.Ref
    text: str
    message_id: str


@frozen
class Whoami(gr.Message[tuple[int, str]]):
    """The process and the thread that handle this."""


@frozen
class Decline(gr.Message[int]):
    """The desk rejects it."""


@frozen
class Await(gr.Message[str]):
    """Open a callback, write its token down, and reply the answer."""


@frozen
class Unread(gr.Message[int]):
    """No desk has a handler for this."""


def _write(path: str, text: str) -> int:
    """A line in the file, before anything else happens; "die" ends the process, "crash" the actor, each time. "nap once" lasts long."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    if text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "nap once" and lines(path).count(text) == 1:
        time.sleep(30)
    if text == "crash":
        raise ValueError("as it was told")
    return len(lines(path))


def lines(path: str | Path) -> list[str]:
    """What desks have written."""
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


class ThreadDesk(gr.Actor):
    """For a thread."""

    def __init__(self, path: str) -> None:
        self.path = path

    @gr.handles
    def line(self, message: Line) -> int:
        return _write(self.path, message.text)

    @gr.handles
    def whoami(self, message: Whoami) -> tuple[int, str]:
        return os.getpid(), threading.current_thread().name

    @gr.handles
    def decline(self, message: Decline) -> int:
        raise gr.Rejected("no")

    @gr.handles
    def forward(self, message: Forward) -> str:
        calls = self.context.runtime.from_thread
        receipt = calls.send(message.to, Line(message.text), message_id=message.message_id)
        assert receipt is not None
        return f"{receipt.disposition} {calls.ask(message.to, Line('asked'))}"

    @gr.handles
    def wait(self, message: Await) -> str:
        calls = self.context.runtime.from_thread
        callback = calls.call(partial(self.context.callback, "payment", timeout=None))
        _write(self.path, callback.token)
        return str(calls.call(callback.wait))


class ProcessDesk(gr.Actor):
    """For a process."""

    def __init__(self, path: str) -> None:
        self.path = path

    @gr.handles
    async def line(self, message: Line) -> int:
        return _write(self.path, message.text)

    @gr.handles
    async def whoami(self, message: Whoami) -> tuple[int, str]:
        return os.getpid(), threading.current_thread().name

    @gr.handles
    async def decline(self, message: Decline) -> int:
        raise gr.Rejected("no")

    @gr.handles
    async def forward(self, message: Forward) -> str:
        receipt = await message.to.send(Line(message.text), message_id=message.message_id)
        assert receipt is not None
        return f"{receipt.disposition} {await message.to.ask(Line('asked'), message_id=f'{message.message_id} q')}"

    @gr.handles
    async def wait(self, message: Await) -> str:
        try:
            await self.context.callback("payment", timeout=None)
        except gr.Misuse as error:
            raise gr.Rejected(str(error)) from error
        return ""


class PykkaDesk(pykka.ThreadingActor):
    """As it was written for Pykka. "stop" makes it end after that line."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_receive(self, message: object) -> int:
        assert isinstance(message, Line)
        if message.text == "stop":
            self.stop()
        return _write(self.path, message.text)
