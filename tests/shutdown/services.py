"""Services that the tests of whole processes run: `python -m tests.shutdown.services NAME LOOP`.

Each says `ready` when it can be told to stop, and what it does on the way; its log goes to the standard error stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
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


async def wait() -> None:
    """Wait until it is cancelled."""
    say("working")
    await anyio.sleep_forever()


async def swallow() -> None:
    """Never end."""
    say("working")
    try:
        await anyio.sleep_forever()
    finally:
        say("swallowed")
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()


async def block() -> None:
    """Stop the event loop."""
    say("working")
    time.sleep(3600)


async def fail() -> None:
    raise ValueError("on purpose")


class Refuses(gr.Actor):
    async def on_start(self) -> None:
        raise ValueError("no start")


class Slow(gr.Actor):
    async def on_start(self) -> None:
        say("starting")
        await anyio.sleep(0.3)

    async def on_stop(self, exit: gr.Exit) -> None:
        say("on_stop slow", exit.kind)


def told(path: str, *what: Callable[[], Awaitable[None]]) -> Callable[[gr.Runtime], Awaitable[None]]:
    """A body that tells an actor to do things, and then waits."""

    async def body(runtime: gr.Runtime) -> None:
        for one in what:
            runtime.ref(path).tell(Do(one))
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


async def clean_up() -> None:
    await anyio.sleep(0.3)
    say("a has cleaned up")


async def stop(runtime: gr.Runtime) -> None:
    runtime.request_stop()
    await runtime.wait()


async def stop_and_block(runtime: gr.Runtime) -> None:
    runtime.request_stop()
    time.sleep(3600)


async def fail_beside_a_stuck_one(runtime: gr.Runtime) -> None:
    runtime.ref("service/a").tell(Do(swallow))
    await anyio.wait_all_tasks_blocked()
    runtime.ref("service/b").tell(Do(fail))
    await anyio.sleep_forever()


left_behind: list[asyncio.Future[None]] = []


async def leave_a_thread(_runtime: gr.Runtime) -> None:
    """Leave a thread behind that the loop waits for at its own end."""

    def hang() -> None:
        threading.Event().wait(3600)

    left_behind.append(asyncio.get_running_loop().run_in_executor(None, hang))


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
        case "stops-itself":
            return run(servant("a", clean_up), body=stop)
        case "patient":
            return run(servant("a", shutdown=None), body=told("service/a", wait))
        case "dogged":
            return run(servant("a", anyio.sleep_forever, shutdown=None), body=told("service/a", wait))
        case "stuck":
            return run(servant("a", shutdown=None), body=told("service/a", swallow))
        case "stuck-until-the-deadline":
            return run(servant("a", shutdown=0.1), body=told("service/a", swallow), final_deadline=0.5)
        case "blocked":
            watchdog.SIGNAL_PATIENCE = 0.3
            return run(servant("a"), body=told("service/a", block))
        case "blocked-until-the-deadline":
            return run(servant("a"), body=stop_and_block, final_deadline=0.3)
        case "nobody-reads":
            os.close(2)
            return run(servant("a"), body=stop_and_block, final_deadline=0.3)
        case "gives-up":
            return run(servant("a"), body=told("service/a", fail), intensity=0)
        case "gives-up-stuck":
            stuck = servant("a", shutdown=0.1)
            return run(stuck, servant("b"), body=fail_beside_a_stuck_one, intensity=0, final_deadline=0.5)
        case "does-not-start":
            return run(servant("a"), gr.Child("refuses", Refuses))
        case "exits":
            return run(servant("a"), servant("b"), body=told("service/a", exit_with_success))
        case "interrupts":
            return run(servant("a"), servant("b"), body=told("service/a", interrupt))
        case "leaves-a-thread":
            return run(servant("a"), body=leave_a_thread, final_deadline=0.5)
        case "embedded":
            return embedded(loop, gr.Runtime(gr.Supervisor("service", servant("a"), servant("b"))))
        case "embedded-stubborn":
            dogged = servant("b", anyio.sleep_forever, shutdown=None)
            return embedded(loop, gr.Runtime(gr.Supervisor("service", servant("a"), dogged)))
        case "embedded-stuck":
            tree = gr.Supervisor("service", servant("a", shutdown=0.1))
            return embedded(loop, gr.Runtime(tree, final_deadline=1.0, kill_time=0.1), swallow)
    raise ValueError(name)


def embedded(loop: Loop, runtime: gr.Runtime, what: Callable[[], Awaitable[None]] | None = None) -> int:
    """A program that owns its loop and its signals."""

    async def main() -> None:
        async with runtime:
            say("ready")
            if what is None:
                await anyio.sleep_forever()
            else:
                await anyio.wait_all_tasks_blocked()
                runtime.ref("service/a").tell(Do(what))
                await anyio.wait_all_tasks_blocked()

    try:
        trio.run(main) if loop == "trio" else asyncio.run(main())
    except KeyboardInterrupt:
        say("interrupted")
    return 0


if __name__ == "__main__":
    # A shell that starts the tests in its background has them, and us, ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    raise SystemExit(service(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]
