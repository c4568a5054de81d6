"""The desk at work, with all its actors on one event loop."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.demo.chaos import plan
from greenroom.demo.desk_actor import ChaosCrash, Strike, Way
from greenroom.demo.files import walk
from greenroom.demo.messages import HowFar
from greenroom.demo.reader import Reader
from greenroom.demo.reporter import Outcome
from greenroom.demo.reviewer import IN_HAND
from greenroom.demo.tree import READERS, desk, victims
from greenroom.demo.values import Code, FileRecord, Found, Status
from tests.demo.desks import DEEP, Counting, SlowReader, fill, readers_of, review, running, some_answered


async def test_a_desk_reviews_a_folder_writes_its_report_and_ends_by_itself(tmp_path: Path) -> None:
    result = await review(fill(tmp_path))
    totals = result.report["findings"]["totals"]
    assert totals["by_status"] == {"reviewed": 36, "not_reviewed": 1, "skipped": 3}
    assert totals["functions"] == 30
    assert totals["by_code"] == {"syntax-error": 1, "dead-link": 1, "json-invalid": 1, "toml-invalid": 1}
    assert (tmp_path / ".greenroom" / "report.md").read_text().startswith("# Review")


async def test_every_path_that_the_walk_sees_is_in_the_findings(tmp_path: Path) -> None:
    result = await review(fill(tmp_path))
    assert [file["path"] for file in result.report["findings"]["files"]] == sorted(item.path for item in walk(tmp_path))


async def test_an_empty_folder_has_an_empty_report(tmp_path: Path) -> None:
    result = await review(tmp_path)
    assert result.report["findings"]["totals"]["by_status"] == {"skipped": 1}  # the report folder itself


async def test_a_file_that_does_not_parse_crashes_nobody(tmp_path: Path) -> None:
    result = await review(fill(tmp_path))
    assert result.outcome.run["restarts"] == {}


async def test_a_file_that_crashes_two_readers_is_listed_with_its_error(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "deep.json").write_text(DEEP)
    result = await review(tmp_path)
    assert result.paths(Status.CRASHED) == ["deep.json"]
    (record,) = (record for record in result.outcome.records if record.status is Status.CRASHED)
    assert record.error.startswith("RecursionError: maximum recursion depth exceeded")
    assert [finding.code for finding in record.review.findings] == [Code.CRASHED]


async def test_the_second_reader_of_a_file_that_crashed_one_is_the_isolated_one(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    result = await review(tmp_path, readers=readers_of(tmp_path, 1))
    crashed = [event.path for event in result.events if isinstance(event, gr.ActorEnded) and not event.exit.clean]
    assert crashed == ["desk/readers/reader-1", "desk/readers/isolated"]


async def test_a_crash_loses_no_other_file(tmp_path: Path) -> None:
    fill(tmp_path)
    calm = await review(tmp_path)
    (tmp_path / "deep.json").write_text(DEEP)
    result = await review(tmp_path)
    assert [r for r in result.outcome.records if r.status is not Status.CRASHED] == list(calm.outcome.records)


async def test_many_bad_files_do_not_take_the_service_down(tmp_path: Path) -> None:
    for n in range(60):
        (tmp_path / f"deep_{n}.json").write_text(DEEP)
    (tmp_path / "good.json").write_text("1")
    result = await review(tmp_path)
    assert len(result.paths(Status.CRASHED)) == 60
    assert result.paths(Status.REVIEWED) == ["good.json"]


async def test_a_reader_comes_back_after_a_growing_delay(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"deep_{n}.json").write_text(DEEP)
    result = await review(tmp_path)
    delayed = [event for event in result.events if isinstance(event, gr.RestartDelayed)]
    delays = [event.delay for event in delayed if event.path == "desk/readers/isolated"]
    assert len(delays) == 5
    assert all(0.8 * 0.05 * 2**n <= delay <= 0.05 * 2**n for n, delay in enumerate(delays))


@pytest.mark.parametrize(
    ("victim", "way"),
    [
        ("readers/reader-1", Way.AT_ONCE),
        ("readers/reader-1", Way.IN_WORK),
        ("reporter", Way.AT_ONCE),
        ("reporter", Way.IN_WORK),
        ("intake", Way.AT_ONCE),
        ("clerk", Way.AT_ONCE),
        ("clerk", Way.IN_WORK),
    ],
)
async def test_the_crash_of_any_actor_changes_no_finding(tmp_path: Path, victim: str, way: Way) -> None:
    calm = await review(fill(tmp_path))

    async def strike(runtime: gr.Runtime) -> None:
        await runtime.ref(f"desk/{victim}").send(Strike(way))

    struck = await review(tmp_path, during=strike)
    assert [event for event in struck.events if isinstance(event, gr.ActorEnded) and not event.exit.clean]
    assert struck.findings == calm.findings


async def test_an_intake_that_crashed_has_no_file_read_again(tmp_path: Path, read: Counter[str]) -> None:
    fill(tmp_path, 300)

    async def strike_late(runtime: gr.Runtime) -> None:
        await some_answered(runtime, 100)
        await runtime.ref("desk/intake").send(Strike(Way.AT_ONCE))

    result = await review(tmp_path, readers=readers_of(tmp_path, 2, Counting, Counting), during=strike_late)
    assert result.report["run"]["restarts"] == {"desk/intake": 1}
    assert set(read.values()) == {1}


async def test_a_clerk_that_crashed_has_read_again_what_it_had_in_hand_and_each_is_on_record_once(
    tmp_path: Path, read: Counter[str]
) -> None:
    fill(tmp_path, 600)

    async def strike_late(runtime: gr.Runtime) -> None:
        await some_answered(runtime, 100)
        await runtime.ref("desk/clerk").send(Strike(Way.IN_WORK))

    result = await review(tmp_path, readers=readers_of(tmp_path, 2, Counting, Counting), during=strike_late)
    run = result.report["run"]
    assert run["restarts"] == {"desk/clerk": 1}
    assert 0 < sum(count > 1 for count in read.values()) <= IN_HAND + 1
    assert run["recorded_twice"] == 0
    assert len(result.outcome.records) == len(list(walk(tmp_path)))


async def test_a_file_that_chaos_crashed_three_times_is_read_a_fourth_time(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text("1")
    times = 0

    class Struck(Reader):
        def review(self, found: Found) -> FileRecord:
            nonlocal times
            times += 1
            if times <= 3:
                raise ChaosCrash
            return super().review(found)

    result = await review(tmp_path, readers=readers_of(tmp_path, 1, Struck))
    assert times == 4
    assert result.paths(Status.REVIEWED) == ["good.json"]


@pytest.mark.parametrize("seed", range(6))
async def test_the_findings_of_a_chaotic_run_equal_those_of_a_calm_one(tmp_path: Path, seed: int) -> None:
    fill(tmp_path, 60)
    (tmp_path / "deep.json").write_text(DEEP)
    calm = await review(tmp_path)
    wild = await review(tmp_path, chaos=seed)
    assert wild.findings == calm.findings


def seed_that_strikes_all(readers: Sequence[gr.Child], before: int) -> int:
    """A seed by which everybody is struck before so many files are answered, the isolated reader at once: it has little to do."""
    names = victims(readers)
    for seed in itertools.count():
        first = list(itertools.islice(plan(seed, names), len(names)))
        ways = {strike.victim: strike.way for strike in first}
        if first[-1].after <= before and ways["readers/isolated"] is Way.AT_ONCE:
            return seed
    raise AssertionError


async def test_chaos_strikes_every_kind_of_actor_but_itself(tmp_path: Path) -> None:
    readers = readers_of(tmp_path, 1)
    result = await review(fill(tmp_path, 600), readers=readers, chaos=seed_that_strikes_all(readers, 50))
    crashed = {event.path for event in result.events if isinstance(event, gr.ActorEnded) and not event.exit.clean}
    assert crashed == {
        "desk/readers/reader-1",
        "desk/readers/isolated",
        "desk/reporter",
        "desk/clerk",
        "desk/intake",
    }


async def test_no_more_is_in_hand_than_is_gladly_read_again(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    result = await review(tmp_path, readers=readers_of(tmp_path, READERS, SlowReader))
    marks = result.report["run"]["mailbox_high_water"]
    assert IN_HAND // 2 <= sum(marks[f"desk/readers/reader-{n + 1}"] for n in range(READERS)) <= IN_HAND
    assert len(result.paths(Status.REVIEWED)) == 306


async def test_all_readers_of_the_pool_take_part(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    result = await review(tmp_path, readers=readers_of(tmp_path, 4, SlowReader))
    marks = result.report["run"]["mailbox_high_water"]
    assert min(marks[f"desk/readers/reader-{n}"] for n in range(1, 5)) >= 5  # of 106; trio starts lanes in any order


async def test_a_report_that_cannot_be_written_ends_the_desk_in_good_order(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    outcomes: list[Outcome] = []
    tree = desk(tmp_path, out=tmp_path / "taken", readers=readers_of(tmp_path), written=outcomes.append)
    async with running(tree) as runtime:
        await runtime.wait()
    assert runtime.report is not None
    assert (runtime.report.stage, runtime.report.stuck) == (gr.Stage.REQUESTED, ())
    (outcome,) = outcomes
    assert outcome.files == ()
    assert "taken" in str(outcome.failure)


async def test_the_report_is_not_itself_reviewed_the_next_time(tmp_path: Path) -> None:
    first = await review(fill(tmp_path))
    second = await review(tmp_path)
    assert second.findings == first.findings


async def test_a_folder_that_has_gone_ends_the_tree_by_failure(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    tree = desk(folder, readers=readers_of(folder))
    folder.rmdir()
    with pytest.raises(gr.TreeFailed):
        async with running(tree) as runtime:
            await runtime.wait()


async def test_a_desk_that_is_stopped_before_its_end_writes_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    tree = desk(tmp_path, readers=readers_of(tmp_path, 2, SlowReader))
    async with running(tree) as runtime:
        await runtime.ref("desk/reporter").ask(HowFar())
        report = await runtime.stop()
    assert report.clean
    assert not os.path.exists(tmp_path / ".greenroom")


async def test_file_names_that_are_no_utf8_are_reviewed_and_reported(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    with open(folder + b"/\xff.py", "w") as file:
        file.write("def f(): pass\n")
    result = await review(Path(os.fsdecode(folder)))
    assert result.paths(Status.REVIEWED) == ["%FF.py"]
