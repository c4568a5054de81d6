"""Empty stores for the kit's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.testing import fresh_store
from tests.persistence.conftest import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.persistence.postgres.servers import Server


@pytest.fixture
def sqlite_url() -> Iterator[str]:
    with fresh_store() as url:
        yield url


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    with fresh_store(postgres.url) as url:
        yield url


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
