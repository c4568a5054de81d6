"""The reviewer: its task over sections and segments, narrowed while it runs, crashing, and stuck."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.codec import Codec
from greenroom.demo import reviewer
from greenroom.demo.files import walk
from greenroom.demo.messages import REVIEW, Narrow
from greenroom.demo.review import PATHS_LIMIT, limited
from greenroom.demo.review import review as review_content
from greenroom.demo.review_store import store_url
from greenroom.demo.reviewer import Reviewer
from greenroom.demo.tree import desk
from greenroom.demo.values import Code, FileRecord, Finding, Found, Kind, Review, SkipReason, Status
from greenroom.persistence import HARD_LIMIT
from tests.demo.desks import Reviewed, SlowReader, causes, fill, readers_of, review, running, some_answered


@pytest.fixture
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is found in sections of 7, and 3 of them are a segment."""
    monkeypatch.setattr(reviewer, "SECTION", 7)
    monkeypatch.setattr(reviewer, "SECTIONS", 3)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "review.db"


async def test_each_file_is_an_operation_that_is_on_record_once(tmp_path: Path, store: Path) -> None:
    await review(fill(tmp_path), store=store)
    on_record = Counter[str]()
    async with gr.Client(store_url(store)) as client:
        async for event in client.task(REVIEW).events(follow=False):
            if isinstance(event.value, FileRecord):
                assert (event.kind, event.name, event.status) == ("operation", "desk/clerk", "succeeded")
                on_record[event.value.path] += 1
    assert on_record == Counter(item.path for item in walk(tmp_path) if isinstance(item, Found))


async def test_a_review_of_many_segments_finds_what_one_of_a_single_segment_does(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await review(fill(tmp_path, 60))
    monkeypatch.setattr(reviewer, "SECTION", 7)
    monkeypatch.setattr(reviewer, "SECTIONS", 3)
    assert (await review(tmp_path, store=store)).findings == whole.findings
    async with gr.Client(store_url(store)) as client:
        status = await client.task(REVIEW).status()
        assert await client.task(REVIEW).result() == len(list(walk(tmp_path)))
    assert status.segment == len(list(walk(tmp_path))) // 21 + 1


def fill_with_notes(folder: Path) -> Path:
    """As `fill`, with a file of Markdown beside each of 200 modules."""
    fill(folder, 200)
    for n in range(200):
        (folder / "package" / f"module_{n:05}.md").write_text("# Notes\n")
    return folder


async def narrow_soon(runtime: gr.Runtime) -> None:
    """Leave the Markdown out when the review has begun."""
    await some_answered(runtime, 30)
    assert (await runtime.task(REVIEW).signal(Narrow((Kind.PYTHON,)))).disposition == "accepted"


def notes(result: Reviewed) -> Counter[str]:
    """How the files of Markdown beside the modules came out, after all modules did well."""
    assert sum(path.endswith(".py") for path in result.paths(Status.REVIEWED)) == 201
    records = [record for record in result.outcome.records if record.path.startswith("package/module_")]
    return Counter(record.reason or record.status for record in records if record.path.endswith(".md"))


async def test_a_signal_narrows_a_review_that_runs(tmp_path: Path) -> None:
    fill_with_notes(tmp_path)
    found = notes(await review(tmp_path, readers=readers_of(tmp_path, 2, SlowReader), during=narrow_soon))
    assert found.keys() == {Status.REVIEWED, SkipReason.NOT_WANTED}
    assert found.total() == 200
    assert found[Status.REVIEWED] < 100


@pytest.mark.usefixtures("small_sections")
async def test_a_narrowed_review_stays_so_in_its_next_segments_and_when_it_is_taken_up_again(
    tmp_path: Path, store: Path
) -> None:
    fill_with_notes(tmp_path)
    async with running(desk(tmp_path, readers=readers_of(tmp_path, 2, SlowReader)), store) as runtime:
        await narrow_soon(runtime)
        await some_answered(runtime, 120)
        await runtime.stop()
    result = await review(tmp_path, store=store)
    found = notes(result)
    assert found.total() == 200
    assert 0 < found[Status.REVIEWED] < 100
    assert result.report["run"]["processes"] == 2


async def test_a_review_whose_code_crashes_again_and_again_ends_the_desk_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(self: Reviewer, *_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Reviewer, "_have_all_read", crash)
    with pytest.raises(gr.TreeFailed) as caught:
        await review(fill(tmp_path))
    assert "it waits for an operator (crash_loop): its control code crashed 4 times" in " ".join(causes(caught.value))


# ------------------------------------------------------------------------------ what the result of one file comes to

LONG = "d/" * 2_000 + "a"


def size_of(record: FileRecord) -> int:
    codec = Codec()
    codec.register(FileRecord)
    return len(codec.encode(record))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.MARKDOWN, "# x\n"),
        (Kind.MARKDOWN, "[](x)\n"),
        (Kind.MARKDOWN, "# " + "\N{GRINNING FACE}" * 300 + "\n"),
        (Kind.JSON, '"\N{GRINNING FACE}":0,'),
        (Kind.PYTHON, "def f():0\n"),
    ],
)
@pytest.mark.parametrize("path", ["a", LONG])
def test_the_result_of_a_hostile_file_can_be_put_on_record(kind: Kind, content: str, path: str) -> None:
    text = content * (24_000 // len(content.encode()))
    data = (f'{{{text}"":0}}' if kind is Kind.JSON else text).encode()
    found = Found(path=path, kind=kind, size=len(data))
    assert size_of(FileRecord.reviewed(found, review_content(found, data, lambda path: False))) < HARD_LIMIT


def test_a_long_path_leaves_room_for_fewer_findings() -> None:
    count = PATHS_LIMIT // len(LONG)
    finding = Finding(path=LONG, line=1, code=Code.DEAD_LINK, message="x")
    seen = limited(LONG, Review(findings=(finding,) * (count + 1)))
    assert [each.code for each in seen.findings] == [Code.DEAD_LINK] * count + [Code.LIST_CUT]
    assert seen.findings[-1].message == f"{count} of {count + 1} findings are listed"
