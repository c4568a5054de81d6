"""What the README shows, works: its programs are run as they stand."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import greenroom as gr

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PROGRAM, SERVICE, DURABLE, AGENT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_first_program_prints_what_its_comments_say(tmp_path: Path, loop: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("anyio.run(main)", f"anyio.run(main, backend={loop!r})"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == re.findall(r"print\(.*# (\d+)", PROGRAM)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_durable_program_prints_what_its_comments_say(tmp_path: Path, loop: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(DURABLE.replace("anyio.run(main)", f"anyio.run(main, backend={loop!r})"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == re.findall(r"print\(.*# (\w+)", DURABLE)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("killed_at", ["reading whales-1", "reading whales-2", "reading whales-3"])
def test_the_agent_goes_on_where_it_was_killed(tmp_path: Path, loop: str, killed_at: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(AGENT.replace("anyio.run(main)", f"anyio.run(main, backend={loop!r})"), encoding="utf-8")
    command = [sys.executable, str(program)]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as first:
        assert first.stdout is not None
        for line in first.stdout:
            said.append(line.strip())
            if said[-1] == killed_at:
                first.kill()
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    *pages, result = again.stdout.splitlines()
    assert result == AGENT.splitlines()[-1].removeprefix("# ")
    assert pages[0] == killed_at  # it was in hand, and nobody knows whether it was read
    assert [*said[:-1], *pages] == ["reading whales-1", "reading whales-2", "reading whales-3"]


def test_the_agent_is_short() -> None:
    assert len([line for line in AGENT.splitlines() if line.strip() and not line.startswith("#")]) <= 25


def test_the_first_program_is_short() -> None:
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 25


async def test_the_service_with_two_subtrees_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "service.py").write_text(SERVICE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("readme_service", tmp_path / "service.py")
    assert spec is not None
    assert spec.loader is not None
    service = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "readme_service", service)
    spec.loader.exec_module(service)
    async with gr.Runtime(service.tree) as runtime:
        with runtime.events() as events:
            await anyio.sleep(3.5)
            assert events.pending() == []  # nothing crashed
        poller = runtime.tree().find("service/poller")
        assert poller is not None
        assert (poller.state, poller.restarts, poller.last_error) == (gr.State.RUNNING, 0, None)
