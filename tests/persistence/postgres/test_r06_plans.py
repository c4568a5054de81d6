"""R6: what hot SQL costs does not depend on what the tables held when its plans were made."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from greenroom.persistence.deliveries import Delivery, FinishDelivery, Handled
from greenroom.persistence.ids import new_id
from greenroom.persistence.messages import Receipt
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.transitions import Transition
from tests.persistence.postgres.help import begin, claim, execution, many, message, one, opened, run, session

ADDRESSES: Final = [f"a{number:03}" for number in range(100)]
ROWS: Final = 50_000


async def seconds_of(driver: PostgresDriver, items: list[Transition[Any]], kind: type[Any]) -> float:
    """How long a batch takes, of which all is done."""
    started = time.perf_counter()
    applied = await driver.apply(new_id(), items)
    took = time.perf_counter() - started
    assert all(isinstance(answer, kind) for answer in applied.answers), applied.answers[:3]
    return took


async def round_of(driver: PostgresDriver, number: int) -> list[float]:
    """A hundred messages accepted, begun and finished: the times of three batches."""
    owner: dict[str, Any] = {"execution_id": "e1", "generation": 1}
    return [
        await seconds_of(driver, [message(address, f"{address}-{number}") for address in ADDRESSES], Receipt),
        await seconds_of(driver, [begin(address, "e1", 1, number) for address in ADDRESSES], Delivery),
        await seconds_of(
            driver, [FinishDelivery(address=address, **owner, seq=number, reply=b"r") for address in ADDRESSES], Handled
        ),
    ]


def test_r06_a_batch_takes_as_long_after_fifty_thousand_rows_as_on_an_empty_database(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, execution("e1", lease=600.0))
            await many(driver, [claim(address, "e1") for address in ADDRESSES])
            early = [await round_of(driver, number) for number in range(1, 11)]  # plans are made, and kept, here
            # The same connection goes on; the rows come by another, and no statistics are gathered about them.
            await connection.execute(
                "INSERT INTO messages (address, seq, message_id, digest, type, body, status, accepted_at, settled_at) "
                "SELECT 'a' || lpad((n % 100)::text, 3, '0'), 11 + n / 100, 'old' || n, 'd', 'T', 'x', 'handled', 1, 1 "
                f"FROM generate_series(0, {ROWS - 1}) n"
            )
            behind = ROWS // 100 + 10
            await connection.execute("UPDATE addresses SET last_seq = $1, handled_seq = $1", behind)
            late = [await round_of(driver, number) for number in range(behind + 1, behind + 11)]
            for kind in range(3):
                before = statistics.median(times[kind] for times in early)
                after = statistics.median(times[kind] for times in late)
                # A plan that reads the table takes some fifty times as long.
                assert after < 5 * before + 0.005, (kind, before, after)

    run(main())


def test_r06_no_hot_statement_reads_a_whole_table(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, execution("e1", lease=600.0))
            await many(driver, [claim(address, "e1") for address in (*ADDRESSES, "single")])
            await round_of(driver, 1)
            whole, by_index = await scans(driver, connection)
            for number in range(2, 6):
                await round_of(driver, number)
                await many(driver, [message("single", new_id()), claim("single", "e1"), claim("single", "e2")])
            whole_after, by_index_after = await scans(driver, connection)
            assert whole_after == whole
            assert by_index_after > by_index

    async def scans(driver: PostgresDriver, connection: Connection) -> tuple[int, int]:
        """How often the hot tables were read as a whole, and by an index."""
        await (await driver._ready()).execute("SELECT pg_stat_force_next_flush()")
        row = await connection.fetchrow(
            "SELECT sum(seq_scan)::bigint, sum(idx_scan)::bigint FROM pg_stat_user_tables "
            "WHERE schemaname = current_schema() AND relname IN ('messages', 'addresses', 'executions', 'batches')"
        )
        assert row is not None
        return row[0], row[1]

    run(main())
