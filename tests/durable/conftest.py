"""The databases that the durable half runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.testing import fresh_store
from tests.durable.helpers import Shared
from tests.persistence.conftest import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.testing import VirtualClock
    from tests.persistence.postgres.servers import Server


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Shared]:
    """An empty database whose time is that of the test's virtual clock, and what a test passes besides."""
    server: Server | None = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    with fresh_store(None if server is None else server.url) as url:
        yield Shared(url, clock)


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database, for tests on the real clock."""
    server: Server | None = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    with fresh_store(None if server is None else server.url) as url:
        yield url
