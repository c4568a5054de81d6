"""R9: PostgreSQL, in whatever batches, answers and ends as SQLite does one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from greenroom.persistence.addresses import (
    AddressKind,
    ClaimAddress,
    CloseAddress,
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
from greenroom.persistence.sqlite.blocking import run_blocking
from greenroom.persistence.sqlite.driver import SqliteDriver
from greenroom.persistence.transitions import Refused, Transition
from greenroom.persistence.urls import parse_url
from tests.persistence.postgres.help import Hands, opened, run, session
from tests.persistence.postgres.servers import Server, fresh_schema

ADDRESSES: Final = ("a", "b", "c")
EXECUTIONS: Final = ("e1", "e2")
START: Final = Hands().micros


def moment(seconds: int) -> datetime:
    return instant(START + seconds * 1_000_000)


addresses = st.sampled_from(ADDRESSES)
executions = st.sampled_from(EXECUTIONS)
generations = st.sampled_from((1, 1, 1, 1, 2, 3))
seqs = st.sampled_from((1, 1, 1, 2, 2, 3, 4))
ids = st.sampled_from([f"m{n}" for n in range(12)])
bodies = st.sampled_from((b"x", b"x", b"x", b"y"))
moments = st.none() | st.none() | st.integers(0, 40).map(moment)
tokens = st.sampled_from(("t1", "t2"))
owners: dict[str, Any] = {
    "address": addresses,
    "execution_id": st.sampled_from(("e1", "e1", "e1", "e2")),
    "generation": generations,
}


def _outgoing(message_id: str, recipient: str, body: bytes, at: datetime | None) -> Outgoing:
    digest = message_digest("Sent", body)
    return Outgoing(recipient=recipient, message_id=message_id, type="Sent", body=body, digest=digest, deliver_at=at)


def _timer(key: str, message_id: str, seconds: int) -> SetTimer:
    digest = message_digest("Timer", b"t")
    return SetTimer(key=key, message_id=message_id, type="Timer", body=b"t", digest=digest, deliver_at=moment(seconds))


timers = st.one_of(
    st.builds(_timer, st.sampled_from("kl"), ids, st.integers(0, 40)),
    st.builds(CancelTimer, key=st.sampled_from("kl")),
)
outside = st.builds(ToOutside, destination=st.just("mail"), message_id=ids, type=st.just("Mail"), body=bodies)
states = st.none() | st.builds(StateWrite, payload=bodies, type=st.just("State"), version=st.just(1))


def _accept(address: str, message_id: str, body: bytes, at: datetime | None) -> AcceptMessage:
    digest = message_digest("Test", body)
    return AcceptMessage(
        address=address, message_id=message_id, type="Test", body=body, digest=digest, sender="s", deliver_at=at
    )


accepts = st.builds(_accept, st.sampled_from((*ADDRESSES, "nobody")), ids, bodies, moments)
begins = st.builds(BeginDelivery, **owners, seq=seqs, max_deliveries=st.sampled_from((1, 5, 5)))
plain_finishes = st.builds(
    FinishDelivery,
    **owners,
    seq=seqs,
    reply=st.none() | bodies,
    error=st.none() | bodies,
    state=states,
    next_seq=st.none() | seqs,
    max_deliveries=st.sampled_from((1, 5, 5)),
)
finishes = st.builds(
    FinishDelivery,
    **owners,
    seq=seqs,
    state=states,
    outgoing=st.lists(st.builds(_outgoing, ids, addresses, bodies, moments), max_size=3).map(tuple),
    timers=st.lists(timers, max_size=2).map(tuple),
    outside=st.lists(outside, max_size=2).map(tuple),
    next_seq=st.none() | seqs,
)
claims = st.builds(
    ClaimAddress,
    address=addresses,
    kind=st.sampled_from(AddressKind),
    execution_id=executions,
    capacity=st.sampled_from((None, 2, 4)),
)
ordinals = st.integers(1, 3)
others = st.one_of(
    claims,
    st.builds(UndoDelivery, **owners, seq=seqs),
    st.builds(BuryMessage, **owners, seq=seqs, reason=st.just("bad"), error=st.none() | bodies),
    st.builds(ReleaseAddress, **owners),
    st.builds(CloseAddress, **owners),
    st.builds(ParkAddress, **owners, reason=st.sampled_from(ParkReason), detail=st.just("it")),
    st.builds(UnparkAddress, address=addresses),
    st.builds(AdmitDue, address=addresses, limit=st.sampled_from((1, 1000))),
    st.builds(RequeueDead, address=addresses, message_id=ids),
    st.builds(DropDead, address=addresses, message_id=ids),
    st.builds(CreateCallback, **owners, token_digest=tokens, name=st.just("n"), expires_at=moments),
    st.builds(AnswerCallback, token_digest=tokens, answer=bodies, digest=st.sampled_from("xy")),
    st.builds(ExpireCallback, token_digest=tokens),
    st.builds(CancelCallback, token_digest=tokens),
    st.builds(BeginSend, address=addresses, ordinal=ordinals, seconds=st.just(5.0)),
    st.builds(FinishSend, address=addresses, ordinal=ordinals),
    st.builds(FailSend, address=addresses, ordinal=ordinals, seconds=st.none() | st.just(3.0)),
    st.builds(RequeueSend, address=addresses, ordinal=ordinals),
    st.builds(FlushHeld, address=addresses, recipients=st.just(ADDRESSES)),
    st.builds(PutContent, data=bodies),
    st.builds(DrainExecution, execution_id=executions),
    st.builds(EndExecution, execution_id=executions),
    st.builds(ReleaseLost, execution_id=executions, limit=st.sampled_from((1, 1000))),
    st.builds(
        RegisterExecution,
        execution_id=executions,
        host=st.just("h"),
        pid=st.just(1),
        boot_id=st.just("test"),
        lease=st.just(30.0),
    ),
)
items = st.one_of(accepts, accepts, begins, plain_finishes, plain_finishes, finishes, others)

TABLES: Final = {
    "addresses": "address, kind, generation, owner, capacity, last_seq, handled_seq, settled_ahead, queued, ready, delayed, "
    "last_delayed, held, last_ordinal, state, state_content, state_type, state_version, parked, parked_detail, due_at, closed_at",
    "messages": "address, seq, message_id, digest, type, body, sender, timer, deliver_at, status, deliveries, accepted_at, "
    "delivered_at, settled_at, reply, error, reason",
    "observations": "at, kind, what, address, message_id, sender, execution_id, generation, detail, body",
    "callbacks": "token_digest, address, name, created_at, expires_at, status, settled_at, answer, answer_digest",
    "outbox": "address, ordinal, held, destination, message_id, digest, type, body, deliver_at, status, attempts, due_at, "
    "settled_at",
    "content": "digest, chunk, kept_at, bytes",
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


def sqlite_says(steps: Sequence[Step]) -> tuple[list[Any], dict[str, list[str]]]:
    hands = Hands()
    driver = SqliteDriver(parse_url("sqlite://:memory:"), hands.clock, bound=10.0)

    async def main() -> tuple[list[Any], dict[str, list[str]]]:
        await driver.open()
        answers: list[Any] = []
        for transitions, seconds in steps:
            for item in transitions:
                answers += (await driver.apply(new_id(), [item])).answers
            hands.move(seconds)
        connection = driver._open()
        tables = {
            name: rows(connection.execute(f"SELECT {columns} FROM {name}").fetchall())
            for name, columns in TABLES.items()
        }
        await driver.close()
        return plain(answers), tables

    return run_blocking(main())


def postgres_says(server: Server, steps: Sequence[Step]) -> tuple[list[Any], dict[str, list[str]]]:
    hands = Hands()

    async def main(url: str) -> tuple[list[Any], dict[str, list[str]]]:
        answers: list[Any] = []
        async with opened(url, hands.clock) as driver, session(url) as connection:
            for transitions, seconds in steps:
                for batch in batches(transitions, 512):
                    answers += (await driver.apply(new_id(), batch)).answers
                hands.move(seconds)
            tables = {
                name: rows([tuple(row) for row in await connection.fetch(f"SELECT {columns} FROM {name}")])
                for name, columns in TABLES.items()
            }
        return plain(answers), tables

    with fresh_schema(server) as url:
        return run(main(url))


def started() -> Step:
    begun: list[Transition[Any]] = [
        RegisterExecution(execution_id=name, host="h", pid=1, boot_id="test", lease=30.0) for name in EXECUTIONS
    ]
    begun += [ClaimAddress(address=name, kind=AddressKind.ACTOR, execution_id="e1", capacity=4) for name in ADDRESSES]
    return begun, 0


steps_of = st.lists(
    st.tuples(st.lists(items, min_size=1, max_size=12), st.sampled_from((0, 0, 1, 12, 35))), min_size=1, max_size=8
)


@given(steps=steps_of)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_r09_postgresql_in_batches_does_what_sqlite_does_one_by_one(postgres: Server, steps: list[Step]) -> None:
    whole = [started(), *steps]
    expected_answers, expected_tables = sqlite_says(whole)
    answers, tables = postgres_says(postgres, whole)
    assert answers == expected_answers
    assert tables == expected_tables
