"""What tests/conftest.py promises, seen from outside: one pytest run over small test files, judged by its outcomes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SETTINGS = """
[pytest]
addopts = --import-mode=importlib --strict-markers
filterwarnings = error
markers =
    backends: .
    full: .
    real_time: .
"""
TESTS = """
import asyncio
import time

import anyio
import pytest
import trio
from hypothesis import given, strategies as st

from greenroom.testing import VirtualClock


async def test_virtual(clock, backend):
    await anyio.sleep(3600)
    assert clock.now() == anyio.current_time() == 3600
    assert (trio if backend == "trio" else asyncio).__name__ == backend


class TestMethods:
    async def test_method(self):
        await anyio.sleep(3600)


@pytest.mark.backends("trio")
async def test_restricted(backend):
    assert backend == "trio"


@pytest.mark.real_time
async def test_on_the_real_clock():
    began, virtual = time.monotonic(), anyio.current_time()
    await anyio.sleep(0.02)
    assert time.monotonic() - began >= 0.015
    assert anyio.current_time() - virtual >= 0.015


@pytest.mark.full
def test_long(): ...


examples = {"asyncio": 0, "trio": 0}


@given(seconds=st.floats(1, 9))
async def test_property(backend, seconds):
    await anyio.sleep(seconds)
    assert anyio.current_time() == seconds
    examples[backend] += 1


def test_property_has_been_run_on_both():
    assert examples["asyncio"] > 1 and examples["trio"] > 1


async def test_failing():
    await anyio.sleep(1)
    assert 1 == 2


@pytest.mark.backends("asyncio")
async def test_task_left_behind():
    global task
    task = asyncio.create_task(asyncio.sleep(9))


@pytest.mark.backends("asyncio")
async def test_exception_never_retrieved():
    asyncio.get_running_loop().create_future().set_exception(LookupError("lost"))


@pytest.mark.real_time
async def test_hanging():
    await anyio.sleep_forever()


async def test_hanging_in_a_shield():
    with anyio.CancelScope(shield=True):
        while True:
            await anyio.lowlevel.checkpoint()


@pytest.mark.real_time
async def test_hanging_in_a_shield_that_waits():
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


def test_hanging_in_a_run_of_its_own(backend):
    async def wait():
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    anyio.run(wait, backend=backend)


def test_hanging_without_a_loop():
    time.sleep(600)


async def test_after_all_that():
    await anyio.sleep(5)
"""


@frozen
class Report:
    outcomes: Mapping[str, str]  # by test: "passed", "skipped", or "failed: …" with the whole story
    exit_code: int

    def __getitem__(self, test: str) -> str:
        return self.outcomes[test]


def run_pytest(folder: Path, *arguments: str, limit: str = "180") -> Report:
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_small.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "--junitxml=report.xml", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "GREENROOM_TEST_LIMIT": limit}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    outcomes = {}
    for case in ET.parse(folder / "report.xml").iter("testcase"):
        story = [f"{part.get('message')} {part.text}" for part in case if part.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        outcomes[str(case.get("name"))] = f"failed: {story}" if story else "skipped" if skipped else "passed"
    return Report(outcomes, ended.returncode)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_pytest(tmp_path_factory.mktemp("everyday"), "-k", "not hanging")


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return run_pytest(tmp_path_factory.mktemp("hanging"), "-k", "hanging or after_all_that", limit="0.3")


BOTH = pytest.mark.parametrize("loop", ["asyncio", "trio"])


@BOTH
@pytest.mark.parametrize("test", ["test_virtual", "test_method", "test_on_the_real_clock", "test_property"])
def test_a_coroutine_test_runs_on_both_event_loops(report: Report, test: str, loop: str) -> None:
    assert report[f"{test}[{loop}]"] == "passed"


def test_a_property_of_a_coroutine_tries_many_examples_on_both_event_loops(report: Report) -> None:
    assert report["test_property_has_been_run_on_both"] == "passed"


def test_the_mark_backends_restricts_a_test_to_the_loops_it_names(report: Report) -> None:
    assert report["test_restricted[trio]"] == "passed"
    assert "test_restricted[asyncio]" not in report.outcomes


def test_a_long_test_is_skipped_unless_full_is_asked_for(report: Report, tmp_path: Path) -> None:
    assert report["test_long"] == "skipped"
    assert run_pytest(tmp_path, "--full", "-k", "test_long")["test_long"] == "passed"


@BOTH
def test_a_failing_coroutine_test_fails_with_its_own_error(report: Report, loop: str) -> None:
    assert "assert 1 == 2" in report[f"test_failing[{loop}]"]
    assert report.exit_code == pytest.ExitCode.TESTS_FAILED


def test_a_test_fails_that_leaves_an_asyncio_task_behind(report: Report) -> None:
    assert "still running" in report["test_task_left_behind[asyncio]"]


def test_a_test_fails_that_leaves_an_exception_nobody_retrieved(report: Report) -> None:
    assert "never retrieved: LookupError(" in report["test_exception_never_retrieved[asyncio]"]


@BOTH
@pytest.mark.parametrize(
    "test",
    [
        "test_hanging",
        "test_hanging_in_a_shield",
        "test_hanging_in_a_shield_that_waits",
        "test_hanging_in_a_run_of_its_own",
    ],
)
def test_a_hanging_test_fails_at_its_real_time_limit(hung: Report, test: str, loop: str) -> None:
    assert "0.3 real seconds" in hung[f"{test}[{loop}]"]


def test_a_hanging_test_without_a_loop_fails_at_its_real_time_limit(hung: Report) -> None:
    assert "0.3 real seconds" in hung["test_hanging_without_a_loop"]


@BOTH
def test_the_tests_after_a_hanging_one_run_as_ever(hung: Report, loop: str) -> None:
    assert hung[f"test_after_all_that[{loop}]"] == "passed"
