"""`greenroom run`: exit status and output, as a process and within this one."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner

import greenroom as gr
from greenroom.cli.main import app
from greenroom.cli.service import logging_to, until_the_end
from tests.cli.services import command, environment, finished, in_terminal, write_service


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module `service` that is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    write_service(tmp_path)
    return tmp_path


def stop_when(needle: str, *arguments: str, cwd: Path, number: int) -> tuple[int, str]:
    """Run the command, send it a signal when its error stream has shown a text, and wait for its end."""
    with subprocess.Popen(
        command(*arguments), cwd=cwd, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if needle in line:
                process.send_signal(number)
                needle = "\0"  # once
        return process.wait(timeout=50), "".join(seen)


# ------------------------------------------------------------------------------------------------- as a process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_ends_with_zero(tmp_path: Path, number: int) -> None:
    write_service(tmp_path)
    status, lines = stop_when("child=lasting/quiet", "run", "service:lasting", cwd=tmp_path, number=number)
    assert status == 0
    assert f"{signal.Signals(number).name} arrived (stage requested)" in lines


def test_a_tree_that_gives_up_ends_with_one_and_says_why(tmp_path: Path) -> None:
    write_service(tmp_path)
    done = finished("run", "service:crashing", cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "level=error logger=greenroom.runtime" in last
    assert 'cause="RestartLimitExceeded: ' in last
    assert "ValueError: on purpose" in last


def test_the_command_of_the_package_and_the_module_are_the_same(tmp_path: Path) -> None:
    write_service(tmp_path)
    script = Path(sys.executable).with_name("greenroom")
    done = subprocess.run(
        [script, "run", "service:ending", "--backend", "trio"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_a_terminal_is_shown_the_tree_and_at_the_end_the_last_lines(tmp_path: Path) -> None:
    write_service(tmp_path)
    status, shown = in_terminal("run", "service:ending", "--live", cwd=tmp_path)
    assert status == 0
    assert "└─ short" in shown
    assert "event=progress supervisor=ending child=ending/short" in shown


def test_an_example_can_be_run_by_its_name(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    folder = tmp_path / "reviewed"
    folder.mkdir()
    (folder / "a.py").write_text("def f(): pass\n")
    done = subprocess.run(
        command("run", "examples.desk.service:tree", "--store", f"sqlite:///{tmp_path / 'desk.db'}"),
        cwd=root, env={**environment(), "DESK_FOLDER": str(folder)}, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.partition(";")[0]) == (0, "2 files seen")


# ---------------------------------------------------------------------------------------------- within this one


def test_a_tree_that_ends_by_itself_ends_with_zero(folder: Path, backend: str) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", "--backend", backend])
    assert result.exit_code == 0


def test_a_service_can_run_on_uvloop(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", "--uvloop"])
    assert result.exit_code == 0


def test_each_report_is_a_line_of_pairs_on_the_error_stream(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending"])
    lines = result.stderr.splitlines()
    assert all(line.startswith("time=2") and " level=" in line and " logger=" in line for line in lines)
    assert [line.partition("child=")[2].partition(" ")[0] for line in lines[:2]] == ["ending/quiet", "ending/short"]


def test_at_level_debug_every_end_is_told(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", "--log-level", "debug"])
    assert "event=actor_ended path=ending/quiet incarnation=1 exit=shutdown" in result.stderr


def test_at_level_error_a_service_without_faults_says_nothing(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", "--log-level", "error"])
    assert result.stderr == ""


def test_tracebacks_are_written_below_the_line_of_the_error(folder: Path) -> None:
    plain = CliRunner().invoke(app, ["run", "service:crashing"])
    traced = CliRunner().invoke(app, ["run", "service:crashing", "--traces"])
    assert "Traceback" not in plain.stderr
    assert "\n    Traceback (most recent call last):\n" in traced.stderr


def test_a_tree_that_does_not_start_ends_with_one(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:failing"])
    assert result.exit_code == 1
    assert "no such socket" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("service", "give MODULE:TREE"),
        ("absent:tree", "no module 'absent'"),
        ("service:absent", "no attribute 'absent'"),
        ("service:Quiet", "is a class"),
        ("service:attrs", "not a supervisor"),
        ("broken:tree", "fails at import: ZeroDivisionError"),
    ],
)
def test_a_wrong_target_is_one_line_and_two(folder: Path, target: str, said: str) -> None:
    write_service(folder, "broken", "1 / 0\n")
    result = CliRunner().invoke(app, ["run", target])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("greenroom run: ")
    assert said in line


@pytest.mark.parametrize(
    "arguments", [["--final-deadline", "0"], ["--backend", "trio", "--uvloop"]], ids=["deadline", "uvloop"]
)
def test_options_that_cannot_be_are_one_line_and_two(folder: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", *arguments])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_without_a_terminal_a_live_view_becomes_log_lines(folder: Path) -> None:
    result = CliRunner().invoke(app, ["run", "service:ending", "--live"])
    assert result.exit_code == 0
    first, *rest = result.stderr.splitlines()
    assert first == "greenroom run: --live needs a terminal; writing log lines instead"
    assert rest
    assert all(line.startswith("time=") for line in rest)


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, "greenroom 0.1.0\n")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["demo", "--help"], ["run", "-h"]])
def test_help_is_given(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_without_a_command_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output


# -------------------------------------------------------------------------------------------------- its parts


class Quiet(gr.Actor):
    pass


async def test_views_go_on_while_the_tree_stops_and_end_with_it() -> None:
    class Slow(gr.Actor):
        async def on_stop(self, exit: gr.Exit) -> None:
            await anyio.sleep(3.0)

    turns = 0

    async def view() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(1.0)
            turns += 1

    async with gr.Runtime(gr.Supervisor("service", gr.Child("slow", Slow))) as runtime:
        runtime.request_stop()
        await until_the_end(runtime, view)
    assert turns in (2, 3)  # the tree ends in the same moment as the third


async def test_views_end_when_the_tree_has_given_up() -> None:
    class Failing(gr.Actor):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(self.fail)

        async def fail(self) -> None:
            await anyio.sleep(1.0)
            raise ValueError("on purpose")

    with pytest.raises(gr.TreeFailed):
        async with gr.Runtime(gr.Supervisor("service", gr.Child("failing", Failing), intensity=0)) as runtime:
            await until_the_end(runtime, anyio.sleep_forever)


def test_logging_is_put_back_as_it_was() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with logging_to(logging.NullHandler(), "DEBUG"):
        assert root.level == logging.DEBUG
    assert (root.level, list(root.handlers)) == before
