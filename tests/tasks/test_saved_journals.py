"""`handle.export()` and `greenroom.testing.replay`: whether today's code still goes on with a saved journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import anyio
import msgspec
import pytest

import greenroom as gr
from greenroom.persistence import INLINE_LIMIT
from greenroom.testing import OtherVersion, replay
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

Script = Callable[[gr.Task, Job], Awaitable[Any]]


class Scripted(gr.Agent[Job, Any]):
    """Does as it is told."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def perform(self, task: gr.Task, request: Job) -> Any:
        return await self.script(task, request)


calls = Calls()
note = calls.safe()


async def original(task: gr.Task, job: Job) -> str:
    first = await task.run(note, job.text)
    async with task.nursery() as branches:
        for n in range(2):
            branches.start_soon(task.run, note, f"{first}{n}")
    steer = await task.receive(Steer, timeout=None)
    await task.sleep(5)
    return f"{first} {steer.text}"


async def saved(database: Shared, *, until: Literal["waiting", "ended"], text: str = "a") -> gr.SavedJournal:
    """The journal of the original script, as a file would have it."""
    async with database.runtime(agents(original)) as runtime:
        handle = await runtime.submit(POOL, Job(text), task_id="T1")
        await settled()
        if until == "ended":
            await handle.signal(Steer("b"))
            await handle.result()
        return gr.SavedJournal.from_json((await handle.export()).to_json())


async def test_the_code_that_wrote_a_journal_goes_on_with_it_and_nothing_is_invoked(database: Shared) -> None:
    journal = await saved(database, until="waiting")
    made = len(calls.made)
    replayed = await replay(Scripted(original), journal)
    assert (replayed.rows, replayed.ended) == (3, False)
    assert replayed.waits == ("root: receive tests.tasks.scripts:Steer",)
    assert len(calls.made) == made


async def test_a_whole_journal_leads_to_the_recorded_end(database: Shared) -> None:
    journal = await saved(database, until="ended")
    replayed = await replay(lambda: Scripted(original), journal.to_json())
    assert (replayed.rows, replayed.ended, replayed.waits) == (5, True, ())


async def test_a_journal_is_read_from_its_file(database: Shared, tmp_path: Path) -> None:
    file = tmp_path / "t1.json"
    await anyio.Path(file).write_bytes((await saved(database, until="ended")).to_json())
    assert (await replay(Scripted(original), file)).ended


async def test_large_contents_are_in_the_file(database: Shared) -> None:
    journal = await saved(database, until="ended", text="x" * (INLINE_LIMIT + 1))
    assert (await replay(Scripted(original), journal)).ended


async def other_name(task: gr.Task, job: Job) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def remark(text: str) -> str:
        return text

    await task.run(remark, job.text)


async def other_parameter(task: gr.Task, job: Job) -> None:
    await task.run(note, job.text + "!")


async def one_more(task: gr.Task, job: Job) -> None:
    await task.run(note, job.text)
    await task.run(note, "one more")
    await task.sleep(5)


async def one_less(task: gr.Task, job: Job) -> None:
    await task.sleep(5)


async def ends_early(task: gr.Task, job: Job) -> str:
    return await task.run(note, job.text)


@pytest.mark.parametrize(
    ("changed", "seq", "step"),
    [
        (other_name, 1, "root#1"),
        (other_parameter, 1, "root#1"),
        (one_more, 2, "root/2."),
        (one_less, 1, "root#1"),
        (ends_early, 2, "root/2."),
    ],
)
async def test_c02_changed_code_is_told_with_the_first_step_that_differs(
    database: Shared, changed: Script, seq: int, step: str
) -> None:
    journal = await saved(database, until="waiting")
    error = await raised(replay(Scripted(changed), journal))
    assert isinstance(error, gr.Diverged)
    assert error.seq == seq
    assert error.step.startswith(step)


async def test_c02_code_that_comes_to_another_end_is_told(database: Shared) -> None:
    async def other_result(task: gr.Task, job: Job) -> str:
        return f"{await original(task, job)}!"

    async def goes_on(task: gr.Task, job: Job) -> None:
        await original(task, job)
        await task.receive(Steer, timeout=None)

    journal = await saved(database, until="ended")
    for changed, found in ((other_result, "returns another"), (goes_on, "waits: root: receive")):
        error = await raised(replay(Scripted(changed), journal))
        assert isinstance(error, gr.Diverged)
        assert error.step == "the end"
        assert found in error.found


async def test_a_change_that_is_marked_goes_on_with_old_journals(database: Shared) -> None:
    async def marked(task: gr.Task, job: Job) -> str:
        first = await task.run(note, job.text)
        if task.version("one more"):
            await task.run(note, "one more")
        async with task.nursery() as branches:
            for n in range(2):
                branches.start_soon(task.run, note, f"{first}{n}")
        steer = await task.receive(Steer, timeout=None)
        if task.version("no pause"):
            return first
        await task.sleep(5)
        return f"{first} {steer.text}"

    assert (await replay(Scripted(marked), await saved(database, until="ended"))).ended


async def test_code_that_crashes_behind_the_journal_raises_what_it_crashed_by(database: Shared) -> None:
    async def broken(task: gr.Task, job: Job) -> None:
        await task.run(note, job.text)
        async with task.nursery() as branches:
            for n in range(2):
                branches.start_soon(task.run, note, f"A{n}")
        raise ZeroDivisionError("a bug")

    error = await raised(replay(Scripted(broken), await saved(database, until="waiting")))
    assert isinstance(error, ZeroDivisionError)


async def test_c06_an_agent_that_refuses_other_versions_refuses_their_journals(database: Shared) -> None:
    class Strict(Scripted):
        version: ClassVar[str] = "2"
        other_versions: ClassVar[Any] = "refuse"

    error = await raised(replay(Strict(original), await saved(database, until="waiting")))
    assert isinstance(error, OtherVersion)
    assert (error.recorded, error.version) == ("1", "2")


async def test_c06_an_agent_that_migrates_begins_with_what_it_makes_of_the_journal(database: Shared) -> None:
    class Migrating(gr.Agent[Any, Any]):
        version: ClassVar[str] = "2"
        other_versions: ClassVar[Any] = "migrate"

        def migrate(self, past: gr.Past) -> Job:
            return Job("".join(sorted(operation.value for operation in past.operations)))

        async def perform(self, task: gr.Task, request: Job) -> str:
            assert request == Job("AA0A1")
            return (await task.receive(Steer, timeout=None)).text

    replayed = await replay(Migrating(), await saved(database, until="waiting"))
    assert (replayed.rows, replayed.waits) == (0, ("root: receive tests.tasks.scripts:Steer",))


async def test_an_operation_that_was_sent_and_has_no_outcome_must_still_be_called(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.KEYED)
    async def pay() -> None:
        await anyio.sleep(1000)

    async def pays(task: gr.Task, job: Job) -> None:
        await task.run(pay)

    async def forgets(task: gr.Task, job: Job) -> None:
        await task.sleep(5)

    async with database.runtime(agents(pays)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        journal = gr.SavedJournal.from_json((await handle.export()).to_json())
    assert [operation.name for operation in journal.operations] == ["pay"]
    assert (await replay(Scripted(pays), journal)).waits == ("root: run 'pay'",)
    assert isinstance(await raised(replay(Scripted(forgets), journal)), gr.Diverged)


async def test_contents_are_not_in_what_is_logged_of_a_journal(database: Shared) -> None:
    assert "secret" not in repr(await saved(database, until="ended", text="a secret")).lower()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "its format is None"),
        (b'{"format": "greenroom.journal", "format_version": 2}', "version 2 of the format"),
        (b'{"format": "greenroom.journal", "format_version": 1}', "missing required field"),
    ],
)
async def test_a_file_that_is_no_saved_journal_is_told(data: bytes, why: str) -> None:
    error = await raised(replay(Scripted(original), data))
    assert isinstance(error, gr.BadJournal)
    assert why in str(error)


async def test_a_journal_with_a_damaged_row_is_told(database: Shared) -> None:
    journal = msgspec.json.decode((await saved(database, until="ended")).to_json())
    journal["rows"][0]["kind"] = "nonsense"
    assert isinstance(await raised(replay(Scripted(original), msgspec.json.encode(journal))), gr.BadJournal)
