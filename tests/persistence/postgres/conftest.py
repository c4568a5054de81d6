"""One server a test session, a fresh schema a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.persistence.postgres.servers import Server, fresh_schema, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    """A store's URL, in a fresh schema."""
    with fresh_schema(postgres) as fresh:
        yield fresh
