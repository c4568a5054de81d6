"""R6, R34: applying a batch and answering a query block the store thread; they never suspend, for nothing could resume them."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

import attrs
import pytest

from greenroom.errors import Defect
from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.ids import new_id
from greenroom.persistence.reading.queries import READERS
from greenroom.persistence.sqlite.blocking import run_blocking
from greenroom.persistence.sqlite.driver import SqliteDriver
from greenroom.persistence.transitions import Query, Transition
from greenroom.persistence.urls import parse_url
from tests.persistence.sqlite.test_r09_oracle import one_by_one, random_commands
from tests.persistence.stores import SteeredClock


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine by hand: its first step must be its last."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    return end.value.value


def test_r06_a_batch_of_any_kind_is_applied_without_a_pause() -> None:
    random = Random(5)
    kinds: set[type[Any]] = set()
    while kinds != set(APPLIERS):
        steps, expected, _ = one_by_one(random_commands(random, 100))
        time = SteeredClock()
        driver = SqliteDriver(parse_url("sqlite://:memory:"), time.store_clock, bound=30.0)
        at_once(driver.open())
        answers: list[Any] = []
        for step in steps:
            if isinstance(step, Transition):
                answers += at_once(driver.apply(new_id(), [step])).answers
                kinds.add(type(step))
            else:
                time.pass_time(step)
        assert answers == expected
        at_once(driver.close())


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_r34_a_query_of_any_kind_is_answered_without_a_pause(kind: type[Query[Any]]) -> None:
    driver = SqliteDriver(parse_url("sqlite://:memory:"), SteeredClock().store_clock, bound=30.0)
    at_once(driver.open())
    names = [field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING]
    asked = kind(**dict.fromkeys(names, "x"))
    at_once(driver.read(asked))
    at_once(driver.close())


def test_what_suspends_in_the_store_thread_is_a_defect_and_not_a_hang() -> None:
    class Pause:
        def __await__(self) -> Any:
            yield

    async def main() -> None:
        await Pause()

    with pytest.raises(Defect, match="suspended"):
        run_blocking(main())
