"""Which instants a schedule means: whole multiples of a period, and cron expressions on the clocks of a place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.runtime.tasks.moments import EPOCH, Every, Moments, rule

instants = st.integers(946_684_800, 2_840_140_800).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
expressions = st.sampled_from(
    [
        "0 3 * * *",
        "30 2 * * *",
        "*/15 * * * *",
        "0 * * * *",
        "0 0 1 * *",
        "15,45 1-4 * * 0",
        "30 */2 * * *",
        "0 0 2 * * *",
    ]
)
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


def cron(expression: str, zone: str = "Europe/Berlin") -> Moments:
    return rule("", cron=expression, every=None, time_zone=zone)


def after(moments: Moments, text: str, count: int) -> list[str]:
    found = []
    moment: datetime | None = datetime.fromisoformat(text)
    for _ in range(count):
        assert moment is not None
        moment = moments.after(moment)
        assert moment is not None
        found.append(moment.strftime("%d %H:%M"))
    return found


@given(instants, st.floats(0.001, 1e7))
def test_the_next_multiple_of_a_period_is_later_and_no_more_than_a_period_away(now: datetime, seconds: float) -> None:
    moments = rule("", cron=None, every=seconds, time_zone=None)
    assert isinstance(moments, Every)
    moment = moments.after(now)
    assert timedelta() < moment - now <= moments.period
    assert (moment - EPOCH) % moments.period == timedelta()


@given(instants, expressions, zones)
def test_the_next_moment_of_an_expression_is_later_and_none_lies_between(
    now: datetime, expression: str, zone: str
) -> None:
    moments = cron(expression, zone)
    moment = moments.after(now)
    assert moment is not None
    assert moment > now
    assert moment.tzinfo is UTC
    assert moments.after(moment - timedelta(microseconds=1)) == moment
    between = now + (moment - now) / 2
    assert moments.after(between) == moment


def test_a_time_of_day_that_a_change_of_clocks_leaves_out_comes_right_after_the_gap() -> None:
    assert after(cron("30 2 * * *"), "2026-03-28T00:00:00+00:00", 3) == ["28 01:30", "29 01:00", "30 00:30"]


def test_a_time_of_day_that_comes_twice_comes_once_the_first_time() -> None:
    moments = cron("30 2 * * *")
    assert after(moments, "2026-10-24T12:00:00+00:00", 2) == ["25 00:30", "26 01:30"]
    assert after(moments, "2026-10-25T01:05:00+00:00", 1) == ["26 01:30"]  # from between the two


def test_expressions_for_every_hour_follow_the_time_that_really_passes() -> None:
    assert after(cron("0 * * * *"), "2026-10-24T23:30:00+00:00", 3) == ["25 00:00", "25 01:00", "25 02:00"]
    assert after(cron("*/30 * * * *"), "2026-03-29T00:30:00+00:00", 2) == ["29 01:00", "29 01:30"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu"])
def test_an_expression_is_meant_by_the_clocks_of_its_time_zone(zone: str) -> None:
    expected = {"UTC": "01 03:00", "Asia/Kathmandu": "01 21:15"}[zone]
    assert after(cron("0 3 * * *", zone), "2026-01-01T00:00:00+00:00", 1) == [expected]
