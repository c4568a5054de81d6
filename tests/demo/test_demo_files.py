"""What the walk takes up, what it skips and why, over real trees."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenroom.demo.files import SIZE_LIMIT, kind_of, read, walk
from greenroom.demo.text import decode_path
from greenroom.demo.values import Found, Kind, Skipped, SkipReason


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x = 1\n")


def found_below(root: Path, out: Path | None = None) -> list[str]:
    return [seen.path for seen in walk(root, out) if isinstance(seen, Found)]


def skipped_below(root: Path, out: Path | None = None) -> dict[str, SkipReason]:
    return {seen.path: seen.reason for seen in walk(root, out) if isinstance(seen, Skipped)}


def test_files_come_sorted_by_name_each_folder_in_its_place(tmp_path: Path) -> None:
    put(tmp_path, "b/z.py", "b/a.py", "a.py", "c.py", "b.py")
    assert found_below(tmp_path) == ["a.py", "b/a.py", "b/z.py", "b.py", "c.py"]


def test_a_found_file_carries_its_kind_and_size(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    assert [seen for seen in walk(tmp_path) if isinstance(seen, Found)] == [
        Found(path="a.py", kind=Kind.PYTHON, size=6)
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.py", Kind.PYTHON),
        ("a.pyi", Kind.PYTHON),
        ("A.PY", Kind.PYTHON),
        ("README.md", Kind.MARKDOWN),
        ("x.markdown", Kind.MARKDOWN),
        ("x.json", Kind.JSON),
        ("x.toml", Kind.TOML),
        ("x.py.bak", Kind.OTHER),
        (".py", Kind.OTHER),
        ("Makefile", Kind.OTHER),
    ],
)
def test_the_end_of_the_name_tells_the_kind(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind


def test_an_empty_folder_has_nothing_but_the_report_folder(tmp_path: Path) -> None:
    assert list(walk(tmp_path)) == [Skipped(path=".greenroom/", reason=SkipReason.REPORT_FOLDER)]


@pytest.mark.parametrize(
    ("inside", "folder", "reason"),
    [
        (".git/config", ".git/", SkipReason.VERSION_CONTROL),
        ("sub/.hg/store.py", "sub/.hg/", SkipReason.VERSION_CONTROL),
        (".svn/x.py", ".svn/", SkipReason.VERSION_CONTROL),
        (".venv/x.py", ".venv/", SkipReason.VIRTUAL_ENVIRONMENT),
        ("mine/pyvenv.cfg", "mine/", SkipReason.VIRTUAL_ENVIRONMENT),
        ("conda/conda-meta/history", "conda/", SkipReason.VIRTUAL_ENVIRONMENT),
        ("a/__pycache__/x.py", "a/__pycache__/", SkipReason.CACHE),
        (".mypy_cache/x.json", ".mypy_cache/", SkipReason.CACHE),
        ("web/node_modules/x.json", "web/node_modules/", SkipReason.NODE_MODULES),
        ("sub/.greenroom/report.json", "sub/.greenroom/", SkipReason.REPORT_FOLDER),
    ],
)
def test_a_folder_that_is_not_the_users_work_is_skipped_whole(
    tmp_path: Path, inside: str, folder: str, reason: SkipReason
) -> None:
    put(tmp_path, inside, "kept.py")
    assert skipped_below(tmp_path)[folder] is reason
    assert found_below(tmp_path) == ["kept.py"]


def test_a_folder_that_is_only_called_venv_is_reviewed(tmp_path: Path) -> None:
    put(tmp_path, "venv/__init__.py")
    assert found_below(tmp_path) == ["venv/__init__.py"]


def test_a_file_with_the_name_of_a_skipped_folder_is_a_file(tmp_path: Path) -> None:
    put(tmp_path, ".git")
    assert found_below(tmp_path) == [".git"]


def test_a_virtual_environment_that_is_named_itself_is_reviewed(tmp_path: Path) -> None:
    put(tmp_path, ".venv/pyvenv.cfg", ".venv/lib/x.py")
    assert found_below(tmp_path / ".venv") == ["lib/x.py", "pyvenv.cfg"]


def test_a_second_run_sees_what_the_first_saw_before_its_report(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    before = list(walk(tmp_path))
    put(tmp_path, ".greenroom/report.json", ".greenroom/report.md")
    assert list(walk(tmp_path)) == before


def test_a_report_folder_of_ones_own_is_skipped_whether_or_not_it_exists(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    out = tmp_path / "build" / "review"
    before = list(walk(tmp_path, out))
    put(tmp_path, "build/review/report.json")
    assert list(walk(tmp_path, out)) == before
    assert skipped_below(tmp_path, out)["build/review/"] is SkipReason.REPORT_FOLDER


def test_a_report_folder_is_known_when_it_is_reached_by_a_link(tmp_path: Path) -> None:
    put(tmp_path, "work/review/report.json", "work/a.py")
    (tmp_path / "short").symlink_to("work/review")
    assert found_below(tmp_path / "work", tmp_path / "short") == ["a.py"]


def test_a_report_folder_elsewhere_skips_nothing_more(tmp_path: Path) -> None:
    put(tmp_path, "work/a.py", "elsewhere/b.py")
    assert skipped_below(tmp_path / "work", tmp_path / "elsewhere") == {".greenroom/": SkipReason.REPORT_FOLDER}


def test_a_report_written_into_the_folder_itself_leaves_out_only_the_report(tmp_path: Path) -> None:
    put(tmp_path, "report.json", "report.md", "a.py", "sub/report.md")
    assert found_below(tmp_path, tmp_path) == ["a.py", "sub/report.md"]
    assert skipped_below(tmp_path, tmp_path) == {".greenroom/": SkipReason.REPORT_FOLDER}


def test_a_link_to_a_file_inside_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    (tmp_path / "b.py").symlink_to("a.py")
    assert found_below(tmp_path) == ["a.py"]
    assert skipped_below(tmp_path)["b.py"] is SkipReason.LINK_INSIDE


@pytest.mark.parametrize("target", [".", "..", "/"])
def test_a_link_to_a_folder_above_itself_is_a_loop(tmp_path: Path, target: str) -> None:
    put(tmp_path, "work/sub/a.py")
    (tmp_path / "work" / "sub" / "loop").symlink_to(target)
    assert skipped_below(tmp_path / "work")["sub/loop"] is SkipReason.LINK_LOOP


def test_a_link_to_itself_is_a_loop(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    assert skipped_below(tmp_path)["self"] is SkipReason.LINK_LOOP


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "work/a.py", "secret/b.py", "work2/c.py")
    (tmp_path / "work" / "away").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "near").symlink_to(tmp_path / "work2")
    assert found_below(tmp_path / "work") == ["a.py"]
    skipped = skipped_below(tmp_path / "work")
    assert (skipped["away"], skipped["near"]) == (SkipReason.LINK_OUTSIDE, SkipReason.LINK_OUTSIDE)


def test_a_link_to_nothing_is_broken(tmp_path: Path) -> None:
    (tmp_path / "gone.md").symlink_to("nowhere.md")
    assert skipped_below(tmp_path)["gone.md"] is SkipReason.LINK_BROKEN


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    put(tmp_path, "work/a.py")
    (tmp_path / "link").symlink_to("work")
    assert found_below(tmp_path / "link") == ["a.py"]


def test_a_file_above_the_limit_is_skipped_and_one_at_the_limit_is_not(tmp_path: Path) -> None:
    for name, size in (("large.bin", 6_000_000), ("over.py", SIZE_LIMIT + 1), ("limit.py", SIZE_LIMIT)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)  # sparse: takes no room
    assert found_below(tmp_path) == ["limit.py"]
    skipped = skipped_below(tmp_path)
    assert (skipped["large.bin"], skipped["over.py"]) == (SkipReason.TOO_LARGE, SkipReason.TOO_LARGE)


def test_a_pipe_is_skipped_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert skipped_below(tmp_path)["pipe.py"] is SkipReason.SPECIAL_FILE


def test_a_socket_is_skipped() -> None:
    # a socket's path must be short, shorter than that of a test's own folder may be
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s.py")
        assert skipped_below(Path(folder))["s.py"] is SkipReason.SPECIAL_FILE


@pytest.fixture
def deep_folder(tmp_path: Path) -> Iterator[Path]:
    """A tree so deep that its end cannot be named in one path; it can only be made, and removed, step by step."""
    root = tmp_path / "deep"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield root
    shutil.rmtree(root)


def test_a_tree_deeper_than_a_path_can_be_long_is_unreadable_at_its_end(deep_folder: Path) -> None:
    end = [seen for seen in walk(deep_folder) if isinstance(seen, Skipped)][-1]
    assert (end.reason, end.detail) == (SkipReason.UNREADABLE, "File name too long")


def test_a_folder_that_may_not_be_listed_is_named_and_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.py", "closed/b.py", "z.py")
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert found_below(tmp_path) == ["a.py", "z.py"]
    closed = [seen for seen in walk(tmp_path) if seen.path == "closed/"]
    assert closed == [Skipped(path="closed/", reason=SkipReason.UNREADABLE, detail="Permission denied")]


def test_names_with_newlines_and_without_utf8_come_back_to_the_same_file(tmp_path: Path) -> None:
    names = [b"new\nline.py", b"latin-\xe9.py", b"percent%41.py", "größe.py".encode(), b" .py"]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(name)
    found = [seen for seen in walk(tmp_path) if isinstance(seen, Found)]
    assert {os.fsencode(decode_path(each.path)) for each in found} == set(names)
    assert {read(tmp_path, each) for each in found} == set(names)


def test_every_entry_is_seen_exactly_once(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "b/c.md", "b/d/e.json", ".git/x", "b/f.txt")
    (tmp_path / "b" / "up").symlink_to("..")
    counts = Counter(seen.path for seen in walk(tmp_path))
    assert counts == dict.fromkeys((".greenroom/", ".git/", "a.py", "b/c.md", "b/d/e.json", "b/f.txt", "b/up"), 1)


def test_a_folder_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        walk(tmp_path / "nowhere")


def test_a_file_in_the_place_of_the_folder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    put(tmp_path, "a.py")
    with pytest.raises(NotADirectoryError, match="name the folder that holds the files"):
        walk(tmp_path / "a.py")


def test_a_file_that_has_gone_since_is_unreadable(tmp_path: Path) -> None:
    seen = read(tmp_path, Found(path="gone.py", kind=Kind.PYTHON, size=1))
    assert seen == Skipped(path="gone.py", reason=SkipReason.UNREADABLE, detail="No such file or directory")


def test_a_file_that_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.py")
    seen = read(tmp_path, Found(path="a.py", kind=Kind.PYTHON, size=1))
    assert seen == Skipped(path="a.py", reason=SkipReason.SPECIAL_FILE)


def test_a_file_that_has_become_a_link_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "other.py")
    (tmp_path / "a.py").symlink_to("other.py")
    seen = read(tmp_path, Found(path="a.py", kind=Kind.PYTHON, size=1))
    assert isinstance(seen, Skipped)
    assert seen.reason is SkipReason.UNREADABLE


def test_a_file_that_has_become_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    open_before = len(os.listdir("/dev/fd"))
    seen = read(tmp_path, Found(path="a.py", kind=Kind.PYTHON, size=1))
    assert seen == Skipped(path="a.py", reason=SkipReason.SPECIAL_FILE)
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_file_that_has_grown_above_the_limit_is_not_taken_in_whole(tmp_path: Path) -> None:
    with open(tmp_path / "a.py", "wb") as file:
        file.truncate(SIZE_LIMIT + 1)
    assert read(tmp_path, Found(path="a.py", kind=Kind.PYTHON, size=1)) == Skipped(
        path="a.py", reason=SkipReason.TOO_LARGE
    )


@pytest.mark.parametrize("report", [None, "a", "sub/out"])
def test_what_comes_behind_each_path_is_the_rest_of_the_walk(tmp_path: Path, report: str | None) -> None:
    put(tmp_path, "a/b/c.py", "a/b.py", "a-b/c.py", "a.py", "sub/out/report.md", "z/.greenroom/x", ".b", "caf\udce9.py")
    out = None if report is None else tmp_path / report
    everything = list(walk(tmp_path, out))
    for place, item in enumerate(everything):
        assert list(walk(tmp_path, out, after=item.path)) == everything[place + 1 :]


def test_what_comes_behind_a_path_that_has_gone_is_what_came_behind_it(tmp_path: Path) -> None:
    put(tmp_path, "a/b.py", "a/c.py", "d.py")
    everything = list(walk(tmp_path))
    (tmp_path / "a" / "b.py").unlink()
    assert list(walk(tmp_path, after="a/b.py")) == everything[2:]
    (tmp_path / "a" / "c.py").unlink()
    (tmp_path / "a").rmdir()
    assert [item.path for item in walk(tmp_path, after="a/b.py")] == ["d.py"]
