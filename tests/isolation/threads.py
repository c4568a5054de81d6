"""What the tests of thread children are made with: puppets that do what their messages say, on their own threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import attrs
import pykka

import greenroom as gr


@attrs.frozen(eq=False)
class Do(gr.Message[Any]):
    """Run this on the actor's thread, with the actor; the reply is what it returns."""

    work: Callable[[Any], object]


@attrs.frozen
class Note(gr.Message[int]):
    """Write this into the actor's log; the reply is the log's length."""

    what: object


@attrs.frozen
class Fail(gr.Message[int]):
    """Raise this."""

    error: BaseException


class Blocking(gr.Actor):
    """A puppet with plain `def` handlers. Its log outlives its incarnations; it writes its end there, too."""

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log

    async def on_stop(self, exit: gr.Exit) -> None:
        self.log.append(f"on_stop {exit}")

    @gr.handles
    def do(self, message: Do) -> Any:
        return message.work(self)

    @gr.handles
    def note(self, message: Note) -> int:
        self.log.append(message.what)
        return len(self.log)

    @gr.handles
    def fail(self, message: Fail) -> int:
        raise message.error

    @gr.handles
    def terminated(self, message: gr.Terminated) -> None:
        self.log.append(message)


class Old(pykka.ThreadingActor):
    """An existing Pykka class, which knows nothing of Greenroom but the messages it is sent."""

    def __init__(self, log: list[Any] | None = None, *, name: str = "old") -> None:
        super().__init__()
        self.log: list[Any] = [] if log is None else log
        self.name = name

    def on_start(self) -> None:
        self.log.append("on_start")

    def on_stop(self) -> None:
        self.log.append("on_stop")

    def on_failure(self, exception_type: object, exception_value: BaseException | None, traceback: object) -> None:
        self.log.append(f"on_failure {exception_value}")

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Do):
            return message.work(self)
        if isinstance(message, Fail):
            raise message.error
        self.log.append(message.what)
        return len(self.log)


class Gate:
    """Keeps a thread waiting for the event loop, so that virtual time goes on meanwhile: `Do(gate.pass_through(runtime))`."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def _pass(self) -> None:
        self.reached.set()
        await self.opened.wait()

    def pass_through(self, runtime: gr.Runtime, reply: object = "passed") -> Callable[[Any], object]:
        def work(_actor: Any) -> object:
            runtime.from_thread.call(self._pass)
            return reply

        return work

    def open(self) -> None:
        """Let the thread go on. Virtual time stands until it has done so."""
        self.opened.set()


def thread_child(name: str, *args: Any, **options: Any) -> gr.Child:
    """A `Blocking` puppet on a thread."""
    return gr.Child(name, Blocking, *args, isolation="thread", **options)


@contextmanager
def blocker() -> Iterator[threading.Event]:
    """An event for a thread to wait for in real time, set at the end also by a failure: no thread stays for ever."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def threads_of(path: str) -> list[threading.Thread]:
    """The threads that run now for the child of this path."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"greenroom {path} #")]


async def come_back(path: str, gate: Gate, incarnation: int = 1) -> None:
    """Let an abandoned thread go on, and return when it has ended. Virtual time does not wait for abandoned threads: this does."""
    (thread,) = (thread for thread in threads_of(path) if thread.name.endswith(f"#{incarnation}"))
    gate.open()
    await anyio.to_thread.run_sync(thread.join, 5)
    assert not thread.is_alive()
    await anyio.sleep(0.001)
