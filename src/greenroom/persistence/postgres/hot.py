"""The hot kinds: many items at once, by one call of a plpgsql function each (R6).

A call with a batch's id is a whole transaction, one round trip for one fsync. Without it, it is a group of a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, Protocol

from attrs import frozen

from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.deliveries import BeginDelivery, FinishDelivery
from greenroom.persistence.messages import AcceptMessage, Disposition
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.rows import columns_of
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.verdicts import accepted, begun, handled
from greenroom.persistence.transitions import Transition


@frozen
class Left:
    """Not decided by the function: it was left as it was."""


LEFT: Final = Left()


@frozen(kw_only=True)
class Frame:
    """What surrounds a call: the whole of a batch, or a part of one whose time has been read."""

    batch_id: str | None = None
    now: int | None = None
    own: Sequence[str] = ()
    """Executions of this process."""


@frozen
class Result:
    """What came of a call."""

    answers: list[Any]
    """In the order of the items; `LEFT` for those that must be decided one by one."""
    woken: frozenset[str] = frozenset()
    news: bool = False
    """Something of it concerns other processes."""


class Hot(Protocol):
    """One hot kind."""

    def fits(self, item: Any) -> bool:
        """May the function be asked about it?"""

    async def call(self, connection: Connection, frame: Frame, items: Sequence[Any]) -> Result | None:
        """None: a whole batch of which something would be left. Nothing was changed."""


def _statement(stem: str, types: str, result: str) -> str:
    names = ", ".join(f"${n}::{name}" for n, name in enumerate(types.split(), 1))
    return f"SELECT {result} FROM {NAMES[stem]}({names})"


_ACCEPT: Final = _statement(
    "accept",
    "text text[] bigint text[] text[] text[] text[] text[] bytea[] text[] bigint[] text[] bigint[] boolean",
    "verdicts, numbers, woken, news",
)
_BEGIN: Final = _statement("begin", "text text[] bigint text[] text[] bigint[] bigint[] bigint[]", "verdicts, numbers")
_FINISH: Final = _statement(
    "finish",
    "text text[] bigint text[] text[] bigint[] bigint[] bytea[] text[] bigint[] bytea[] text[] bigint[] "
    "bytea[] text[] bigint[] text[] bigint[] bigint[] bigint[]",
    "verdicts, numbers",
)


def _some(values: list[Any]) -> list[Any] | None:
    """An array for the database, which takes none for one that is all NULL: it costs nothing then, on either side."""
    return None if values.count(None) == len(values) else values


class Accept:
    """Messages come in."""

    def fits(self, item: AcceptMessage) -> bool:
        return True

    async def call(self, connection: Connection, frame: Frame, items: Sequence[AcceptMessage]) -> Result:
        bodies = [columns_of(item.body) for item in items]
        row = await connection.fetchrow(
            _ACCEPT,
            frame.batch_id,
            [item.transition_id for item in items],
            frame.now,
            frame.own,
            [item.address for item in items],
            [item.message_id for item in items],
            [item.digest for item in items],
            [item.type for item in items],
            *(_some([body[n] for body in bodies]) for n in range(3)),
            _some([item.sender for item in items]),
            _some([maybe_micros(item.deliver_at) for item in items]),
            False,
        )
        assert row is not None  # a function with OUT arguments gives one
        answers = [
            accepted(item.address, item.message_id, verdict, number)
            for item, verdict, number in zip(items, row["verdicts"], row["numbers"], strict=True)
        ]
        hushed = {item.address for item in items if item.hushed} - {item.address for item in items if not item.hushed}
        return Result(answers, frozenset(row["woken"] or ()) - hushed, row["news"])


class Begin:
    """Deliveries are begun."""

    def fits(self, item: BeginDelivery) -> bool:
        return True

    async def call(self, connection: Connection, frame: Frame, items: Sequence[BeginDelivery]) -> Result | None:
        row = await connection.fetchrow(
            _BEGIN,
            frame.batch_id,
            [item.transition_id for item in items],
            frame.now,
            [item.address for item in items],
            [item.execution_id for item in items],
            [item.generation for item in items],
            [item.seq for item in items],
            [item.max_deliveries for item in items],
        )
        assert row is not None  # a function with OUT arguments gives one
        if row["verdicts"] is None:
            return None
        return Result(
            [
                LEFT if verdict is None else begun(item.address, str(item.seq), verdict, number)
                for item, verdict, number in zip(items, row["verdicts"], row["numbers"], strict=True)
            ]
        )


class Finish:
    """Messages have been handled. Those that send something are decided one by one."""

    def fits(self, item: FinishDelivery) -> bool:
        return not (item.outgoing or item.timers or item.outside)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[FinishDelivery]) -> Result | None:
        replies = [columns_of(item.reply) for item in items]
        errors = [columns_of(item.error) for item in items]
        states = [columns_of(None if item.state is None else item.state.payload) for item in items]
        row = await connection.fetchrow(
            _FINISH,
            frame.batch_id,
            [item.transition_id for item in items],
            frame.now,
            [item.address for item in items],
            [item.execution_id for item in items],
            [item.generation for item in items],
            [item.seq for item in items],
            *(_some([columns[n] for columns in replies]) for n in range(3)),
            *(_some([columns[n] for columns in errors]) for n in range(3)),
            *(_some([columns[n] for columns in states]) for n in range(3)),
            _some([None if item.state is None else item.state.type for item in items]),
            _some([None if item.state is None else item.state.version for item in items]),
            _some([item.next_seq for item in items]),
            [item.max_deliveries for item in items],
        )
        assert row is not None  # a function with OUT arguments gives one
        if row["verdicts"] is None:
            return None
        return Result(
            [
                LEFT if verdict is None else handled(item.address, str(item.next_seq), verdict, number)
                for item, verdict, number in zip(items, row["verdicts"], row["numbers"], strict=True)
            ]
        )


async def send(connection: Connection, frame: Frame, items: Sequence[FinishDelivery]) -> Result | None:
    """Bring all that handlers sent to its recipients, in order. The answers are the dispositions of each item's messages.

    None, and nothing is done, unless it can be told of each message by itself what becomes of it.
    """
    sent = [(item.address, message) for item in items for message in item.outgoing]
    if len({(message.recipient, message.message_id) for _, message in sent}) < len(sent):
        return None
    bodies = [columns_of(message.body) for _, message in sent]
    row = await connection.fetchrow(
        _ACCEPT,
        None,
        None,
        frame.now,
        frame.own,
        [message.recipient for _, message in sent],
        [message.message_id for _, message in sent],
        [message.digest for _, message in sent],
        [message.type for _, message in sent],
        *(_some([body[n] for body in bodies]) for n in range(3)),
        [address for address, _ in sent],
        _some([maybe_micros(message.deliver_at) for _, message in sent]),
        True,
    )
    assert row is not None  # a function with OUT arguments gives one
    if row["verdicts"] is None:
        return None
    verdicts = map(Disposition, row["verdicts"])
    dispositions = [tuple(islice(verdicts, len(item.outgoing))) for item in items]
    return Result(dispositions, frozenset(row["woken"] or ()), row["news"])


HOT: Final[dict[type[Transition[Any]], Hot]] = {
    AcceptMessage: Accept(),
    BeginDelivery: Begin(),
    FinishDelivery: Finish(),
}
