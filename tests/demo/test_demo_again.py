"""A review that is taken up again: the store has what was asked for, what is still to be read, and what is known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.demo.files import walk
from greenroom.demo.messages import Review
from greenroom.demo.reporter import Outcome
from greenroom.demo.review_store import forget, holds, standing, store_file, store_url
from greenroom.demo.reviewer import IN_HAND, LARGE_IN_HAND
from greenroom.demo.tree import desk
from greenroom.demo.values import Skipped
from tests.demo.desks import Counting, causes, fill, readers_of, review, running, some_answered

pytestmark = pytest.mark.real_time


async def begin(folder: Path, store: Path, least: int) -> None:
    """Review a folder until so many files have their result, then stop."""
    tree = desk(folder, readers=readers_of(folder, 2, Counting, Counting))
    async with running(tree, store) as runtime:
        await some_answered(runtime, least)
        await runtime.stop()


async def test_a_review_that_was_stopped_is_taken_up_where_it_was(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, read: Counter[str]
) -> None:
    store = tmp_path_factory.mktemp("store") / "review.db"
    calm = await review(fill(tmp_path, 600))
    await begin(tmp_path, store, 150)
    before = sum(read.values())
    result = await review(tmp_path, readers=readers_of(tmp_path, 2, Counting, Counting), store=store)
    run = result.report["run"]
    assert result.findings == calm.findings
    assert (run["recorded_twice"], run["processes"]) == (0, 2)
    assert before < len(read)
    # `find` is an operation, too; a path that is skipped has its result by that alone.
    assert run["operations_kept"] >= 1 + 150 - sum(isinstance(item, Skipped) for item in walk(tmp_path))
    assert sum(count > 1 for count in read.values()) <= run["operations_invoked_again"] <= IN_HAND + LARGE_IN_HAND


async def test_a_finished_review_is_told_apart_from_an_unfinished_one(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, read: Counter[str]
) -> None:
    store = tmp_path_factory.mktemp("store") / "review.db"
    await begin(fill(tmp_path, 600), store, 50)
    there = await standing(store_url(store))
    assert there.review is not None
    assert (there.review.outcome, there.finished, there.process) == (None, False, None)
    await review(tmp_path, store=store)
    assert (await standing(store_url(store))).finished
    assert read


async def test_a_desk_on_the_store_of_a_finished_review_ends_at_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store") / "review.db"
    await review(fill(tmp_path), store=store)
    outcomes: list[Outcome] = []
    async with running(desk(tmp_path, readers=readers_of(tmp_path), written=outcomes.append), store) as runtime:
        await runtime.wait()
    assert outcomes == []


async def test_a_report_that_could_not_be_written_is_written_when_there_is_room(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, read: Counter[str]
) -> None:
    fill(tmp_path / "folder")
    store, out = tmp_path_factory.mktemp("store") / "review.db", tmp_path / "out"
    out.write_text("a file, not a folder")
    outcomes: list[Outcome] = []

    async def run() -> None:
        folder = tmp_path / "folder"
        tree = desk(folder, out=out, readers=readers_of(folder, 2, Counting, Counting), written=outcomes.append)
        async with running(tree, store) as runtime:
            await runtime.wait()

    await run()
    out.unlink()
    await run()
    first, second = outcomes
    assert (first.files, second.files) == ((), (out / "report.json", out / "report.md"))
    assert set(read.values()) == {1}


async def test_a_desk_refuses_the_store_of_another_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = tmp_path_factory.mktemp("store") / "review.db"
    await review(fill(tmp_path / "one"), store=store)
    with pytest.raises(gr.TreeFailed) as caught:
        await review(fill(tmp_path / "two"), store=store)
    reasons = str(causes(caught.value))
    assert "'review'" in reasons
    assert "another request" in reasons
    assert await holds(store_url(store), Review.of(tmp_path / "one", None))
    assert not await holds(store_url(store), Review.of(tmp_path / "two", None))


def test_a_store_is_beside_its_report_but_never_among_the_files_to_review(tmp_path: Path) -> None:
    assert store_file(tmp_path) == tmp_path / ".greenroom" / "review.db"
    assert store_file(tmp_path, tmp_path / "out") == tmp_path / "out" / "review.db"
    assert store_file(tmp_path, tmp_path) == tmp_path / ".greenroom" / "review.db"


async def test_a_review_that_is_forgotten_leaves_nothing_behind(tmp_path: Path) -> None:
    store = tmp_path / "stores" / "review 100%.db"
    store.parent.mkdir()
    await review(fill(tmp_path / "folder"), store=store)
    assert store.exists()
    forget(store)
    assert list(store.parent.iterdir()) == []
    forget(store)
