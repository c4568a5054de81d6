"""P5, P29: what the thread beside the event loop sees of a loop that is blocked. It needs real time, so its own is made short."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
import attrs
import pytest

import greenroom as gr
from greenroom.mailbox import Subscription, current_loop
from greenroom.runtime import watchdog
from greenroom.runtime.watchdog import Watchdog

LONGEST = 30.0
"""Real seconds that a block may last if nobody sees it: a limit, not a wait."""


@attrs.frozen
class Block(gr.Message[None]):
    """Block the event loop until this is set, in the handler."""

    until: threading.Event


@attrs.frozen
class BlockBeside(gr.Message[None]):
    """The same in a task of the actor's nursery."""

    until: threading.Event


@attrs.frozen
class BlockConcurrently(gr.Message[None]):
    """The same in a concurrent handler."""

    until: threading.Event


class Blocker(gr.Actor):
    @gr.handles
    async def block(self, message: Block) -> None:
        assert message.until.wait(LONGEST)

    @gr.handles
    async def block_beside(self, message: BlockBeside) -> None:
        async def task() -> None:
            assert message.until.wait(LONGEST)

        self.context.nursery.start_soon(task)

    @gr.handles(concurrency=2)
    async def block_concurrently(self, message: BlockConcurrently) -> None:
        assert message.until.wait(LONGEST)


class Seen(logging.Handler):
    """Set once the watchdog has logged a block."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "the event loop has been blocked" in record.getMessage():
            self.lines.append(record.getMessage())
            self.event.set()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """The watchdog looks often and is soon alarmed; this is set when it is."""
    monkeypatch.setattr(watchdog, "TICK", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED", 0.05)
    handler = Seen()
    logging.getLogger("greenroom.runtime").addHandler(handler)
    yield handler
    logging.getLogger("greenroom.runtime").removeHandler(handler)


async def blocked(events: Subscription[gr.Event]) -> gr.LoopBlocked:
    """The next event of a block."""
    async for event in events:
        if isinstance(event, gr.LoopBlocked):
            return event
    raise AssertionError


@pytest.mark.real_time
@pytest.mark.parametrize("kind", [Block, BlockBeside, BlockConcurrently])
async def test_p29_a_blocked_loop_is_an_event_with_path_and_stack_once_it_turns_again(
    seen: Seen, kind: Callable[[threading.Event], gr.Message[None]]
) -> None:
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("innocent", Blocker), gr.Child("culprit", Blocker))) as runtime:
        with runtime.events() as events:
            runtime.ref("sup/culprit").tell(kind(seen.event))
            event = await blocked(events)
    assert event.path == "sup/culprit"
    assert "until.wait(LONGEST)" in event.stack
    assert 0.05 <= event.seconds < LONGEST


@pytest.mark.real_time
async def test_p29_the_event_and_the_log_name_the_message_type_in_hand(seen: Seen) -> None:
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("culprit", Blocker))) as runtime:
        with runtime.events() as events:
            runtime.ref("sup/culprit").tell(Block(seen.event))
            event = await blocked(events)
    assert event.message_type is not None
    assert event.message_type.endswith("Block")
    (line,) = seen.lines
    assert "by sup/culprit (message in hand: " in line
    assert "until.wait(LONGEST)" in line


@pytest.mark.real_time
async def test_p29_a_start_that_blocks_the_loop_is_named(seen: Seen) -> None:
    class Slow(gr.Actor):
        async def on_start(self) -> None:
            assert seen.event.wait(LONGEST)

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("slow", Slow)))
    events = runtime.events()
    async with runtime:
        event = await blocked(events)
    assert (event.path, event.message_type) == ("sup/slow", None)


@pytest.mark.real_time
async def test_p29_code_outside_the_tree_that_blocks_the_loop_is_reported_without_a_path(seen: Seen) -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        with runtime.events() as events:
            assert seen.event.wait(LONGEST)
            event = await blocked(events)
    assert (event.path, event.message_type) == ("", None)
    assert "by code outside the tree" in seen.lines[0]


@pytest.mark.real_time
async def test_one_block_is_reported_once(seen: Seen) -> None:
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("culprit", Blocker))) as runtime:
        with runtime.events() as events:
            runtime.ref("sup/culprit").tell(Block(seen.event))
            await blocked(events)
            turns = Turns()
            await turns.of(watched=3)
            assert [event for event in events.pending() if isinstance(event, gr.LoopBlocked)] == []
    assert len(seen.lines) == 1


class Turns:
    """Waits for pings of the watchdog to be answered: it posts to the loop, which turns."""

    async def of(self, watched: int) -> None:
        loop = current_loop()
        for _ in range(watched):
            slot = loop.slot()
            timer = threading.Timer(watchdog.TICK, lambda slot=slot: loop.post(lambda: slot.set_result(None)))
            timer.start()
            await slot


@pytest.mark.real_time
async def test_the_thread_ends_with_the_runtime() -> None:
    async with gr.Runtime(gr.Supervisor("sup")):
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "greenroom-watchdog"] == [True]
    assert [thread for thread in threading.enumerate() if thread.name == "greenroom-watchdog"] == []


async def test_under_a_virtual_clock_there_is_no_thread_that_measures_real_time() -> None:
    async with gr.Runtime(gr.Supervisor("sup")):
        assert [thread for thread in threading.enumerate() if thread.name == "greenroom-watchdog"] == []


# ------------------------------------------------------------------------------------------------------- the hard exit


class Exited(BaseException):
    """Instead of the end of this process."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The status of the hard exit; the thread ends there instead of the process."""
    statuses: list[int] = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Exited

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    monkeypatch.setattr(watchdog, "LAST_WORDS", 3600.0)
    monkeypatch.setattr("faulthandler.dump_traceback", lambda **_options: None)
    monkeypatch.setattr(watchdog, "TICK", 0.01)
    return statuses


def test_the_final_deadline_ends_the_process_with_70_and_says_why(
    ended: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    dog = Watchdog()
    dog.start()
    dog.set_deadline(0.02)
    dog.join(LONGEST)
    assert ended == [70]
    assert "ended by force: its final deadline has passed\nthe tree has ended\n" in capsys.readouterr().err


def test_a_signal_that_nobody_takes_up_ends_the_process(ended: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "SIGNAL_PATIENCE", 0.02)
    dog = Watchdog()
    dog.start()
    dog.signal_arrived()
    dog.join(LONGEST)
    assert ended == [70]


def test_a_report_that_cannot_be_made_or_written_does_not_keep_the_process(
    ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    dog = Watchdog()
    dog.start()
    dog.exit_now()
    dog.join(LONGEST)
    assert ended == [70]


@pytest.mark.real_time
async def test_a_report_that_fails_is_replaced_by_why(ended: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    def describe() -> object:
        raise RuntimeError("dictionary changed size during iteration")

    dog = Watchdog()
    dog.watch(current_loop(), blocked=lambda *_: None, describe=describe)
    dog.start()
    dog.exit_now()
    dog.join(LONGEST)
    await anyio.lowlevel.checkpoint()
    assert ended == [70]
    assert "(no report: RuntimeError('dictionary changed size during iteration'))" in capsys.readouterr().err
