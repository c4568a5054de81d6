"""A loop for mailboxes that are tested without an event loop: their coroutines are driven by hand."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import attrs

from greenroom.mailbox import DeadLetters, EventLoop, Mailbox, MemoryMailbox, current_loop


class Cancelled(BaseException):
    """What cancels a coroutine that is driven by hand."""


class HandSlot:
    """A slot whose waiter is resumed by `Driven.step`."""

    def __init__(self) -> None:
        self._done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any, /) -> None:
        assert not self._done
        self._done, self.value = True, value

    def set_exception(self, error: BaseException, /) -> None:
        assert not self._done
        self._done, self.error = True, error

    def cancel(self) -> None:
        self._done = True

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._done:
            yield self
        if self.error is not None:
            raise self.error
        return self.value


class Driven:
    """A coroutine, driven by hand until it waits for a slot or has ended."""

    def __init__(self, coroutine: Coroutine[Any, Any, object]) -> None:
        self._coroutine = coroutine
        self.slot: HandSlot | None = None
        self.ended = False
        self.error: BaseException | None = None
        self.step()

    def step(self) -> None:
        """Go on as far as possible; a bare yield is a checkpoint, and lets it go on."""
        self._run(lambda: self._coroutine.send(None))

    def cancel(self) -> None:
        """What an event loop does with a waiter: mark its slot, then raise in it. Only while it waits."""
        assert self.slot is not None
        self.slot.cancel()
        self._run(lambda: self._coroutine.throw(Cancelled()))

    def _run(self, resume: Callable[[], object]) -> None:
        self.slot = None
        try:
            waits_for = resume()
            while waits_for is None:
                waits_for = self._coroutine.send(None)
            assert isinstance(waits_for, HandSlot)
            self.slot = waits_for
        except StopIteration:
            self.ended = True
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            self.ended, self.error = True, error


async def _describe() -> EventLoop:
    return current_loop()


@functools.cache
def loop_by_hand() -> EventLoop:
    """An `EventLoop` of hand slots, on this thread. All else of it is that of an asyncio loop that has ended."""
    return attrs.evolve(
        asyncio.run(_describe()),
        cancelled=Cancelled,
        slot=HandSlot,
        now=lambda: 0.0,
        stopwatch=lambda: 0.0,
        post=lambda function: function(),
        thread=threading.get_ident(),
    )


def mailbox_by_hand(options: Mailbox) -> tuple[MemoryMailbox, DeadLetters]:
    """A mailbox outside any event loop, and where its dead letters go."""
    dead_letters = DeadLetters()
    return MemoryMailbox("app/a", options, loop_by_hand(), dead_letters), dead_letters
