"""I1 and I5 under `kill -9`, placed: at each call by which SQLite writes a commit, at each stage of one on its way to PostgreSQL."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import count as counted
from pathlib import Path

import anyio
import pytest

from greenroom.persistence import ListMessages, fetch, open_store
from greenroom.persistence.postgres.functions import NAMES
from greenroom.testing import Cut, PostgresProxy
from tests.crashes.desks import CLIENT, check_after_kill, kept, prepare
from tests.crashes.system_calls import killed_at

pytestmark = pytest.mark.real_time

COUNT = 3
"""Messages that a client is to send."""

ACCEPTS = f"{NAMES['accept']}(".encode()
"""The call that accepts a message for an address without an owner. (The one for a lone message does nothing there.)"""


# ----------------------------------------------------------------------------------------------------------- SQLite


def kill_and_check(folder: Path, number: int) -> bool:
    """Kill a client at its `number`-th call on the log of a copy of the database. False: it ended before it got there."""
    copy = folder / f"copy-{number}.db"
    shutil.copy(folder / "store.db", copy)
    url = f"sqlite:///{copy}"
    done = killed_at([*CLIENT, url, "1", str(COUNT)], Path(f"{copy}-wal"), number)
    assert done.returncode in (0, -9), done.stderr
    check_after_kill(url, done.stdout.splitlines(), COUNT)
    return done.returncode != 0


@pytest.mark.usefixtures("strace")
def test_i1_a_client_that_is_killed_while_sqlite_writes_a_commit_has_lost_nothing_acknowledged(
    sqlite_url: str, tmp_path: Path
) -> None:
    prepare(sqlite_url)
    for number in random.Random(3).sample(range(1, 10 * COUNT), 6):  # a commit makes more than ten such calls
        assert kill_and_check(tmp_path, number)


@pytest.mark.full
@pytest.mark.usefixtures("strace")
def test_i1_wherever_a_client_is_killed_while_sqlite_writes_it_has_lost_nothing_acknowledged(
    sqlite_url: str, tmp_path: Path
) -> None:
    prepare(sqlite_url)
    reached = next(number for number in counted(1) if not kill_and_check(tmp_path, number))
    assert reached > 10 * COUNT


# ------------------------------------------------------------------------------------------------------- PostgreSQL


@pytest.mark.parametrize("arrives", [False, True])
def test_i1_a_client_that_is_killed_with_its_commit_on_the_way_to_postgresql_has_lost_nothing_acknowledged(
    postgres_url: str, arrives: bool
) -> None:
    prepare(postgres_url)
    victims: list[subprocess.Popen[str]] = []

    def kill() -> None:
        victims[-1].kill()
        victims[-1].wait()

    with PostgresProxy(postgres_url, (ACCEPTS,), at_cut=kill) as proxy:
        for number in range(1, 2 * COUNT, 2):
            proxy.plan(Cut.AT_COMMIT if arrives else Cut.BEFORE_COMMIT)
            command = (*CLIENT, proxy.url, str(number), "1")
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
                victims.append(client)
                told, _ = client.communicate(timeout=30)
            assert client.returncode == -9
            assert told == ""
            while not proxy.idle:  # it is asked, for it lives in a thread that tells nobody
                time.sleep(0.005)
            assert (f"m{number}" in kept(postgres_url)) is arrives
            check_after_kill(postgres_url, [f"m{earlier} accepted" for earlier in range(1, number)], number + 1)


def test_i1_nothing_acknowledged_is_missing_on_postgresql_after_many_kills(postgres_url: str) -> None:
    writer = Path(__file__).parents[1] / "persistence" / "sqlite" / "killed_writer.py"
    command = (sys.executable, str(writer), postgres_url, "20", "7")
    done = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    acknowledged = json.loads(done.stdout)
    assert sum(acknowledged) >= 20
    found = bodies(postgres_url)
    assert max(Counter(found).values()) == 1
    wanted = {f"{sender}:{number}" for sender, last in enumerate(acknowledged) for number in range(1, last + 1)}
    assert wanted <= set(found)
    # At most one message of each sender was in flight when the last process was killed.
    assert len(found) <= len(wanted) + len(acknowledged)


def bodies(url: str) -> list[str]:
    async def main() -> list[str]:
        async with open_store(url) as store:
            records = await store.read(ListMessages(address="desk", limit=100_000))
            return [(await fetch(store, record.body)).decode() for record in records]

    return anyio.run(main)
