"""Arrays come to the database as they were, by whichever way they go."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.persistence.postgres.arrays import NULL, SEPARATOR, Statement
from tests.persistence.postgres.help import run, session

ECHO = (
    "CREATE FUNCTION echo(t text[], n bigint[], b bytea[], o text, OUT p text[], OUT q bigint[], OUT r bytea[], OUT s text) "
    "LANGUAGE sql AS $$ SELECT t, n, b, o $$"
)
CALL = Statement.calling("echo", "text[] bigint[] bytea[] text", "p, q, r, s")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["", SEPARATOR, NULL, f"a{SEPARATOR}b", ",", "NULL", "{}"]
)
rows = st.lists(
    st.tuples(st.none() | texts, st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.binary()), max_size=5
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.none() | texts)
def test_arrays_come_as_they_were_and_those_of_nothing_come_as_null(
    url: str, given_rows: list[tuple[str | None, int | None, bytes | None]], single: str | None
) -> None:
    columns: list[Any] = [[row[n] for row in given_rows] for n in range(3)]

    async def main() -> None:
        async with session(url) as connection, connection.transaction():
            schema = await connection.fetchval("SELECT current_setting('search_path')")
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            await connection.execute(ECHO)
            echoed = tuple(await connection.fetchrow(*CALL.given(*columns, single)) or ())
            assert echoed == (*(None if set(column) == {None} else column for column in columns), single)
            await connection.execute("DROP FUNCTION echo")

    run(main())
