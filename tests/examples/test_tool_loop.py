"""examples/tool_loop: it prints what it should, pays for no thought twice, and gets over every death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

import greenroom as gr
from examples.tool_loop import service
from greenroom.testing import interrupt_everywhere

if TYPE_CHECKING:
    from greenroom.testing import Life

OUTPUT = [
    "it asks: There are 3 screws left. How many shall I order?",
    "the answer is accepted",
    "Done: ordered 12 screws.",
    "4 thoughts, 1 order",
]


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> service.Bench:
    """A fresh one."""
    bench = service.Bench()
    monkeypatch.setattr(service, "BENCH", bench)
    return bench


@pytest.mark.real_time
async def test_it_prints_what_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    await service.main()
    assert capsys.readouterr().out.splitlines() == OUTPUT


def test_it_runs_as_a_program() -> None:
    folder = Path(service.__file__).parent.parent.parent
    command = [sys.executable, "-m", "examples.tool_loop.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, cwd=folder)
    assert done.stdout.splitlines() == OUTPUT


async def buy(life: Life) -> None:
    """The whole of it, in one life if it lasts so long."""
    async with gr.Runtime(service.tree(), store=life.store) as runtime:
        handle = await runtime.submit("shop/buyers", service.Goal("See to it."), task_id="screws")
        await handle.signal(service.Reply("12"), message_id="answer")
        assert await handle.result() == "Done: ordered 12 screws."
        assert list(service.BENCH.orders.values())[-1] == "12 screws"


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_it_orders_once_wherever_it_is_killed(loop: Literal["asyncio", "trio"], bench: service.Bench) -> None:
    tried = interrupt_everywhere(buy, backend=loop)
    assert len(tried.trials) > 10
    # The key is the task's and the place's: every trial has ordered under the same one.
    assert len(bench.orders) == 1
