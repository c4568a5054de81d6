"""The audit finds what a store that breaks its promises would leave behind; each test breaks one (I1 to I5)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from greenroom.persistence import (
    AcceptMessage,
    Disposition,
    FinishDelivery,
    Handled,
    Outgoing,
    Prunable,
    ReleaseLost,
    Retention,
    SetTimer,
    StateWrite,
    ToOutside,
    message_digest,
    open_store,
    outgoing_id,
    prune,
)
from greenroom.testing import InvariantBroken, Ledger, StoreTime, audit
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.testing.desks import claim, claiming, done, message, register

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from greenroom.persistence import Committer, Driver, Transition
    from greenroom.persistence.driver import Applied
    from tests.testing.desks import Desk


class Tampered(WrappedDriver):
    """Commits something else than it was given, and answers for what it was given."""

    def __init__(self, inner: Driver, tamper: Callable[[Any], Any], answer: Any) -> None:
        super().__init__(inner)
        self._tamper, self._answer = tamper, answer

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        changed = [self._tamper(item) for item in items]
        applied = await self.inner.apply(batch_id, changed)
        if self._answer is None or all(new is old for new, old in zip(changed, items, strict=True)):
            return applied
        return evolve(applied, answers=[self._answer])


class Office:
    """A store under a ledger, and a desk in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.time = StoreTime()
        self.ledger = Ledger()

    @asynccontextmanager
    async def open(self, tamper: Callable[[Any], Any] = lambda item: item, answer: Any = None) -> AsyncIterator[Desk]:
        async with open_store(
            self.url,
            clock=self.time.store_clock,
            driver=lambda driver: self.ledger.wrap(Tampered(driver, tamper, answer)),
        ) as store:
            await register(store, self.time.store_clock, "e1")
            yield await claim(store, "e1")

    @asynccontextmanager
    async def behind_the_ledger(self) -> AsyncIterator[Committer]:
        async with open_store(self.url, clock=self.time.store_clock) as store:
            yield store

    async def findings(self) -> tuple[str, ...]:
        async with self.behind_the_ledger() as store:
            try:
                await audit(store, self.ledger)
            except InvariantBroken as broken:
                return broken.findings
        return ()


@pytest.fixture
def office(store_url: str) -> Office:
    return Office(store_url)


@pytest.fixture
def sqlite_office(sqlite_url: str) -> Office:
    return Office(sqlite_url)


def outgoing(message_id: str = outgoing_id("desk", "m1", 1), recipient: str = "shelf") -> Outgoing:
    return Outgoing(
        recipient=recipient, message_id=message_id, type="Note", body=b"{}", digest=message_digest("Note", b"{}")
    )


async def test_a_store_that_keeps_its_promises_is_found_so(office: Office) -> None:
    async with office.open() as desk:
        await claim(desk.store, "e1", "shelf")
        for number in range(3):
            await desk.send(f"m{number}")
        await done(desk.store, message("desk", "m1"))  # a duplicate
        await desk.handle(1)
        await desk.handle(2, outgoing=(outgoing(),))
        await done(desk.store, desk.begin(3))
        tick = SetTimer(
            key="tick",
            message_id="t1",
            type="Tick",
            body=b"{}",
            digest=message_digest("Tick", b"{}"),
            deliver_at=office.time.now(),
        )
        letter = ToOutside(destination="post", message_id="l1", type="Note", body=b"{}")
        await done(desk.store, desk.finish(3, timers=(tick,), outside=(letter,), error=b"no"))
        assert await office.findings() == ()
        await desk.end()
    assert await office.findings() == ()


async def test_messages_that_wait_for_room_are_not_lost(office: Office) -> None:
    async with office.open() as desk:
        shelf = await claim(desk.store, "e1", "shelf", capacity=1)
        await shelf.send("s1")
        await desk.send("m1")
        assert (await desk.handle(1, outgoing=(outgoing(),))).outgoing == (Disposition.HELD,)
    assert await office.findings() == ()


async def test_what_retention_has_forgotten_is_not_lost(office: Office) -> None:
    async with office.open() as desk:
        await desk.send("m1")
        await desk.handle(1)
        office.time.pass_time(8 * 24 * 3600)
        counts = await prune(desk.store, Retention())
        assert counts[Prunable.MESSAGES] == 1
    assert await office.findings() == ()


def test_its_error_tells_all_findings() -> None:
    assert str(InvariantBroken(("I1: a", "I5: b"))) == "the store has broken its promises:\n  I1: a\n  I5: b"


async def test_i1_a_message_that_was_acknowledged_and_is_not_there(office: Office) -> None:
    def lose(item: Any) -> Any:
        return evolve(item, message_id="another") if isinstance(item, AcceptMessage) else item

    async with office.open(lose) as desk:
        await desk.send("m1")
    assert await office.findings() == (
        "I1: the message 'm1' was accepted at 'desk' and is not there",
        "I3: the message 'another' is at 'desk', and nothing that was committed put it there",
    )


async def test_i1_a_message_that_is_not_what_was_accepted(office: Office) -> None:
    def spoil(item: Any) -> Any:
        return evolve(item, body=b"spoiled") if isinstance(item, AcceptMessage) else item

    async with office.open(spoil) as desk:
        await desk.send("m1")
    assert await office.findings() == ("I1: the message 'm1' at 'desk' is not what was accepted",)


async def test_i1_a_delivery_that_was_not_counted(sqlite_office: Office) -> None:
    async with sqlite_office.open() as desk:
        await desk.send("m1")
        await done(desk.store, desk.begin(1))
    sqlite_office.ledger.begun["desk", 1] += 1
    assert await sqlite_office.findings() == (
        "I1: 1 deliveries of the message 'm1' at 'desk' are on record, and 2 were begun",
    )


async def test_i3_a_state_that_was_left_out_of_the_commit(office: Office) -> None:
    def forget(item: Any) -> Any:
        return evolve(item, state=None) if isinstance(item, FinishDelivery) else item

    async with office.open(forget) as desk:
        await desk.send("m1")
        await desk.handle(1)
    assert await office.findings() == (
        "I3: the state of 'desk' is not the one that was committed with the last handled message",
    )


async def test_i3_a_reply_that_was_left_out_of_the_commit(office: Office) -> None:
    def forget(item: Any) -> Any:
        return evolve(item, reply=None) if isinstance(item, FinishDelivery) else item

    async with office.open(forget) as desk:
        await desk.send("m1")
        await desk.handle(1)
    assert await office.findings() == ("I3: the reply to the message 'm1' at 'desk' is not the one that was committed",)


async def test_i3_messages_that_were_left_out_of_the_commit(office: Office) -> None:
    def forget(item: Any) -> Any:
        return evolve(item, outgoing=(), outside=()) if isinstance(item, FinishDelivery) else item

    async with office.open(forget, answer=Handled(outgoing=(Disposition.ACCEPTED,))) as desk:
        await claim(desk.store, "e1", "shelf")
        await desk.send("m1")
        await done(desk.store, desk.begin(1))
        letter = ToOutside(destination="post", message_id="l1", type="Note", body=b"{}")
        await done(desk.store, desk.finish(1, outgoing=(outgoing(),), outside=(letter,)))
    assert await office.findings() == (
        "I1: the message 'desk|m1|1' was accepted at 'shelf' and is not there",
        "I3: 'desk' handed the message 'l1' to the outbox, and it is not there",
    )


async def test_i3_a_part_of_what_was_never_committed(office: Office) -> None:
    async with office.open() as desk:
        await claim(desk.store, "e1", "shelf")
        await desk.send("m1")
        await done(desk.store, desk.begin(1))
        async with office.behind_the_ledger() as store:
            await done(store, desk.finish(1, outgoing=(outgoing(),)))
    assert await office.findings() == (
        "I3: the message 'desk|m1|1' is at 'shelf', and nothing that was committed put it there",
        "I5: the message 'm1' at 'desk' is handled, and was not handled",
    )


async def test_i5_a_message_that_is_handled_and_is_not_marked(sqlite_office: Office) -> None:
    async with sqlite_office.open() as desk:
        await desk.send("m1")
        await done(desk.store, desk.begin(1))
        sqlite_office.ledger.committed("batch", [desk.finish(1)], [Handled()])
    assert await sqlite_office.findings() == ("I5: the message 'm1' at 'desk' is queued, and was handled",)


async def test_i5_what_is_applied_twice_counts_twice(sqlite_office: Office) -> None:
    async with sqlite_office.open() as desk:
        await desk.send("m1")
        await desk.handle(1)
        letter = ToOutside(destination="post", message_id="l1", type="Note", body=b"{}")
        state = StateWrite(payload=b"x", type="Count", version=1)
        again = desk.finish(1, state=state, reply=b"1", outside=(letter, letter))
        sqlite_office.ledger.committed("b1", [message("desk", "m1"), again], [await desk.send("m1"), Handled()])
        sqlite_office.ledger.accepted["desk", "m1"] += 1
    assert await sqlite_office.findings() == (
        "I5: the message 'm1' was accepted 2 times at 'desk'",
        "I5: place 1 of 'desk' was settled 2 times",
        "I5: 'desk' handed the message 'l1' to the outbox 2 times",
        "I3: 'desk' handed the message 'l1' to the outbox, and it is not there",
    )


async def test_a_batch_that_was_looked_up_counts_once(sqlite_office: Office) -> None:
    ledger, item = sqlite_office.ledger, message("desk", "m1")
    async with sqlite_office.open() as desk:
        receipt = await desk.send("m0")
        ledger.recovered("b1", [item], [receipt])
        ledger.recovered("b1", [item], [receipt])
    assert ledger.accepted["desk", "m1"] == 1


async def test_i2_i4_a_write_of_somebody_who_is_no_owner_any_more(sqlite_office: Office) -> None:
    async with sqlite_office.open() as desk:
        await desk.send("m1")
        await done(desk.store, desk.begin(1))
        sqlite_office.time.pass_time(3601)
        await register(desk.store, sqlite_office.time.store_clock, "e2")
        successor = await claim(desk.store, "e2")
        assert await sqlite_office.findings() == ()
        sqlite_office.ledger.committed("stale", [desk.finish(1)], [Handled()])
        await done(desk.store, successor.begin(1))
        await done(desk.store, successor.finish(1))
    findings = await sqlite_office.findings()
    assert findings[0] == (
        "I2: FinishDelivery at 'desk' was accepted from the execution e1 under generation 1, and the owner is ('e2', 2)"
    )
    assert findings[1] == "I5: place 1 of 'desk' was settled 2 times"


async def test_i4_a_generation_that_was_given_twice(sqlite_office: Office) -> None:
    async with sqlite_office.open() as desk:
        claimed = await done(desk.store, claiming("e1"))
        sqlite_office.ledger.committed("again", [claiming("e1")], [claimed])
    assert await sqlite_office.findings() == ("I4: 'desk' was given away under generation 2, after 2",)


async def test_i4_an_owner_to_whom_it_was_not_given(office: Office) -> None:
    async with office.open():
        office.time.pass_time(3601)
        async with office.behind_the_ledger() as store:
            await register(store, office.time.store_clock, "e2")
            await claim(store, "e2")
    assert await office.findings() == (
        "I4: 'desk' is at generation 2, and the last that was given is 1",
        "I4: 'desk' belongs to the execution e2, to which it was not given",
    )


async def test_what_a_lost_execution_owned_is_nobodys(office: Office) -> None:
    async with office.open() as desk:
        await desk.send("m1")
        office.time.pass_time(3601)
        await done(desk.store, ReleaseLost(execution_id="e1"))
        assert office.ledger.owners == {}
        assert await office.findings() == ()
        await register(desk.store, office.time.store_clock, "e2")
        await (await claim(desk.store, "e2")).handle(1)
    assert await office.findings() == ()
