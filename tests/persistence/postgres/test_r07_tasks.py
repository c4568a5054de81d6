"""R7, for tasks: processes with mixed batches over few tasks and pools never deadlock, and the queues are counted right."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from greenroom.persistence.task_pools import RegisterTaskPool
from tests.persistence.postgres.help import execution, many, one, opened, run, session
from tests.persistence.tasks_help import submit

WRITER: Final = """
import sys
from random import Random

from greenroom.persistence.clock import instant
from greenroom.persistence.deliveries import Outgoing
from greenroom.persistence.ids import new_id
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.tasks import ClaimTask, Ending, NewAttempt, ReleaseTask, TaskOutcome, TerminateTask, WakeTask
from tests.persistence.postgres.help import message, opened, run
from tests.persistence.tasks_help import new, outcome, submit

url, seed = sys.argv[1], int(sys.argv[2])
random = Random(seed)
hot = ["a", "b", "c", "d"]
pools = {"a": "p", "b": "p", "c": "q", "d": "q"}
generations = dict.fromkeys(hot, 1)


def item(number):
    name = random.choice(hot)
    address, pool = f"task:{name}", pools[name]
    owner = {"address": address, "execution_id": "e1", "generation": generations[name]}
    other = Outgoing(
        recipient=f"task:{random.choice(hot)}", message_id=new_id(), type="T", body=b"x", digest="d"
    )
    rows = (outcome(1, instant(4_000_000_000_000_000)),)
    return random.choice([
        lambda: message(address, new_id()),
        lambda: submit(f"new{random.randrange(40)}", pool=random.choice("pq"), group=random.choice("gh")),
        lambda: submit(f"{seed}-{number}-{new_id()}", pool=random.choice("pq"), group=random.choice("gh")),
        lambda: ClaimTask(address=address, pool=pool, execution_id="e1", version="1"),
        lambda: ClaimTask(address=address, pool=pool, execution_id="e1", version="1"),
        lambda: CommitTurn(**owner, after=0, rows=rows),
        lambda: CommitTurn(**owner, after=random.randrange(2), outgoing=(other,)),
        lambda: CommitTurn(**owner, after=random.randrange(2), submits=(new(f"new{random.randrange(40)}", pool="q"),)),
        lambda: CommitTurn(**owner, after=1, ending=Ending(outcome=TaskOutcome.FAILED)),
        lambda: ReleaseTask(**owner, due_at=instant(1)),
        lambda: WakeTask(address=address, pool=pool),
        lambda: NewAttempt(address=address, seed=b"s", reason="again"),
        lambda: TerminateTask(address=address, pool=pool, reason="no", error=b"", to_parent=other),
    ])()


async def main():
    async with opened(url) as driver:
        for number in range(100):
            items = [item(number) for _ in range(random.randrange(1, 12))]
            applied = await driver.apply(new_id(), items)
            for one, answer in zip(items, applied.answers):
                if isinstance(one, ClaimTask) and hasattr(answer, "task"):
                    generations[answer.task.task_id] = answer.task.generation


run(main())
"""


def test_r07_processes_with_mixed_batches_over_four_tasks_do_not_deadlock(url: str) -> None:
    async def prepare() -> None:
        async with opened(url) as driver:
            await one(driver, execution("e1", lease=600.0))
            for pool in "pq":
                await one(driver, RegisterTaskPool(pool=pool))
            await many(driver, [submit(name, pool="p" if name in "ab" else "q") for name in "abcd"])

    run(prepare())
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(seed)], stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    errors = [writer.communicate()[1] for writer in writers]
    # A deadlock, or a batch that lost otherwise, is raised by the driver, and nothing here tries again.
    assert [writer.returncode for writer in writers] == [0] * 4, errors

    async def check() -> None:
        async with session(url) as connection:
            wrong = await connection.fetch(
                "SELECT p.pool FROM task_pools p "
                "WHERE p.runnable <> (SELECT count(*) FROM tasks t WHERE t.pool = p.pool AND t.runnable)"
            )
            assert wrong == []
            twice = await connection.fetch(
                "SELECT pool, group_key, turn FROM tasks GROUP BY pool, group_key, turn HAVING count(*) > 1"
            )
            assert twice == []
            assert await connection.fetchval("SELECT count(*) FROM journal") > 0
            wrong = await connection.fetch(
                "SELECT a.address FROM addresses a JOIN tasks t ON t.address = a.address "
                "WHERE (a.closed_at IS NULL) <> (t.outcome IS NULL) OR (t.runnable AND a.owner IS NOT NULL)"
            )
            assert wrong == []

    run(check())
