"""Executions that die with work in hand: what was acknowledged is handled, once for the record, and in order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ListMessages, MessageStatus
from greenroom.testing import interrupt_everywhere
from tests.durable.desks import DESK, Desk, Script, desk
from tests.durable.helpers import Add, Note, settled

if TYPE_CHECKING:
    from greenroom.testing import Life
    from greenroom.testing.virtual_clock import Backend
    from tests.durable.helpers import Shared
    from tests.persistence.postgres.servers import Server


async def notes_and_a_question(life: Life) -> None:
    """Somebody sends three notes, each until it is acknowledged, and asks a question until it is answered."""
    script: Script = life.kept.setdefault("script", Script())
    tree = gr.Supervisor("service", desk(script))
    async with gr.Runtime(tree, store=life.store) as runtime:
        ref = runtime.ref(DESK)
        for text in ("a", "b", "c"):
            receipt = await ref.send(Note(text), message_id=text)
            assert receipt is not None
            assert receipt.disposition in ("accepted", "duplicate")
        assert await ref.ask(Add(1), message_id="q") == 1
        async with life.open_store() as store:
            records = await store.read(ListMessages(address=DESK))
    assert [(record.message_id, record.status) for record in records] == [
        (message_id, MessageStatus.HANDLED) for message_id in ("a", "b", "c", "q")
    ]
    assert [*dict.fromkeys(script.seen)] == ["a", "b", "c", "1"]  # a handler may have run twice, but never out of turn


def test_i5_what_was_accepted_is_handled_once_for_the_record_wherever_the_execution_dies(backend: Backend) -> None:
    tried = interrupt_everywhere(notes_and_a_question, backend=backend)
    assert len(tried.trials) > 30
    assert tried.unmet == ()


def test_i5_the_same_on_postgresql(backend: Backend, postgres: Server) -> None:
    tried = interrupt_everywhere(notes_and_a_question, backend=backend, server=postgres.url, sample=(3, 0.15))
    assert len(tried.trials) > 4


@pytest.mark.full
def test_i5_the_same_everywhere_on_postgresql(backend: Backend, postgres: Server) -> None:
    assert interrupt_everywhere(notes_and_a_question, backend=backend, server=postgres.url).unmet == ()


@pytest.mark.full
def test_i5_wherever_its_recovery_dies_too(backend: Backend) -> None:
    assert interrupt_everywhere(notes_and_a_question, backend=backend, twice=True, sample=(1, 0.4)).trials


async def test_i1_what_is_not_acknowledged_when_the_execution_dies_may_be_sent_again(database: Shared) -> None:
    script = Script()
    for point in (f"before AcceptMessage {DESK} m1", f"unacknowledged AcceptMessage {DESK} m1"):
        told: list[object] = []
        async with database.doomed(point, desk(script)) as runtime:
            told.append(await runtime.ref(DESK).send(Note("one"), message_id="m1"))
        assert told == []
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).send(Note("one"), message_id="m1") == gr.Receipt("m1", "duplicate")
        await settled()
    assert script.seen == ["one"]


async def test_i1_what_was_acknowledged_is_handled_by_the_next_execution(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.doomed(f"after AcceptMessage {DESK} m3", desk(script)) as runtime:
        for number, text in enumerate(("one", "two", "three"), 1):
            await runtime.ref(DESK).send(Note(text), message_id=f"m{number}")
        await anyio.sleep(60)
    assert script.seen == ["one"]
    gate.opened.set()
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    assert script.seen == ["one", "one", "two", "three", "1"]


async def test_i5_a_message_whose_handling_was_committed_is_not_handled_again(database: Shared) -> None:
    script = Script()
    async with database.doomed(f"unacknowledged FinishDelivery {DESK} m1", desk(script)) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await anyio.sleep(60)
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    assert script.seen == ["one", "1"]


async def test_r22_only_what_was_in_hand_at_the_death_counts_as_delivered(database: Shared) -> None:
    script = Script()
    script.gate("one")
    async with database.doomed(f"after BeginDelivery {DESK} m1", desk(script)) as runtime:
        for number, text in enumerate(("one", "two"), 1):
            await runtime.ref(DESK).send(Note(text), message_id=f"m{number}")
        await anyio.sleep(60)
    async with database.open() as store:
        counts = {record.message_id: record.deliveries for record in await store.read(ListMessages(address=DESK))}
    assert counts == {"m1": 1, "m2": 0}


async def test_a_reply_that_was_committed_survives_its_execution(database: Shared) -> None:
    script = Script()
    async with database.doomed(f"unacknowledged FinishDelivery {DESK} q1", desk(script)) as runtime:
        await runtime.ref(DESK).ask(Add(7), message_id="q1")
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(7), message_id="q1") == 7
    assert script.seen == ["7"]


async def test_a_delayed_message_survives_its_execution_and_comes_at_its_moment(database: Shared) -> None:
    script = Script()
    deliver_at = database.time.now() + database.lease + timedelta(minutes=5)
    async with database.doomed(f"after AcceptMessage {DESK} m1", desk(script)) as runtime:
        await runtime.ref(DESK).send(Note("later"), message_id="m1", deliver_at=deliver_at)
        await anyio.sleep(1)
    assert database.time.now() < deliver_at
    async with database.runtime(desk(script)):
        await anyio.sleep((deliver_at - database.time.now()).total_seconds() - 1)
        assert script.seen == []
        await anyio.sleep(2)
        assert script.seen == ["later"]


async def test_an_actor_that_stops_taking_messages_is_replaced_where_it_died(database: Shared) -> None:
    """Two addresses in one execution: both are given back, and each goes on with its own messages."""
    scripts = [Script(), Script()]
    children = [gr.Child(f"desk {n}", Desk, script, mailbox=gr.PersistentMailbox()) for n, script in enumerate(scripts)]
    for script in scripts:
        script.gate("one")
    async with database.doomed("after BeginDelivery service/desk 1 one", *children) as runtime:
        for n in range(2):
            await runtime.ref(f"service/desk {n}").send(Note("one"), message_id="one")
        await anyio.sleep(60)
    for script in scripts:
        script.gates.clear()
    async with database.runtime(*children) as runtime:
        for n in range(2):
            assert await runtime.ref(f"service/desk {n}").ask(Add(1)) == 1
    assert [script.seen for script in scripts] == [["one", "one", "1"]] * 2
