"""`greenroom demo`: what it says and writes, its exit status, and what it does with a folder it cannot review."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import greenroom as gr
from greenroom.cli.main import app
from greenroom.cli.review import event_line, progress_line, summary
from greenroom.demo.chaos import plan
from greenroom.demo.desk_actor import Way
from greenroom.demo.messages import Progress
from greenroom.demo.report import Json, ReportNotWritten
from greenroom.demo.reporter import Outcome
from greenroom.demo.tree import desk, isolated_reader, pool_of, victims
from greenroom.demo.values import FileRecord, Found, Kind, Review, Skipped, SkipReason
from tests.cli.services import command, environment, finished, in_terminal
from tests.demo.desks import DEEP, fill


def findings(folder: Path) -> bytes:
    """The compared part of a report, as it stands in the file."""
    return (folder / "report.json").read_bytes().partition(b'\n "run": ')[0]


def run_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_bytes())["run"]


# ------------------------------------------------------------------------------------------------- as a process


def test_a_folder_is_reviewed_and_the_summary_says_how_it_went(tmp_path: Path) -> None:
    done = finished("demo", str(fill(tmp_path)), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == f"reviewing {tmp_path} with 4 readers and one in a process of its own"
    assert rest[0] == "40 seen: 36 reviewed, 1 not reviewed, 3 skipped, 0 crashed"
    assert rest[1] == "4 findings: 1 dead-link, 1 json-invalid, 1 syntax-error, 1 toml-invalid"
    assert re.fullmatch(r"[0-9.]+ seconds, 0 restarts", rest[2])
    assert rest[3:] == [f"wrote {tmp_path}/.greenroom/report.json", f"wrote {tmp_path}/.greenroom/report.md"]
    run = run_of(tmp_path / ".greenroom")
    assert (run["processes"], run["operations_kept"], run["operations_invoked_again"], run["recorded_twice"]) == (
        1,
        0,
        0,
        0,
    )
    assert run["operations"] == 37 + 1  # each file that was not skipped, and finding them


def test_the_current_folder_is_reviewed_unless_another_is_named(tmp_path: Path) -> None:
    assert finished("demo", "--backend", "trio", cwd=fill(tmp_path)).returncode == 0
    assert (tmp_path / ".greenroom" / "report.md").exists()


def seed_that_kills(readers: int, after: int) -> int:
    """A seed by which chaos kills the worker process before so many files have been answered."""
    staff = victims([*pool_of("/", readers), isolated_reader("/")])
    return next(
        seed
        for seed in itertools.count()
        if any(strike.way is Way.KILL and strike.after <= after for strike in plan(seed, staff))
    )


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_chaos_kills_and_crashes_and_the_findings_stay_the_same(tmp_path: Path, loop: str) -> None:
    # The last file comes up long after the strike: the isolated reader has to come back to read it.
    folder = fill(tmp_path / "folder", 300)
    (folder / "z_large.toml").write_text("# just a comment\n" * 1_000)
    (folder / "deep.json").write_text(DEEP)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    assert finished("demo", "folder", "--out", "calm", cwd=tmp_path).returncode == 0
    seed = str(seed_that_kills(1, after=30))
    done = finished(
        "demo", "folder", "--out", "wild", "--chaos", "--seed", seed, "--readers", "1", "--backend", loop, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "desk/readers/isolated' was killed by SIGKILL" in done.stdout
    assert findings(wild) == findings(calm)
    assert run_of(wild)["strikes"] >= 5


def test_a_terminal_is_shown_the_tree_with_its_progress(tmp_path: Path) -> None:
    status, shown = in_terminal("demo", ".", cwd=fill(tmp_path))
    assert status == 0
    assert "├─ reader-1" in shown
    assert "intake" in shown
    assert "40 seen: 36 reviewed" in shown


def stopped(folder: Path, number: int) -> subprocess.CompletedProcess[str]:
    """Review a folder whose large file takes a minute, and send a signal when the review has begun."""
    with subprocess.Popen(
        command("demo", str(folder), "--time-limit", "30"),
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        for line in process.stdout:
            first += line
            if "answered" in line:
                break
        process.send_signal(number)
        out, errors = process.communicate(timeout=50)
        return subprocess.CompletedProcess((), process.returncode, first + out, errors)


SLOW_TOML = ".".join(["a"] * 60_000) + " = 1\n"
"""120 kB that keep the TOML parser for minutes: each part of a dotted key costs as much as all before it."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_review_that_is_stopped_writes_no_report_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    (tmp_path / "slow.toml").write_text(SLOW_TOML)
    done = stopped(tmp_path, number)
    assert done.returncode == 130
    assert done.stderr == (
        "greenroom demo: stopped before the end, no report was written; --resume goes on from here\n"
    )
    assert not (tmp_path / ".greenroom" / "report.json").exists()


def test_a_file_that_takes_too_long_is_listed_with_its_error(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "slow.toml").write_text(SLOW_TOML)
    done = finished("demo", ".", "--time-limit", "0.3", cwd=tmp_path)
    assert done.returncode == 0
    assert "40 seen" not in done.stdout
    report = json.loads((tmp_path / ".greenroom" / "report.json").read_bytes())
    (crashed,) = (file for file in report["findings"]["files"] if file["status"] == "crashed")
    assert crashed["path"] == "slow.toml"
    assert "SIGALRM" in crashed["error"]


# ---------------------------------------------------------------------------------------------- within this one


@pytest.fixture
def no_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before anything is started."""

    def never(*_: object, **__: object) -> int:
        raise AssertionError("the desk was started")

    monkeypatch.setattr(gr, "run", never)


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.usefixtures("no_desk")
def test_a_folder_that_is_not_there_is_one_line_and_two() -> None:
    assert refusal("no/such/folder") == "greenroom demo: there is no folder no/such/folder"


@pytest.mark.usefixtures("no_desk")
def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(str(file)) == f"greenroom demo: {file} is not a folder; name the folder that holds the files"


@pytest.mark.usefixtures("no_desk")
def test_a_path_through_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be read: Not a directory" in refusal(str(tmp_path / "file" / "below"))


@pytest.mark.usefixtures("no_desk")
def test_a_report_cannot_go_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refusal(str(tmp_path), "--out", str(tmp_path / "file" / "below"))
    assert said == (
        f"greenroom demo: the report cannot be written to {tmp_path}/file/below: {tmp_path}/file is not a folder"
    )


@pytest.mark.usefixtures("no_desk")
def test_a_report_cannot_go_where_there_is_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert "no permission; name another folder with --out" in refusal(str(tmp_path))


def test_a_report_that_cannot_be_written_after_all_is_one_line_and_two() -> None:
    assert "the report cannot be written to /proc/nowhere" in refusal(
        os.fspath(Path(__file__).parent), "--out", "/proc/nowhere"
    )


@pytest.mark.usefixtures("no_desk")
def test_a_seed_without_chaos_is_refused(tmp_path: Path) -> None:
    assert refusal(str(tmp_path), "--seed", "1") == "greenroom demo: --seed goes with --chaos"


@pytest.mark.parametrize("arguments", [["--readers", "0"], ["--time-limit", "0"], ["--backend", "curio"]])
def test_options_out_of_range_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["demo", str(tmp_path), *arguments]).exit_code == 2


def test_a_seed_that_chaos_chose_itself_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", str(tmp_path), "--chaos"])
    assert re.search(r"chaos has the seed (\d+); the same one strikes the same: --chaos --seed \1", result.stdout)


def test_a_tree_that_gives_up_is_one_line_and_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def vanish(*arguments: Any, **options: Any) -> gr.Supervisor:
        tree = desk(*arguments, **options)
        folder.rmdir()
        return tree

    monkeypatch.setattr("greenroom.cli.review.desk", vanish)
    result = CliRunner().invoke(app, ["demo", str(folder), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("greenroom demo: no report was written: ")


# -------------------------------------------------------------------------------------------------- its words


def test_the_summary_counts_by_state_and_by_code() -> None:
    found = Found(path="a.py", kind=Kind.PYTHON, size=1)
    records = (
        FileRecord.reviewed(found, Review()),
        FileRecord.crashed(Found(path="b.py", kind=Kind.PYTHON, size=1), "RecursionError"),
        FileRecord.skipped(Skipped(path="c", reason=SkipReason.LINK_BROKEN)),
    )
    outcome = Outcome(
        files=(Path("/out/report.json"),),
        records=records,
        run={"seconds": 1.5, "restarts": {"a": 2, "b": 1}, "strikes": 4},
    )
    assert summary(outcome) == [
        "3 seen: 1 reviewed, 0 not reviewed, 1 skipped, 1 crashed",
        "1 findings: 1 crashed",
        "1.5 seconds, 3 restarts, 4 strikes by chaos",
        "wrote /out/report.json",
    ]


def test_the_summary_of_a_review_that_was_taken_up_again_says_what_that_cost() -> None:
    run: dict[str, Json] = {
        "seconds": 1.5,
        "restarts": {},
        "processes": 3,
        "operations": 700,
        "operations_kept": 350,
        "operations_invoked_again": 32,
    }
    assert summary(Outcome(files=(), records=(), run=run))[3:] == [
        "the work of 3 processes: of 700 operations the last one kept 350; 32 were in hand at a crash, and were invoked again"
    ]


def test_a_failure_of_the_report_names_the_way_out() -> None:
    assert "name another folder with --out" in str(ReportNotWritten("/out", "disk full"))


@pytest.mark.parametrize(
    ("walked", "said"),
    [
        (False, "1,200 found so far, 1,100 answered, 2 given up"),
        (True, "1,200 found, 1,100 answered, 2 given up"),
    ],
)
def test_progress_says_whether_the_walk_goes_on(walked: bool, said: str) -> None:
    assert progress_line(Progress(found=1200, answered=1100, walked=walked, given_up=2)) == said


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            gr.ActorEnded(at=0, path="desk/clerk", incarnation=1, exit=gr.Exit("error", ValueError("a\nb"))),
            "crash: desk/clerk (life 1), error: ValueError: a",
        ),
        (gr.ActorEnded(at=0, path="desk/clerk", incarnation=1, exit=gr.Exit("shutdown")), ""),
        (gr.ActorStarted(at=0, path="desk/clerk", incarnation=1), ""),
        (gr.ActorStarted(at=0, path="desk/clerk", incarnation=2), "again: desk/clerk (life 2)"),
        (
            gr.LoopBlocked(at=0, path="", seconds=1.25, message_type=None, stack=""),
            "block: something held the event loop for 1.2 s",
        ),
        (gr.StopRequested(at=0, path="desk", stage=gr.Stage.REQUESTED, why="SIGINT arrived"), ""),
        (
            gr.StopRequested(at=0, path="desk", stage=gr.Stage.CANCELLED, why="SIGINT arrived"),
            "stop: cancelled, SIGINT arrived",
        ),
    ],
)
def test_what_a_watcher_wants_to_see_is_one_line(event: gr.Event, said: str) -> None:
    assert event_line(event) == said


def test_that_a_worker_is_killed_is_news_only_while_the_desk_works() -> None:
    died = gr.WorkerDied("desk/readers/isolated", "was killed by SIGKILL")
    event = gr.ActorEnded(at=0, path="desk/readers/isolated", incarnation=1, exit=gr.Exit("killed", died))
    assert event_line(event, stopping=False).startswith("crash: desk/readers/isolated (life 1), killed: WorkerDied: ")
    assert event_line(event, stopping=True) == ""
