"""What tasks say to actors, and ask of them: recorded, once, through deaths (R25, R26)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import define, field, frozen

import greenroom as gr
from greenroom.persistence.journal import EntryKind
from tests.durable.helpers import Add, Note, eventually, raised, settled
from tests.tasks.scripts import POOL, Job, Steer, agents, journal_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

ACCOUNTS = "service/accounts"
CLERK = "service/clerk"
RADIO = "service/radio"


@frozen
class Balance:
    amount: int = 0


class Account(gr.DurableActor[Balance]):
    """Adds up, and rejects what is below zero."""

    @gr.handles
    async def add(self, message: Add) -> int:
        if message.number < 0:
            raise gr.Rejected("no debts")
        self.state = Balance(self.state.amount + message.number)
        return self.state.amount


@define(eq=False)
class Heard:
    """What actors have heard, also beyond the deaths of their processes."""

    texts: list[str] = field(factory=list)


class Listener(gr.Actor):
    """Writes down what it is told, and counts what it is asked."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard

    @gr.handles
    async def note(self, message: Note) -> None:
        self.heard.texts.append(message.text)

    @gr.handles
    async def add(self, message: Add) -> int:
        self.heard.texts.append(f"add {message.number}")
        if message.number > 99:
            await anyio.sleep(message.number)
        return message.number + 1


def service(script: Any, heard: Heard | None = None, **options: Any) -> tuple[Any, ...]:
    """Actors of each kind, and the pool that talks to them."""
    heard = heard or Heard()
    return (
        gr.DurableActors("accounts", Account),
        gr.Child("clerk", Listener, heard, mailbox=gr.PersistentMailbox()),
        gr.Child("radio", Listener, heard),
        agents(script, **options),
    )


async def saver(task: gr.Task, job: Job) -> list[int]:
    return [await task.ask(f"{ACCOUNTS}/ann", Add(number)) for number in (5, 7)]


async def test_r26_a_task_asks_a_durable_actor_and_the_reply_is_recorded(database: Shared) -> None:
    async with database.runtime(*service(saver)) as runtime:
        assert await (await runtime.submit(POOL, Job(), task_id="T1")).result() == [5, 12]
    async with database.open() as store:
        rows = await journal_of(store, "T1")
        assert [(row.kind, row.name) for row in rows] == [(EntryKind.OUTCOME, f"{ACCOUNTS}/ann")] * 2


@pytest.mark.parametrize(
    "point", ["before CommitTurn task:T1", "unacknowledged CommitTurn task:T1", "after AcceptMessage"]
)
async def test_r26_a_durable_actor_is_asked_once_whatever_becomes_of_the_process(database: Shared, point: str) -> None:
    if point == "after AcceptMessage":
        point = f"after AcceptMessage {ACCOUNTS}/ann task:T1|1.1|root#1"
    async with database.death_at(point) as source, database.runtime(*service(saver), source=source) as runtime:
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    async with database.runtime(*service(saver)) as runtime:
        assert await runtime.task("T1").result() == [5, 12]


async def test_r26_a_task_asks_an_actor_in_memory(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> int:
        return await task.ask(RADIO, Add(1))

    async with database.runtime(*service(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == 2


async def test_r26_how_a_question_fails_is_recorded(database: Shared) -> None:
    failures: list[str] = []

    async def script(task: gr.Task, job: Job) -> list[str]:
        found = []
        for path, message, timeout in (
            (f"{ACCOUNTS}/ann", Add(-1), 5.0),
            (RADIO, Steer("?"), 5.0),
            ("service/nobody", Add(1), 5.0),
            (RADIO, Add(100), 10.0),
        ):
            try:
                await task.ask(path, message, timeout=timeout)
            except gr.OperationFailed as failed:
                found.append(failed.type)
        failures[:] = found
        await task.sleep(10)
        return found

    async with database.runtime(*service(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(15)
    first = [*failures]
    async with database.runtime(*service(script)) as runtime:
        assert (
            await runtime.task("T1").result() == first == ["Rejected", "UnhandledMessage", "NotAccepted", "AskTimeout"]
        )


async def test_a_task_that_is_let_go_while_it_asks_asks_again(database: Shared) -> None:
    heard = Heard()

    async def script(task: gr.Task, job: Job) -> int:
        return await task.ask(RADIO, Add(1000), timeout=None)

    async with database.runtime(*service(script, heard)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        began = anyio.current_time()
    assert anyio.current_time() - began < 10, "the runtime has waited for the reply"
    async with database.runtime(*service(script, heard)) as runtime:
        assert await runtime.task("T1").result() == 1001
        assert heard.texts == ["add 1000"] * 2


async def test_r25_what_a_task_tells_a_durable_address_leaves_with_its_turn_once(database: Shared) -> None:
    heard = Heard()

    async def script(task: gr.Task, job: Job) -> int:
        await task.tell(CLERK, Note("one"))
        await task.tell(f"{ACCOUNTS}/ann", Add(3))
        await task.tell(CLERK, Note("two"))
        return await task.ask(f"{ACCOUNTS}/ann", Add(4))

    async with (
        database.death_at("unacknowledged CommitTurn task:T1") as source,
        database.runtime(*service(script, heard), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    async with database.runtime(*service(script, heard)) as runtime:
        assert await runtime.task("T1").result() == 7
        await eventually(lambda: heard.texts == ["one", "two"])
        async with database.client() as client:
            sent = [message async for message in client.messages(CLERK)]
            assert [message.sender for message in sent] == ["task:T1"] * 2
            assert len({message.message_id for message in sent}) == 2


async def test_r25_an_actor_in_memory_is_told_after_the_commit(database: Shared) -> None:
    heard = Heard()

    async def script(task: gr.Task, job: Job) -> str:
        await task.tell(RADIO, Note(job.text))
        return "done"

    async with (
        database.death_at("before CommitTurn task:T1") as source,
        database.runtime(*service(script, heard), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job("on the air"), task_id="T1")).result()
    assert heard.texts == []
    async with database.runtime(*service(script, heard)) as runtime:
        assert await runtime.task("T1").result() == "done"
        await settled()
        assert heard.texts == ["on the air"]


async def test_a_message_that_nobody_gets_is_kept_as_an_observation(
    database: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        await task.tell("service/nobody", Note("hello?"))
        return "done"

    async with database.runtime(*service(script)) as runtime:
        assert await (await runtime.submit(POOL, Job(), task_id="T1")).result() == "done"
    async with database.client() as client:
        (seen,) = [each async for each in client.observations(kind="unmatched")]
        assert (seen.address, seen.sender) == ("service/nobody", "task:T1")
    assert "service/nobody and is unmatched" in caplog.text


async def test_a_task_tells_its_child_by_signal(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "child":
            return (await task.receive(Steer, timeout=None)).text
        child = await task.submit(POOL, Job("child"))
        await task.tell(child, Steer("left"))
        result: str = await child.result()
        return result

    async with database.runtime(*service(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "left"


async def test_a_large_message_is_told_whole(database: Shared) -> None:
    heard = Heard()
    text = "x" * 200_000

    async def script(task: gr.Task, job: Job) -> int:
        await task.tell(CLERK, Note(text))
        return 1

    async with database.runtime(*service(script, heard)) as runtime:
        await (await runtime.submit(POOL, Job())).result()
        await eventually(lambda: heard.texts == [text])


@pytest.mark.parametrize("call", ["tell", "send", "ask"])
@pytest.mark.parametrize("path", [RADIO, CLERK, f"{ACCOUNTS}/ann"])
async def test_r26_a_ref_that_control_code_uses_by_itself_raises(database: Shared, call: str, path: str) -> None:
    refs: list[gr.Ref] = []

    async def script(task: gr.Task, job: Job) -> str:
        async def use() -> str:
            try:
                if call == "tell":
                    refs[0].tell(Note("x"))
                else:
                    await getattr(refs[0], call)(Note("x"))
            except gr.Misuse as error:
                return type(error).__name__
            return "?"

        async with task.nursery() as branches:
            branch = branches.start_soon(use)
        return f"{await use()} {branch.result}"

    heard = Heard()
    async with database.runtime(*service(script, heard)) as runtime:
        refs.append(runtime.ref(path))
        kind = "TellRefused" if call == "tell" and path != RADIO else "Misuse"
        assert await (await runtime.submit(POOL, Job())).result() == f"{kind} {kind}"
        await settled()
        assert heard.texts == []


async def test_r26_an_operation_may_use_a_ref(database: Shared) -> None:
    refs: list[gr.Ref] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def look() -> int:
        return await refs[0].ask(Add(1))

    async def script(task: gr.Task, job: Job) -> int:
        return await task.run(look)

    async with database.runtime(*service(script)) as runtime:
        refs.append(runtime.ref(RADIO))
        assert await (await runtime.submit(POOL, Job())).result() == 2


async def test_what_is_no_message_is_refused(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> list[str]:
        return [
            type(await raised(task.tell(RADIO, "hello"))).__name__,  # type: ignore[arg-type]
            type(await raised(task.ask("", Add(1)))).__name__,
            type(await raised(task.tell(7, Add(1)))).__name__,  # type: ignore[arg-type]
        ]

    async with database.runtime(*service(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == ["NotAMessage", "TypeError", "TypeError"]
