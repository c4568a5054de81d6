"""Actors for processes of their own, and what tests have them do there. Workers import this module: it must not import pytest."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs

import greenroom as gr


@attrs.frozen
class Do(gr.Message[Any]):
    """Call a function of this module with the actor and the arguments; the reply is what it returns."""

    work: str
    args: tuple[Any, ...] = ()


@attrs.frozen
class Heard(gr.Message[int]):
    """Something for a `Witness` to write down; the reply is how much it has."""

    what: Any


@attrs.frozen
class Echo(gr.Message[Any]):
    value: Any


@attrs.frozen
class Unknown(gr.Message[None]):
    """Nobody handles this."""


def do(work: Callable[..., Any], *args: Any) -> Do:
    """Have a puppet call one of the functions below."""
    return Do(work.__name__, args)


class Puppet(gr.Actor):
    """Does what it is told, with `async def` handlers."""

    def __init__(self, *, on_start: Do | None = None, on_stop: Do | None = None) -> None:
        self.start_work = on_start
        self.stop_work = on_stop
        self.exit: gr.Exit | None = None
        self.kept: list[Any] = []

    async def on_start(self) -> object:
        return None if self.start_work is None else await self.do(self.start_work)

    async def on_stop(self, exit: gr.Exit) -> None:
        self.exit = exit
        if self.stop_work is not None:
            await self.do(self.stop_work)

    @gr.handles
    async def do(self, message: Do) -> Any:
        result = globals()[message.work](self, *message.args)
        return await result if hasattr(result, "__await__") else result

    @gr.handles
    async def echo(self, message: Echo) -> Any:
        return message.value

    @gr.handles
    async def keep(self, message: Heard | gr.Terminated) -> Any:
        self.kept.append(message.what if isinstance(message, Heard) else (message.ref.path, message.exit.kind))
        return len(self.kept)


class PlainPuppet(gr.Actor):
    """Does what it is told, with plain `def` handlers."""

    def __init__(self, *, on_stop: Do | None = None) -> None:
        self.stop_work = on_stop

    async def on_stop(self, exit: gr.Exit) -> None:
        if self.stop_work is not None:
            self.do(self.stop_work)

    @gr.handles
    def do(self, message: Do) -> Any:
        return globals()[message.work](self, *message.args)


class Described(gr.Actor):
    """Tells how it was made."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.made = (args, keywords)

    @gr.handles
    async def describe(self, message: Unknown) -> None:
        raise gr.Rejected(*self.made)


class Crowded(gr.Actor):
    @gr.handles(concurrency=2)
    async def handle(self, message: Unknown) -> None: ...


class TooSmall(gr.Rejected):
    """A refusal with something to say."""

    def __init__(self, wanted: int) -> None:
        super().__init__(f"I want {wanted}")
        self.wanted = wanted


def made_by_a_function(label: str) -> Described:
    return Described(label=label)


def made_with(**keywords: Any) -> Puppet:
    return Puppet(**keywords)


def make_crowded() -> Crowded:
    return Crowded()


class Witness(gr.Actor):
    """On the event loop's side: writes down what it hears, and lets a test wait for it."""

    def __init__(self, heard: list[Any], changed: list[anyio.Event]) -> None:
        self.heard = heard
        self.changed = changed

    @gr.handles
    async def hear(self, message: Heard) -> int:
        self.heard.append(message.what)
        for event in self.changed:
            event.set()
        return len(self.heard)

    @gr.handles
    async def never(self, message: Echo) -> Any:
        await anyio.sleep_forever()


# ------------------------------------------------------------------------------------------------ what puppets do


def pid(actor: gr.Actor) -> int:
    return os.getpid()


def print_to_both(actor: gr.Actor, text: str) -> None:
    print(text, flush=True)  # noqa: T201
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def log_a_warning(actor: gr.Actor, text: str) -> None:
    logging.getLogger("tests.worker").warning("%s", text)


async def loop_name(actor: gr.Actor) -> str:
    import sniffio

    return sniffio.current_async_library()


def incarnation(actor: gr.Actor) -> int:
    return actor.context.incarnation


def unencodable(actor: gr.Actor) -> Any:
    return threading.Lock()


def fail(actor: gr.Actor, text: str) -> None:
    raise ValueError(text)


async def fail_in_a_group(actor: gr.Actor, *texts: str) -> None:
    raise ExceptionGroup("several", [ValueError(text) for text in texts])


def refuse(actor: gr.Actor, wanted: int) -> None:
    raise TooSmall(wanted)


def refuse_with_the_unencodable(actor: gr.Actor) -> None:
    raise gr.Rejected("no", threading.Lock())


def stop_by_exception(actor: gr.Actor) -> None:
    raise gr.Stop


def ignore(actor: gr.Actor) -> None:
    raise gr.Ignore


def leave(actor: gr.Actor, code: int) -> None:
    sys.exit(code)


async def leave_from_a_task(actor: gr.Actor, code: int) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_leave, code)


async def _leave(code: int) -> None:
    sys.exit(code)


def leave_at_once(actor: gr.Actor, status: int) -> None:
    os._exit(status)


def signal_self(actor: gr.Actor, number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)  # a signal of one's own may take a moment


def signal_self_on_the_way_out(actor: gr.Actor, number: int) -> None:
    """When the interpreter ends, and the event loop has ended before."""
    atexit.register(os.kill, os.getpid(), number)


def fill_memory(actor: gr.Actor) -> None:
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(1 << 24))


def close_the_wire(actor: gr.Actor) -> None:
    actor.context._neighbours.link._wire.shutdown(socket.SHUT_WR)  # type: ignore[attr-defined]
    time.sleep(60)  # its parent kills it long before


def tell(actor: gr.Actor, ref: gr.Ref, what: Any) -> None:
    ref.tell(Heard(what))


def tell_the_unencodable(actor: gr.Actor, ref: gr.Ref) -> None:
    ref.tell(Heard(threading.Lock()))


async def send(actor: gr.Actor, ref: gr.Ref, what: Any) -> None:
    await ref.send(Heard(what))


async def send_twice(actor: gr.Actor, ref: gr.Ref) -> None:
    await ref.send(Heard(1))
    await ref.send(Heard(2))


async def ask(actor: gr.Actor, ref: gr.Ref, what: Any) -> int:
    return await ref.ask(Heard(what))


async def ask_in_vain(actor: gr.Actor, ref: gr.Ref, timeout: float) -> str:
    try:
        await ref.ask(Echo(1), timeout=timeout)
    except gr.GreenroomError as error:
        return type(error).__qualname__
    return "answered"


async def ask_then_tell(actor: gr.Actor, ref: gr.Ref, count: int) -> None:
    async def ask_it(number: int, asked: anyio.Event) -> None:
        asked.set()  # nobody else runs between this and the ask
        await ref.ask(Heard(number))

    async with anyio.create_task_group() as group:
        for number in range(0, count, 2):
            asked = anyio.Event()
            group.start_soon(ask_it, number, asked)
            await asked.wait()
            ref.tell(Heard(number + 1))


def ask_blocking(actor: gr.Actor, ref: gr.Ref, what: Any) -> int:
    return actor.context.runtime.from_thread.ask(ref, Heard(what))


def ask_blocking_from_a_thread(actor: gr.Actor, ref: gr.Ref, what: Any) -> list[int]:
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(ask_blocking(actor, ref, what)))
    thread.start()
    thread.join()
    return answers


async def misuses(actor: gr.Actor) -> dict[str, str]:
    """The text of the error that each of these calls raises."""
    context, message, unencodable = actor.context, Heard(1), Heard(threading.Lock())
    witness = context.runtime.ref("service/witness")

    def tell_from_a_thread() -> None:
        errors: list[BaseException] = []

        def tell_it() -> None:
            try:
                witness.tell(message)
            except gr.Misuse as error:
                errors.append(error)

        thread = threading.Thread(target=tell_it)
        thread.start()
        thread.join()
        raise errors[0]

    nobody: Any = None
    calls: dict[str, Callable[[], Any]] = {
        "nursery": lambda: context.nursery,
        "stash": lambda: context.stash(message),
        "unstash": context.unstash,
        "tree": lambda: context.runtime.tree(),  # noqa: PLW0108 - already to name it raises
        "call": lambda: context.runtime.from_thread.call(anyio.sleep, 0),
        "self-ask": lambda: context.ref.ask(message),
        "administration": context.ref.which_children,
        "partition": lambda: context.ref.partition(1),
        "when_down": lambda: witness.ask(message, when_down="fail"),
        "blocking": lambda: context.runtime.from_thread.ask(witness, message),
        "thread": tell_from_a_thread,
        "no message": lambda: witness.tell(nobody),
        "unencodable tell": lambda: witness.tell(unencodable),
        "unencodable ask": lambda: witness.ask(unencodable),
    }
    texts: dict[str, str] = {}
    for name, call in calls.items():
        try:
            result = call()
            if hasattr(result, "__await__"):
                await result
        except gr.Misuse as error:
            texts[name] = f"{type(error).__name__}: {error}"
    return texts


def look_up(actor: gr.Actor, path: str) -> gr.Ref:
    return actor.context.runtime.ref(path)


def own_ref(actor: gr.Actor) -> gr.Ref:
    return actor.context.ref


def compare(actor: gr.Actor, one: gr.Ref, other: gr.Ref) -> tuple[bool, str, int]:
    return one is other, one.path, one.incarnation


def stop_self(actor: gr.Actor) -> str:
    actor.context.stop()
    return "still answered"


def set_timer(actor: gr.Actor, delay: float, what: Any, key: str | None = None) -> None:
    actor.context.after(delay, Heard(what), key=key)


def set_repeating_timer(actor: gr.Actor, period: float, what: Any, key: str) -> None:
    actor.context.every(period, Heard(what), key=key)


def cancel_timer(actor: gr.Actor, key: str) -> None:
    actor.context.cancel(key)


def watch(actor: gr.Actor, ref: gr.Ref) -> None:
    actor.context.watch(ref)


def kept(actor: Puppet) -> list[Any]:
    return actor.kept


def tell_the_exit(actor: Puppet) -> None:
    assert actor.exit is not None
    cause = actor.exit.cause
    told = (actor.exit.kind, type(cause).__name__ if cause is not None else None)
    actor.context.runtime.ref("service/witness").tell(Heard(told))


def wait_to_be_killed(actor: gr.Actor) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def tell_that_it_stops(actor: gr.Actor) -> None:
    actor.context.runtime.ref("service/witness").tell(Heard("stopped"))


async def wait_for_ever(actor: gr.Actor, ref: gr.Ref) -> None:
    try:
        ref.tell(Heard("waiting"))
        await anyio.sleep_forever()
    finally:
        ref.tell(Heard("interrupted"))


async def wait_by_name(actor: gr.Actor) -> None:
    await wait_for_ever(actor, actor.context.runtime.ref("service/witness"))


def flood(actor: gr.Actor, ref: gr.Ref) -> None:
    ref.tell(Heard("waiting"))
    while True:
        ref.tell(Heard("x" * 300_000))


def block(actor: gr.Actor, ref: gr.Ref) -> None:
    try:
        ref.tell(Heard("waiting"))
        time.sleep(60)
    finally:
        ref.tell(Heard("interrupted"))


def leave_a_trace(actor: gr.Actor, path: Path) -> None:
    path.write_text("on_stop")


def block_by_name(actor: gr.Actor) -> None:
    block(actor, actor.context.runtime.ref("service/witness"))


def block_until_told(actor: gr.Actor, path: str) -> str:
    """Wait until somebody opens the pipe for writing, and closes it."""
    with open(path) as pipe:
        return pipe.read()


def hang(actor: gr.Actor, ref: gr.Ref) -> None:
    """Neither an exception nor a signal gets it out of here."""
    ref.tell(Heard("waiting"))
    while True:
        try:
            while True:
                time.sleep(60)
        except BaseException:  # noqa: BLE001 - that is the point
            continue


def hold_the_interpreter(actor: gr.Actor, path: str) -> None:
    """Keep the interpreter's lock for ever, in C."""
    import re

    hold(path)
    re.match(r"(a|aa)+$", "a" * 200 + "b")


def fork_stubborn(actor: gr.Actor, path: str) -> None:
    """Fork a process that ignores SIGTERM and holds a pipe open for as long as it lives."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hold(path)
        while True:
            time.sleep(60)


def keep_hold(actor: gr.Actor, path: str) -> None:
    hold(path)


def hold(path: str) -> None:
    """Hold a pipe open until this process ends, and say so through it."""
    os.write(os.open(path, os.O_WRONLY), b"!")
