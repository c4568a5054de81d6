"""R7: one lock order. Several processes with mixed batches over four hot rows never deadlock."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.persistence.postgres.help import claim, execution, many, one, opened, run, session

WRITER: Final = """
import sys
from random import Random

from greenroom.persistence.deliveries import BeginDelivery, FinishDelivery, Outgoing
from greenroom.persistence.driver import Contended
from greenroom.persistence.ids import new_id
from greenroom.persistence.messages import AcceptMessage
from greenroom.persistence.outbox import FlushHeld
from tests.persistence.postgres.help import claim, message, opened, run

url, seed = sys.argv[1], int(sys.argv[2])
random = Random(seed)
hot = ["a", "b", "c", "d"]
generations = dict.fromkeys(hot, 1)


def item(number):
    address = random.choice(hot)
    owner = {"address": address, "execution_id": "e1", "generation": generations[address]}
    other = Outgoing(recipient=random.choice(hot), message_id=new_id(), type="T", body=b"x", digest="d")
    return random.choice([
        lambda: message(address, f"{seed}-{number}-{new_id()}"),
        lambda: message(address, f"{seed}-{number}-{new_id()}"),
        lambda: BeginDelivery(**owner, seq=random.randrange(1, 40)),
        lambda: FinishDelivery(**owner, seq=random.randrange(1, 40)),
        lambda: FinishDelivery(**owner, seq=random.randrange(1, 40), outgoing=(other,)),
        lambda: FlushHeld(address=address, recipients=tuple(random.sample(hot, 3))),
        lambda: claim(address, "e1"),
        lambda: claim(f"new{random.randrange(30)}", "e1"),
    ])()


async def main():
    async with opened(url) as driver:
        for number in range(120):
            await driver.apply(new_id(), [item(number) for _ in range(random.randrange(1, 12))])


run(main())
"""


def test_r07_processes_with_mixed_batches_over_four_hot_rows_do_not_deadlock(url: str) -> None:
    async def prepare() -> None:
        async with opened(url) as driver:
            await one(driver, execution("e1", lease=600.0))
            await many(driver, [claim(address, "e1", capacity=200) for address in "abcd"])

    run(prepare())
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(seed)], stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    errors = [writer.communicate()[1] for writer in writers]
    # A deadlock, or a batch that lost otherwise, is raised by the driver, and nothing here tries again.
    assert [writer.returncode for writer in writers] == [0] * 4, errors

    async def check() -> None:
        async with session(url) as connection:
            wrong = await connection.fetch(
                "SELECT a.address FROM addresses a JOIN LATERAL (SELECT count(*) FILTER (WHERE m.status = 'queued' "
                "AND m.seq > a.handled_seq) AS ready, max(m.seq) AS last FROM messages m WHERE m.address = a.address) m "
                "ON true WHERE a.ready <> m.ready OR a.queued <> m.ready OR a.last_seq <> coalesce(m.last, 0)"
            )
            assert wrong == []

    run(check())
