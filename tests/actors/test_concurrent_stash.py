"""Concurrent handlers that stash the message they have in hand."""

from __future__ import annotations

from typing import Any

import anyio

import greenroom as gr
from tests.actors.helpers import Boom, Do, idle, tree
from tests.actors.workers import Job, Singleton, Worker, ask_all


async def test_a_concurrent_handler_may_stash_its_message_and_its_asker_goes_on_waiting() -> None:
    async def unstash(self: Worker) -> None:
        self.context.unstash()

    log: list[str] = []
    async with tree(gr.Child("w", Worker, log, ["a"])) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/w")
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.extend(await ask_all(ref, Job("a")))

        group.start_soon(ask)
        await anyio.sleep(10)
        assert outcomes == []
        await ref.ask(Do(unstash))
        await anyio.sleep(10)
        assert (outcomes, log) == (["done a"], ["stash a", "begin a", "end a"])


async def test_each_of_many_handlers_of_one_and_the_same_object_stashes_its_own_envelope() -> None:
    class Stasher(gr.Actor):
        begun = 0

        @gr.handles(concurrency=4)
        async def take(self, message: Singleton) -> int:
            self.begun += 1
            number = self.begun
            await anyio.sleep(1)
            if number == 3:
                self.context.stash(message)
                return -1
            return number

        @gr.handles
        async def do(self, message: Do) -> Any:
            self.context.unstash()

    message = Singleton()

    async def nothing(_: Any) -> None: ...

    async with tree(gr.Child("w", Stasher)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/w")
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.extend(await ask_all(ref, *[message] * 4))

        group.start_soon(ask)
        await anyio.sleep(5)
        await ref.ask(Do(nothing))
        await anyio.sleep(5)
        assert outcomes == [1, 2, 5, 4]


async def test_a_concurrent_handler_stashes_its_message_once() -> None:
    errors: list[BaseException] = []

    class Stasher(gr.Actor):
        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> str:
            self.context.stash(message)
            try:
                self.context.stash(message)
            except gr.Misuse as error:
                errors.append(error)
            return ""

    async with tree(gr.Child("w", Stasher)) as runtime:
        runtime.ref("app/w").tell(Job("a"))
        await idle()
        assert len(errors) == 1
        await runtime.ref("app").terminate_child("w")
        assert runtime.dead_letter_counts() == {("app/w", gr.DeadLetterReason.ENDED): 1}


async def test_p18_at_a_restart_stashed_messages_come_before_those_that_wait_for_a_place() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log, ["s"])) as runtime:
        ref = runtime.ref("app/w")

        async def crash(_: Worker) -> None:
            await anyio.sleep(0.5)
            raise Boom

        for name in "sabcd":
            ref.tell(Job(name, 10 if name in "abc" else 1))
        ref.tell(Do(crash))
        await anyio.sleep(60)
        assert log[0] == "stash s"
        assert [entry for entry in log if "begin" in entry] == [f"begin {name}" for name in "abcsd"]


async def test_a_full_stash_leaves_the_message_in_hand_with_its_own_handler() -> None:
    class Stasher(gr.Actor):
        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> str:
            await anyio.sleep(message.seconds)
            try:
                self.context.stash(message)
            except gr.StashFull:
                return "full"
            return ""

        @gr.handles
        async def do(self, message: Do) -> Any:
            await anyio.sleep(5)
            return "mine"

    async def nothing(_: Any) -> None: ...

    async with tree(gr.Child("w", Stasher, mailbox=gr.Mailbox(capacity=1))) as runtime:
        ref = runtime.ref("app/w")
        outcomes = await ask_all(ref, Job("a", 1), Job("b", 2), Do(nothing), timeout=20)
        assert isinstance(outcomes[0], gr.AskTimeout)
        assert outcomes[1:] == ["full", "mine"]
