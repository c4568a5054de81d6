"""The thread that owns the database: it seals what is pending into a batch, applies it in one transaction, and answers.

Its only ways out are calls posted to the event loop, one for each batch. Three kinds of failure differ (R5). A statement that
fails aborts its batch for certain, and the items are applied one by one, so that one bad item spoils no other. A batch that
lost against another transaction is applied again as it is. And when the connection breaks at COMMIT, nobody knows: nothing is
run again before the batch's own row has been looked for. While the database cannot be reached, items wait up to the bound.

The thread ends by `Stop`, when the loop is gone, or by an error that no rule covers; in the last case all waiters fail at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from greenroom.errors import GreenroomError, StoreUnavailable, TransitionFailed
from greenroom.persistence.driver import (
    Contended,
    Driver,
    News,
    NotReached,
    OutcomeUnknown,
    StatementFailed,
)
from greenroom.persistence.ids import new_id
from greenroom.persistence.packing import batches
from greenroom.persistence.pending import Pending, Stop
from greenroom.persistence.segments import together
from greenroom.persistence.transitions import Query, Transition

LARGEST_BATCH: Final = 512
"""Transitions in one commit. More would make the first wait longer, and save nothing that counts."""

POLL: Final = 0.05
"""Seconds between looks at what other processes did, while anybody wants to know."""

PAUSE: Final = 0.05
"""Seconds between tries to reach the database."""


class Receiver(Protocol):
    """The loop's side. All methods are called on the loop's thread."""

    def opened(self, error: GreenroomError | None) -> None: ...
    def answered(self, entries: Sequence[Pending], answers: Sequence[Any], woken: frozenset[str]) -> None: ...
    def failed(self, entries: Sequence[Pending], errors: Sequence[GreenroomError]) -> None: ...
    def news(self, news: News) -> None: ...
    def ended(self, error: BaseException | None) -> None: ...


class LoopGone(Exception):
    """Nobody is left to be told anything."""


def transitions_of(entries: Sequence[Pending]) -> list[Transition[Any]]:
    return [entry.request for entry in entries if isinstance(entry.request, Transition)]


class StoreThread:
    """Owns a driver from its opening to its end.

    Args:
        bound: seconds that a request may wait for a database that cannot be reached.
        post: runs a function on the event loop soon, from any thread.
        watched: does anybody want to hear of news? Asked in the store thread; `nudge` when the answer becomes yes.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        bound: float,
        post: Callable[[Callable[[], object]], object],
        receiver: Receiver,
        watched: Callable[[], bool],
    ) -> None:
        self._driver = driver
        self._bound = bound
        self._post = post
        self._receiver = receiver
        self._watched = watched
        self.submit: Callable[[Pending], object] = driver.inbox.put
        """Hand it an entry. From any thread."""
        self._stopping: Pending | None = None
        self._polled = 0.0

    def start(self) -> None:
        threading.Thread(target=self._main, name=f"greenroom-store {self._driver.name}", daemon=True).start()

    def nudge(self) -> None:
        """Let the thread ask `watched` again."""
        self._driver.inbox.put(None)

    # ------------------------------------------------------------------------------------------ in the store thread

    def _main(self) -> None:
        end: BaseException | None = None
        try:
            self._driver.run(self._serve())
        except LoopGone:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, those who wait are told, by name
            end = error
        try:
            self._tell(partial(self._receiver.ended, end))
        except LoopGone:
            return

    def _tell(self, function: Callable[[], object]) -> None:
        try:
            self._post(function)
        except RuntimeError as error:  # both loops' way to say that they have ended
            raise LoopGone from error

    async def _serve(self) -> None:
        try:
            if await self._open():
                while self._stopping is None:
                    await self._round()
        finally:
            await self._driver.close()

    async def _open(self) -> bool:
        deadline = time.monotonic() + self._bound
        while True:
            try:
                await self._driver.open()
            except NotReached as error:
                if time.monotonic() < deadline:
                    await self._driver.pause(PAUSE)
                    continue
                failure: GreenroomError = StoreUnavailable(self._driver.name, str(error))
            except GreenroomError as error:
                failure = error
            else:
                self._tell(partial(self._receiver.opened, None))
                return True
            self._tell(partial(self._receiver.opened, failure))
            return False

    async def _round(self) -> None:
        transitions: list[Pending] = []
        asking: list[Pending] = []
        queries: list[Query[Any]] = []
        item = await self._driver.inbox.get(POLL if self._watched() else None)
        while item is not None:
            if isinstance(item, Pending) and item.claim():
                if isinstance(item.request, Stop):
                    self._stopping = item
                    break
                if isinstance(item.request, Query):
                    asking.append(item)
                    queries.append(item.request)
                else:
                    transitions.append(item)
                if len(transitions) == LARGEST_BATCH:
                    break
            item = self._driver.inbox.get_nowait()
        start = 0
        for batch in batches(transitions_of(transitions), LARGEST_BATCH):
            await self._commit(transitions[start : start + len(batch)])
            start += len(batch)
        for places, query in together(queries):
            await self._read([asking[place] for place in places], query)
        if self._watched() and time.monotonic() - self._polled >= POLL:
            await self._poll()

    async def _commit(self, entries: list[Pending]) -> None:
        """See a sealed batch through to its answers, whatever happens on the way."""
        batch_id = new_id()
        waiting = entries
        """Those of the batch who have not been told anything."""
        unknown: str | None = None
        """Why it is not known whether the batch was committed, while that is so."""
        while waiting:
            try:
                applied = None
                if unknown is not None:
                    applied = await self._driver.recover(batch_id, transitions_of(entries))
                    if applied is None:  # whoever was told "unknown" must not be surprised later: those are left out
                        unknown, entries = None, waiting
                if applied is None:
                    applied = await self._driver.apply(batch_id, transitions_of(entries))
            except (NotReached, Contended, OutcomeUnknown) as error:
                if isinstance(error, OutcomeUnknown):
                    unknown = str(error)
                late = [entry for entry in waiting if self._expired(entry)]
                self._fail(late, unknown or str(error), unknown=unknown is not None)
                waiting = [entry for entry in waiting if entry not in late]
                if unknown is None:
                    entries = waiting
                if waiting:
                    await self._driver.pause(PAUSE)
            except StatementFailed as error:
                if len(entries) == 1:
                    self._fail_statement(entries[0], error)
                else:
                    for entry in waiting:
                        await self._commit([entry])
                return
            else:
                assert len(applied.answers) == len(entries)  # or somebody would wait for ever
                self._tell(partial(self._receiver.answered, entries, applied.answers, applied.woken))
                return

    async def _read(self, entries: list[Pending], query: Query[Any]) -> None:
        """Answer what waits: by one query, which answers them all."""
        while entries:
            try:
                answer = await self._driver.read(query)
            except NotReached as error:
                late = [entry for entry in entries if self._expired(entry)]
                self._fail(late, str(error), unknown=False)
                entries = [entry for entry in entries if entry not in late]
                if late and entries:  # the query answers no such number any more
                    await self._read_one_by_one(entries)
                    return
                if entries:
                    await self._driver.pause(PAUSE)
            except StatementFailed as error:
                if len(entries) == 1:
                    self._fail_statement(entries[0], error)
                else:
                    await self._read_one_by_one(entries)
                return
            else:
                answers = [answer] if len(entries) == 1 else answer
                self._tell(partial(self._receiver.answered, entries, answers, frozenset()))
                return

    async def _read_one_by_one(self, entries: list[Pending]) -> None:
        for entry in entries:
            assert isinstance(entry.request, Query)
            await self._read([entry], entry.request)

    async def _poll(self) -> None:
        self._polled = time.monotonic()
        try:
            news = await self._driver.news()
        except NotReached:
            return  # the next look finds it; whoever commits meanwhile is told
        if news.elsewhere or news.due:
            self._tell(partial(self._receiver.news, news))

    def _expired(self, entry: Pending) -> bool:
        return time.monotonic() - entry.submitted >= self._bound

    def _fail(self, entries: Sequence[Pending], why: str, *, unknown: bool) -> None:
        name = self._driver.name
        errors = [StoreUnavailable(name, why, unknown=unknown, transition_id=entry.transition_id) for entry in entries]
        if errors:
            self._tell(partial(self._receiver.failed, entries, errors))

    def _fail_statement(self, entry: Pending, error: StatementFailed) -> None:
        cause = error.__cause__ or error
        failure = TransitionFailed(
            type(entry.request).__name__, entry.transition_id, f"{type(cause).__name__}: {cause}"
        )
        failure.__cause__ = cause
        self._tell(partial(self._receiver.failed, [entry], [failure]))
