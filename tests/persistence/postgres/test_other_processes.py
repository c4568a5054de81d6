"""What one process tells another: at most one NOTIFY a batch, and the poll is the truth (R34). Inboxes, leases, restarts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from greenroom.mailbox.parking import current_loop
from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.answers import AnswerTo
from greenroom.persistence.clock import instant
from greenroom.persistence.committer import Committer
from greenroom.persistence.content import message_digest
from greenroom.persistence.deliveries import BeginDelivery
from greenroom.persistence.driver import NotReached, StatementFailed
from greenroom.persistence.executions import EndExecution
from greenroom.persistence.messages import AcceptMessage, Disposition, Receipt
from greenroom.persistence.postgres.driver import LOOK_EVERY, PostgresDriver
from greenroom.persistence.postgres.inbox import AsyncInbox
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.postgres.help import (
    Hands,
    begin,
    claim,
    elsewhere,
    execution,
    many,
    message,
    one,
    opened,
    run,
    session,
)
from tests.persistence.postgres.servers import FOREIGN, Server


async def told(driver: PostgresDriver) -> bool:
    """Has it been told of others' doing, once everything that was sent has come? A round trip on its line says so."""
    await (await driver._ready()).execute("SELECT 1")
    return (await driver.news()).elsewhere


def test_r34_mail_for_an_address_of_another_process_is_told_to_it_and_not_to_oneself(url: str) -> None:
    async def main() -> None:
        async with opened(url) as mine, opened(url) as theirs:
            await one(mine, execution("e1"))
            await one(theirs, execution("e2"))
            await many(theirs, [claim("desk", "e2"), claim("hall", "e2")])
            await told(mine), await told(theirs)
            await one(mine, message("desk", "m1"))
            assert (await told(mine), await told(theirs)) == (False, True)
            assert not await told(theirs)  # once
            await many(mine, [message("hall", "m2"), claim("new", "e1")])  # a transaction of several calls
            assert (await told(mine), await told(theirs)) == (False, True)

    run(main())


def test_r34_mail_for_ones_own_address_is_told_to_nobody(url: str) -> None:
    async def main() -> None:
        async with opened(url) as mine, opened(url) as theirs:
            await one(mine, execution("e1"))
            await one(mine, claim("desk", "e1"))
            await told(mine), await told(theirs)
            await one(mine, message("desk", "m1"))
            await many(mine, [message("desk", "m2"), message("desk", "m3")])
            await one(mine, begin("desk", "e1", 1, 1))
            assert (await told(mine), await told(theirs)) == (False, False)

    run(main())


def test_r34_a_batch_of_many_messages_makes_one_notification(url: str) -> None:
    async def main() -> None:
        async with opened(url) as mine, session(url) as listener:
            heard: list[Any] = []
            await listener.add_listener(mine._target.channel, lambda *what: heard.append(what))
            await one(mine, execution("e1"))
            await many(mine, [claim(name, "other") for name in "ab"] + [execution("unrelated")])
            await one(mine, claim("a", "e1"))
            await one(mine, claim("b", "e1"))
            mine._own = frozenset()
            heard.clear()
            await many(mine, [message(name, f"m{number}") for name in "ab" for number in range(5)])
            await listener.execute("SELECT 1")
            assert len(heard) == 1

    run(main())


def test_a_delayed_message_is_news_when_its_time_comes_and_only_once(url: str) -> None:
    hands = Hands()

    async def main() -> None:
        async with opened(url, hands.clock) as driver:
            await one(driver, execution("e1"))
            await one(driver, claim("desk", "e1"))
            digest = message_digest("T", b"x")
            at = instant(hands.micros + 5_000_000)
            later = AcceptMessage(address="desk", message_id="m1", type="T", body=b"x", digest=digest, deliver_at=at)
            assert await one(driver, later) == Receipt("m1", Disposition.ACCEPTED, None)
            assert (await driver.news()).due == frozenset()
            hands.move(6.0)
            driver._looked_at -= LOOK_EVERY  # the next look is not due for a fraction of a second
            assert (await driver.news()).due == {"desk"}
            driver._looked_at -= LOOK_EVERY
            assert (await driver.news()).due == frozenset()

    run(main())


def test_whoever_was_away_looks_at_everything(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver:
            assert not await told(driver)
            driver._drop()
            assert await told(driver)

    run(main())


def test_r10_a_lease_that_lasts_is_renewed_and_one_that_has_passed_is_not(url: str) -> None:
    hands = Hands()

    async def main() -> PostgresDriver:
        async with opened(url, hands.clock) as driver:
            await one(driver, execution("e1", lease=10.0))
            await one(driver, execution("e2", lease=10.0))
            await one(driver, EndExecution(execution_id="e2"))
            return driver

    renewer = run(main()).renewer()
    hands.move(9.0)
    assert renewer.renew("e1", 10.0)
    hands.move(9.0)
    assert renewer.renew("e1", 10.0)
    assert not renewer.renew("e2", 10.0)
    assert not renewer.renew("unknown", 10.0)
    hands.move(10.0)
    assert not renewer.renew("e1", 10.0)
    renewer.close()
    renewer.close()


def test_r10_a_shorter_renewal_does_not_shorten_a_lease(url: str) -> None:
    hands = Hands()

    async def main() -> PostgresDriver:
        async with opened(url, hands.clock) as driver:
            await one(driver, execution("e1", lease=100.0))
            await one(driver, claim("desk", "e1"))
            return driver

    renewer = run(main()).renewer()
    assert renewer.renew("e1", 1.0)
    hands.move(50.0)
    assert renewer.renew("e1", 1.0)
    renewer.close()


def test_one_bad_item_fails_its_batch_for_certain(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver:
            await one(driver, execution("e1"))
            await one(driver, claim("desk", "e1"))
            bad = message("desk", "nul \0 in an identity")
            for batch in ([message("desk", "m1"), bad], [message("desk", "m1"), bad, claim("new", "e1")]):
                with pytest.raises(StatementFailed):
                    await driver.apply("b1", batch)
            assert await one(driver, message("desk", "m1")) == Receipt("m1", Disposition.ACCEPTED, 1)
            record = await driver.read(ReadAddress(address="desk"))
            assert record.queued == 1

    run(main())


def test_the_answer_to_any_kind_of_transition_can_be_looked_up(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver:
            await one(driver, execution("e1"))
            items = [
                claim("desk", "e1", capacity=1),
                message("desk", "m1"),
                message("desk", "m2"),
                begin("desk", "e1", 1, 1),
            ]
            for item in items:
                answer = await one(driver, item)
                assert await driver.read(AnswerTo(transition_id=item.transition_id)) == answer
            assert await driver.read(AnswerTo(transition_id="unknown")) is None

    run(main())


def test_a_poisoned_delivery_beside_ordinary_ones_costs_them_nothing(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver:
            await one(driver, execution("e1"))
            await many(driver, [claim(name, "e1") for name in "abc"])
            await many(driver, [message(name, "m1") for name in "abc"])
            stale = BeginDelivery(address="b", execution_id="e1", generation=9, seq=1)
            first, second, third = await many(driver, [begin("a", "e1", 1, 1), stale, begin("c", "e1", 1, 1)])
            assert (first.deliveries, third.deliveries) == (1, 1)
            assert isinstance(second, Refused)
            assert second.reason is RefusalReason.STALE_GENERATION

    run(main())


# ------------------------------------------------------------------------------------------------------------ inbox


def test_an_inbox_gives_in_order_what_threads_put_before_and_while_it_waits() -> None:
    inbox = AsyncInbox()
    inbox.put(0)

    def produce() -> None:
        for number in range(1, 2000):
            inbox.put(number)

    async def main() -> list[object]:
        got = [await inbox.get(None)]
        thread = threading.Thread(target=produce)
        thread.start()
        while len(got) < 2000:
            got.append(await inbox.get(10.0))
        thread.join()
        return got

    assert run(main()) == list(range(2000))
    inbox.put("its loop is gone, and nobody minds")


def test_an_inbox_gives_nothing_when_nothing_comes() -> None:
    async def main() -> None:
        inbox = AsyncInbox()
        assert inbox.get_nowait() is None
        assert await inbox.get(0.01) is None

    run(main())


# --------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.skipif(FOREIGN is not None, reason="a server that is not ours is not restarted")
@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
@pytest.mark.backends("asyncio")
async def test_i1_a_server_that_restarts_under_load_loses_nothing_acknowledged(
    postgres: Server, url: str, mode: str
) -> None:
    store = Committer(PostgresDriver(url), current_loop(), bound=30.0)
    await store.open()
    acknowledged: list[str] = []
    stopping = threading.Event()

    def restart() -> None:
        for _ in range(2):
            if mode == "kill":
                postgres.kill_a_backend()
            else:
                postgres.restart(mode)
        stopping.set()

    async def sender(name: int) -> None:
        number = 0
        while not stopping.is_set() or number < 5:
            number += 1
            receipt = await store.commit(message("desk", f"m{name}-{number}"))
            assert isinstance(receipt, Receipt)
            assert receipt.disposition is Disposition.ACCEPTED  # a second application would say "duplicate"
            acknowledged.append(receipt.message_id)

    try:
        await store.commit(execution("e1", lease=600.0))
        await store.commit(claim("desk", "e1"))
        thread = threading.Thread(target=restart)
        thread.start()
        await asyncio.gather(*(sender(name) for name in range(8)))
        thread.join()
    finally:
        await store.close()

    async def stored() -> list[str]:
        async with session(url) as connection:
            return [row[0] for row in await connection.fetch("SELECT message_id FROM messages")]

    assert sorted(elsewhere(stored())) == sorted(acknowledged)


def test_a_driver_whose_server_is_away_says_so_each_time_and_pauses_longer(url: str) -> None:
    async def main() -> None:
        driver = PostgresDriver("postgresql://127.0.0.1:1/db", jitter=lambda: 1.0)
        loop = asyncio.get_running_loop()
        pauses = []
        for _ in range(3):
            with pytest.raises(NotReached):
                await driver.open()
            started = loop.time()
            await driver.pause(0.01)
            pauses.append(loop.time() - started)
        assert pauses[0] >= 0.02
        assert pauses[1] >= 0.04
        assert pauses[2] >= 0.08

    run(main())
