"""Dates, times and durations.

ISO 8601 text, as long as it says everything. What it cannot say, the time zone by name and which of two equal
wall-clock times is meant (`fold`), stands beside it in an object; a zone by another means than `datetime.timezone` or
`zoneinfo.ZoneInfo` is refused, because nothing could make it again.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from greenroom.codec.leaves import Leaf, pack_text, unpack_text
from greenroom.codec.plan import Fault, Plain, expected, shortened

_Stamp = TypeVar("_Stamp", datetime, time)
_Moment = TypeVar("_Moment", datetime, time, date)
_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def pack_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def unpack_timedelta(plain: Plain) -> timedelta:
    if type(plain) is not list or len(plain) != 3 or any(type(part) is not int for part in plain):
        raise Fault("a timedelta is [days, seconds, microseconds], all int")
    try:
        value = timedelta(*plain)
    except OverflowError as error:
        raise Fault("a timedelta this long does not exist") from error
    if pack_timedelta(value) != plain:
        raise Fault("a timedelta has fewer than 86400 seconds and 1000000 microseconds beside its days")
    return value


def _pack_zone(zone: tzinfo | None) -> dict[str, Plain]:
    if zone is None:
        return {}
    if type(zone) is ZoneInfo:
        if zone.key is None:
            raise Fault("its ZoneInfo was read from a file and has no key by which to find it again")
        return {"zone": pack_text(zone.key)}
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        fields: dict[str, Plain] = {"offset": pack_timedelta(offset)}
        if str(zone) != str(timezone(offset)):
            fields["name"] = pack_text(str(zone))
        return fields
    raise Fault(f"its tzinfo is a {type(zone).__qualname__}: use datetime.timezone or zoneinfo.ZoneInfo")


def _unpack_zone(plain: dict[str, Plain]) -> tzinfo | None:
    if "zone" in plain:
        key = plain.pop("zone")
        # The key becomes a file name: what ZoneInfo itself would refuse by several kinds of error is refused here.
        if type(key) is not str or not _ZONE_KEY.fullmatch(key):
            raise Fault("a zone must be a key such as 'Europe/Berlin'")
        try:
            return ZoneInfo(key)
        except (LookupError, ValueError, OSError) as error:
            raise Fault(f"the time zone {shortened(key)} is not known here: install the tzdata package") from error
    if "offset" in plain:
        offset = unpack_timedelta(plain.pop("offset"))
        try:
            if "name" in plain:
                return timezone(offset, unpack_text(plain.pop("name"), "zone name"))
            return timezone(offset)
        except ValueError as error:
            raise Fault("the offset of a time zone must be shorter than a day") from error
    return None


def _plain_zone(zone: tzinfo | None) -> bool:
    """Whether ISO text says all about it."""
    if zone is None:
        return True
    if type(zone) is not timezone:
        return False
    offset = zone.utcoffset(None)
    # CPython 3.11 reads an offset of less than a second as UTC.
    return offset.microseconds == 0 and str(zone) == str(timezone(offset))


def _pack_stamp(value: datetime | time) -> Plain:
    zone = value.tzinfo
    if value.fold == 0 and (zone is UTC or _plain_zone(zone)):
        return value.isoformat()
    return {"at": value.replace(tzinfo=None, fold=0).isoformat(), "fold": value.fold, **_pack_zone(zone)}


def _unpack_stamp(kind: type[_Stamp], plain: Plain) -> Any:
    if type(plain) is not dict:
        return _read(kind, plain)
    fields = dict(plain)
    value = _read(kind, fields.pop("at", None))
    fold = fields.pop("fold", None)
    zone = _unpack_zone(fields)
    if fields or type(fold) is not int or fold not in (0, 1) or value.tzinfo is not None:
        raise Fault(
            f"a {kind.__name__} in parts has 'at' (without offset), 'fold' (0 or 1), and 'zone' or 'offset' and 'name'"
        )
    return value.replace(tzinfo=zone, fold=fold)


def _read(kind: type[_Moment], plain: Plain) -> _Moment:
    text = unpack_text(plain, kind.__name__)
    try:
        return kind.fromisoformat(text)
    except ValueError as error:
        raise Fault(f"the text is not a {kind.__name__} in ISO 8601") from error


def _unpack_date(plain: Plain) -> date:
    if type(plain) is not str:
        raise expected("date as text", plain)
    return _read(date, plain)


MOMENTS: tuple[Leaf, ...] = (
    Leaf(datetime, "datetime", _pack_stamp, lambda plain: _unpack_stamp(datetime, plain), (datetime,)),
    Leaf(date, "date", date.isoformat, _unpack_date, (date,)),
    Leaf(time, "time", _pack_stamp, lambda plain: _unpack_stamp(time, plain), (time,)),
    Leaf(timedelta, "timedelta", pack_timedelta, unpack_timedelta, (timedelta,)),
)
