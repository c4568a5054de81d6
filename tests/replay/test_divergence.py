"""Today's code against a journal of yesterday's: what differs is found, and what does not matter is forgiven (T25, R17, R19)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import pytest
from attrs import frozen

from greenroom.actors import Message
from greenroom.codec import Codec
from greenroom.errors import NotEncodable, Undecodable
from greenroom.runtime.replay import (
    Diverged,
    Engine,
    Intent,
    JournalBroken,
    JournalRow,
    OperationFailed,
    OutcomeRow,
    Task,
    TimeRow,
    operation,
)
from greenroom.runtime.replay.matching import Passed, Past
from greenroom.runtime.replay.operations import Effect
from greenroom.runtime.replay.paths import CallId
from tests.replay.stage import staged
from tests.replay.values import CODEC, Hint, Steer, TestCodec, burn, echo, pay, start

Perform = Callable[[Task], Awaitable[object]]


async def original(task: Task) -> str:
    await task.sleep(1)
    with task.move_on_after(60):
        await task.run(echo, "a")
    async with task.nursery() as branches:
        branches.start_soon(task.run, pay, "b")
        await task.receive(Steer, timeout=5)
    return await task.run(echo, "c")


async def journal_of_original() -> list[JournalRow]:
    async with staged(original) as stage:
        await stage.time()
        await stage.succeed("root#3", "")
        await stage.signal(Steer("go"))
        await stage.succeed("root/4.1#1", "")
        await stage.succeed("root#7", "")
        assert stage.end is not None
        return stage.journal


async def replayed(perform: Perform, journal: Sequence[JournalRow]) -> None:
    async with staged(perform, journal) as stage:
        assert stage.end is not None


async def diverging(perform: Perform) -> Diverged:
    journal = await journal_of_original()
    with pytest.raises(Diverged) as caught:
        await replayed(perform, journal)
    return caught.value


async def test_t25_the_same_code_does_not_diverge() -> None:
    await replayed(original, await journal_of_original())


async def test_t25_another_operation_is_named() -> None:
    async def changed(task: Task) -> None:
        await task.sleep(1)
        with task.move_on_after(60):
            await task.run(pay, "a")

    error = await diverging(changed)
    assert (error.seq, error.step, error.recorded) == (2, "root#3", "operation 'echo'")
    assert "run 'pay'" in error.found
    assert 'if task.version("name"):' in str(error)


async def test_t25_other_parameters_are_found() -> None:
    async def changed(task: Task) -> None:
        await task.sleep(1)
        with task.move_on_after(60):
            await task.run(echo, "another")

    error = await diverging(changed)
    assert (error.seq, error.step) == (2, "root#3")
    assert "other parameters" in error.found


async def test_t25_an_operation_that_is_gone_is_named_with_what_was_called_instead() -> None:
    async def changed(task: Task) -> None:
        await task.sleep(1)
        await task.run(echo, "a")

    error = await diverging(changed)
    assert (error.seq, error.step) == (2, "root#3")
    assert "root#1 sleep 1.0, root#2 run 'echo'" in error.found


async def test_t25_a_changed_number_of_seconds_shows_where_no_row_has_it() -> None:
    async def changed(task: Task) -> None:
        await task.sleep(1)
        with task.move_on_after(61):
            await task.run(echo, "a")

    error = await diverging(changed)
    assert (error.seq, error.recorded) == (2, "operation 'echo' after other calls")
    assert "root#2 limit 61.0" in error.found


async def test_t25_another_class_to_receive_shows_where_no_row_has_it() -> None:
    async def changed(task: Task) -> str:
        await task.sleep(1)
        with task.move_on_after(60):
            await task.run(echo, "a")
        async with task.nursery() as branches:
            branches.start_soon(task.run, pay, "b")
            await task.receive(Steer, Hint, timeout=5)
        return await task.run(echo, "c")

    assert (await diverging(changed)).seq == 4


async def test_t25_a_timer_that_is_not_there_diverges() -> None:
    async def changed(task: Task) -> None:
        await task.run(echo, "a")

    error = await diverging(changed)
    assert (error.seq, error.step) == (1, "root#1")
    assert "no timer at all" in error.found


async def test_t25_a_timer_of_another_call_diverges() -> None:
    async def changed(task: Task) -> None:
        with task.move_on_after(1):
            await task.sleep(2)

    async def longer(task: Task) -> None:
        with task.move_on_after(2):
            await task.sleep(1)

    async with staged(changed) as stage:
        await stage.time()
    with pytest.raises(Diverged, match="the timer of root#2 first"):
        await replayed(longer, stage.journal)


async def test_t25_code_that_ends_too_early_diverges_at_the_next_row_of_the_owner() -> None:
    async def changed(task: Task) -> None:
        await task.sleep(1)

    error = await diverging(changed)
    assert (error.seq, error.step) == (2, "root#3")


async def test_t25_comparison_is_with_what_was_done_when_the_row_was_written() -> None:
    """Rows of others may lie between a row of the owner and what it is based on: what they set off comes too late for it."""

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.run, pay, "")
            await task.receive(Steer, timeout=None)
            await task.sleep(5)

    async with staged(perform) as stage:
        stamp = stage.engine.machine.stamp()
        await stage.signal(Steer("in between"))
        assert stage.engine.machine.stamp().digest != stamp.digest
        await stage.succeed("root/1.1#1", "", stamp=stamp)
    async with staged(perform, stage.journal) as again:
        assert again.engine.machine.stamp() == stage.engine.machine.stamp()


async def test_a_time_row_whose_timer_a_row_of_others_has_fired_is_harmless() -> None:
    async def perform(task: Task) -> str:
        await task.sleep(5)
        return "slept"

    async with staged(perform) as stage:
        stamp, timer = stage.engine.machine.stamp(), stage.engine.machine.earliest
        assert timer is not None
        stage.later(6)
        await stage.signal(Steer("fires it"))
        assert stage.result == "slept"
        await stage.process(TimeRow(seq=2, at=stage.now, stamp=stamp, timer=timer.call))
    await replayed(perform, stage.journal)


def test_r19_a_basis_that_was_passed_already_is_a_broken_journal() -> None:
    past = Past()
    for basis in range(3):
        past.add(Passed(bytes([basis]), None))
    assert past.at(1).digest == bytes([1])
    with pytest.raises(JournalBroken):
        past.at(0)
    with pytest.raises(JournalBroken):
        past.at(3)


async def test_an_intent_that_today_nobody_calls_diverges() -> None:
    async def perform(task: Task) -> None:
        await task.run(pay, "100")

    params = CODEC.encode(("100",))
    async with staged(perform) as stage:
        stage.engine.confirm([Intent(call=CallId("root", 1), name="pay", params=params)])
        for wrong in (
            Intent(call=CallId("root", 2), name="pay", params=params),
            Intent(call=CallId("root", 1), name="refund", params=params),
            Intent(call=CallId("root", 1), name="pay", params=CODEC.encode(("200",))),
        ):
            with pytest.raises(Diverged):
                stage.engine.confirm([wrong])


# ----------------------------------------------------------------------------------- the same value live and replayed


async def test_r17_what_control_code_gets_is_the_recorded_form_also_when_live() -> None:
    given = {"a": [1, 2]}

    async def perform(task: Task) -> str:
        got = await task.run(mapping)
        got["a"].append(3)
        return str(given)

    @operation(effect=Effect.SAFE)
    async def mapping() -> dict[str, list[int]]:
        return given

    async with staged(perform) as stage:
        await stage.succeed("root#1", given)
        assert stage.result == str({"a": [1, 2]})


async def test_r17_a_failure_is_what_was_recorded_and_the_exception_itself_at_most_its_cause() -> None:
    raised: list[OperationFailed] = []

    async def perform(task: Task) -> None:
        try:
            await task.run(burn, "")
        except OperationFailed as error:
            raised.append(error)

    original_error = ValueError("it burns")
    async with staged(perform) as stage:
        await stage.fail("root#1", "it burns", cause=original_error)
    assert raised[0].__cause__ is original_error
    (row,) = stage.journal
    assert isinstance(row, OutcomeRow)
    await replayed(perform, [attrs.evolve(row, cause=None)])
    assert str(raised[1]) == str(raised[0])
    assert raised[1].__cause__ is None


@frozen
class Old(Message[None]):
    name: str


@frozen
class New(Message[None]):
    name: str
    urgent: bool = False


class Evolved(TestCodec):
    """The class of the parameters has got a field more since the journal was written."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.codec = Codec()
        self.codec.register_external(cls, "request", attrs.asdict, lambda plain: cls(**plain))


async def test_r17_a_new_field_with_a_default_does_not_diverge() -> None:
    @operation(effect=Effect.SAFE)
    async def ask(request: Old | New) -> None:
        pass

    async def before(task: Task) -> None:
        await task.run(ask, Old("a"))

    async def after(task: Task) -> None:
        await task.run(ask, New("a"))

    async def other(task: Task) -> None:
        await task.run(ask, New("a", urgent=True))

    old, new = Evolved(Old), Evolved(New)
    async with Engine(before, start(), old) as engine:
        await engine.process()
        call = engine.machine.open[CallId("root", 1)]
        recorded = call.params
    assert b"urgent" not in recorded
    intent = Intent(call=CallId("root", 1), name="ask", params=recorded)
    async with Engine(after, start(), new) as engine:
        await engine.process()
        engine.confirm([intent])
    async with Engine(other, start(), new) as engine:
        await engine.process()
        with pytest.raises(Diverged, match="other parameters"):
            engine.confirm([intent])


async def test_r17_recorded_parameters_that_today_nobody_can_read_are_undecodable_not_diverged() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "a")

    async with staged(perform) as stage:
        with pytest.raises(Undecodable, match="parameters of operation 'echo'"):
            stage.engine.confirm([Intent(call=CallId("root", 1), name="echo", params=b"{")])


async def test_parameters_that_cannot_be_recorded_are_refused_where_they_are_given() -> None:
    async def perform(task: Task) -> None:
        with pytest.raises(NotEncodable):
            await task.run(echo, object())  # type: ignore[arg-type]

    async with staged(perform) as stage:
        assert stage.result is None


async def test_a_result_that_cannot_be_recorded_is_an_error_of_the_control_code() -> None:
    async def perform(task: Task) -> object:
        return object()

    async with staged(perform) as stage:
        assert isinstance(stage.error, NotEncodable)
