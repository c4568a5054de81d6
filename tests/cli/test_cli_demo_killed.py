"""`greenroom demo --kill` and `--resume`: processes that are really killed, and what is left of their reviews."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from greenroom.demo.files import walk
from greenroom.demo.reviewer import IN_HAND, LARGE_IN_HAND
from greenroom.demo.values import Found
from tests.cli.services import command, environment, finished, in_terminal
from tests.demo.desks import DEEP, fill

FILES = 400


def findings(folder: Path) -> bytes:
    """The compared part of a report, as it stands in the file."""
    return (folder / "report.json").read_bytes().partition(b'\n "run": ')[0]


def run_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_bytes())["run"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hundred files, one of which crashes its readers."""
    folder = fill(tmp_path_factory.mktemp("reviewed") / "folder", FILES)
    (folder / "deep.json").write_text(DEEP)
    return folder


@pytest.fixture(scope="module")
def calm(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What an undisturbed review finds there."""
    out = tmp_path_factory.mktemp("calm")
    assert finished("demo", str(folder), "--out", str(out), cwd=folder).returncode == 0
    return findings(out)


# ------------------------------------------------------------------------------------------- how far the store is


def count(store: Path, what: str) -> int:
    """How much of something is in the store; 0 while there is no store."""
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0])
    except sqlite3.OperationalError:  # it is not there yet, or just being made
        return 0


def asked(store: Path) -> bool:
    return count(store, "tasks") > 0


def on_record(least: int) -> Callable[[Path], bool]:
    def told(store: Path) -> bool:
        return count(store, "journal WHERE kind = 'outcome'") >= least

    return told


MOMENTS = {
    "when the review was asked for": asked,
    "when the files were found": on_record(1),
    "when the first file was read": on_record(2),
    "in the middle": on_record(FILES // 2),
    "when nearly all files were read": on_record(FILES - 60),  # later ones could be over before their killer comes
}


LOOPS = [("asyncio", "trio"), ("trio", "asyncio")]


def killed(folder: Path, out: Path, when: Callable[[Path], bool], *options: str) -> int:
    """Run a review until its store says so, and kill its process; the exit status."""
    with subprocess.Popen(
        command("demo", str(folder), "--out", str(out), *options), cwd=folder, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        while process.poll() is None and not when(
            out / "review.db"
        ):  # another process's file tells nobody: it is asked
            time.sleep(0.002)
        process.kill()
        return process.wait(timeout=30)


@pytest.mark.parametrize(("moment", "loops"), list(zip(MOMENTS, cycle(LOOPS), strict=False)))
def test_a_review_that_was_killed_finds_what_an_undisturbed_one_does(
    tmp_path: Path, folder: Path, calm: bytes, moment: str, loops: tuple[str, str]
) -> None:
    first, second = loops
    assert killed(folder, tmp_path, MOMENTS[moment], "--backend", first) == -signal.SIGKILL
    done = finished("demo", str(folder), "--out", str(tmp_path), "--resume", "--backend", second, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"going on with the review of {folder} ")
    run = run_of(tmp_path)
    assert findings(tmp_path) == calm
    assert run["recorded_twice"] == 0
    assert run["operations"] == 1 + sum(isinstance(item, Found) for item in walk(folder))
    if run["operations_kept"]:
        assert (
            f"the work of 2 processes: of {run['operations']} operations the last one kept {run['operations_kept']}; "
            f"{run['operations_invoked_again']} were in hand at a crash, and were invoked again\n"
        ) in done.stdout
    else:
        assert MOMENTS[moment] is asked


def test_a_review_that_was_killed_twice_finds_the_same(tmp_path: Path, folder: Path, calm: bytes) -> None:
    assert killed(folder, tmp_path, on_record(100)) == -signal.SIGKILL
    before = count(tmp_path / "review.db", "journal")
    assert (
        killed(folder, tmp_path, on_record(before + 50), "--resume", "--chaos", "--backend", "trio") == -signal.SIGKILL
    )
    assert finished("demo", str(folder), "--out", str(tmp_path), "--resume", cwd=folder).returncode == 0
    run = run_of(tmp_path)
    assert findings(tmp_path) == calm
    assert (run["processes"], run["recorded_twice"]) == (3, 0)
    assert run["operations_kept"] >= 150
    assert 0 < run["operations_invoked_again"] <= 2 * (IN_HAND + LARGE_IN_HAND)


@pytest.mark.parametrize("options", [(), ("--chaos", "--seed", "1", "--backend", "trio")], ids=["calm", "chaos"])
def test_the_demo_kills_itself_and_goes_on(tmp_path: Path, folder: Path, calm: bytes, options: tuple[str, ...]) -> None:
    done = finished("demo", str(folder), "--out", str(tmp_path), "--kill", *options, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    told = re.search(
        r"^killed the process \d+ with SIGKILL: (\d+) of (\d+) paths had their result on record$",
        done.stdout,
        re.MULTILINE,
    )
    assert told is not None
    assert findings(tmp_path) == calm
    run = run_of(tmp_path)
    assert run["recorded_twice"] == 0
    if told[1] != told[2]:  # else a busy machine has let the killer come when the review was over
        assert run["processes"] == 2
        assert run["operations_kept"] >= FILES // 2


def test_the_terminal_is_shown_both_halves(tmp_path: Path, folder: Path) -> None:
    status, shown = in_terminal("demo", str(folder), "--out", str(tmp_path), "--kill", cwd=folder)
    assert status == 0
    before, _, after = shown.partition("killed the process")
    assert "├─ reader-1" in before
    assert "├─ reader-1" in after
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is there again


def test_a_review_that_is_over_in_no_time_is_said_to_be_whenever_its_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = finished("demo", "empty", "--out", "out", "--kill", "--time-limit", "0.1", cwd=tmp_path)
    assert done.returncode == 0
    ends = ("over before its process could be killed", "going on with the review", "there is nothing to resume")
    assert sum(end in done.stdout for end in ends) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_reaches_the_service_that_was_to_be_killed(tmp_path: Path, number: int) -> None:
    for n in range(3):
        (tmp_path / f"slow_{n}.toml").write_text(".".join(["a"] * 60_000) + " = 1\n")
    with subprocess.Popen(
        command("demo", str(tmp_path), "--kill", "--time-limit", "30"), cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if "answered" in line:
                break
        process.send_signal(number)
        _, errors = process.communicate(timeout=50)
    assert process.returncode == 130
    assert errors == "greenroom demo: stopped before the end, no report was written; --resume goes on from here\n"


# ------------------------------------------------------------------------------------------------ nothing to resume


def refusal(cwd: Path, *arguments: str) -> str:
    done = finished("demo", *arguments, cwd=cwd)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("greenroom demo: ")
    return line.removeprefix("greenroom demo: ")


def test_without_a_store_there_is_nothing_to_resume(tmp_path: Path) -> None:
    store = f"{tmp_path}/.greenroom/review.db"
    assert refusal(tmp_path, ".", "--resume") == (
        f"there is no review to resume, {store} is not there: begin one without --resume"
    )


def test_a_finished_review_is_not_resumed_and_its_report_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "folder")
    assert finished("demo", "folder", "--out", "out", cwd=tmp_path).returncode == 0
    before = (tmp_path / "out" / "report.json").read_bytes()
    done = finished("demo", "folder", "--out", "out", "--resume", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        f"the review in {tmp_path}/out/review.db is finished, there is nothing to resume; its report is out/report.json\n",
    )
    assert (tmp_path / "out" / "report.json").read_bytes() == before
    (tmp_path / "out" / "report.json").unlink()
    assert refusal(tmp_path, "folder", "--out", "out", "--resume") == (
        f"the review in {tmp_path}/out/review.db is finished, and its report is gone: begin anew, without --resume"
    )


def test_a_finished_review_can_be_begun_anew(tmp_path: Path) -> None:
    fill(tmp_path)
    for _ in range(2):
        done = finished("demo", ".", cwd=tmp_path)
        assert done.stdout.splitlines()[0].startswith("reviewing ")
        assert run_of(tmp_path / ".greenroom")["processes"] == 1


def test_an_unfinished_review_that_is_begun_anew_is_mentioned(tmp_path: Path, folder: Path) -> None:
    assert killed(folder, tmp_path, on_record(2)) == -signal.SIGKILL
    done = finished("demo", str(folder), "--out", str(tmp_path), cwd=folder)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == (
        f"an unfinished review was in {tmp_path}/review.db; this one begins anew (--resume takes one up)"
    )
    assert run_of(tmp_path)["processes"] == 1


def test_the_store_of_another_folder_is_not_resumed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "other").mkdir()
    assert killed(folder, tmp_path / "out", on_record(2)) == -signal.SIGKILL
    assert refusal(tmp_path, "other", "--out", "out", "--resume") == (
        f"{tmp_path}/out/review.db holds another review: resume that one, or begin one of this folder without --resume"
    )


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "review.db").write_text("a letter to my aunt, which must not be lost" * 100)
    said = refusal(tmp_path, ".", "--out", "out", *options)
    assert "file is not a database" in said
    assert said.endswith(f"if nobody needs it, remove {tmp_path}/out/review.db, or name another folder with --out")
    assert (tmp_path / "out" / "review.db").exists()


@pytest.mark.parametrize("options", [(), ("--resume",), ("--kill",)])
def test_a_review_that_somebody_is_at_is_left_to_them(tmp_path: Path, folder: Path, options: tuple[str, ...]) -> None:
    with subprocess.Popen(
        command("demo", str(folder), "--out", str(tmp_path)), cwd=folder, env=environment(), stdout=subprocess.DEVNULL
    ) as process:
        while not asked(tmp_path / "review.db"):
            assert process.poll() is None, "it has ended before it asked for anything"
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)  # it would be over too soon
        try:
            assert refusal(folder, str(folder), "--out", str(tmp_path), *options) == (
                f"the process {process.pid} is at the review in {tmp_path}/review.db: let it end, or stop it"
            )
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=50) == 0
