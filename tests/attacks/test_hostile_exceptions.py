"""Exceptions that fight back: the crash of an actor must never become one of its supervisor, whatever was raised."""

from __future__ import annotations

import asyncio
import logging

import anyio
import pytest

import greenroom as gr
from greenroom.logs import logger_named
from tests.actors.helpers import Do, Puppet

TREE = gr.Supervisor("app", gr.Child("victim", Puppet), gr.Child("neighbour", Puppet), intensity=10)


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Refuser(BaseException):
    """Cannot say what it is, and raises no `Exception` about it."""

    def __str__(self) -> str:
        raise Refuser

    __repr__ = __str__


class Empty(Exception):
    """A collection of problems, none of which it holds: it counts as false."""

    def __len__(self) -> int:
        return 0


class Unsure(Exception):
    """Will not say whether it is true."""

    def __bool__(self) -> bool:
        raise RuntimeError("neither")


def nested(depth: int, error: Exception) -> Exception:
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    return error


async def crash_with(runtime: gr.Runtime, error: BaseException) -> BaseException | None:
    """Have the victim raise this in a handler; the cause that its asker is told."""

    async def fail(_self: Puppet) -> None:
        raise error

    with pytest.raises(gr.ActorCrashed) as crashed:
        await runtime.ref("app/victim").ask(Do(fail))
    return crashed.value.__cause__


async def answers(_self: Puppet) -> str:
    return "here"


@pytest.mark.parametrize("error", [Mute(), Refuser(), Empty(), Unsure()], ids=lambda error: type(error).__name__)
async def test_an_exception_without_a_text_or_a_truth_value_crashes_its_actor_alone(error: BaseException) -> None:
    async with gr.Runtime(TREE) as runtime:
        assert await crash_with(runtime, error) is error
        assert await runtime.ref("app/victim").ask(Do(answers)) == "here"
        assert runtime.ref("app/victim").incarnation == 2
        assert runtime.ref("app/neighbour").incarnation == 1


async def test_a_start_that_fails_without_a_text_is_told_all_the_same() -> None:
    class Stillborn(gr.Actor):
        async def on_start(self) -> None:
            raise Mute

    with pytest.raises(gr.StartFailed, match="RuntimeError") as failed:
        async with gr.Runtime(gr.Supervisor("app", gr.Child("stillborn", Stillborn))):
            pytest.fail("it cannot have started")
    assert isinstance(failed.value.__cause__, Mute)


async def test_the_text_of_an_exception_is_kept_in_part_when_it_is_endless() -> None:
    async with gr.Runtime(TREE) as runtime:
        await crash_with(runtime, ValueError("x" * 1_000_000))
        await runtime.ref("app/victim").ask(Do(answers))
        node = runtime.tree().find("app/victim")
        assert node is not None
        assert node.last_error is not None
        assert len(node.last_error) < 3_000
        assert "1000000 characters" in node.last_error


async def test_groups_nested_deeper_than_the_interpreter_may_call_crash_their_actor_alone() -> None:
    inner = ValueError("at the bottom")
    async with gr.Runtime(TREE) as runtime:
        await crash_with(runtime, nested(3_000, inner))
        await runtime.ref("app/victim").ask(Do(answers))
        node = runtime.tree().find("app/victim")
        assert node is not None
        assert node.last_error == "error: ValueError: at the bottom"
        assert runtime.ref("app/neighbour").incarnation == 1


@pytest.mark.parametrize("error", [Mute(), Refuser()], ids=lambda error: type(error).__name__)
async def test_an_exception_without_a_text_in_an_actors_nursery_does_not_end_the_loop(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async def begin(self: Puppet) -> None:
        self.context.nursery.start_soon(fail)
        await anyio.sleep_forever()

    async with gr.Runtime(TREE) as runtime:
        with pytest.raises(gr.ActorCrashed) as crashed:
            await runtime.ref("app/victim").ask(Do(begin))
        assert crashed.value.__cause__ is error
        assert await runtime.ref("app/victim").ask(Do(answers)) == "here"


@pytest.mark.backends("asyncio")
async def test_p12_a_nursery_task_ended_by_a_cancelled_future_is_a_crash_on_asyncio() -> None:
    async def wait_in_vain() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def begin(self: Puppet) -> None:
        self.context.nursery.start_soon(wait_in_vain)
        await anyio.sleep_forever()

    async with gr.Runtime(TREE) as runtime:
        with pytest.raises(gr.ActorCrashed) as crashed:
            await runtime.ref("app/victim").ask(Do(begin))
        assert isinstance(crashed.value.__cause__, asyncio.CancelledError)


@pytest.mark.backends("trio")
async def test_a_nursery_of_trios_own_in_an_actors_nursery_does_not_make_a_stop_a_failure_on_trio() -> None:
    import trio

    async def hold_two() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.start_soon(trio.sleep_forever)

    async def begin(self: Puppet) -> None:
        self.context.nursery.start_soon(hold_two)

    async with gr.Runtime(TREE) as runtime:
        await runtime.ref("app/victim").ask(Do(begin))
        await trio.testing.wait_all_tasks_blocked()
    assert runtime.report is not None
    assert runtime.report.failed == ()
    assert runtime.report.clean


class FailingHandler(logging.Handler):
    """Somebody's own, without the care of `logging`'s: what it does with a record fails."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        raise OSError("the collector of logs is down")


async def test_a_log_handler_that_fails_does_not_end_a_supervisor(capsys: pytest.CaptureFixture[str]) -> None:
    handler = FailingHandler()
    logging.getLogger("greenroom").addHandler(handler)
    try:
        async with gr.Runtime(TREE) as runtime:
            await crash_with(runtime, ValueError("one"))
            assert await runtime.ref("app/victim").ask(Do(answers)) == "here"
            assert runtime.ref("app/neighbour").incarnation == 1
    finally:
        logging.getLogger("greenroom").removeHandler(handler)
    assert handler.seen > 0
    assert "the collector of logs is down" in capsys.readouterr().err


def test_a_log_record_names_the_place_that_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        logger_named("greenroom.test").warning("a %s", "word", extra={"event": 1})
    (record,) = caplog.records
    assert (record.pathname, record.getMessage()) == (__file__, "a word")
    assert vars(record)["event"] == 1


class Sealed(Mute):
    """Lets nobody add anything to it either."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


async def test_the_bodys_own_exception_leaves_the_block_even_when_it_can_carry_no_note() -> None:
    tree = gr.Supervisor("app", gr.Child("victim", Puppet), intensity=0)
    error = Sealed()

    async def fail(_self: Puppet) -> None:
        raise ValueError("one crash too many")

    caught: list[BaseException] = []
    try:
        async with gr.Runtime(tree) as runtime:
            runtime.ref("app/victim").tell(Do(fail))
            try:
                await anyio.sleep_forever()
            finally:
                raise error
    except Sealed as left:
        caught.append(left)
    assert caught == [error]


async def test_the_bodys_own_exception_is_told_beside_an_actors_exit_of_the_whole_program() -> None:
    async def leave(_self: Puppet) -> None:
        raise SystemExit(3)

    caught: list[BaseException] = []
    try:
        async with gr.Runtime(TREE) as runtime:
            runtime.ref("app/victim").tell(Do(leave))
            try:
                await anyio.sleep_forever()
            finally:
                raise Mute
    except SystemExit as left:
        caught.append(left)
    assert "RuntimeError" in caught[0].__notes__[0]
