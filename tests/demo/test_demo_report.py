"""The two files of a report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from greenroom.demo.files import walk
from greenroom.demo.report import ReportNotWritten, findings, merge, render_json, write
from greenroom.demo.report_page import LISTED, TOP, code_span, render_markdown
from greenroom.demo.review import review_file
from greenroom.demo.text import encode_path
from greenroom.demo.values import (
    Code,
    FileRecord,
    Finding,
    Found,
    Function,
    Heading,
    Kind,
    Review,
    Skipped,
    SkipReason,
    Status,
)
from greenroom.errors import Failure, GreenroomError

paths = st.sampled_from(["a", "a/b", "ä", "%FF", "A", "a|b", "`a`"])
messages = st.text(max_size=10)
reviews = st.builds(
    Review,
    lines=st.integers(0, 9),
    function_count=st.integers(0, 9),
    findings=st.lists(
        st.builds(
            Finding, path=paths, line=st.none() | st.integers(1, 9), code=st.sampled_from(Code), message=messages
        ),
        max_size=2,
    ).map(tuple),
    functions=st.lists(
        st.builds(Function, name=st.just("f"), line=st.integers(1, 9), length=st.integers(1, 9), complexity=st.just(1)),
        max_size=2,
    ).map(tuple),
)
founds = st.builds(Found, path=paths, kind=st.sampled_from(Kind), size=st.integers(0, 9))
records = st.one_of(
    st.builds(FileRecord.reviewed, founds, reviews),
    st.builds(FileRecord.not_reviewed, founds),
    st.builds(FileRecord.crashed, founds, messages),
    st.builds(FileRecord.skipped, st.builds(Skipped, path=paths, reason=st.sampled_from(SkipReason), detail=messages)),
)


def python_record(path: str = "a.py", *functions: Function, found: tuple[Finding, ...] = ()) -> FileRecord:
    review = Review(lines=9, function_count=len(functions), functions=functions, findings=found)
    return FileRecord.reviewed(Found(path=path, kind=Kind.PYTHON, size=90), review)


def function(name: str, length: int = 1, complexity: int = 1) -> Function:
    return Function(name=name, line=1, length=length, complexity=complexity)


def whole(*given: FileRecord) -> Any:
    return json.loads(render_json(given, {}))


@given(st.lists(records, max_size=8).flatmap(lambda many: st.tuples(st.just(many), st.permutations(many))))
def test_the_report_does_not_depend_on_the_order_of_answers(
    orders: tuple[list[FileRecord], list[FileRecord]],
) -> None:
    one, other = orders
    assert render_json(one, {}) == render_json(other, {})


@given(st.lists(records, max_size=8), st.lists(records, max_size=8))
def test_merging_in_parts_gives_the_same_as_merging_at_once(first: list[FileRecord], second: list[FileRecord]) -> None:
    at_once = render_json([*first, *second], {})
    assert render_json([*merge(first), *merge(second)], {}) == at_once


@given(st.lists(records, max_size=8))
def test_every_path_that_was_recorded_is_in_the_report_once_and_sorted(many: list[FileRecord]) -> None:
    assert [file["path"] for file in whole(*many)["findings"]["files"]] == sorted({each.path for each in many})


@given(st.lists(records, max_size=8))
def test_every_file_is_counted_under_one_status(many: list[FileRecord]) -> None:
    told = whole(*many)["findings"]
    assert sum(told["totals"]["by_status"].values()) == told["totals"]["seen"] == len(told["files"])
    assert sum(told["skipped"].values()) == told["totals"]["by_status"].get("skipped", 0)


def test_the_report_has_exactly_two_parts() -> None:
    told = json.loads(render_json([python_record()], {"restarts": 3, "seconds": 0.5}))
    assert sorted(told) == ["findings", "run"]
    assert told["run"] == {"restarts": 3, "seconds": 0.5}


def test_the_findings_do_not_depend_on_the_run() -> None:
    calm, wild = (json.loads(render_json([python_record()], {"chaos": chaos})) for chaos in (0, 9))
    assert json.dumps(calm["findings"]) == json.dumps(wild["findings"])


def test_a_python_file_is_told_with_its_functions() -> None:
    (file,) = whole(python_record("a.py", function("f", 3, 2)))["findings"]["files"]
    assert file == {
        "path": "a.py",
        "status": "reviewed",
        "kind": "python",
        "size": 90,
        "lines": 9,
        "classes": 0,
        "functions": 1,
        "function_list": [{"name": "f", "line": 1, "length": 3, "complexity": 2}],
        "findings": [],
    }


def test_a_markdown_file_is_told_with_its_headings() -> None:
    review = Review(lines=1, heading_count=1, headings=(Heading(level=1, text="x", line=1),), link_count=2)
    record = FileRecord.reviewed(Found(path="a.md", kind=Kind.MARKDOWN, size=3), review)
    (file,) = whole(record)["findings"]["files"]
    assert file["heading_list"] == [{"level": 1, "text": "x", "line": 1}]
    assert file["relative_links"] == 2


def test_a_finding_is_told_with_path_line_code_and_message() -> None:
    finding = Finding(path="a.py", line=2, code=Code.SYNTAX_ERROR, message="no")
    (file,) = whole(python_record("a.py", found=(finding,)))["findings"]["files"]
    assert file["findings"] == [{"path": "a.py", "line": 2, "code": "syntax-error", "message": "no"}]


def test_a_crashed_file_is_told_with_its_error() -> None:
    (file,) = whole(FileRecord.crashed(Found(path="a.py", kind=Kind.PYTHON, size=1), "killed"))["findings"]["files"]
    assert (file["status"], file["error"]) == ("crashed", "killed")


def test_what_was_skipped_is_counted_by_reason() -> None:
    skips = [
        FileRecord.skipped(Skipped(path=path, reason=reason))
        for path, reason in (("a/", SkipReason.CACHE), ("b/", SkipReason.CACHE), ("c", SkipReason.TOO_LARGE))
    ]
    assert whole(*skips)["findings"]["skipped"] == {"cache": 2, "too_large": 1}


@pytest.mark.parametrize("turned", [False, True])
def test_a_file_that_was_reviewed_after_all_is_not_given_up(turned: bool) -> None:
    crash = FileRecord.crashed(Found(path="a.py", kind=Kind.PYTHON, size=90), "killed")
    answers = [crash, python_record("a.py")]
    (kept,) = merge(reversed(answers) if turned else answers)
    assert kept.status is Status.REVIEWED


def test_a_file_answered_twice_alike_is_there_once() -> None:
    assert merge([python_record(), python_record()]) == (python_record(),)


def test_a_path_that_is_no_utf8_is_valid_json_and_comes_back() -> None:
    path = encode_path(os.fsdecode(b"\xff\n.py"))
    assert whole(python_record(path))["findings"]["files"][0]["path"] == path


def test_the_folder_of_a_run_may_have_any_name() -> None:
    folder = os.fsdecode(b"/tmp/\xff")
    assert json.loads(render_json([], {"folder": folder}))["run"]["folder"] == folder


def test_a_number_that_json_does_not_know_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "out", [], {"seconds": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_two_runs_over_the_same_tree_write_the_same_findings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"def f(): pass\n")
    (tmp_path / "b.md").write_bytes(b"# x\n[y](gone.md)\n")
    (tmp_path / "latin-1.py").write_bytes(b"# \xe9\n")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")

    def run(backwards: bool) -> bytes:
        seen = list(walk(tmp_path))
        done = [FileRecord.skipped(s) if isinstance(s, Skipped) else review_file(tmp_path, s) for s in seen]
        write(tmp_path / ".greenroom", reversed(done) if backwards else done, {"restarts": int(backwards)})
        return (tmp_path / ".greenroom" / "report.json").read_bytes()

    first, second = run(False), run(True)
    assert first != second
    assert first.partition(b'"run"')[0] == second.partition(b'"run"')[0]
    assert str(tmp_path).encode() not in first


def test_a_report_is_written_into_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    written = write(tmp_path / "a" / "b", [python_record()], {"restarts": 0})
    assert written == (tmp_path / "a" / "b" / "report.json", tmp_path / "a" / "b" / "report.md")
    assert written[0].read_bytes() == render_json([python_record()], {"restarts": 0})
    assert written[1].read_text().startswith("# Review\n")


def test_a_report_replaces_the_one_before_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path, [python_record("old.py")], {})
    write(tmp_path, [python_record("new.py")], {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.md"]
    assert b"old.py" not in (tmp_path / "report.json").read_bytes()


def test_a_report_that_fails_on_its_second_file_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [python_record("old.py")], {})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_bytes = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        write_bytes(path, data[:3])
        if "report.md" in path.name:
            raise OSError(28, "No space left on device", str(path))
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReportNotWritten, match="No space left on device"):
        write(tmp_path, [python_record("new.py")], {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_place_that_is_a_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ReportNotWritten, match="name another folder with --out") as caught:
        write(tmp_path / "out", [], {})
    assert caught.value.folder == str(tmp_path / "out")
    assert isinstance(caught.value, (Failure, GreenroomError))
    assert (tmp_path / "out").read_text() == "mine"


def page(*given: FileRecord) -> str:
    return render_markdown(merge(given), {"restarts": 3})


def test_the_page_shows_the_longest_and_the_most_complex_functions_first() -> None:
    many = [function(f"f{n}", length=n, complexity=100 - n) for n in range(1, 21)]
    longest, hardest = page(python_record("a.py", *many)).split("## Longest functions")[1].split("## Most complex")
    assert [name for name in (f"`f{n}`" for n in range(1, 21)) if name in longest] == [f"`f{n}`" for n in range(11, 21)]
    assert [name for name in (f"`f{n}`" for n in range(1, 21)) if name in hardest] == [f"`f{n}`" for n in range(1, 11)]
    assert longest.index("`f20`") < longest.index("`f19`")
    assert TOP == 10


@pytest.mark.parametrize(
    ("code", "title"),
    [
        (Code.DEAD_LINK, "## Dead links"),
        (Code.SYNTAX_ERROR, "## Invalid files"),
        (Code.TOML_INVALID, "## Invalid files"),
        (Code.JSON_DUPLICATE_KEY, "## Remarks"),
    ],
)
def test_the_page_lists_a_finding_under_its_title(code: Code, title: str) -> None:
    finding = Finding(path="a.py", line=7, code=code, message="wrong")
    assert f"{title}\n\n- `a.py:7` {code}: `wrong`\n" in page(python_record("a.py", found=(finding,)))


@pytest.mark.parametrize("code", list(Code))
def test_no_sort_of_finding_is_left_out_of_the_page(code: Code) -> None:
    finding = Finding(path="a.py", line=None, code=code, message="said")
    assert f"- `a.py` {code}: `said`" in page(python_record("a.py", found=(finding,)))


def test_the_page_lists_crashes_and_what_was_skipped_and_the_run() -> None:
    crash = FileRecord.crashed(Found(path="a.py", kind=Kind.PYTHON, size=1), "killed by SIGKILL")
    skip = FileRecord.skipped(Skipped(path="b/", reason=SkipReason.UNREADABLE, detail="Permission denied"))
    shown = page(crash, skip)
    assert "## Crashed files\n\n- `a.py` crashed: `crashed its readers: killed by SIGKILL`" in shown
    assert "## Unreadable\n\n- `b/` unreadable: `cannot be read: Permission denied`" in shown
    assert "| `unreadable` | `1` |" in shown
    assert "| `restarts` | `3` |" in shown


def test_a_page_without_findings_has_no_empty_sections() -> None:
    assert [line for line in page().splitlines() if line.startswith("#")] == ["# Review", "## This run"]


def test_the_page_says_how_many_findings_it_does_not_list() -> None:
    many = tuple(Finding(path="a.py", line=n, code=Code.DEAD_LINK, message="x") for n in range(1, LISTED + 6))
    assert "- and 5 more, in report.json" in page(python_record("a.py", found=many))


@example(" ")
@example("  ")
@example(" `")
@given(st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" `|"), min_size=1, max_size=12))
def test_a_code_span_shows_exactly_its_text(text: str) -> None:
    (inline,) = [token for token in MarkdownIt("commonmark").parse(f"x{code_span(text)}x") if token.type == "inline"]
    assert [child.content for child in inline.children or () if child.type == "code_inline"] == [text]


def test_a_bar_in_a_path_does_not_end_a_cell_of_a_table() -> None:
    rows = [
        line for line in page(python_record("a|b.py", function("f"))).splitlines() if "a" in line and "b.py" in line
    ]
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(("|a|b|c|d|", "|-|-|-|-|", rows[0])))
    assert [token.content for token in tokens if token.type == "inline"][-1] == "`a|b.py:1`"


def test_the_totals_add_up_over_all_files() -> None:
    told = findings([python_record("a.py", function("f")), python_record("b.py", function("g"), function("h"))])
    totals = told["totals"]
    assert isinstance(totals, dict)
    assert (totals["lines"], totals["functions"], totals["by_kind"]) == (18, 3, {"python": 2})
