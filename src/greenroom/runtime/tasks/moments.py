"""The moments of a schedule: which instants a rule means. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from attrs import frozen

from greenroom.errors import BadSpec
from greenroom.mailbox import is_seconds

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
CENTURY: Final = 3_155_760_000.0
"""Seconds. Beyond that the arithmetic of dates ends."""


class Moments(Protocol):
    """Instants, without end or until there are no more."""

    def after(self, instant: datetime) -> datetime | None:
        """The first one later than an aware instant, in UTC; None: there is none."""


@frozen
class Every:
    """Whole multiples of a period, counted from 1970-01-01T00:00Z: the same for everybody, whenever they begin to count."""

    period: timedelta

    def after(self, instant: datetime) -> datetime:
        return EPOCH + ((instant - EPOCH) // self.period + 1) * self.period


@frozen
class Cron:
    """What a cron expression means on the clocks of a place, as Debian's cron takes it.

    Where a change of clocks leaves a time of day out, what names that time comes right after the gap; where one comes twice, once, the
    first time. Expressions for every minute or every hour follow the time that really passes.
    """

    expression: str
    zone: ZoneInfo

    def after(self, instant: datetime) -> datetime | None:
        from cronsim import CronSim  # an extra, which `rule` has looked for

        for found in CronSim(self.expression, instant.astimezone(self.zone)):
            moment = found.astimezone(UTC)
            if moment > instant:  # a time of day that comes twice would be found again between the two
                return moment
        return None


def rule(where: str, *, cron: str | None, every: float | None, time_zone: str | None) -> Moments:
    """The moments that somebody has asked for. Raises `BadSpec`."""
    if (cron is None) == (every is None):
        raise BadSpec(f"{where}give either cron='0 3 * * *' or every=3600.0")
    if every is not None:
        if not is_seconds(every) or not 1e-6 <= every <= CENTURY:
            raise BadSpec(f"{where}every={every!r}: a number of seconds above 0, for no more than a century")
        if time_zone is not None:
            raise BadSpec(
                f"{where}time_zone={time_zone!r}: only cron expressions have one; every= counts seconds in UTC"
            )
        return Every(timedelta(seconds=every))
    if find_spec("cronsim") is None:
        raise BadSpec(f"{where}cron={cron!r} needs the extra `schedules`: pip install 'greenroom[schedules]'")
    from cronsim import CronSimError

    try:
        zone = ZoneInfo(time_zone or "UTC")
    except (KeyError, ValueError, OSError) as error:  # KeyError: ZoneInfoNotFoundError
        raise BadSpec(f"{where}time_zone={time_zone!r}: no such time zone here, for example 'Europe/Berlin'") from error
    moments = Cron(str(cron), zone)
    try:
        first = moments.after(EPOCH)
    except CronSimError as error:
        raise BadSpec(f"{where}cron={cron!r} is no cron expression: {error}") from error
    if first is None:
        raise BadSpec(f"{where}cron={cron!r} names no moment that ever comes")
    return moments
