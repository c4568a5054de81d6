"""Stores for the commands, as users have them: on the real clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.persistence.conftest import STORES
from tests.persistence.postgres.servers import fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a store that is not there yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    with fresh_schema(request.getfixturevalue("postgres")) as found:
        yield found
