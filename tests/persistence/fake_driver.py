"""A driver without a database: it does what a script says, stops where it is told to, and remembers what it was asked."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
from attrs import frozen

from greenroom.mailbox.parking import current_loop
from greenroom.persistence.committer import Committer
from greenroom.persistence.driver import Applied, Durability, Hold, News, Renewer
from greenroom.persistence.segments import ReadSegment, ReadSegments
from greenroom.persistence.sqlite.blocking import BlockingInbox, run_blocking
from greenroom.persistence.transitions import Query, Transition


@frozen(kw_only=True)
class Say(Transition[str]):
    """Is answered by its word."""

    word: str


@frozen(kw_only=True)
class SayAlone(Say):
    """The same, in a commit of its own."""

    alone = True


@frozen(kw_only=True)
class Ask(Query[str]):
    word: str


Step = Callable[[], None]
"""What happens instead of an apply; raises what the apply is to raise."""


class FakeDriver:
    """Applies by remembering.

    `apply_steps`, `recover_steps`, `read_steps` and `open_steps` are used up one by one, each before the call does its work;
    a step that raises ends the call. `gate` stops every apply until it is set.
    """

    name = "fake://"
    durability = Durability.FULL

    def __init__(self) -> None:
        self.inbox = BlockingInbox()
        self.batches: list[tuple[str, list[str]]] = []
        """What was committed: batch ids and words."""
        self.calls: list[tuple[str, list[str]]] = []
        """What was tried."""
        self.questions: list[Query[Any]] = []
        """What was asked."""
        self.pauses = 0
        self.closed = False
        self.open_steps: deque[Step] = deque()
        self.apply_steps: deque[Step] = deque()
        self.commit_steps: deque[Step] = deque()
        """As `apply_steps`, after the work."""
        self.recover_steps: deque[Step] = deque()
        self.read_steps: deque[Step] = deque()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        """An apply has been called."""
        self.next_news = News()

    @property
    def committed(self) -> list[str]:
        return [word for _, words in self.batches for word in words]

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        run_blocking(main)

    async def pause(self, seconds: float) -> None:
        self.pauses += 1
        time.sleep(0.001)

    async def open(self) -> None:
        step(self.open_steps)

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        words = [item.word for item in items if isinstance(item, Say)]
        self.calls.append((batch_id, words))
        self.entered.set()
        self.gate.wait()
        step(self.apply_steps)
        self.batches.append((batch_id, words))
        step(self.commit_steps)
        return Applied([word.upper() for word in words])

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        step(self.recover_steps)
        for known, words in self.batches:
            if known == batch_id:
                return Applied([word.upper() for word in words])
        return None

    async def read(self, query: Query[Any]) -> Any:
        self.questions.append(query)
        step(self.read_steps)
        if isinstance(query, ReadSegments):
            return tuple(each.address for each in query.queries)
        if isinstance(query, ReadSegment):
            return query.address
        return query.word.upper() if isinstance(query, Ask) else None

    async def news(self) -> News:
        news, self.next_news = self.next_news, News()
        return news

    async def close(self) -> None:
        self.closed = True

    def renewer(self) -> Renewer:
        raise AssertionError("no test of the fake renews leases")

    def hold(self, execution_id: str) -> Hold | None:
        return None


def step(steps: deque[Step]) -> None:
    if steps:
        steps.popleft()()


def raising(error: BaseException) -> Step:
    """A step that raises."""

    def fail() -> None:
        raise error

    return fail


def nothing() -> None:
    """A step that goes well."""


@asynccontextmanager
async def opened(driver: FakeDriver, *, bound: float = 30.0) -> AsyncIterator[Committer]:
    store = Committer(driver, current_loop(), bound=bound)
    await store.open()
    try:
        yield store
    finally:
        driver.gate.set()
        await store.close()


async def entered(driver: FakeDriver) -> None:
    """Wait until the store thread is inside an apply."""
    await anyio.to_thread.run_sync(driver.entered.wait)
    driver.entered.clear()


class Callers:
    """Commits under way, with what each of them came to."""

    def __init__(self, store: Committer, group: anyio.abc.TaskGroup) -> None:
        self._store, self._group = store, group
        self.answers: dict[str, object] = {}
        self.errors: dict[str, BaseException] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def start(self, word: str, *, alone: bool = False) -> None:
        """Start a commit, and return when it has been submitted."""
        scope = self.scopes[word] = anyio.CancelScope()
        self._group.start_soon(self._commit, word, scope, alone)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    async def _commit(self, word: str, scope: anyio.CancelScope, alone: bool) -> None:
        with scope:
            try:
                self.answers[word] = await self._store.commit((SayAlone if alone else Say)(word=word))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors[word] = error
