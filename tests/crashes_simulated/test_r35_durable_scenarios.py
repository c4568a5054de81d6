"""R35, I1 to I5: durable actors are killed at each point of what they commit, and come to the same end.

Every day each point on SQLite, on one of the two event loops; on the other one a quarter, and on PostgreSQL a tenth. With --full, each
point on both databases and both loops, and a sample of the recoveries is killed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.testing import interrupt_everywhere
from tests.crashes_simulated.scenarios import SCENARIOS

if TYPE_CHECKING:
    from greenroom.testing.interrupt import Scenario
    from greenroom.testing.virtual_clock import Backend
    from tests.persistence.postgres.servers import Server

pytestmark = pytest.mark.usefixtures("quiet")
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)

FEW = 0.1
"""The fraction of trials that may go another way than the undisturbed one: an execution is registered with the help of a thread."""


def loops(scenario: Scenario) -> tuple[Backend, Backend]:
    """The one on which each of its points is tried, and the other one."""
    return ("trio", "asyncio") if SCENARIOS.index(scenario) % 2 else ("asyncio", "trio")


def tried_all(scenario: Scenario, **options: object) -> None:
    tried = interrupt_everywhere(scenario, **options)  # type: ignore[arg-type]
    assert len(tried.trials) > 0
    assert len(tried.unmet) <= FEW * len(tried.trials), tried.unmet


@each_scenario
def test_r35_each_point_on_sqlite(scenario: Scenario) -> None:
    tried_all(scenario, backend=loops(scenario)[0], seed=1)


@each_scenario
def test_r35_a_quarter_of_the_points_on_sqlite_on_the_other_loop(scenario: Scenario) -> None:
    tried_all(scenario, backend=loops(scenario)[1], seed=1, sample=(SCENARIOS.index(scenario), 0.25))


@each_scenario
def test_r35_a_tenth_of_the_points_on_postgres(scenario: Scenario, postgres: Server) -> None:
    tried_all(scenario, backend=loops(scenario)[1], server=postgres.url, sample=(SCENARIOS.index(scenario), 0.1))


@pytest.mark.full
@each_scenario
def test_r35_each_point_on_sqlite_on_each_loop(scenario: Scenario, backend: Backend) -> None:
    tried_all(scenario, backend=backend, seed=2)


@pytest.mark.full
@each_scenario
def test_r35_each_point_on_postgres(scenario: Scenario, backend: Backend, postgres: Server) -> None:
    tried_all(scenario, backend=backend, server=postgres.url, seed=2)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@each_scenario
def test_r35_points_of_recoveries_on_sqlite(scenario: Scenario, backend: Backend, seed: int) -> None:
    tried_all(scenario, backend=backend, seed=seed, twice=True, sample=(seed, 0.15))
