"""How a runtime gets its store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from attrs import field, frozen, validators

from greenroom.mailbox import EventLoop
from greenroom.persistence import Committer, Driver, StoreClock, open_store
from greenroom.persistence.store import BOUND, LEASE
from greenroom.persistence.urls import parse_url

VIRTUAL_EPOCH = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
"""What a store shows as the time when a virtual clock begins."""


SWEEP = 1.0
VIRTUAL_SWEEP = 3600.0
VIRTUAL_LEASE = 365.0 * 24 * 3600


@frozen(kw_only=True)
class StoreSource:
    """A store to be opened: its URL and, for tests, what to put in the place of the real parts.

    Args:
        clock: the store's time. None: the system's, or that of the loop's virtual clock.
        bound: seconds (> 0) that a request may wait for its answer.
        lease: seconds (> 0) that others wait before they take over from a runtime that gives no sign. None: 30; under a virtual
            clock, which may jump further than any renewal can follow, a year.
        driver: gets the database's driver and gives the one to use.
        sweep: seconds (> 0) between two looks of the standing recovery at what is due. None: 1; under a virtual clock, where timers
            are exact and a wait of weeks must not cost a million looks, an hour.
    """

    url: str = field(kw_only=False)
    clock: StoreClock | None = None
    bound: float = field(default=BOUND, validator=validators.gt(0))
    lease: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    driver: Callable[[Driver], Driver] | None = None
    sweep: float | None = field(default=None, validator=validators.optional(validators.gt(0)))

    def clock_for(self, loop: EventLoop) -> StoreClock | None:
        """For Greenroom's own use: the clock of a store on this loop; None: the database's own."""
        return virtual_clock(loop) if self.clock is None and loop.virtual_clock is not None else self.clock

    @property
    def in_memory(self) -> bool:
        """It does not outlive the process."""
        return self.url.startswith("sqlite:") and parse_url(self.url).path == ":memory:"

    def lease_for(self, loop: EventLoop) -> float:
        """For Greenroom's own use: seconds of a lease on this loop."""
        if self.lease is not None:
            return self.lease
        return LEASE if loop.virtual_clock is None else VIRTUAL_LEASE

    def sweep_for(self, loop: EventLoop) -> float:
        """For Greenroom's own use: seconds between two looks on this loop."""
        if self.sweep is not None:
            return self.sweep
        return SWEEP if loop.virtual_clock is None else VIRTUAL_SWEEP

    @asynccontextmanager
    async def open(self, loop: EventLoop) -> AsyncIterator[Committer]:
        """For Greenroom's own use: the store, for the length of a block. Raises what `open_store` raises."""
        clock, lease = self.clock_for(loop), self.lease_for(loop)
        async with open_store(
            self.url, loop=loop, clock=clock, bound=self.bound, lease=lease, driver=self.driver
        ) as store:
            yield store


def virtual_clock(loop: EventLoop) -> StoreClock:
    """A store's time that follows the loop's virtual clock."""
    now = loop.now
    return StoreClock(
        now=lambda: round((VIRTUAL_EPOCH + now()) * 1e6),
        boot=lambda: 1000.0 + now(),
        boot_id="a virtual machine",
    )
