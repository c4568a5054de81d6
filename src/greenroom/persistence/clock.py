"""Time, as a store knows it: two clocks and the identity of the boot that one of them counts from.

Stored instants are whole microseconds since 1970, UTC, on the wall's clock. Leases on SQLite run on the clock that counts
since the machine's boot, suspension included: nobody sets it, and a process that slept finds its lease gone (R11).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import Attribute, frozen

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@frozen
class StoreClock:
    """Where a store reads time. The testing kit gives another one; product code does not."""

    now: Callable[[], int]
    """Microseconds since 1970, UTC."""
    boot: Callable[[], float]
    """Seconds since the machine's boot, suspension included."""
    boot_id: str
    """Which boot that was; empty where the system does not tell."""


def micros(instant: datetime) -> int:
    """An aware instant as it is stored."""
    return (instant - _EPOCH) // _MICROSECOND


def aware(_: object, attribute: Attribute[Any], value: object) -> None:
    """An attrs validator for instants."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(
                f"{attribute.name}={value!r} has no time zone: give an aware datetime, for example datetime.now(UTC)"
            )
        if value.year in (MINYEAR, MAXYEAR):  # in UTC it may be of a year that there is not
            raise ValueError(
                f"{attribute.name}={value!r} is too far away: give one of the years {MINYEAR + 1} to {MAXYEAR - 1}"
            )
    elif value is not None:
        raise TypeError(
            f"{attribute.name}={value!r} is no datetime: give an aware one, for example datetime.now(UTC) + timedelta(minutes=5)"
        )


def instant(stored: int) -> datetime:
    """A stored instant as an aware datetime, UTC."""
    return _EPOCH + stored * _MICROSECOND


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def maybe_instant(stored: int | None) -> datetime | None:
    return None if stored is None else instant(stored)


def _boot_clock() -> Callable[[], float]:
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # on macOS the latter counts suspension
        number = getattr(time, name, None)
        if number is not None:
            return lambda: time.clock_gettime(number)
    return time.monotonic


def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def system_clock() -> StoreClock:
    """The clock of this machine."""
    return StoreClock(now=lambda: time.time_ns() // 1000, boot=_boot_clock(), boot_id=_boot_id())
