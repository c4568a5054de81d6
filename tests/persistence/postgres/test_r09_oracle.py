"""R9: PostgreSQL, in whatever batches, answers and ends as SQLite does one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import attrs
import pytest
from attrs import define, field

from greenroom.persistence.addresses import (
    ACTORS,
    AddressKind,
    ClaimAddress,
    CloseAddress,
    OpenAddress,
    ParkAddress,
    ParkReason,
    ReleaseAddress,
    StateWrite,
    UnparkAddress,
)
from greenroom.persistence.callbacks import AnswerCallback, CancelCallback, CreateCallback, ExpireCallback
from greenroom.persistence.clock import instant
from greenroom.persistence.content import PutContent, message_digest
from greenroom.persistence.deliveries import (
    BeginDelivery,
    BuryMessage,
    CancelTimer,
    FinishDelivery,
    Outgoing,
    SetTimer,
    ToOutside,
    UndoDelivery,
)
from greenroom.persistence.executions import DrainExecution, EndExecution, RegisterExecution, ReleaseLost
from greenroom.persistence.ids import new_id
from greenroom.persistence.messages import AcceptMessage, AdmitDue, DropDead, RequeueDead
from greenroom.persistence.outbox import BeginSend, FailSend, FinishSend, FlushHeld, RequeueSend
from greenroom.persistence.packing import batches
from greenroom.persistence.pools import RegisterPool
from greenroom.persistence.retention import Prunable, Prune
from greenroom.persistence.sqlite.blocking import run_blocking
from greenroom.persistence.sqlite.driver import SqliteDriver
from greenroom.persistence.transitions import Refused, Transition
from greenroom.persistence.urls import parse_url
from tests.persistence.postgres.help import Hands, opened, run, session
from tests.persistence.postgres.servers import Server, fresh_schema

ADDRESSES: Final = ("a", "b", "c", "r", "s")
RECIPIENTS: Final = ("r", "r", "s")
"""To whom handlers send, most of the time: several in one group may, as long as they only count up."""
EXECUTIONS: Final = ("e1", "e2")
FORGOTTEN: Final = tuple(kind for kind in Prunable if kind is not Prunable.BATCHES)
"""Of which there are as many on both databases."""
LIKELY: Final = 0.85
"""How often an item is one that its address's state allows."""


def message_at(micros: int, random: Random) -> datetime | None:
    return instant(micros + random.choice((-5, 1, 12, 40)) * 1_000_000) if random.random() < 0.25 else None


@define
class Writer:
    """Writes transitions that make sense most of the time, over few hot keys."""

    random: Random
    micros: int = 0
    known: dict[str, tuple[int, str | None, int, int]] = field(factory=dict)
    """Generation, owner, handled and last place of each address, as they were before the batch."""
    begun: list[str] = field(factory=list)
    """Addresses whose first unhandled message is in hand."""
    ids: int = 0

    def likely(self) -> bool:
        return self.random.random() < LIKELY

    def address(self) -> str:
        return self.random.choice(ADDRESSES) if self.likely() else self.random.choice((*ADDRESSES, "nobody"))

    def owner(self) -> dict[str, Any]:
        address = self.random.choice(ADDRESSES)
        generation, owner, _, _ = self.known[address]
        if not self.likely():
            generation += self.random.choice((-1, 1))
        return {"address": address, "execution_id": owner or "e1", "generation": generation}

    def delivery(self) -> dict[str, Any]:
        owned = self.owner()
        handled = self.known[owned["address"]][2]
        return {**owned, "seq": handled + self.random.choice((1, 1, 1, 1, 2, 3))}

    def message_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}" if self.random.random() < 0.7 else f"m{self.random.randrange(1, self.ids + 1)}"

    def body(self) -> bytes:
        return self.random.choice((b"x", b"x", b"x", b"y"))

    def accept(self) -> AcceptMessage:
        body = self.body()
        return AcceptMessage(
            address=self.address(),
            message_id=self.message_id(),
            type="Test",
            body=body,
            digest=message_digest("Test", body),
            sender="s",
            deliver_at=message_at(self.micros, self.random),
            urgent=self.random.random() < 0.1,
        )

    def begin(self) -> BeginDelivery:
        return BeginDelivery(**self.delivery(), max_deliveries=self.random.choice((1, 5, 5)))

    def finish(self) -> FinishDelivery:
        random = self.random
        where = self.delivery()
        if self.begun and self.likely():
            address = random.choice(self.begun)
            generation, owner, handled, _ = self.known[address]
            where = {"address": address, "execution_id": owner or "e1", "generation": generation, "seq": handled + 1}
        state = StateWrite(payload=self.body(), type="State", version=1) if random.random() < 0.5 else None
        following = where["seq"] + random.choice((1, 1, 2)) if random.random() < 0.5 else None
        plain = FinishDelivery(
            **where,
            state=state,
            next_seq=following,
            reply=self.body() if random.random() < 0.3 else None,
            error=self.body() if random.random() < 0.1 else None,
            max_deliveries=random.choice((1, 5, 5)),
        )
        if random.random() < 0.5:
            return plain
        sending = attrs.evolve(plain, outgoing=tuple(self.outgoing() for _ in range(random.randrange(4))))
        if random.random() < 0.6:
            return sending
        return attrs.evolve(
            sending,
            timers=tuple(self.timer() for _ in range(random.randrange(3))),
            outside=tuple(
                ToOutside(destination="mail", message_id=self.message_id(), type="Mail", body=b"o")
                for _ in range(random.randrange(2))
            ),
        )

    def outgoing(self) -> Outgoing:
        body = self.body()
        return Outgoing(
            recipient=self.random.choice(RECIPIENTS) if self.likely() else self.address(),
            message_id=self.message_id(),
            type="Sent",
            body=body,
            digest=message_digest("Sent", body),
            deliver_at=message_at(self.micros, self.random),
        )

    def timer(self) -> SetTimer | CancelTimer:
        key = self.random.choice("kl")
        if self.random.random() < 0.3:
            return CancelTimer(key=key)
        at = instant(self.micros + self.random.choice((-1, 1, 20)) * 1_000_000)
        digest = message_digest("Timer", b"t")
        return SetTimer(key=key, message_id=self.message_id(), type="Timer", body=b"t", digest=digest, deliver_at=at)

    def claim(self) -> ClaimAddress:
        capacity = self.random.choice((None, 2, 4))
        return ClaimAddress(
            address=self.random.choice(ADDRESSES),
            kind=self.random.choice(ACTORS),
            execution_id=self.random.choice(EXECUTIONS),
            capacity=capacity,
        )

    def other(self) -> Transition[Any]:
        random = self.random
        address, callback, ordinal = random.choice(ADDRESSES), random.choice(("c1", "c2", "c3")), random.randrange(1, 4)
        secret = random.choice("st")
        old = f"m{random.randrange(1, self.ids + 2)}"
        at = message_at(self.micros, random)
        return random.choice(
            (
                lambda: UndoDelivery(**self.delivery()),
                lambda: BuryMessage(**self.delivery(), reason="bad", error=b"e"),
                lambda: BuryMessage(**self.delivery(), reason="bad"),
                lambda: ReleaseAddress(**self.owner()),
                lambda: CloseAddress(**self.owner()),
                lambda: ParkAddress(**self.owner(), reason=ParkReason.UNDECODABLE, detail="it"),
                lambda: UnparkAddress(address=address),
                lambda: AdmitDue(address=address, limit=random.choice((1, 1000))),
                lambda: AdmitDue(address=address),
                lambda: RequeueDead(address=address, message_id=old),
                lambda: DropDead(address=address, message_id=old),
                lambda: CreateCallback(
                    **self.owner(), callback_id=callback, secret_digest=secret, name="n", expires_at=at
                ),
                lambda: AnswerCallback(
                    callback_id=callback, secret_digest=secret, answer=self.body(), digest=random.choice("xy")
                ),
                lambda: ExpireCallback(callback_id=callback),
                lambda: CancelCallback(callback_id=callback),
                lambda: BeginSend(address=address, ordinal=ordinal, seconds=5.0),
                lambda: FinishSend(address=address, ordinal=ordinal),
                lambda: FailSend(address=address, ordinal=ordinal, seconds=random.choice((None, 3.0))),
                lambda: RequeueSend(address=address, ordinal=ordinal),
                lambda: FlushHeld(address=address, recipients=ADDRESSES),
                lambda: OpenAddress(address=self.address(), kind=AddressKind.ACTOR, capacity=random.choice((None, 2))),
                lambda: RegisterPool(pool=random.choice("pq"), capacity=random.choice((None, 2))),
                lambda: PutContent(data=self.body()),
                lambda: ReleaseLost(execution_id=random.choice(EXECUTIONS), limit=random.choice((1, 1000))),
                self.rare,
            )
        )()

    def rare(self) -> Transition[Any]:
        name = self.random.choice((*EXECUTIONS, "e3", "e4"))
        return self.random.choice(
            (
                DrainExecution(execution_id=name),
                EndExecution(execution_id=name),
                RegisterExecution(execution_id=name, host="h", pid=1, boot_id="test", lease=30.0),
                Prune(kind=self.random.choice(FORGOTTEN), age=timedelta(seconds=20)),
            )
        )

    def item(self) -> Transition[Any]:
        kind = self.random.choices(("accept", "begin", "finish", "claim", "other"), (28, 24, 32, 3, 13))[0]
        written: Transition[Any] = getattr(self, kind)()
        return written


TABLES: Final = {
    "addresses": "address, kind, generation, owner, capacity, last_seq, handled_seq, settled_ahead, queued, ready, delayed, "
    "last_delayed, held, last_ordinal, state, state_size, state_type, state_version, parked, parked_detail, due_at, closed_at",
    "messages": "address, seq, message_id, digest, type, body, sender, timer, deliver_at, status, deliveries, accepted_at, "
    "delivered_at, settled_at, reply, error, reason",
    "observations": "at, kind, what, address, message_id, sender, execution_id, generation, detail, body",
    "pools": "pool, capacity, registered_at",
    "callbacks": "callback_id, secrets, address, name, created_at, expires_at, status, settled_at, answer, answer_digest",
    "outbox": "address, ordinal, held, destination, message_id, digest, type, body, deliver_at, status, attempts, due_at, "
    "settled_at",
    "content": "digest, chunk, size, kept_at, bytes",
    "executions": "execution_id, state, ended_at",
}


def plain(answers: Sequence[Any]) -> list[Any]:
    """Answers to be compared: seconds come from two kinds of clock."""
    return [
        attrs.evolve(answer, seconds=None if answer.seconds is None else round(answer.seconds, 3))
        if isinstance(answer, Refused)
        else answer
        for answer in answers
    ]


def rows(found: Sequence[Sequence[Any]]) -> list[str]:
    return sorted(repr(tuple(int(v) if isinstance(v, bool) else v for v in row)) for row in found)


Step = tuple[list[Transition[Any]], int]
"""Transitions, and the seconds that pass after them."""


def started() -> Step:
    begun: list[Transition[Any]] = [
        RegisterExecution(execution_id=name, host="h", pid=1, boot_id="test", lease=60.0) for name in EXECUTIONS
    ]
    begun += [
        ClaimAddress(address=name, kind=AddressKind.ACTOR, execution_id="e1", capacity=capacity)
        for name, capacity in zip(ADDRESSES, (None, 2, 4, None, 3), strict=True)
    ]
    return begun, 0


@define
class Outcome:
    """All that can be told of a run."""

    steps: list[Step] = field(factory=list)
    answers: list[Any] = field(factory=list)
    tables: dict[str, list[str]] = field(factory=dict)


def sqlite_says(seed: int, given: Sequence[Step] | None = None, writes: type[Writer] = Writer) -> Outcome:
    """Write a run, or take the one that is given, and apply it one by one."""
    hands = Hands()
    driver = SqliteDriver(parse_url("sqlite://:memory:"), hands.clock, bound=10.0)
    writer = writes(Random(seed))
    outcome = Outcome()

    async def main() -> None:
        await driver.open()
        connection = driver._open()
        for number in range(20 if given is None else len(given)):
            writer.micros = hands.micros
            for address, *numbers in connection.execute(
                "SELECT address, generation, owner, handled_seq, last_seq FROM addresses"
            ):
                writer.known[address] = tuple(numbers)
            writer.begun = [
                address
                for (address,) in connection.execute(
                    "SELECT a.address FROM addresses a JOIN messages m ON m.address = a.address "
                    "AND m.seq = a.handled_seq + 1 AND m.deliveries > 0 AND m.status = 'queued'"
                )
            ]
            if given is not None:
                step = given[number]
            elif number == 0:
                step = started()
            else:
                size = writer.random.randrange(1, 13)
                step = [writer.item() for _ in range(size)], writer.random.choice((0, 0, 1, 1, 15))
            outcome.steps.append(step)
            for item in step[0]:
                outcome.answers += (await driver.apply(new_id(), [item])).answers
            hands.move(step[1])
        outcome.tables = {
            name: rows(connection.execute(f"SELECT {columns} FROM {name}").fetchall())
            for name, columns in TABLES.items()
        }
        await driver.close()

    run_blocking(main())
    outcome.answers = plain(outcome.answers)
    return outcome


def postgres_says(server: Server, steps: Sequence[Step]) -> Outcome:
    """Apply a run batch by batch."""
    hands = Hands()
    outcome = Outcome(list(steps))

    async def main(url: str) -> None:
        async with opened(url, hands.clock) as driver, session(url) as connection:
            for transitions, seconds in steps:
                for batch in batches(transitions, 512):
                    outcome.answers += (await driver.apply(new_id(), batch)).answers
                hands.move(seconds)
            outcome.tables = {
                name: rows([tuple(row) for row in await connection.fetch(f"SELECT {columns} FROM {name}")])
                for name, columns in TABLES.items()
            }

    with fresh_schema(server) as url:
        run(main(url))
    outcome.answers = plain(outcome.answers)
    return outcome


def difference(seed: int, expected: Outcome, got: Outcome) -> str | None:
    """The first difference, with what led to it."""
    items = [item for transitions, _ in expected.steps for item in transitions]
    for number, (item, before, after) in enumerate(zip(items, expected.answers, got.answers, strict=True)):
        if before != after:
            return f"seed {seed}, item {number}: {item}\n  SQLite: {before}\n  PostgreSQL: {after}"
    for name, before_rows in expected.tables.items():
        if before_rows != got.tables[name]:
            only = set(before_rows) ^ set(got.tables[name])
            return f"seed {seed}, table {name}: " + "\n".join(sorted(only))
    return None


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_r09_postgresql_in_batches_does_what_sqlite_does_one_by_one(postgres: Server, start: int) -> None:
    for seed in range(start, start + 10):
        expected = sqlite_says(seed)
        assert difference(seed, expected, postgres_says(postgres, expected.steps)) is None


def sent_by(address: str, *recipients: str) -> FinishDelivery:
    """A message handled, and one sent to each recipient."""
    outgoing = tuple(
        Outgoing(recipient=recipient, message_id=f"{address}|{number}", type="Sent", body=b"x", digest=address)
        for number, recipient in enumerate(recipients)
    )
    return FinishDelivery(address=address, execution_id="e1", generation=1, seq=1, outgoing=outgoing, next_seq=2)


@pytest.mark.parametrize("capacity", [None, 4, 7])
def test_r09_many_handlers_that_send_at_once_do_what_they_do_one_by_one(postgres: Server, capacity: int | None) -> None:
    handlers = [f"h{number}" for number in range(6)]
    steps: list[Step] = [
        (
            [
                RegisterExecution(execution_id="e1", host="h", pid=1, boot_id="test", lease=60.0),
                *(claiming(name, None) for name in (*handlers, "r")),
                claiming("s", capacity),
            ],
            0,
        ),
        ([arriving(name, f"m{number}") for name in handlers for number in range(2)], 0),
        ([BeginDelivery(address=name, execution_id="e1", generation=1, seq=1) for name in handlers], 1),
        ([sent_by(name, "r", "s", "nobody") for name in handlers], 1),
    ]
    expected = sqlite_says(0, steps)
    assert difference(0, expected, postgres_says(postgres, steps)) is None


def test_r09_many_that_catch_up_with_what_was_settled_ahead_do_what_they_do_one_by_one(postgres: Server) -> None:
    handlers = ("h1", "h2", "h3")
    owned: list[dict[str, Any]] = [{"address": name, "execution_id": "e1", "generation": 1} for name in handlers]
    steps: list[Step] = [
        (
            [
                RegisterExecution(execution_id="e1", host="h", pid=1, boot_id="test", lease=60.0),
                *(claiming(name, None) for name in handlers),
            ],
            0,
        ),
        ([arriving(name, f"m{number}") for name in handlers for number in range(4)], 0),
        ([BuryMessage(**owner, seq=seq, reason="bad") for seq in (2, 3) for owner in owned[:2]], 0),
        ([BeginDelivery(**owner, seq=1) for owner in owned], 0),
        ([FinishDelivery(**owner, seq=1, next_seq=4) for owner in owned], 0),
    ]
    expected = sqlite_says(0, steps)
    assert difference(0, expected, postgres_says(postgres, steps)) is None


def claiming(address: str, capacity: int | None) -> ClaimAddress:
    return ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id="e1", capacity=capacity)


def arriving(address: str, message_id: str) -> AcceptMessage:
    return AcceptMessage(address=address, message_id=message_id, type="Test", body=b"x", digest="d")


@pytest.mark.full
def test_r09_many_more_more_runs_do_the_same(postgres: Server) -> None:
    for seed in range(1000, 1400):
        expected = sqlite_says(seed)
        assert difference(seed, expected, postgres_says(postgres, expected.steps)) is None
