"""Version marks: a change inside a version, marked in the code (C06)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from greenroom.runtime.replay import CallId, JournalRow, OutcomeRow, OutcomeStatus, Recorded, SignalRow, Stamp, Task
from greenroom.runtime.replay.marks import Marks
from tests.replay.stage import staged
from tests.replay.values import BEGIN, Steer, echo, pay


async def before(task: Task) -> list[str]:
    return [await task.run(echo, "first"), await task.run(echo, "old way"), await task.run(echo, "last")]


async def after(task: Task) -> list[str]:
    first = await task.run(echo, "first")
    if task.version("new-way"):
        middle = await task.run(pay, "new way")
    else:
        middle = await task.run(echo, "old way")
    return [first, middle, await task.run(echo, "last")]


async def test_a_task_that_comes_there_with_todays_code_takes_the_new_road_and_stays_on_it() -> None:
    async with staged(after) as stage:
        await stage.succeed("root#1", "1")
        assert stage.call("root#2").name == "pay"
        await stage.succeed("root#2", "2")
        await stage.succeed("root#3", "3")
        assert [_stamp(row).marks for row in stage.journal] == [(), ("new-way",), ()]
    for cut in range(4):
        async with staged(after, stage.journal[:cut]) as again:
            assert again.engine.machine.seq == cut


async def test_a_task_that_was_past_there_takes_the_old_road() -> None:
    async with staged(before) as stage:
        await stage.succeed("root#1", "1")
        await stage.succeed("root#2", "2")
    async with staged(after, stage.journal) as again:
        assert again.call("root#3").name == "echo"
        await again.succeed("root#3", "3")
        assert again.result == ["1", "2", "3"]
    async with staged(after, again.journal) as third:
        assert third.result == ["1", "2", "3"]


async def test_a_task_that_had_come_there_and_written_nothing_takes_the_new_road() -> None:
    async with staged(before) as stage:
        await stage.succeed("root#1", "1")
    async with staged(after, stage.journal) as again:
        assert again.call("root#2").name == "pay"


async def test_signals_alone_do_not_prove_that_old_code_was_past_there() -> None:
    async def perform(task: Task) -> list[str]:
        await task.receive(Steer, timeout=None)
        new = task.version("new-way")
        await task.receive(Steer, timeout=None)
        return [await task.run(echo, str(new))]

    async with staged(perform) as stage:
        await stage.signal(Steer(""))
    async with staged(perform, stage.journal) as again:
        await again.signal(Steer(""))
    async with staged(perform, again.journal) as third:
        await third.succeed("root#3", "")
        assert _stamp(third.journal[2]).marks == ("new-way",)
    async with staged(perform, third.journal) as fourth:
        assert fourth.end == third.end


async def test_the_first_answer_stays() -> None:
    async def perform(task: Task) -> list[str]:
        answers = []
        for number in range(3):
            answers.append(str(task.version("late")))
            await task.run(echo, str(number))
        return answers

    async def unmarked(task: Task) -> list[str]:
        for number in range(3):
            await task.run(echo, str(number))
        return []

    async with staged(unmarked) as stage:
        await stage.succeed("root#1", "")
        await stage.succeed("root#2", "")
    async with staged(perform, stage.journal) as again:
        await again.succeed("root#3", "")
        assert again.result == ["False", "False", "False"]


async def test_a_mark_can_be_taken_out_again_when_the_old_road_is_gone() -> None:
    async def without(task: Task) -> list[str]:
        return [await task.run(echo, "first"), await task.run(pay, "new way"), await task.run(echo, "last")]

    async with staged(after) as stage:
        for call in ("root#1", "root#2", "root#3"):
            await stage.succeed(call, "")
    async with staged(without, stage.journal) as again:
        assert again.end == stage.end


def _stamp(row: JournalRow) -> Stamp:
    assert isinstance(row, OutcomeRow)
    return row.stamp


def _row(seq: int, basis: int, marks: Sequence[str]) -> OutcomeRow:
    return OutcomeRow(
        seq=seq,
        at=BEGIN,
        stamp=Stamp(basis=basis, digest=b"", marks=tuple(marks)),
        call=CallId("root", seq),
        name="",
        params=b"",
        status=OutcomeStatus.SUCCEEDED,
        body=b"",
    )


@given(st.lists(st.tuples(st.integers(0, 10), st.sets(st.sampled_from("ab"))), max_size=5), st.integers(0, 10))
def test_a_mark_is_true_where_it_was_recorded_or_where_nothing_was_written_after(
    written: list[tuple[int, set[str]]], asked_in: int
) -> None:
    rows: list[JournalRow] = [_row(1 + n, basis, sorted(marks)) for n, (basis, marks) in enumerate(written)]
    rows.append(SignalRow(seq=99, at=BEGIN, message_id="m", type="", body=b""))
    marks = Marks(Recorded.of(rows))
    known = any("a" in names for _, names in written)
    past = any(basis >= asked_in for basis, _ in written)
    assert marks.ask("a", asked_in) is (known or not past)
    assert marks.pending == (("a",) if not known and not past else ())
    assert marks.ask("a", 0) is (known or not past)
    marks.written(["a"])
    assert marks.pending == ()
