"""The isolated reader in a process of its own: what kills it, and what becomes of the files that do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.demo.reader import IsolatedReader
from greenroom.demo.tree import isolated_reader, pool_of
from greenroom.demo.values import Status
from tests.demo.desks import DEEP, Fragile, Reviewed, review

pytestmark = pytest.mark.real_time

LARGE = "# just a comment\n" * 1_000
"""17 kB of TOML go to the isolated reader."""


async def reviewed(folder: Path, *names: str, limit: float = 10.0) -> Reviewed:
    """Have large files of these names reviewed, and a harmless one after them."""
    for name in (*names, "z.toml"):
        (folder / name).write_text(LARGE)
    root = os.path.realpath(folder)
    return await review(folder, readers=[*pool_of(root, 1), isolated_reader(root, limit, Fragile)])


async def test_what_could_be_too_much_is_read_in_a_process(tmp_path: Path) -> None:
    result = await reviewed(tmp_path, "a.toml")
    marks = result.report["run"]["mailbox_high_water"]
    assert (marks["desk/readers/reader-1"], marks["desk/readers/isolated"] > 0) == (0, True)
    assert result.paths(Status.REVIEWED) == ["a.toml", "z.toml"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("killer.toml", "the reader's process was killed by SIGKILL"),
        ("exit.toml", "the reader's process ended by itself with exit status 3"),
        ("memory.toml", "MemoryError"),
    ],
)
async def test_what_kills_two_workers_is_listed_and_the_next_file_is_read(
    tmp_path: Path, name: str, error: str
) -> None:
    result = await reviewed(tmp_path, name)
    assert [(r.path, r.error) for r in result.outcome.records if r.status is Status.CRASHED] == [(name, error)]
    assert result.paths(Status.REVIEWED) == ["z.toml"]


async def test_a_file_that_hangs_its_parser_is_got_rid_of_when_its_time_is_up(tmp_path: Path) -> None:
    result = await reviewed(tmp_path, "hang.toml", limit=0.3)
    (record,) = (record for record in result.outcome.records if record.status is Status.CRASHED)
    assert (record.path, record.error) == ("hang.toml", "the reader's process was killed by SIGALRM")
    assert result.paths(Status.REVIEWED) == ["z.toml"]


async def test_the_time_of_one_file_is_not_counted_for_the_next(tmp_path: Path) -> None:
    for n in range(60):
        (tmp_path / f"slow_{n}.toml").write_text(".".join(["a"] * 1_500) + " = 1\n" + LARGE)  # 0.04 seconds at least
    result = await reviewed(tmp_path, limit=2.0)
    assert len(result.paths(Status.REVIEWED)) == 61


async def test_an_error_in_the_process_reads_as_one_on_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    result = await reviewed(tmp_path)
    (record,) = (record for record in result.outcome.records if record.status is Status.CRASHED)
    assert record.error.startswith("RecursionError: maximum recursion depth exceeded")


async def test_an_isolated_reader_does_not_start_where_its_alarm_would_end_the_service() -> None:
    tree = gr.Supervisor("service", gr.Child("isolated", IsolatedReader, "/folder", 1.0))
    with pytest.raises(gr.StartFailed) as caught:
        async with gr.Runtime(tree):
            pass
    assert "give it isolation='process'" in str(caught.value.__cause__)
