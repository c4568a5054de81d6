"""The databases that processes are killed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crashes.system_calls import why_not_traced
from tests.persistence.conftest import STORES
from tests.persistence.postgres.servers import fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.persistence.postgres.servers import Server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An empty store, as users have it: on the real clock, durable."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """An empty store in a fresh schema."""
    with fresh_schema(postgres) as url:
        yield url


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture(scope="session")
def strace() -> None:
    """For tests that trace system calls."""
    if (reason := why_not_traced()) is not None:
        pytest.skip(reason)
