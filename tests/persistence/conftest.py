"""The databases that the conformance suite runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.persistence.postgres.database import PostgresDatabase
from tests.persistence.postgres.servers import fresh_schema
from tests.persistence.stores import SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.persistence.stores import Database

STORES: Final = ("sqlite", "postgres")


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database with a steered clock."""
    if request.param == "sqlite":
        yield SqliteDatabase(tmp_path / "store.db")
        return
    with fresh_schema(request.getfixturevalue("postgres")) as url:
        yield PostgresDatabase(url)
