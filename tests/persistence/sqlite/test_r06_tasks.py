"""R6, for tasks on SQLite: what is asked all the time is found by an index, in its order."""

from __future__ import annotations

from contextlib import closing

import pytest

from greenroom.persistence.reading import tasks
from greenroom.persistence.sqlite.statements import rewritten
from tests.persistence.test_states import database


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (tasks.RUNNABLE_TASKS, "tasks_runnable"),
        (tasks.DUE_TASKS, "addresses_due_tasks"),
        (tasks.NEXT_TASK_DUE, "addresses_due_tasks"),
        (tasks.WATCH_TASKS, "tasks_open"),
        (tasks.CHILDREN_OF, "tasks_by_parent"),
        (tasks.LIST_TASKS_OF, "tasks_by_pool"),
        (tasks.ANSWERED_CALLBACKS, "callbacks_undelivered"),
        (tasks.OPEN_CALLBACKS, "callbacks_open"),
    ],
)
def test_a_query_uses_its_index(sql: str, index: str) -> None:
    with closing(database()) as connection:
        connection.create_function("greenroom_now", 0, lambda: 0)
        arguments = ["1"] * sum(f"${number}" in sql for number in range(1, 6))
        plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {rewritten(sql)}", arguments)]
    assert any(index in line for line in plan), plan
    assert not any(line.startswith("SCAN tasks") and "USING" not in line for line in plan), plan
