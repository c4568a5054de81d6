"""Options of tasks that no store could keep, or give back, are refused where they are given: nothing of them gets on record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import greenroom as gr
from tests.durable.conftest import database
from tests.durable.helpers import raised
from tests.tasks.scripts import POOL, Job, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

__all__ = ["database"]

BEYOND = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=12)))
"""A date, but none in UTC."""


async def nothing(task: gr.Task, job: Job) -> None:
    """Control code."""


@pytest.mark.parametrize(
    "options",
    [
        {"group": "zero \0"},
        {"group": "surrogate \ud800"},
        {"group": 5},
        {"group": None},
        {"priority": 2**63},
        {"priority": 1.5},
        {"priority": "1"},
        {"deadline": BEYOND},
        {"not_before": BEYOND},
        {"deadline": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is odd about it
        {"deadline": 5},
    ],
    ids=str,
)
async def test_a_submission_with_an_odd_option_is_refused_at_once(database: Shared, options: dict[str, Any]) -> None:
    async with database.runtime(agents(nothing)) as runtime:
        error = await raised(runtime.submit(POOL, Job(), task_id="T1", **options))
        assert isinstance(error, (TypeError, ValueError))
        assert not isinstance(error, gr.GreenroomError)
        assert isinstance(await raised(runtime.task("T1").status()), gr.NoSuchTask)


async def test_the_ends_of_time_and_of_priorities_are_taken(database: Shared) -> None:
    last = datetime(9998, 12, 31, tzinfo=UTC)
    async with database.runtime(agents(nothing)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1", deadline=last, priority=-(2**31))
        await handle.result(timeout=100)


async def test_a_sleep_until_no_date_of_utc_is_refused(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.sleep(BEYOND)
        except ValueError as error:
            return str(error)
        return "it slept"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert "is no date in UTC" in await handle.result(timeout=100)
