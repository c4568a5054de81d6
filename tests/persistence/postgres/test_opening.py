"""Opening a PostgreSQL store: promises checked, sessions bounded, the schema made once."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import BadStoreUrl, IncompatibleStore, StoreUnavailable
from greenroom.persistence.driver import Durability, NotReached
from greenroom.persistence.inspection import check_store, migrate_store
from greenroom.persistence.messages import Receipt
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.failures import ERRORS
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.inspection import bring_up_to_date, inspect
from greenroom.persistence.postgres.target import Limits, parse_target
from greenroom.persistence.schema.migrations import CODE
from tests.persistence.postgres.help import claim, execution, many, message, one, opened, run, schema_of, session
from tests.persistence.postgres.servers import Server, with_options


def test_an_empty_schema_is_made_by_whoever_opens_it(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            assert driver.durability is Durability.FULL
            assert await connection.fetchval("SELECT version FROM meta") == CODE

    run(main())


def test_k18_eight_that_open_an_empty_schema_at_once_make_it_once(url: str) -> None:
    async def main() -> None:
        drivers = [PostgresDriver(url) for _ in range(8)]
        await asyncio.gather(*(driver.open() for driver in drivers))
        await one(drivers[0], execution("e1"))
        await one(drivers[7], claim("desk", "e1"))
        for driver in drivers:
            await driver.close()

    run(main())


def test_a_schema_that_holds_something_else_is_left_alone(url: str) -> None:
    async def main() -> None:
        async with session(url) as connection:
            await connection.execute(f"CREATE SCHEMA {schema_of(url)}")
            await connection.execute("CREATE TABLE theirs (x integer)")
            with pytest.raises(IncompatibleStore, match="holds something else"):
                await PostgresDriver(url).open()
            assert await connection.fetchval("SELECT to_regclass('meta')") is None

    run(main())


def test_r33_a_schema_for_newer_code_only_is_refused_and_a_newer_one_that_allows_this_code_is_not(url: str) -> None:
    async def main() -> None:
        async with opened(url), session(url) as connection:
            await connection.execute("UPDATE meta SET version = 7, oldest_code = 1")
            async with opened(url) as driver:
                await one(driver, execution("e1"))
            await connection.execute("UPDATE meta SET oldest_code = 7")
            with pytest.raises(IncompatibleStore, match="install a newer greenroom"):
                await PostgresDriver(url).open()

    run(main())


def test_r33_workers_of_two_releases_each_keep_their_own_functions(url: str) -> None:
    async def main() -> None:
        async with opened(url), session(url) as connection:
            await connection.execute(f"ALTER FUNCTION {NAMES['accept']} RENAME TO greenroom_accept_00000000")
            async with opened(url) as driver:
                await one(driver, execution("e1"))
                await one(driver, claim("desk", "e1"))
                assert isinstance(await one(driver, message("desk", "m1")), Receipt)
            assert await connection.fetchval("SELECT to_regproc('greenroom_accept_00000000')") is not None

    run(main())


def test_c18_a_server_that_does_not_wait_for_its_disk_is_refused_unless_that_was_asked_for(url: str) -> None:
    async def main() -> None:
        careless = with_options(url, synchronous_commit="off")
        with pytest.raises(IncompatibleStore, match="synchronous_commit = off"):
            await PostgresDriver(careless).open()
        async with opened(with_options(url, durability="reduced")) as driver:
            assert driver.durability is Durability.REDUCED

    run(main())


def test_a_database_that_does_not_exist_is_a_mismatch_and_a_server_that_does_not_answer_is_not(
    postgres: Server,
) -> None:
    async def main() -> None:
        with pytest.raises(IncompatibleStore, match="nowhere"):
            await PostgresDriver(postgres.url.replace("/postgres?", "/nowhere?")).open()
        with pytest.raises(NotReached):
            await PostgresDriver("postgresql://me:secret@127.0.0.1:1/db").open()

    run(main())


def test_r12_a_session_that_stops_inside_a_transaction_is_ended_below_a_third_of_the_lease(url: str) -> None:
    limits = Limits(lease=3.0)

    async def main() -> None:
        async with opened(url, lease=3.0) as driver, session(url, limits) as stopped:
            await one(driver, execution("e1"))
            await one(driver, claim("desk", "e1"))
            await stopped.execute("BEGIN")
            await stopped.execute("SELECT FROM addresses FOR UPDATE")
            loop = asyncio.get_running_loop()
            started = loop.time()
            receipt = await one(driver, message("desk", "m1"))
            assert isinstance(receipt, Receipt)
            assert loop.time() - started < 1.0
            with pytest.raises(ERRORS):
                await stopped.execute("COMMIT")

    run(main())


def test_r12_a_driver_lives_under_its_limits(url: str) -> None:
    async def main() -> None:
        async with opened(url, lease=30.0) as driver:
            connection = await driver._ready()
            for name, most in (
                ("statement_timeout", 10_000),
                ("lock_timeout", 10_000),
                ("idle_in_transaction_session_timeout", 10_000),
            ):
                value = await connection.fetchval("SELECT setting::integer FROM pg_settings WHERE name = $1", name)
                assert 0 < value < most

    run(main())


@given(st.floats(min_value=3.0, max_value=3600.0))
def test_r12_every_limit_is_below_a_third_of_the_lease(lease: float) -> None:
    limits = Limits(lease=lease)
    settings = limits.settings()
    third = 1000 * lease / 3
    waits = [int(settings[name].removesuffix("ms")) for name in settings if name.endswith("_timeout")]
    assert len(waits) == 4
    assert all(0 < wait < third for wait in waits)
    assert waits[0] / 1000 < limits.call < lease / 3


@given(st.floats(min_value=15.0, max_value=3600.0))
def test_r12_a_silent_line_is_given_up_below_a_third_of_the_lease(lease: float) -> None:
    limits = Limits(lease=lease)
    assert limits.keepalive_idle + 2 * limits.keepalive_interval < lease / 3


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://x", "begins with postgresql://"),
        ("postgresql://h/d?durability=some", "choose full or reduced"),
        ("postgresql://h/d?schema=", "1 to 48 bytes"),
        ("postgresql://h/d?schema=" + "é" * 25, "1 to 48 bytes"),
        ("postgresql://h/d?schema=a&schema=b", "twice"),
    ],
)
def test_a_url_without_sense_is_refused_with_its_reason(url: str, problem: str) -> None:
    with pytest.raises(BadStoreUrl, match=problem):
        parse_target(url)


def test_a_url_is_shown_without_its_password() -> None:
    target = parse_target("postgresql://me:secret@h:5433/d?schema=s&application_name=x")
    assert target.text == "postgresql://me:***@h:5433/d?schema=s&application_name=x"
    assert target.dsn == "postgresql://me:secret@h:5433/d?application_name=x"
    assert target.schema == "s"
    with pytest.raises(BadStoreUrl) as failure:
        parse_target("postgresql://me:secret@h/d?durability=x")
    assert "secret" not in str(failure.value)


def test_a_schema_may_have_any_name(url: str) -> None:
    odd = with_options(url.partition("&schema=")[0], schema='Größe "x" ; drop')

    async def main() -> None:
        async with opened(odd) as driver, opened(odd) as other:
            await one(driver, execution("e1"))
            await many(driver, [claim("desk", "e1"), claim("other", "e1")])
            await one(other, message("desk", "m1"))
            async with session(odd) as connection:
                await connection.execute('DROP SCHEMA "Größe ""x"" ; drop" CASCADE')

    run(main())


def test_tables_refuse_every_move_that_python_does_not_have(url: str) -> None:
    """Python and SQL agree on each state machine."""
    from greenroom.persistence.callbacks import CALLBACK_MOVES, CallbackStatus
    from greenroom.persistence.executions import EXECUTION_MOVES, ExecutionState
    from greenroom.persistence.messages import MESSAGE_MOVES, MessageStatus
    from greenroom.persistence.outbox import OUTBOX_MOVES, OutboxStatus
    from greenroom.persistence.states import steps

    machines: list[tuple[str, str, Any, Any, str]] = [
        ("executions", "state", ExecutionState, EXECUTION_MOVES, "execution_id, host, pid, boot_id, locked"),
        ("messages", "status", MessageStatus, MESSAGE_MOVES, "address, seq, message_id, digest, type"),
        ("callbacks", "status", CallbackStatus, CALLBACK_MOVES, "callback_id, address, name, created_at, status"),
        ("outbox", "status", OutboxStatus, OUTBOX_MOVES, "address, ordinal, held, destination, message_id"),
    ]

    async def main() -> None:
        async with opened(url), session(url) as connection:
            for table, column, states, moves, _ in machines:
                # A table of the same triggers without the other constraints: only the moves are asked about.
                await connection.execute(f"CREATE TABLE bare_{table} ({column} text)")
                definition = await connection.fetchval(
                    "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE tgname = $1", f"{table}_moves"
                )
                await connection.execute(definition.replace(f".{table} ", f".bare_{table} "))
                allowed = steps(moves)
                for before in states:
                    for after in states:
                        await connection.execute(f"TRUNCATE bare_{table}")
                        await connection.execute(f"INSERT INTO bare_{table} VALUES ($1)", before.value)
                        try:
                            await connection.execute(f"UPDATE bare_{table} SET {column} = $1", after.value)
                        except asyncpg.CheckViolationError:
                            assert (before, after) not in allowed, (table, before, after)
                        else:
                            assert before is after or (before, after) in allowed, (table, before, after)
                constraint = await connection.fetchval(
                    "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1", f"{table}_{column}_check"
                )
                assert all(f"'{state.value}'" in constraint for state in states)

    run(main())


def test_a_schema_can_be_looked_at_and_what_is_wrong_with_it_is_named(url: str) -> None:
    with pytest.raises(IncompatibleStore, match="store migrate"):
        inspect(url)
    bring_up_to_date(url)
    assert inspect(url).is_good

    async def spoil() -> None:
        async with session(url) as connection:
            await connection.execute("DROP INDEX messages_dead")
            await connection.execute("ALTER TABLE addresses DROP CONSTRAINT addresses_check1")
            await connection.execute("ALTER TABLE messages ALTER COLUMN type DROP NOT NULL")

    run(spoil())
    report = inspect(url)
    assert not report.is_good
    assert [line.split(" is ")[0] for line in report.differences] == [
        "the column messages.type",
        "the constraint addresses.addresses_check1",
        "the index messages_dead",
    ]


def test_looking_at_a_server_that_is_not_there_says_so() -> None:
    with pytest.raises(StoreUnavailable):
        inspect("postgresql://127.0.0.1:1/db")


@pytest.mark.real_time
async def test_checking_and_migrating_a_store_take_postgresql_urls(url: str) -> None:
    with pytest.raises(IncompatibleStore, match="store migrate"):
        await check_store(url)
    made = await migrate_store(url)
    assert made.is_good
    assert await check_store(url) == made
