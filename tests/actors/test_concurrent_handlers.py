"""`@handles(concurrency=N)`: at most N at once, the rest in order, other messages go on (DESIGN section 3, P14)."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Note, events_of, idle, node, raised, tree


@attrs.frozen(eq=False)
class Job(gr.Message[str]):
    name: str
    seconds: float = 1.0
    error: BaseException | None = None


@attrs.frozen(eq=False)
class Other(gr.Message[str]):
    name: str


@attrs.frozen(eq=False)
class Singleton(gr.Message[int]):
    """Sent many times as one and the same object."""


class Worker(gr.Actor):
    """Runs three jobs at once, and handles everything else meanwhile."""

    def __init__(self, log: list[str], stash: list[str] | None = None) -> None:
        self.log = log
        self.stash = stash or []
        self.running = 0
        self.most = 0

    @gr.handles(concurrency=3)
    async def job(self, message: Job | Other) -> str:
        name = message.name
        if isinstance(message, Job) and name in self.stash:
            self.stash.remove(name)
            self.log.append(f"stash {name}")
            self.context.stash(message)
            return "nobody gets this"
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"begin {name}")
        try:
            await anyio.sleep(message.seconds if isinstance(message, Job) else 1.0)
            if isinstance(message, Job) and message.error is not None:
                raise message.error
        finally:
            self.running -= 1
            self.log.append(f"end {name}")
        return f"done {name}"

    @gr.handles
    async def note(self, message: Note) -> int:
        self.log.append(str(message.what))
        return self.most

    @gr.handles
    async def do(self, message: Do) -> Any:
        return await message.work(self)


async def ask_all(ref: gr.Ref, *messages: gr.Message[Any], timeout: float | None = 60) -> list[Any]:
    """What each of several asks, made at once and in order, returns or raises."""
    outcomes: list[Any] = [None] * len(messages)

    async def ask(index: int, message: gr.Message[Any]) -> None:
        try:
            outcomes[index] = await ref.ask(message, timeout=timeout)
        except (gr.GreenroomError, gr.Rejected) as error:
            outcomes[index] = error

    async with anyio.create_task_group() as group:
        for index, message in enumerate(messages):
            group.start_soon(ask, index, message)
            await anyio.lowlevel.checkpoint()
    return outcomes


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


# ------------------------------------------------------------------------------------------------------- a crash


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


# -------------------------------------------------------------------------------------------------------- a stop


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


# ----------------------------------------------------------------------------------------------------- the bound


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


# ----------------------------------------------------------------------------------------------------- the stash


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


# ---------------------------------------------------------------------------------------------------- to be seen


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
