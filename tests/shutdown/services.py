"""Services that the tests of whole processes run: `python -m tests.shutdown.services NAME LOOP`.

Each says `ready` when it can be told to stop, and what it does on the way; its log goes to the standard error stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import attrs
import trio

import greenroom as gr
from greenroom.runtime import watchdog


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - how the parent is told


@attrs.frozen
class Do(gr.Message[None]):
    """Run this in the handler."""

    what: Callable[[], Awaitable[None]]


class Servant(gr.Actor):
    """Does what it is told, and says when it stops."""

    def __init__(self, name: str, last: Callable[[], Awaitable[None]] | None = None) -> None:
        self.name = name
        self.last = last

    async def on_stop(self, exit: gr.Exit) -> None:
        say("on_stop", self.name, exit.kind)
        if self.last is not None:
            await self.last()

    @gr.handles
    async def do(self, message: Do) -> None:
        await message.what()


def servant(name: str, *args: Any, **options: Any) -> gr.Child:
    return gr.Child(name, Servant, name, *args, **options)


async def swallow() -> None:
    """Never end."""
    while True:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            say("swallowed")
            await_quietly = anyio.CancelScope(shield=True)
            with await_quietly:
                await anyio.sleep_forever()


async def block() -> None:
    say("ready")
    time.sleep(3600)


async def fail() -> None:
    raise ValueError("on purpose")


class Refuses(gr.Actor):
    async def on_start(self) -> None:
        raise ValueError("no start")


class Slow(gr.Actor):
    async def on_start(self) -> None:
        say("ready")
        await anyio.sleep(0.3)

    async def on_stop(self, exit: gr.Exit) -> None:
        say("on_stop slow", exit.kind)


def told(path: str, *what: Callable[[], Awaitable[None]], ready: bool = True) -> Callable[[gr.Runtime], Awaitable[None]]:
    """A body that tells an actor to do things, and then waits."""

    async def body(runtime: gr.Runtime) -> None:
        for one in what:
            runtime.ref(path).tell(Do(one))
        if ready:
            say("ready")
        try:
            await anyio.sleep_forever()
        finally:
            say("body left")

    return body


async def exit_with_success() -> None:
    raise SystemExit(0)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def leave_a_thread(_runtime: gr.Runtime) -> None:
    """Leave a thread behind that the loop waits for at its own end."""

    def hang() -> None:
        threading.Event().wait(3600)

    if isinstance(running := asyncio.get_running_loop(), asyncio.AbstractEventLoop):
        running.run_in_executor(None, hang)
    say("ready")


Loop = Literal["asyncio", "trio", "uvloop"]


def service(name: str, loop: Loop) -> int:
    """Run a service by `greenroom.run`."""

    def run(*children: Any, body: Any = None, final_deadline: float | None = 60.0, **options: Any) -> int:
        return gr.run(
            gr.Supervisor("service", *children, **options),
            backend="trio" if loop == "trio" else "asyncio",
            uvloop=loop == "uvloop",
            final_deadline=final_deadline,
            body=body,
        )

    match name:
        case "quiet":
            return run(servant("a"), servant("b"), body=told("service/a"))
        case "no-body":
            return run(gr.Child("slow", Slow))
        case "slow-stop":
            return run(servant("a", lambda: anyio.sleep(0.3)), body=told("service/a"))
        case "patient":
            return run(servant("a", shutdown=None), body=told("service/a", anyio.sleep_forever))
        case "dogged":
            return run(servant("a", anyio.sleep_forever, shutdown=None), body=told("service/a", anyio.sleep_forever))
        case "lingering":
            return run(servant("a", anyio.sleep_forever, shutdown=None), body=told("service/a"))
        case "stuck":
            return run(servant("a", shutdown=None), servant("b"), body=told("service/a", swallow))
        case "stuck-until-the-deadline":
            return run(servant("a", shutdown=0.1), body=told("service/a", swallow), final_deadline=0.5)
        case "blocked":
            watchdog.SIGNAL_PATIENCE = 0.3
            return run(servant("a"), body=told("service/a", block, ready=False))
        case "blocked-until-the-deadline":
            return run(servant("a"), body=_stop_then_block, final_deadline=0.3)
        case "nobody-reads":
            os.close(2)
            return run(servant("a"), body=_stop_then_block, final_deadline=0.3)
        case "gives-up":
            return run(servant("a"), body=told("service/a", fail), intensity=0)
        case "does-not-start":
            return run(servant("a"), gr.Child("refuses", Refuses))
        case "exits":
            return run(servant("a"), servant("b"), body=told("service/a", exit_with_success))
        case "interrupts":
            return run(servant("a"), servant("b"), body=told("service/a", interrupt))
        case "leaves-a-thread":
            return run(servant("a"), body=leave_a_thread, final_deadline=0.5)
        case "embedded":
            return embedded(loop)
        case "embedded-stubborn":
            return embedded(loop, anyio.sleep_forever)
    raise ValueError(name)


async def _stop_then_block(runtime: gr.Runtime) -> None:
    runtime.request_stop()
    time.sleep(3600)


def embedded(loop: Loop, last: Callable[[], Awaitable[None]] | None = None) -> int:
    """A program that owns its loop and its signals."""

    async def main() -> None:
        async with gr.Runtime(gr.Supervisor("service", servant("a"), servant("b", last, shutdown=None))):
            say("ready")
            await anyio.sleep_forever()

    try:
        trio.run(main) if loop == "trio" else asyncio.run(main())
    except KeyboardInterrupt:
        say("interrupted")
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    raise SystemExit(service(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
