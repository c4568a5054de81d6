"""Empty databases, removed afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from greenroom.persistence import Durability, ListAddresses, open_store, system_clock
from greenroom.testing import fresh_store
from tests.persistence.postgres.help import elsewhere, schema_of, session
from tests.testing.desks import claim, register

if TYPE_CHECKING:
    from tests.persistence.postgres.servers import Server


async def use(url: str) -> None:
    async with open_store(url) as store:
        assert await store.read(ListAddresses()) == ()
        await register(store, system_clock(), "e1")
        await claim(store, "e1")


def test_each_sqlite_store_is_a_new_file_that_is_gone_afterwards() -> None:
    files = []
    for _ in range(2):
        with fresh_store() as url:
            anyio.run(use, url)
            files.append(Path(urlsplit(url).path[1:]))
            assert files[-1].exists()
    assert files[0] != files[1]
    assert not any(file.parent.exists() for file in files)


async def test_it_syncs_nothing_which_no_simulated_death_could_show() -> None:
    with fresh_store() as url:
        async with open_store(url) as store:
            assert store.durability is Durability.REDUCED


def test_each_postgres_store_is_a_new_schema_that_is_gone_afterwards(postgres: Server) -> None:
    async def schemas(server: str) -> set[str]:
        async with session(server) as connection:
            return {row[0] for row in await connection.fetch("SELECT nspname FROM pg_namespace")}

    for _ in range(2):
        with fresh_store(postgres.url) as url:
            anyio.run(use, url)
            assert schema_of(url) in elsewhere(schemas(url))
        assert schema_of(url) not in elsewhere(schemas(url))
