"""The hot kinds: many items at once, by one call of a plpgsql function each (R6).

A call with a batch's id is a whole transaction, one round trip for one fsync. Without it, it is a group of a larger one. One item
alone has a function of its own: what it costs is the setting up of statements, not rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final, Protocol, TypeVar

from attrs import frozen

from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.deliveries import BeginDelivery, FinishDelivery
from greenroom.persistence.messages import AcceptMessage, Disposition, Receipt
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES, value_of
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.verdicts import accepted, begun, handled
from greenroom.persistence.transitions import OwnerWrite, Refused, Transition


@frozen
class Left:
    """Not decided by the function: it was left as it was."""


LEFT: Final = Left()


@frozen
class Result:
    """What came of a call."""

    answers: list[Any]
    """In the order of the items; `LEFT` for those that must be decided one by one."""
    woken: frozenset[str] = frozenset()
    news: bool = False
    """Something of it concerns other processes."""


@frozen(kw_only=True)
class Frame:
    """What surrounds a call: the whole of a batch, or a part of one whose time has been read."""

    batch_id: str | None = None
    now: int | None = None
    own: Sequence[str] = ()
    """Executions of this process."""

    @property
    def left(self) -> Result | None:
        """What a call comes to that has left its only item as it was."""
        return Result([LEFT]) if self.batch_id is None else None


class Hot(Protocol):
    """One hot kind."""

    def fits(self, item: Any) -> bool:
        """May the function be asked about it?"""

    def are_one_group(self, items: Sequence[Any]) -> bool:
        """Would packing make one group of these, which all fit? Told in a fraction of the time."""

    async def call(self, connection: Connection, frame: Frame, items: Sequence[Any]) -> Result | None:
        """None: a whole batch of which something would be left. Nothing was changed."""


_ACCEPT_ONE: Final = value_of("accept_one", 11)
_BEGIN_ONE: Final = value_of("begin_one", 8)
_FINISH_ONE: Final = value_of("finish_one", 17)
_ACCEPT: Final = Statement.calling(
    NAMES["accept"],
    "text text[] bigint text[] text[] text[] text[] text[] bytea[] bigint[] text[] bigint[] "
    "text[] bigint[] bigint[] bigint[] boolean",
    "verdicts, numbers, woken, news",
)
_BEGIN: Final = Statement.calling(
    NAMES["begin"], "text text[] bigint text text[] bigint[] bigint[] bigint[]", "numbers"
)
_FINISH: Final = Statement.calling(
    NAMES["finish"],
    "text text[] bigint text text[] bigint[] bigint[] bytea[] bigint[] bytea[] bigint[] "
    "bytea[] bigint[] text[] bigint[] bigint[] bigint[]",
    "numbers",
)


async def _call(connection: Connection, sql: str, *arguments: Any) -> Any:
    """The one row of a function with OUT arguments."""
    return await connection.fetchrow(sql, *arguments)


class Accept:
    """Messages come in."""

    def fits(self, item: AcceptMessage) -> bool:
        return not item.urgent

    def are_one_group(self, items: Sequence[AcceptMessage]) -> bool:
        return len({(item.address, item.message_id) for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[AcceptMessage]) -> Result:
        alone = await self._one(connection, frame, items[0]) if len(items) == 1 else None
        return alone or await self._many(connection, frame, items)

    async def _one(self, connection: Connection, frame: Frame, item: AcceptMessage) -> Result | None:
        """A new message, to an address that has an owner, and room; None, and nothing is done, for any other."""
        if item.deliver_at is not None:
            return None
        number, news = await connection.fetchval(
            _ACCEPT_ONE,
            frame.batch_id,
            item.transition_id,
            frame.now,
            frame.own,
            item.address,
            item.message_id,
            item.digest,
            item.type,
            *columns_of(item.body),
            item.sender,
        )
        if number is None:
            return None
        woken: frozenset[str] = frozenset() if item.hushed else frozenset({item.address})
        return Result([accepted(item.message_id, None, number)], woken, news)

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[AcceptMessage]) -> Result:
        ids = [item.transition_id for item in items]
        row = await _call(
            connection, *_ACCEPT.given(frame.batch_id, ids, frame.now, frame.own, *accept_columns(items), False)
        )
        return Result(accept_answers(items, row), frozenset(row["woken"] or ()) - hushed(items), row["news"])


class Begin:
    """Deliveries are begun."""

    def fits(self, item: BeginDelivery) -> bool:
        return True

    def are_one_group(self, items: Sequence[BeginDelivery]) -> bool:
        return len({item.address for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[BeginDelivery]) -> Result | None:
        if len(items) == 1:
            return await self._one(connection, frame, items[0])
        return await self._many(connection, frame, items)

    async def _one(self, connection: Connection, frame: Frame, item: BeginDelivery) -> Result | None:
        number = await connection.fetchval(
            _BEGIN_ONE,
            frame.batch_id,
            item.transition_id,
            frame.now,
            item.execution_id,
            item.address,
            item.generation,
            item.seq,
            item.max_deliveries,
        )
        return frame.left if number is None else Result([begun(item.seq, number)])

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[BeginDelivery]) -> Result | None:
        mine = _of_one_execution(items)
        if frame.batch_id is not None and len(mine) < len(items):
            return None
        ids = [item.transition_id for item in mine]
        (numbers,) = await _call(
            connection, *_BEGIN.given(frame.batch_id, ids, frame.now, mine[0].execution_id, *begin_columns(mine))
        )
        if numbers is None:
            return None
        answers = {item.address: begun(item.seq, number) for item, number in _done(mine, numbers)}
        return Result([answers.get(item.address, LEFT) for item in items])


class Finish:
    """Messages have been handled. Those that send something are decided one by one."""

    def fits(self, item: FinishDelivery) -> bool:
        return not (item.outgoing or item.timers or item.outside)

    def are_one_group(self, items: Sequence[FinishDelivery]) -> bool:
        return len({item.address for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[FinishDelivery]) -> Result | None:
        if len(items) == 1:
            return await self._one(connection, frame, items[0])
        return await self._many(connection, frame, items)

    async def _one(self, connection: Connection, frame: Frame, item: FinishDelivery) -> Result | None:
        state = item.state
        number = await connection.fetchval(
            _FINISH_ONE,
            frame.batch_id,
            item.transition_id,
            frame.now,
            item.execution_id,
            item.address,
            item.generation,
            item.seq,
            *columns_of(item.reply),
            *columns_of(item.error),
            *columns_of(None if state is None else state.payload),
            None if state is None else state.type,
            None if state is None else state.version,
            item.next_seq,
            item.max_deliveries,
        )
        return frame.left if number is None else Result([handled(item.next_seq, number)])

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[FinishDelivery]) -> Result | None:
        mine = _of_one_execution(items)
        if frame.batch_id is not None and len(mine) < len(items):
            return None
        ids = [item.transition_id for item in mine]
        (numbers,) = await _call(
            connection, *_FINISH.given(frame.batch_id, ids, frame.now, mine[0].execution_id, *finish_columns(mine))
        )
        if numbers is None:
            return None
        answers = {item.address: handled(item.next_seq, number) for item, number in _done(mine, numbers)}
        return Result([answers.get(item.address, LEFT) for item in items])


def accept_columns(items: Sequence[AcceptMessage]) -> tuple[list[Any] | None, ...]:
    """From the address to the recipients, as the functions take them."""
    bodies = [columns_of(item.body) for item in items]
    addresses = [item.address for item in items]
    return (
        addresses,
        [item.message_id for item in items],
        [item.digest for item in items],
        [item.type for item in items],
        [data for data, _ in bodies],
        [size for _, size in bodies],
        [item.sender for item in items],
        [maybe_micros(item.deliver_at) for item in items],
        *recipient_columns(addresses),
    )


def recipient_columns(addresses: Sequence[str]) -> tuple[list[Any] | None, ...]:
    """The recipients, each once, how many messages each gets, which is each message's own, and which of its messages that is.

    Nothing, where each message has a recipient of its own.
    """
    places = {address: place for place, address in enumerate(dict.fromkeys(addresses), 1)}
    if len(places) == len(addresses):
        return None, None, None, None
    counts = [0] * len(places)
    at = [places[address] for address in addresses]
    nth = []
    for place in at:
        counts[place - 1] += 1
        nth.append(counts[place - 1])
    return list(places), counts, at, nth


def accept_answers(items: Sequence[AcceptMessage], row: Any) -> list[Receipt | Refused]:
    """The answers out of the verdicts and the numbers of a call, which may have more of them."""
    verdicts = row["verdicts"] or repeat(None)
    return [
        accepted(item.message_id, verdict, number)
        for item, verdict, number in zip(items, verdicts, row["numbers"], strict=False)
    ]


def hushed(items: Sequence[AcceptMessage]) -> set[str]:
    """Addresses of which no wake-up is to come."""
    return {item.address for item in items if item.hushed} - {item.address for item in items if not item.hushed}


def begin_columns(items: Sequence[BeginDelivery]) -> tuple[list[Any], ...]:
    """From the address to the most deliveries, as the functions take them."""
    return (
        [item.address for item in items],
        [item.generation for item in items],
        [item.seq for item in items],
        [item.max_deliveries for item in items],
    )


def finish_columns(items: Sequence[FinishDelivery]) -> tuple[list[Any], ...]:
    """From the address to the most deliveries of the next, as the functions take them."""
    replies = [columns_of(item.reply) for item in items]
    errors = [columns_of(item.error) for item in items]
    states = [columns_of(None if item.state is None else item.state.payload) for item in items]
    return (
        [item.address for item in items],
        [item.generation for item in items],
        [item.seq for item in items],
        *([column[n] for column in columns] for columns in (replies, errors, states) for n in (0, 1)),
        [None if item.state is None else item.state.type for item in items],
        [None if item.state is None else item.state.version for item in items],
        [item.next_seq for item in items],
        [item.max_deliveries for item in items],
    )


Owned = TypeVar("Owned", bound=OwnerWrite[Any])


def _of_one_execution(items: Sequence[Owned]) -> Sequence[Owned]:
    """The first one and all that come from the same execution: a lease is tested once (R3)."""
    execution_id = items[0].execution_id
    return [item for item in items if item.execution_id == execution_id]


def _done(items: Sequence[Owned], numbers: Sequence[int | None]) -> Iterator[tuple[Owned, int]]:
    """The items that were not left, each with its number."""
    return ((item, number) for item, number in zip(items, numbers, strict=True) if number is not None)


async def send(connection: Connection, frame: Frame, items: Sequence[FinishDelivery]) -> Result | None:
    """Bring all that handlers sent to its recipients, in order. The answers are the dispositions of each item's messages.

    None, and nothing is done, unless it can be told of each message by itself what becomes of it.
    """
    sent = [(item.address, message) for item in items for message in item.outgoing]
    if len({(message.recipient, message.message_id) for _, message in sent}) < len(sent):
        return None
    bodies = [columns_of(message.body) for _, message in sent]
    recipients = [message.recipient for _, message in sent]
    row = await _call(
        connection,
        *_ACCEPT.given(
            None,
            None,
            frame.now,
            frame.own,
            recipients,
            [message.message_id for _, message in sent],
            [message.digest for _, message in sent],
            [message.type for _, message in sent],
            [data for data, _ in bodies],
            [size for _, size in bodies],
            [address for address, _ in sent],
            [maybe_micros(message.deliver_at) for _, message in sent],
            *recipient_columns(recipients),
            True,
        ),
    )
    if row["numbers"] is None:
        return None
    verdicts = map(Disposition, row["verdicts"] or repeat(Disposition.ACCEPTED))
    dispositions = [tuple(islice(verdicts, len(item.outgoing))) for item in items]
    return Result(dispositions, frozenset(row["woken"] or ()), row["news"])


HOT: Final[dict[type[Transition[Any]], Hot]] = {
    AcceptMessage: Accept(),
    BeginDelivery: Begin(),
    FinishDelivery: Finish(),
}
