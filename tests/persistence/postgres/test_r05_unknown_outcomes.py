"""R5: a connection that breaks around COMMIT. Each id is applied exactly once, whatever the answer's fate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from greenroom.errors import StoreUnavailable
from greenroom.mailbox.parking import current_loop
from greenroom.persistence.answers import AnswerTo
from greenroom.persistence.committer import Committer
from greenroom.persistence.deliveries import Delivery, FinishDelivery, Handled, Outgoing
from greenroom.persistence.driver import NotReached, OutcomeUnknown
from greenroom.persistence.messages import AcceptMessage, Disposition, Receipt
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.transitions import Transition
from greenroom.testing import Cut, PostgresProxy
from tests.persistence.postgres.help import (
    begin,
    claim,
    elsewhere,
    execution,
    many,
    message,
    one,
    opened,
    run,
    see_through,
    session,
    waiting_for_locks,
)

SINGLE_CALLS = (b"greenroom_accept_", b"greenroom_begin_", b"greenroom_finish_")


@pytest.fixture
def proxy(url: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(url, SINGLE_CALLS) as started:
        yield started


def batch_of(kind: str, start: int) -> list[Transition[Any]]:
    """Three messages; "mixed" with something of another kind, so that it is a transaction of several calls."""
    items: list[Transition[Any]] = [message("desk", f"m{start + n}") for n in range(3)]
    return [*items, claim("other", "e1")] if kind == "mixed" else items


@pytest.mark.parametrize(("kind", "cut"), list(product(("single", "mixed"), Cut)))
def test_r05_a_cut_at_a_commit_leaves_each_message_accepted_exactly_once(
    proxy: PostgresProxy, url: str, kind: str, cut: Cut
) -> None:
    async def main() -> None:
        async with opened(proxy.url) as driver, session(url) as connection:
            await many(driver, [execution("e1")])
            await many(driver, [claim("desk", "e1")])
            for start in range(0, 12, 3):
                proxy.plan(cut)
                answers = await see_through(driver, batch_of(kind, start))
                # Had it been applied twice, the second time would say "duplicate".
                assert [answer.disposition for answer in answers[:3]] == [Disposition.ACCEPTED] * 3
                assert [answer.seq for answer in answers[:3]] == [start + 1, start + 2, start + 3]
            assert proxy.done == 4
            assert await connection.fetchval("SELECT count(*) FROM messages") == 12
            assert await connection.fetchval("SELECT count(*) FROM observations") == 0
            assert await connection.fetchval("SELECT last_seq FROM addresses WHERE address = 'desk'") == 12

    run(main())


@pytest.mark.parametrize("cut", list(Cut))
def test_r05_a_cut_at_a_delivery_counts_it_once(proxy: PostgresProxy, cut: Cut) -> None:
    async def main() -> None:
        async with opened(proxy.url) as driver:
            await many(driver, [execution("e1")])
            await many(driver, [claim("desk", "e1")])
            await many(driver, [message("desk", "m1"), message("desk", "m2")])
            proxy.plan(cut)
            assert await see_through(driver, [begin("desk", "e1", 1, 1)]) == [Delivery(1, 1)]
            proxy.plan(cut)
            finish = FinishDelivery(address="desk", execution_id="e1", generation=1, seq=1, next_seq=2)
            assert await see_through(driver, [finish]) == [Handled(next=Delivery(2, 1))]
            assert proxy.done == 2

    run(main())


def test_r05_a_transaction_that_waits_on_when_its_client_is_gone_is_ended_and_run_again(
    proxy: PostgresProxy, url: str
) -> None:
    async def main() -> None:
        async with opened(proxy.url) as driver, session(url) as holder:
            await many(driver, [execution("e1")])
            await many(driver, [claim("desk", "e1")])
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'desk' FOR UPDATE")
                proxy.plan(Cut.AT_COMMIT)
                with pytest.raises(OutcomeUnknown):
                    await driver.apply("b1", [message("desk", "m1")])
                await waiting_for_locks(holder, 1)  # the zombie: its client has gone, and it would commit
                while True:
                    try:
                        assert await driver.recover("b1", [message("desk", "m1")]) is None
                        break
                    except NotReached:
                        await driver.pause(0.01)
                await waiting_for_locks(holder, 0)
            assert (await driver.apply("b1", [message("desk", "m1")])).answers == [
                Receipt("m1", Disposition.ACCEPTED, 1)
            ]
            assert await holder.fetchval("SELECT count(*) FROM messages") == 1

    run(main())


def test_r05_the_same_batch_applied_again_meets_its_own_row_and_answers_from_it(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await many(driver, [execution("e1")])
            await many(driver, [claim("desk", "e1")])
            for batch_id, items in (
                ("single", [message("desk", "m1"), message("desk", "m2")]),
                ("mixed", [message("desk", "m3"), claim("other", "e1")]),
            ):
                first = await driver.apply(batch_id, items)
                assert (await driver.apply(batch_id, items)).answers == first.answers
            assert await connection.fetchval("SELECT count(*) FROM messages") == 3
            assert await connection.fetchval("SELECT count(*) FROM observations") == 0
            assert await connection.fetchval("SELECT generation FROM addresses WHERE address = 'other'") == 1

    run(main())


@pytest.mark.backends("asyncio")
async def test_r05_a_store_answers_as_if_nothing_had_been_cut(proxy: PostgresProxy, url: str) -> None:
    store = Committer(PostgresDriver(proxy.url), current_loop(), bound=20.0)
    await store.open()
    try:
        await store.commit(execution("e1"))
        await store.commit(claim("desk", "e1"))
        proxy.plan(*Cut, *Cut)
        sent: list[AcceptMessage] = []

        async def sender(name: int) -> None:
            for number in range(10):
                item = message("desk", f"m{name}-{number}")
                sent.append(item)
                receipt = await store.commit(item)
                assert isinstance(receipt, Receipt)
                assert receipt.disposition is Disposition.ACCEPTED

        await asyncio.gather(*(sender(name) for name in range(8)))
        assert proxy.done == 6
        for item in sent[::7]:
            assert isinstance(await store.read(AnswerTo(transition_id=item.transition_id)), Receipt)
    finally:
        await store.close()

    async def count() -> int:
        async with session(url) as connection:
            found: int = await connection.fetchval("SELECT count(*) FROM messages")
            return found

    assert elsewhere(count()) == len(sent) == 80


@pytest.mark.backends("asyncio")
async def test_while_the_server_is_away_a_commit_waits_its_bound_and_nothing_is_half_done(
    proxy: PostgresProxy, url: str
) -> None:
    store = Committer(PostgresDriver(proxy.url, bound=1.0), current_loop(), bound=1.0)
    await store.open()
    try:
        await store.commit(execution("e1"))
        await store.commit(claim("desk", "e1"))
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable) as failure:
            await store.commit(message("desk", "lost"))
        assert failure.value.unknown or not elsewhere(is_there(url, "lost"))
        before = proxy.connections
        proxy.refuse(False)
        receipt = await store.commit(message("desk", "later"))
        assert isinstance(receipt, Receipt)
        assert receipt.disposition is Disposition.ACCEPTED
        assert proxy.connections > before
    finally:
        await store.close()


async def is_there(url: str, message_id: str) -> bool:
    async with session(url) as connection:
        return bool(await connection.fetchval("SELECT count(*) FROM messages WHERE message_id = $1", message_id))


def test_a_call_that_stalls_is_given_up_within_a_third_of_the_lease(proxy: PostgresProxy) -> None:
    async def main() -> None:
        async with opened(proxy.url, lease=1.5) as driver:
            await one(driver, execution("e1"))
            proxy.stall()
            with pytest.raises(OutcomeUnknown):
                await driver.apply("b1", [message("desk", "m1")])
            proxy.resume()

    run(main())


def test_r25_a_handlers_messages_are_sent_once_when_the_answer_is_lost(proxy: PostgresProxy, url: str) -> None:
    async def main() -> None:
        async with opened(proxy.url) as driver, session(url) as connection:
            await many(driver, [execution("e1")])
            await many(driver, [claim("desk", "e1"), claim("other", "e1")])
            await many(driver, [message("desk", "m1")])
            await many(driver, [begin("desk", "e1", 1, 1)])
            sending = Outgoing(recipient="other", message_id="desk|m1|0", type="T", body=b"x", digest="d")
            finish = FinishDelivery(address="desk", execution_id="e1", generation=1, seq=1, outgoing=(sending,))
            proxy.plan(Cut.AFTER_COMMIT)
            assert await see_through(driver, [finish]) == [Handled(outgoing=(Disposition.ACCEPTED,))]
            assert await connection.fetchval("SELECT count(*) FROM messages WHERE address = 'other'") == 1

    run(main())
