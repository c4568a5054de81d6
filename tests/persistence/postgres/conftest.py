"""A fresh schema a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.persistence.postgres.servers import fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.persistence.postgres.servers import Server


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    """A store's URL, in a fresh schema."""
    with fresh_schema(postgres) as fresh:
        yield fresh
