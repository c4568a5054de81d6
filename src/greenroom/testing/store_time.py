"""The time of a store that tests steer: by hand, or by the virtual clock of whoever runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from attrs import define, field

from greenroom.persistence import StoreClock

if TYPE_CHECKING:
    from collections.abc import Callable

UPTIME = 1000.0
"""Seconds that the machine counts since its boot when a store's time begins."""


@define
class StoreTime:
    """A store's time. It stands, but for `pass_time`, or follows a virtual clock, or several, one after another.

    Args:
        start: an aware instant at which it begins.
        boot_id: of the machine, as stores tell one boot from another.
    """

    start: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    boot_id: str = "a steered machine"
    _passed: float = field(default=0.0, init=False)
    _running: Callable[[], float] | None = field(default=None, init=False)

    def passed(self) -> float:
        """Seconds since its beginning."""
        return self._passed + (0.0 if self._running is None else self._running())

    def now(self) -> datetime:
        """The store's present, UTC."""
        return self.start + timedelta(seconds=self.passed())

    def pass_time(self, seconds: float) -> None:
        """Let time pass. Leases lapse by it, and what is delayed comes due."""
        self._passed += seconds

    def follow(self, now: Callable[[], float]) -> None:
        """Go on with a clock that begins at 0: `time.follow(clock.now)`. What passed on the one before is kept."""
        self._passed = self.passed()
        self._running = now

    @property
    def store_clock(self) -> StoreClock:
        """For `open_store(clock=…)` and `StoreSource(clock=…)`."""
        return StoreClock(
            now=lambda: round((self.start.timestamp() + self.passed()) * 1e6),
            boot=lambda: UPTIME + self.passed(),
            boot_id=self.boot_id,
        )
