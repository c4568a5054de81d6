"""PostgreSQL for the conformance suite."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from attrs import define, field

from greenroom.persistence.committer import Committer
from greenroom.persistence.driver import Driver
from greenroom.persistence.store import make_driver, open_store
from tests.persistence.postgres.help import elsewhere, session
from tests.persistence.stores import SteeredClock, Tables


@define
class PostgresDatabase:
    """A fresh schema of a real server."""

    url: str
    time: SteeredClock = field(factory=SteeredClock)

    def open(self, *, bound: float = 30.0) -> AbstractAsyncContextManager[Committer]:
        return open_store(self.url, clock=self.time.store_clock, bound=bound)

    def driver(self) -> Driver:
        return make_driver(self.url, clock=self.time.store_clock)

    def tables(self) -> Tables:
        return elsewhere(self._tables())

    async def _tables(self) -> Tables:
        tables: Tables = {}
        async with session(self.url) as connection:
            columns = await connection.fetch(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() "
                "AND table_name NOT IN ('batches', 'meta') AND (table_name, column_name) <> ('observations', 'id') "
                "ORDER BY table_name, ordinal_position"
            )
            names: dict[str, list[str]] = {}
            for table, column in columns:
                names.setdefault(table, []).append(column)
            for table, wanted in names.items():
                rows = await connection.fetch(f"SELECT {', '.join(wanted)} FROM {table}")
                plain = [tuple(int(value) if isinstance(value, bool) else value for value in row) for row in rows]
                tables[table] = sorted(plain, key=repr)
        return tables
