"""The databases that the conformance suite runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.persistence.stores import SqliteDatabase

if TYPE_CHECKING:
    from pathlib import Path

    from tests.persistence.stores import Database

STORES: Final = ("sqlite",)


@pytest.fixture(params=STORES)
def database(tmp_path: Path) -> Database:
    """An empty database with a steered clock."""
    return SqliteDatabase(tmp_path / "store.db")
