"""I1 on SQLite, seen from the operating system: a sync of the log lies before each acknowledgement."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes.client import body_of
from tests.crashes.desks import CLIENT, prepare
from tests.crashes.system_calls import Call, parse, traced, unsynced

pytestmark = [pytest.mark.real_time, pytest.mark.usefixtures("strace")]


def acknowledgements(count: int) -> dict[bytes, bytes]:
    return {f"m{number} accepted\n".encode(): body_of(number) for number in range(1, count + 1)}


def run_client(url: str, folder: Path, *, count: int, senders: int = 1, backend: str = "asyncio") -> list[Call]:
    prepare(url)
    done, calls = traced([*CLIENT, url, "1", str(count), str(senders), backend], folder)
    assert done.returncode == 0, done.stderr
    return calls


@pytest.mark.parametrize("senders", [1, 12])
def test_i1_the_log_is_synced_after_a_messages_commit_and_before_its_acknowledgement(
    sqlite_url: str, tmp_path: Path, backend: str, senders: int
) -> None:
    calls = run_client(sqlite_url, tmp_path, count=24, senders=senders, backend=backend)
    log = f"{tmp_path}/store.db-wal"
    assert unsynced(calls, log, acknowledgements(24)) == []
    syncs = sum(call.path == log and call.name == "fdatasync" for call in calls)
    assert syncs < 24 if senders > 1 else syncs >= 24


def test_i1_the_folder_is_synced_when_the_log_is_new_before_anything_is_acknowledged(
    sqlite_url: str, tmp_path: Path
) -> None:
    calls = run_client(sqlite_url, tmp_path, count=1)
    folder = [call.ended for call in calls if call.name in ("fsync", "fdatasync") and call.path == str(tmp_path)]
    told = next(call.began for call in calls if call.data == b"m1 accepted\n")
    assert folder
    assert folder[0] < told


def test_i1_the_log_is_begun_anew_only_when_the_database_is_synced(sqlite_url: str, tmp_path: Path) -> None:
    calls = run_client(sqlite_url, tmp_path, count=220)
    database, log = f"{tmp_path}/store.db", f"{tmp_path}/store.db-wal"
    moved = [call.ended for call in calls if call.path == database and call.name == "pwrite64"]
    synced = [call for call in calls if call.path == database and call.name == "fdatasync" and call.result == 0]
    anew = [call for call in calls if call.path == log and len(call.data) == 32]
    assert len(anew) >= 2  # its header was written when it was made, and again when it was full
    for header in anew[1:]:
        last = max(moment for moment in moved if moment < header.began)
        assert any(last < sync.began <= sync.ended < header.began for sync in synced)


def test_c18_with_reduced_durability_the_same_trace_shows_no_sync(sqlite_url: str, tmp_path: Path) -> None:
    calls = run_client(f"{sqlite_url}?durability=reduced", tmp_path, count=3)
    assert unsynced(calls, f"{tmp_path}/store.db-wal", acknowledgements(3)) == list(acknowledgements(3))


# The rule itself, on a trace of one message that was written by hand: "wal", "m" and so on, in hexadecimal.
TRACE = [
    r'7 pwrite64(5<\x77\x61\x6c>, "' + r"\x00" * 4 + r"\x01" * 20 + '", 24, 0) = 24',
    r'7 pwrite64(5<\x77\x61\x6c>, "\x62", 1, 24) = 1',
    r"7 fdatasync(5<\x77\x61\x6c> <unfinished ...>",
    r"8 fdatasync(9<\x64\x62>) = 0",
    r"7 <... fdatasync resumed>) = 0",
    r'8 write(1<\x6f>, "\x6d", 1) = 1',
]


@pytest.mark.parametrize(
    ("order", "good"),
    [
        ([0, 1, 2, 3, 4, 5], True),
        ([0, 1, 2, 3, 5, 4], False),  # told while the sync was under way
        ([2, 3, 4, 0, 1, 5], False),  # synced before the commit was written
        ([0, 1, 3, 5], False),  # another file was synced
        ([1, 2, 3, 4, 5], False),  # a page without its commit
        ([0, 1, 2, 3, 4], False),  # never told
    ],
)
def test_the_rule_finds_an_acknowledgement_that_comes_too_early(order: list[int], good: bool) -> None:
    calls = parse("\n".join(TRACE[place] for place in order))
    assert (unsynced(calls, "wal", {b"m": b"b"}) == []) is good
