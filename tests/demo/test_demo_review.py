"""One file from the disk to its record."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.files import SIZE_LIMIT, walk
from greenroom.demo.review import ISOLATE_ABOVE, LIST_LIMIT, limited, needs_isolation, review, review_file
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


def record_of(folder: Path, name: str, content: bytes) -> FileRecord:
    (folder / name).write_bytes(content)
    (found,) = [seen for seen in walk(folder) if isinstance(seen, Found)]
    return review_file(folder, found)


def test_python_is_reviewed_from_the_disk(tmp_path: Path) -> None:
    record = record_of(tmp_path, "a.py", b"def f(): pass\n")
    assert (record.status, record.kind, record.size) == (Status.REVIEWED, Kind.PYTHON, 14)
    assert record.review.functions == (Function(name="f", line=1, length=1, complexity=1),)


def test_a_link_in_markdown_is_looked_for_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    record = record_of(tmp_path, "a.md", b"[x](there) [y](a.md)\n[z](gone.md)\n")
    assert [(finding.code, finding.line) for finding in record.review.findings] == [(Code.DEAD_LINK, 2)]


@pytest.mark.parametrize(("name", "code"), [("a.json", Code.JSON_INVALID), ("a.toml", Code.TOML_INVALID)])
def test_a_data_file_is_reviewed_by_its_kind(tmp_path: Path, name: str, code: Code) -> None:
    assert [finding.code for finding in record_of(tmp_path, name, b"{").review.findings] == [code]


def test_a_file_of_another_kind_is_listed_and_not_opened(tmp_path: Path) -> None:
    found = Found(path="not-there.txt", kind=Kind.OTHER, size=3)
    assert review_file(tmp_path, found) == FileRecord.not_reviewed(found)


def test_a_file_that_has_gone_since_is_a_skip_with_a_finding(tmp_path: Path) -> None:
    record = review_file(tmp_path, Found(path="gone.py", kind=Kind.PYTHON, size=3))
    assert (record.status, record.reason) == (Status.SKIPPED, SkipReason.UNREADABLE)
    assert [(finding.code, finding.message) for finding in record.review.findings] == [
        (Code.UNREADABLE, "cannot be read: No such file or directory")
    ]


def test_what_is_nested_too_deeply_crashes_the_reader(tmp_path: Path) -> None:
    with pytest.raises(RecursionError):
        record_of(tmp_path, "a.json", b"[" * 50_000)


def test_content_of_a_kind_without_a_reader_gives_an_empty_review() -> None:
    assert review(Found(path="a.txt", kind=Kind.OTHER, size=1), b"x", lambda path: True) == Review()


@pytest.mark.parametrize("kind", list(ISOLATE_ABOVE))
def test_a_file_above_the_limit_of_its_kind_needs_isolation(kind: Kind) -> None:
    limit = ISOLATE_ABOVE[kind]
    assert not needs_isolation(Found(path="a", kind=kind, size=limit))
    assert needs_isolation(Found(path="a", kind=kind, size=limit + 1))


@given(st.integers(0, SIZE_LIMIT))
def test_a_file_that_is_not_reviewed_never_needs_isolation(size: int) -> None:
    assert not needs_isolation(Found(path="a", kind=Kind.OTHER, size=size))


def test_a_review_within_the_limit_is_left_whole() -> None:
    whole = Review(headings=(Heading(level=1, text="x", line=1),) * LIST_LIMIT, heading_count=LIST_LIMIT)
    assert limited("a.md", whole) == whole


def test_what_is_too_much_to_list_is_cut_counted_and_named() -> None:
    content = b"# x\n" * (LIST_LIMIT + 7)
    seen = review(Found(path="a.md", kind=Kind.MARKDOWN, size=1), content, lambda path: True)
    assert (seen.heading_count, len(seen.headings)) == (LIST_LIMIT + 7, LIST_LIMIT)
    assert [(finding.code, finding.message) for finding in seen.findings] == [
        (Code.LIST_CUT, f"{LIST_LIMIT} of {LIST_LIMIT + 7} headings are listed")
    ]


def test_a_message_with_what_cannot_be_shown_is_made_printable() -> None:
    assert Finding(path="a", line=None, code=Code.CRASHED, message="a\nb\udcff").message == "a\\nb\\udcff"


def test_a_line_before_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match="line"):
        Finding(path="a", line=0, code=Code.CRASHED, message="x")


def test_a_crash_is_a_finding_with_its_error() -> None:
    record = FileRecord.crashed(Found(path="a.py", kind=Kind.PYTHON, size=1), "RecursionError: too deep")
    assert (record.status, record.error) == (Status.CRASHED, "RecursionError: too deep")
    assert [finding.code for finding in record.review.findings] == [Code.CRASHED]


def test_every_value_crosses_a_process_border_as_json(tmp_path: Path) -> None:
    for name in (b"a.py", b"\xff\n.py", b"b.md"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(b"# [x](gone%FF.md)\n\ndef f(:\n")
    os.mkfifo(tmp_path / "pipe")
    values: list[Found | Skipped | FileRecord] = list(walk(tmp_path))
    values += [review_file(tmp_path, value) for value in values if isinstance(value, Found)]
    assert len(values) == 8
    for value in values:
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
