"""Concurrent handlers when one of them crashes, and when the actor stops (P14, P18)."""

from __future__ import annotations

from typing import Any

import anyio

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Note, events_of, idle, tree
from tests.actors.workers import Job, Worker, ask_all

# --------------------------------------------------------------------------------------------------------- a crash


async def test_p14_a_crash_in_a_concurrent_handler_is_the_actors_crash_and_its_asker_gets_the_cause() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        events = runtime.events()
        boom = Boom("in one")
        [error] = await ask_all(runtime.ref("app/w"), Job("x", error=boom))
        assert isinstance(error, gr.ActorCrashed)
        assert error.__cause__ is boom
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("error", boom)]


async def test_p14_a_crash_in_one_is_the_cause_that_the_askers_of_the_others_are_given() -> None:
    async with tree(gr.Child("w", Worker, [])) as runtime:
        boom = Boom("in one")
        outcomes = await ask_all(runtime.ref("app/w"), Job("long", 10), Job("x", error=boom), Job("longer", 20))
        assert [type(error) for error in outcomes] == [gr.ActorCrashed] * 3
        assert [error.__cause__ for error in outcomes] == [boom] * 3
        assert {str(error) for error in outcomes} == {
            "'app/w' (incarnation 1) crashed while it handled a Job; whether it had effects is not known"
        }


async def test_p14_a_crash_in_one_is_the_cause_that_the_asker_of_the_message_in_hand_is_given() -> None:
    async def wait(_: Worker) -> None:
        await anyio.sleep(100)

    async with tree(gr.Child("w", Worker, [])) as runtime:
        boom = Boom("in one")
        outcomes = await ask_all(runtime.ref("app/w"), Job("x", error=boom), Do(wait))
        assert [error.__cause__ for error in outcomes] == [boom] * 2


async def test_p18_at_a_crash_messages_that_wait_for_a_place_are_kept_for_the_next_incarnation() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log)) as runtime:
        ref = runtime.ref("app/w")
        jobs = [Job("a", 5), Job("b", 5), Job("c", error=Boom())]
        waiting = [Job(str(number)) for number in range(6)]
        outcomes = await ask_all(ref, *jobs, *waiting)
        assert [type(outcome) for outcome in outcomes[:3]] == [gr.ActorCrashed] * 3
        assert outcomes[3:] == [f"done {number}" for number in range(6)]
        assert ref.incarnation == 2
        begun = [entry for entry in log if "begin" in entry]
        assert begun == [f"begin {name}" for name in ["a", "b", "c", *"012345"]]


async def test_p18_at_a_crash_deferred_messages_come_before_what_is_still_queued() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log)) as runtime:
        ref = runtime.ref("app/w")

        async def crash(_: Worker) -> None:
            await anyio.sleep(0.5)
            raise Boom

        for name in "abcde":
            ref.tell(Job(name, 10 if name in "abc" else 1))
        ref.tell(Do(crash))
        ref.tell(Job("f"))
        ref.tell(Note("note"))
        await anyio.sleep(60)
        assert [entry for entry in log if "begin" in entry] == [f"begin {name}" for name in "abcdef"]


async def test_p18_messages_whose_handlers_had_not_begun_at_a_crash_come_back() -> None:
    handled: list[tuple[str, int]] = []

    class Crashes(gr.Actor):
        @gr.handles(concurrency=5)
        async def job(self, message: Job) -> str:
            if message.error is not None:
                raise message.error
            handled.append((message.name, self.context.incarnation))
            await anyio.sleep(1)
            return message.name

    async with tree(gr.Child("w", Crashes)) as runtime:
        ref = runtime.ref("app/w")
        for message in (Job("a", error=Boom()), Job("b"), Job("c")):
            ref.tell(message)
        assert await ref.ask(Job("d")) == "d"
        assert handled == [("b", 2), ("c", 2), ("d", 2)]


async def test_p14_a_handler_that_ends_well_after_the_crash_starts_no_other_and_adds_nothing_to_the_exit() -> None:
    boom = Boom()

    class Shielded(gr.Actor):
        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> str:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(message.seconds)
            if message.error is not None:
                raise message.error
            return message.name

    async with tree(gr.Child("w", Shielded)) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/w")
        outcomes = await ask_all(ref, Job("a", 1, boom), Job("b", 2), Job("c", 1))
        assert outcomes[1:] == ["b", "c"]
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("error", boom)]


async def test_p14_a_crashed_actor_takes_no_further_message_while_its_handlers_clean_up() -> None:
    class Slow(gr.Actor):
        def __init__(self, log: list[str]) -> None:
            self.log = log

        @gr.handles(concurrency=2)
        async def job(self, message: Job) -> str:
            try:
                await anyio.sleep(message.seconds)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1)
            raise Boom

        @gr.handles
        async def note(self, message: Note) -> int:
            self.log.append(f"{message.what} in {self.context.incarnation}")
            return 1

    log: list[str] = []
    async with tree(gr.Child("w", Slow, log)) as runtime:
        ref = runtime.ref("app/w")
        ref.tell(Job("crashes", 1))
        ref.tell(Job("cleans up", 2.5))
        await anyio.sleep(2.75)  # crashed at 2; the other one is in its cleanup
        await ref.ask(Note("note"))
        assert log == ["note in 2"]


async def test_stop_raised_in_a_concurrent_handler_ends_the_actor_after_the_others() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log, restart="transient")) as runtime:
        events = runtime.events()
        outcomes = await ask_all(runtime.ref("app/w"), Job("a", error=gr.Stop()), Job("b", 3))
        assert isinstance(outcomes[0], gr.ActorStopped)
        assert outcomes[1] == "done b"
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("normal")]


# ---------------------------------------------------------------------------------------------------------- a stop


async def test_a_stop_waits_for_concurrent_handlers_and_leaves_what_waits_for_a_place(clock: VirtualClock) -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/w")
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.extend(await ask_all(ref, *[Job(str(number), 3) for number in range(5)]))

        group.start_soon(ask)
        await anyio.sleep(1)
        await runtime.ref("app").terminate_child("w")
        assert clock.now() == 3.0
        await idle()
        assert outcomes[:3] == ["done 0", "done 1", "done 2"]
        assert [type(outcome) for outcome in outcomes[3:]] == [gr.ActorStopped] * 2


async def test_with_drain_what_waits_for_a_place_is_handled_before_the_stop() -> None:
    log: list[str] = []
    async with tree(gr.Child("w", Worker, log, drain=True, shutdown=100.0)) as runtime:
        ref = runtime.ref("app/w")
        for number in range(8):
            ref.tell(Job(str(number)))
        ref.tell(Note("note"))
        await runtime.ref("app").terminate_child("w")
        assert sorted(entry for entry in log if "end" in entry) == [f"end {number}" for number in range(8)]
        assert "note" in log


async def test_with_drain_a_cancellation_still_ends_it(clock: VirtualClock) -> None:
    async with tree(gr.Child("w", Worker, [], drain=True, shutdown=2.5)) as runtime:
        for number in range(30):
            runtime.ref("app/w").tell(Job(str(number)))
        await runtime.ref("app").terminate_child("w")
        assert clock.now() == 2.5
        assert runtime.dead_letter_counts() == {("app/w", gr.DeadLetterReason.ENDED): 21}


async def test_concurrent_handlers_that_are_cancelled_tell_their_askers_that_the_actor_was_stopped() -> None:
    async with tree(gr.Child("w", Worker, [], shutdown=1.0)) as runtime, anyio.create_task_group() as group:
        outcomes: list[Any] = []

        async def ask() -> None:
            outcomes.extend(await ask_all(runtime.ref("app/w"), Job("a", 50), Job("b", 50)))

        group.start_soon(ask)
        await idle()
        await runtime.ref("app").terminate_child("w")
        await idle()
        assert ["was stopped while it handled a Job" in str(outcome) for outcome in outcomes] == [True, True]
