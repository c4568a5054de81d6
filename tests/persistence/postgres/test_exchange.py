"""A batch of messages that come in, are begun and have been handled: one call, which does what they do one by one (R6, R9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import pytest

from greenroom.persistence.addresses import AddressKind, ClaimAddress, StateWrite
from greenroom.persistence.deliveries import BeginDelivery, Delivery, FinishDelivery, Handled
from greenroom.persistence.executions import RegisterExecution
from greenroom.persistence.messages import Disposition, Receipt
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.transitions import RefusalReason, Refused, Transition
from tests.persistence.postgres.help import opened, run, session
from tests.persistence.postgres.servers import Server, fresh_schema
from tests.persistence.postgres.test_r09_oracle import (
    Writer,
    arriving,
    claiming,
    difference,
    postgres_says,
    sqlite_says,
)

OWNED: Final[dict[str, Any]] = {"address": "a", "execution_id": "e1", "generation": 1}


class Exchanging(Writer):
    """Writes these three kinds alone."""

    def item(self) -> Transition[Any]:
        kind = self.random.choices(("accept", "begin", "finish"), (40, 25, 35))[0]
        written: Transition[Any] = getattr(self, kind)()
        if isinstance(written, FinishDelivery):
            written = attrs.evolve(written, outgoing=(), timers=(), outside=())
        return written


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_r09_exchanges_do_what_their_items_do_one_by_one(postgres: Server, start: int) -> None:
    for seed in range(start, start + 10):
        expected = sqlite_says(seed, writes=Exchanging)
        assert difference(seed, expected, postgres_says(postgres, expected.steps)) is None


async def kinds(connection: Connection) -> list[str | None]:
    """How batches were applied, in order."""
    return [row["kind"] for row in await connection.fetch("SELECT kind FROM batches ORDER BY batch_id")]


def applied(server: Server, *batches: Sequence[Transition[Any]]) -> tuple[list[Any], str | None]:
    """Apply the batches. Returns the last one's answers, as they were and as they are on record, and how it was applied."""

    async def main(url: str) -> tuple[list[Any], str | None]:
        async with opened(url) as driver, session(url) as connection:
            for number, items in enumerate(batches):
                answers = list((await driver.apply(f"batch {number}", items)).answers)
            recovered = await driver.recover(f"batch {len(batches) - 1}", batches[-1])
            assert recovered is not None
            assert list(recovered.answers) == answers
            return answers, (await kinds(connection))[-1]

    with fresh_schema(server) as url:
        return run(main(url))


def begun(capacity: int | None = None) -> list[Sequence[Transition[Any]]]:
    """An address with two messages of which the first is in hand, and another with one that waits."""
    return [
        [RegisterExecution(execution_id="e1", host="h", pid=1, boot_id="test", lease=60.0)],
        [claiming("a", capacity)],
        [ClaimAddress(address="b", kind=AddressKind.ACTOR, execution_id="e1")],
        [arriving("a", "m1"), arriving("a", "m2"), arriving("b", "m1")],
        [BeginDelivery(**OWNED, seq=1)],
    ]


def test_messages_come_in_are_begun_and_handled_by_one_call(postgres: Server) -> None:
    answers, kind = applied(
        postgres,
        *begun(),
        [
            arriving("a", "m3"),
            FinishDelivery(**OWNED, seq=1, next_seq=2),
            arriving("nobody", "m3"),
            BeginDelivery(**{**OWNED, "address": "b"}, seq=1),
            arriving("a", "m4"),
            arriving("b", "m1"),
        ],
    )
    assert kind == "Exchange"
    assert answers == [
        Receipt("m3", Disposition.ACCEPTED, 3),
        Handled(next=Delivery(2, 1)),
        Receipt("m3", Disposition.UNMATCHED),
        Delivery(1, 1),
        Receipt("m4", Disposition.ACCEPTED, 4),
        Receipt("m1", Disposition.DUPLICATE, 1),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_a_message_finds_the_room_of_what_was_handled_before_it_and_no_other(postgres: Server, first: bool) -> None:
    items: list[Transition[Any]] = [FinishDelivery(**OWNED, seq=1), arriving("a", "m3")]
    answers, kind = applied(postgres, *begun(capacity=2), items if first else items[::-1])
    assert kind is None
    handled, receipt = answers if first else answers[::-1]
    assert handled == Handled()
    if first:
        assert receipt == Receipt("m3", Disposition.ACCEPTED, 3)
    else:
        assert isinstance(receipt, Refused)
        assert receipt.reason is RefusalReason.FULL


def test_where_there_is_room_for_all_it_does_not_matter_who_comes_first(postgres: Server) -> None:
    finish = FinishDelivery(**OWNED, seq=1)
    answers, kind = applied(postgres, *begun(capacity=3), [arriving("a", "m3"), finish])
    assert kind == "Exchange"
    assert answers == [Receipt("m3", Disposition.ACCEPTED, 3), Handled()]


@pytest.mark.parametrize("first", [True, False])
def test_a_message_is_begun_behind_its_coming_in_and_not_before(postgres: Server, first: bool) -> None:
    items: list[Transition[Any]] = [arriving("a", "m3"), BeginDelivery(**OWNED, seq=3)]
    answers, kind = applied(postgres, *begun(), items if first else items[::-1])
    assert kind is None
    receipt, delivery = answers if first else answers[::-1]
    assert receipt == Receipt("m3", Disposition.ACCEPTED, 3)
    if first:
        assert delivery == Delivery(3, 1)
    else:
        assert isinstance(delivery, Refused)
        assert delivery.reason is RefusalReason.NOT_PENDING


@pytest.mark.parametrize("stale", [{"generation": 2}, {"execution_id": "e2"}])
def test_r02_an_owner_of_the_past_is_refused_and_the_others_are_not(postgres: Server, stale: dict[str, Any]) -> None:
    answers, kind = applied(
        postgres, *begun(), [arriving("b", "m2"), BeginDelivery(**{**OWNED, **stale}, seq=2), arriving("a", "m3")]
    )
    assert kind is None
    assert answers[0] == Receipt("m2", Disposition.ACCEPTED, 2)
    assert isinstance(answers[1], Refused)
    assert answers[2] == Receipt("m3", Disposition.ACCEPTED, 3)


def test_what_was_left_undone_leaves_nothing_behind(postgres: Server) -> None:
    """The second of them is not in hand: what went before it is not there twice."""

    async def main(url: str) -> list[tuple[Any, ...]]:
        async with opened(url) as driver, session(url) as connection:
            for number, items in enumerate(begun()):
                await driver.apply(f"batch {number}", items)
            await driver.apply("last", [arriving("a", "m3"), FinishDelivery(**{**OWNED, "address": "b"}, seq=1)])
            found = await connection.fetch("SELECT address, last_seq, ready, queued FROM addresses ORDER BY address")
            return [tuple(row) for row in found]

    with fresh_schema(postgres) as url:
        assert run(main(url)) == [("a", 3, 3, 3), ("b", 1, 1, 1)]


def test_two_writes_of_one_address_are_no_exchange(postgres: Server) -> None:
    finish, begin = FinishDelivery(**OWNED, seq=1), BeginDelivery(**OWNED, seq=2)
    answers, kind = applied(postgres, *begun(), [finish, arriving("b", "m2"), begin])
    assert kind is None
    assert answers == [Handled(), Receipt("m2", Disposition.ACCEPTED, 2), Delivery(2, 1)]


def test_r03_writes_of_two_executions_are_no_exchange(postgres: Server) -> None:
    """The lease is tested once in it."""
    others: dict[str, Any] = {"address": "c", "execution_id": "e2", "generation": 1}
    answers, kind = applied(
        postgres,
        *begun(),
        [RegisterExecution(execution_id="e2", host="h", pid=1, boot_id="test", lease=60.0)],
        [ClaimAddress(address="c", kind=AddressKind.ACTOR, execution_id="e2")],
        [arriving("c", "m1")],
        [BeginDelivery(**others, seq=1), arriving("b", "m2"), FinishDelivery(**OWNED, seq=1)],
    )
    assert kind is None
    assert answers == [Delivery(1, 1), Receipt("m2", Disposition.ACCEPTED, 2), Handled()]


def test_an_exchange_is_answered_the_same_when_its_acknowledgement_was_lost(postgres: Server) -> None:
    """R5: what it was answered is on record, also for a message whose time has not come, and for replies and states."""
    answers, kind = applied(
        postgres,
        *begun(),
        [
            attrs.evolve(arriving("b", "m2"), deliver_at=datetime.now(UTC) + timedelta(hours=1)),
            FinishDelivery(**OWNED, seq=1, reply=b"r", state=StateWrite(payload=b"s", type="S", version=1)),
        ],
    )
    assert kind == "Exchange"
    assert answers == [Receipt("m2", Disposition.ACCEPTED), Handled()]
