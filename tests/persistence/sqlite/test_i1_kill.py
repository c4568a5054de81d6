"""I1 and I5 on SQLite: what was acknowledged is found after `kill -9`, and nothing is there twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROUNDS = 20


@pytest.mark.real_time
@pytest.mark.parametrize("options", ["", "?durability=reduced"])
def test_i1_nothing_acknowledged_is_missing_and_nothing_is_double_after_many_kills(
    tmp_path: Path, options: str
) -> None:
    path = tmp_path / "store.db"
    script = Path(__file__).with_name("killed_writer.py")
    finished = subprocess.run(
        [sys.executable, script, f"sqlite:///{path}{options}", str(ROUNDS), "7"],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    acknowledged = json.loads(finished.stdout)
    assert sum(acknowledged) >= ROUNDS
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT CAST(body AS TEXT), count(*) FROM messages GROUP BY body").fetchall()
        (queued, last_seq, count) = connection.execute(
            "SELECT queued, last_seq, (SELECT count(*) FROM messages) FROM addresses WHERE address = 'desk'"
        ).fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {times for _, times in found} == {1}
    kept = {body for body, _ in found}
    missing = {
        f"{sender}:{number}"
        for sender, last in enumerate(acknowledged)
        for number in range(1, last + 1)
        if f"{sender}:{number}" not in kept
    }
    assert missing == set()
    assert queued == last_seq == count
    # At most one message of each sender was in flight when the last process was killed.
    assert len(kept) <= sum(acknowledged) + len(acknowledged)
