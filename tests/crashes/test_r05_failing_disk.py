"""R5 on SQLite under real errors of the system's calls: what is acknowledged was synced, whatever failed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes.client import body_of
from tests.crashes.desks import CLIENT, kept, prepare
from tests.crashes.system_calls import traced, unsynced

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("strace")]

COUNT = 3


@pytest.mark.parametrize(
    "inject",
    [
        "fdatasync:error=EIO:when=1",  # the new log's header
        "fdatasync:error=EIO:when=3",  # a commit
        "fdatasync:error=EIO:when=3..4",  # a commit, and what is tried next
        "pwrite64:error=EIO:when=9",  # a page of a commit
        "pwrite64:error=ENOSPC:when=20",
        "pwrite64:error=EIO:when=20..23",
    ],
)
def test_r05_a_disk_that_fails_for_a_while_loses_and_doubles_nothing(
    sqlite_url: str, tmp_path: Path, inject: str
) -> None:
    prepare(sqlite_url)
    done, calls = traced([*CLIENT, sqlite_url, "1", str(COUNT)], tmp_path, inject=inject)
    assert done.returncode == 0, done.stderr
    numbers = range(1, COUNT + 1)
    assert done.stdout.splitlines() == [f"m{number} accepted" for number in numbers]
    assert min(call.result for call in calls) == -1  # it did fail
    acknowledged = {f"m{number} accepted\n".encode(): body_of(number) for number in numbers}
    assert unsynced(calls, f"{tmp_path}/store.db-wal", acknowledged) == []
    assert kept(sqlite_url) == [f"m{number}" for number in numbers]
