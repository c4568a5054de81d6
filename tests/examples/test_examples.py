"""The examples do what they say, as programs and on both event loops."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import anyio
import pytest

import greenroom as gr
from examples import accounts, blocking_library, rate_limited_fetcher, status_page, tool_agent

FOLDER = Path(__file__).parent.parent.parent / "examples"
FILES = sorted(FOLDER.glob("*.py"))

OUTPUT: dict[ModuleType, list[str]] = {
    rate_limited_fetcher: ["24 pages; the server got 28 requests and hung up 4 times"],
    tool_agent: [
        "first:  The circumference of the earth is about 40030 kilometres.",
        "second: 40030 km",
        "calculators that are left: 0",
    ],
    blocking_library: ["refused: no such column: everything", "written: (200, 2450.0)"],
    accounts: [
        "100 transfers, all sent again: 100 duplicates",
        "alice has 900 after 101 moves, bob has 100 after 100",
    ],
}


@pytest.mark.real_time
@pytest.mark.parametrize("example", OUTPUT, ids=lambda example: example.__name__.rpartition(".")[2])
async def test_an_example_prints_what_it_should(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    await example.main()
    assert capsys.readouterr().out.splitlines() == OUTPUT[example]


@pytest.mark.parametrize("example", [tool_agent, accounts], ids=lambda example: example.__name__.rpartition(".")[2])
def test_an_example_with_processes_of_its_own_runs_as_a_program(example: ModuleType) -> None:
    command = [sys.executable, str(example.__file__)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.splitlines() == OUTPUT[example]


# -------------------------------------------------------------------------------------------- the status page


async def get(port: int) -> tuple[str, dict[str, object]]:
    """The first line of the answer, and its body."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = b""
        while True:
            try:
                answer += await stream.receive()
            except anyio.EndOfStream:
                break
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode().splitlines()[0], json.loads(body)


@pytest.mark.real_time
async def test_the_status_page_shows_the_tree() -> None:
    async with gr.Runtime(status_page.tree(port=0)) as runtime:
        port = await runtime.ref("service/page").ask(status_page.Port())
        status, shown = await get(port)
        paths = [node.path for node in runtime.tree().walk()]
    assert status == "HTTP/1.1 200 OK"
    actors = shown["actors"]
    assert isinstance(actors, list)
    assert [actor["path"] for actor in actors] == paths


@pytest.mark.real_time
async def test_a_visitor_who_says_nothing_harms_nobody() -> None:
    async with gr.Runtime(status_page.tree(port=0)) as runtime:
        port = await runtime.ref("service/page").ask(status_page.Port())
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.aclose()
        status, _ = await get(port)
        page = runtime.tree().find("service/page")
    assert status == "HTTP/1.1 200 OK"
    assert page is not None
    assert page.restarts == 0


@pytest.mark.parametrize(
    ("state", "status"), [(gr.State.RUNNING, b"HTTP/1.1 200 OK"), (gr.State.STUCK, b"HTTP/1.1 503 Service Unavailable")]
)
def test_the_status_tells_whether_all_that_should_run_does(state: gr.State, status: bytes) -> None:
    actor = gr.TreeNode(name="a", path="s/a", kind="worker", state=state, incarnation=1, restarts=0)
    tree = gr.TreeNode(
        name="s", path="s", kind="supervisor", state=gr.State.RUNNING, incarnation=1, restarts=0, children=(actor,)
    )
    assert status_page.page(tree).startswith(status + b"\r\n")


def test_the_status_page_runs_as_a_service_until_it_is_told_to_stop(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import greenroom, status_page\n"
    program += "status_page.random.random = lambda: 0.5\n"  # nobody has bad luck
    program += "raise SystemExit(greenroom.run(status_page.tree(port=0)))\n"
    script = tmp_path / "service.py"
    script.write_text("import logging; logging.basicConfig(level='INFO')\n" + program, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        for line in service.stderr:
            if "service/page started" in line:
                break
        service.send_signal(signal.SIGTERM)
        rest = service.stderr.read()
        assert service.wait(timeout=30) == 0, rest


# ------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_says_how_it_is_run_and_what_there_is_to_see(file: Path) -> None:
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    assert said is not None
    assert f"python examples/{file.name}" in said
    assert "What there is to see:" in said


def test_all_examples_are_listed() -> None:
    listed = re.findall(r"^\| \[([^\]]+)\]", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    folders = [f"{folder.name}/" for folder in FOLDER.iterdir() if (folder / "README.md").exists()]
    assert sorted(listed) == sorted([*(file.name for file in FILES), *folders])
