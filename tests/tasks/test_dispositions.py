"""What becomes of messages to tasks: each has a disposition, which can be asked for, and none is lost (C14, K07, I5)."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Job, Steer, agents, patient

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def listener(task: gr.Task, job: Job) -> str:
    return (await task.receive(Steer, timeout=None)).text


async def test_c14_what_has_become_of_a_message_can_be_asked_for(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        await handle.signal(Steer("a"), message_id="first")
        await handle.result()
        await handle.signal(Steer("b"), message_id="after the end")
        assert await handle.disposition("first") == "delivered"
        assert await handle.disposition("after the end") == "late"
        assert await handle.disposition("never sent") == "unmatched"
        assert await runtime.task("T9").disposition("first") == "unmatched"


async def test_c14_a_message_that_waits_is_accepted_until_somebody_performs_the_task(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        handle = runtime.task("T1")
        await handle.signal(Steer("a"), message_id="m")
        assert await handle.disposition("m") == "accepted"
        await handle.terminate("enough")
        assert await handle.disposition("m") == "late"


async def test_c14_a_message_that_lay_unread_when_its_task_ended_is_late(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        await task.sleep(10)
        return "done"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.signal(Steer("a"), message_id="m")
        await settled()
        assert await handle.disposition("m") == "delivered"
        await handle.result()
        assert await handle.disposition("m") == "late"


async def test_c14_what_was_not_accepted_is_kept_and_can_be_listed(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await handle.signal(Steer("a"), message_id="m")
        await handle.signal(Steer("a"), message_id="m")
        await handle.signal(Steer("b"), message_id="m")
        await handle.result()
        await handle.signal(Steer("c"), message_id="n")
        await runtime.task("T9").signal(Steer("d"), message_id="o")
        async with database.client() as client:
            seen = {(each.kind, each.address, each.message_id) async for each in client.observations()}
        assert seen == {
            ("duplicate", "task:T1", "m"),
            ("conflict", "task:T1", "m"),
            ("late", "task:T1", "n"),
            ("unmatched", "task:T9", "o"),
        }


@pytest.mark.parametrize("seed", range(2))
async def test_k07_messages_at_any_moments_are_all_accounted_for_and_no_task_is_stuck(
    database: Shared, seed: int
) -> None:
    """Waits with and without limits, sleeps, and ends of children, while messages come."""
    received: list[str] = []

    async def script(task: gr.Task, job: Job) -> int:
        if job.text == "child":
            await task.sleep(3)
            return 0
        got = 0
        while got < 10:
            child = await task.submit(POOL, Job("child"))
            try:
                message = await task.receive(Steer, timeout=2)
            except gr.WaitTimeout:
                await task.sleep(1)
                message = await task.receive(Steer, timeout=None)
            received.append(message.text)
            got += 1
            await child.result()
        return got

    random = Random(seed)
    sent: Counter[str] = Counter()

    async def sender(handle: gr.TaskHandle[Any], number: int) -> None:
        await anyio.sleep(random.uniform(0, 50))
        receipt = await handle.signal(Steer(f"{handle.id} {number}"), message_id=f"m{number}")
        sent[receipt.disposition] += 1

    async with database.runtime(agents(script, max_resident=2), source=patient(database)) as runtime:
        handles = [await runtime.submit(POOL, Job(), task_id=f"T{n}") for n in range(2)]
        async with anyio.create_task_group() as group:
            for handle in handles:
                for number in range(16):
                    group.start_soon(sender, handle, number)
        for handle in handles:
            assert await handle.result() == 10
        assert sent.total() == 32
        became = Counter([await handle.disposition(f"m{number}") for handle in handles for number in range(16)])
        late = became["late"]
        assert became["delivered"] + late == 32
        assert became["delivered"] == 20
    assert len(set(received)) == 20


async def test_a_task_is_cancelled_though_its_mailbox_holds_all_the_signals_it_can(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def long() -> None:
        await anyio.sleep(1000)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(long)

    async with database.runtime(agents(script, max_running=1)) as runtime:
        await runtime.submit(POOL, Job(), task_id="first")
        await settled()
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await database.change("UPDATE addresses SET capacity = 2 WHERE address = 'task:T1'")
        for number in range(2):
            await handle.signal(Steer(str(number)))
        assert isinstance(await raised(handle.signal(Steer("too many"))), gr.MailboxFull)
        await handle.cancel("enough")
        with pytest.raises(gr.TaskCancelled, match="enough"):
            await handle.result()
