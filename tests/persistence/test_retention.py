"""Retention (R32): what is forgotten, when, and what never is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from greenroom.persistence.callbacks import AnswerCallback, CreateCallback, ReadCallback
from greenroom.persistence.content import digest_of
from greenroom.persistence.deliveries import ToOutside
from greenroom.persistence.executions import EndExecution, ListExecutions
from greenroom.persistence.messages import DeadLetters, Disposition, DropDead, ListMessages, ReadMessage
from greenroom.persistence.observations import ListObservations
from greenroom.persistence.outbox import FailSend, FinishSend, ReadOutbox
from greenroom.persistence.retention import Prunable, Prune, Pruned, Retention, prune
from tests.persistence.stores import done, message, owner, register

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, Owner

WEEK = timedelta(days=7)
EIGHT_DAYS = 8 * 86400.0


async def kept(store: Store, address: str = "desk") -> list[str]:
    return [record.message_id for record in await store.read(ListMessages(address=address))]


async def long_lived(store: Store, address: str = "desk") -> Owner:
    return await owner(store, address, lease=1e9)


async def test_handled_messages_are_forgotten_after_their_time_and_their_identities_are_free_again(
    database: Database,
) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        await desk.send("old")
        await desk.handle(1)
        database.time.pass_time(EIGHT_DAYS)
        await desk.send("young")
        await desk.handle(2)
        assert (await prune(store))[Prunable.MESSAGES] == 1
        assert await kept(store) == ["young"]
        assert await store.read(ReadMessage(address="desk", message_id="old")) is None
        assert (await desk.send("old")).disposition is Disposition.ACCEPTED
        assert (await desk.send("young")).disposition is Disposition.DUPLICATE


async def test_the_time_of_a_handled_message_begins_with_its_last_delivery_not_with_its_acceptance(
    database: Database,
) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        await desk.send("waited long")
        database.time.pass_time(EIGHT_DAYS)
        await desk.handle(1)
        assert (await prune(store))[Prunable.MESSAGES] == 0
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.MESSAGES] == 1


async def test_messages_that_wait_are_delayed_or_are_dead_are_never_forgotten(database: Database) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        for name in ("dead", "handled", "waiting", "handled out of order"):
            await desk.send(name)
        await done(store, message("desk", "delayed", deliver_at=database.time.at(1e8)))
        await done(store, desk.bury(1))
        await desk.handle(2)
        await desk.handle(4)
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.MESSAGES] == 1
        assert await kept(store) == ["dead", "waiting", "handled out of order"]
        assert [record.message_id for record in await store.read(DeadLetters())] == ["dead"]
        assert await desk.waiting() == ["waiting"]


async def test_dropped_dead_letters_are_forgotten_after_their_time(database: Database) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        await desk.send("m1")
        await done(store, desk.bury(1))
        database.time.pass_time(EIGHT_DAYS)
        await done(store, DropDead(address="desk", message_id="m1"))
        assert (await prune(store))[Prunable.MESSAGES] == 0
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.MESSAGES] == 1


async def test_forgetting_goes_in_small_steps_over_all_addresses(database: Database) -> None:
    async with database.open() as store:
        for name in ("a", "b", "c"):
            desk = await long_lived(store, name)
            for number in range(1, 8):
                await desk.send(f"m{number}")
                await desk.handle(number)
        database.time.pass_time(EIGHT_DAYS)
        first = await done(store, Prune(kind=Prunable.MESSAGES, age=WEEK, limit=10))
        assert first == Pruned(10, "a")
        counts = await prune(store, limit=4)
        assert counts[Prunable.MESSAGES] == 11
        assert [await kept(store, name) for name in ("a", "b", "c")] == [[], [], []]


async def test_a_dry_run_counts_and_forgets_nothing(database: Database) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        await desk.send("m1")
        await desk.handle(1)
        await done(store, message("nowhere", "x"))
        database.time.pass_time(EIGHT_DAYS)
        before = database.tables()
        counts = await prune(store, dry_run=True)
        assert (counts[Prunable.MESSAGES], counts[Prunable.OBSERVATIONS]) == (1, 1)
        assert database.tables() == before


async def test_observations_are_forgotten_by_age_and_above_the_share_of_a_sender(database: Database) -> None:
    async with database.open() as store:
        for number in range(5):
            await done(store, message("nowhere", f"a{number}", sender="loud"))
        await done(store, message("nowhere", "b0", sender="quiet"))
        await done(store, message("nowhere", "c0"))
        counts = await prune(store, Retention(observations_per_sender=2))
        assert counts[Prunable.OBSERVATIONS] == 3
        left = [seen.message_id for seen in await store.read(ListObservations())]
        assert left == ["c0", "b0", "a4", "a3"]
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.OBSERVATIONS] == 4
        assert await store.read(ListObservations()) == ()


async def test_settled_callbacks_are_forgotten_and_open_ones_are_not(database: Database) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        for name in ("open", "answered"):
            creation = CreateCallback(
                address="desk",
                execution_id=desk.execution_id,
                generation=desk.generation,
                callback_id=name,
                secret_digest="secret",
                name=name,
            )
            await done(store, creation)
        answer = AnswerCallback(callback_id="answered", secret_digest="secret", answer=b"x", digest=digest_of(b"x"))
        await done(store, answer)
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.CALLBACKS] == 1
        assert await store.read(ReadCallback(callback_id="open")) is not None


async def test_outbox_rows_that_were_sent_are_forgotten_and_no_others(database: Database) -> None:
    async with database.open() as store:
        desk = await long_lived(store)
        await desk.send("m1")
        rows = tuple(ToOutside(destination="mail", message_id=f"o{n}", type="Mail", body=b"") for n in range(3))
        await desk.handle(1, outside=rows)
        await done(store, FinishSend(address="desk", ordinal=1))
        await done(store, FailSend(address="desk", ordinal=2, seconds=None))
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.OUTBOX] == 1
        assert [row.ordinal for row in await store.read(ReadOutbox(address="desk"))] == [2, 3]


async def test_ended_executions_are_forgotten_and_lost_ones_are_not(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("ended"))
        await done(store, register("lost"))
        await done(store, EndExecution(execution_id="ended"))
        database.time.pass_time(EIGHT_DAYS)
        assert (await prune(store))[Prunable.EXECUTIONS] == 1
        assert [record.execution_id for record in await store.read(ListExecutions(ended=True))] == ["lost"]
