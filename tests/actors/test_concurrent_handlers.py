"""`@handles(concurrency=N)`: at most N at once, the rest in order, other messages go on (DESIGN section 3, P14)."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.actors.helpers import Boom, Fail, Note, events_of, idle, node, raised, tree
from tests.actors.workers import Job, Other, Worker, ask_all


async def test_concurrent_handlers_run_at_most_so_many_at_once_and_answer_each_its_own() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        ref = runtime.ref("app/w")
        jobs = [Job(str(number), seconds=1 + number % 3) for number in range(20)]
        assert await ask_all(ref, *jobs) == [f"done {number}" for number in range(20)]
        assert await ref.ask(Note("most")) == 3


async def test_the_limit_of_a_handler_of_two_messages_is_shared_by_both() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        ref = runtime.ref("app/w")
        await ask_all(ref, *[Job(str(n)) if n % 2 else Other(str(n)) for n in range(12)])
        assert await ref.ask(Note("most")) == 3


async def test_messages_beyond_the_limit_begin_in_their_order() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log)) as runtime:
        for number in range(10):
            runtime.ref("app/w").tell(Job(str(number)) if number % 3 else Other(str(number)))
        await anyio.sleep(60)
        assert [entry for entry in log if "begin" in entry] == [f"begin {number}" for number in range(10)]


async def test_other_messages_go_on_while_concurrent_ones_run_and_wait() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log)) as runtime:
        for number in range(5):
            runtime.ref("app/w").tell(Job(str(number)))
        await runtime.ref("app/w").ask(Note("note"))
        assert "note" in log
        assert not any("end" in entry for entry in log)


async def test_two_concurrent_handlers_have_a_limit_each() -> None:
    running: dict[str, int] = {"job": 0, "other": 0}
    most = dict(running)

    class Two(gr.Actor):
        async def _run(self, kind: str) -> str:
            running[kind] += 1
            most[kind] = max(most[kind], running[kind])
            await anyio.sleep(1)
            running[kind] -= 1
            return kind

        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> str:
            return await self._run("job")

        @gr.handles(concurrency=4)
        async def other(self, message: Other) -> str:
            return await self._run("other")

    async with tree(gr.Child("w", Two)) as runtime:
        await ask_all(runtime.ref("app/w"), *[kind("x") for kind in (Job, Other) * 8])
    assert most == {"job": 2, "other": 4}


async def test_a_subclass_of_a_concurrent_message_shares_its_limit() -> None:
    class Special(Job):
        pass

    async with tree(gr.Child("w", Worker, [])) as runtime:
        ref = runtime.ref("app/w")
        await ask_all(ref, *[Job("x") if n % 2 else Special("x") for n in range(10)])
        assert await ref.ask(Note("most")) == 3


async def test_a_refusal_from_a_concurrent_handler_reaches_its_asker_and_frees_its_place() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        no = gr.Rejected("no")
        outcomes = await ask_all(runtime.ref("app/w"), *[Job(str(n), error=no) for n in range(5)], Job("last"))
        assert outcomes == [no] * 5 + ["done last"]
        assert runtime.ref("app/w").incarnation == 1


# ------------------------------------------------------------------------------------------------------- the bound


async def test_messages_that_wait_for_a_place_count_against_the_capacity_and_are_shown() -> None:
    mailbox = gr.Mailbox(capacity=4)
    async with tree(gr.Child("w", Worker, [], mailbox=mailbox)) as runtime:
        ref = runtime.ref("app/w")
        for number in range(7):  # three run, four wait
            await ref.send(Job(str(number)))
            await idle()
        with pytest.raises(gr.MailboxFull):
            ref.tell(Note("too much"))
        assert node(runtime, "app/w").mailbox_depth == 4


async def test_senders_wait_for_messages_that_wait_for_a_place() -> None:
    log: list[str] = []
    taken = 0
    async with tree(gr.Child("w", Worker, log, mailbox=gr.Mailbox(capacity=4))) as runtime:
        ref = runtime.ref("app/w")

        async def send() -> None:
            nonlocal taken
            for number in range(20):
                await ref.send(Job(str(number), 10))
                taken += 1

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.sleep(5)
            assert taken == 3 + 4
            await anyio.sleep(10)
            assert taken == 6 + 4
        await anyio.sleep(1000)
        assert [entry for entry in log if "begin" in entry] == [f"begin {number}" for number in range(20)]


async def test_many_senders_at_once_do_not_exceed_the_capacity() -> None:
    taken = 0
    async with tree(gr.Child("w", Worker, [], mailbox=gr.Mailbox(capacity=4))) as runtime:
        ref = runtime.ref("app/w")

        async def send(number: int) -> None:
            nonlocal taken
            await ref.send(Job(str(number), 10))
            taken += 1

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(send, number)
            await anyio.sleep(5)
            assert taken == 3 + 4
            group.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------------------ to be seen


async def test_p29_the_oldest_concurrent_message_is_shown_as_in_hand_with_its_own_age() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        ref = runtime.ref("app/w")
        ref.tell(Job("a", 100))
        await anyio.sleep(10)
        ref.tell(Other("b"))
        await anyio.sleep(0.5)
        shown = node(runtime, "app/w")
        assert (shown.message_type, shown.in_hand_for) == ("Job", 10.5)


async def test_p29_each_slow_concurrent_handler_is_reported_once_with_its_stack() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/w")
        ref.tell(Job("a", 200))
        await anyio.sleep(20)
        ref.tell(Job("b", 200))
        ref.tell(Note("quick"))
        await anyio.sleep(150)
        slow = events_of(gr.SlowHandler, events)
        assert [(event.path, event.message_type) for event in slow] == [("app/w", "Job")] * 2
        assert all(30 <= event.age <= 45 for event in slow)
        assert all("await anyio.sleep(message.seconds" in event.stack for event in slow)
        await raised(ref.ask(Fail(Boom())))
