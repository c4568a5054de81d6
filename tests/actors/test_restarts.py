"""What a crash, a restart and a stop mean for messages and for the refs that others hold (P18, P19)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, idle, node, raised, tree


class Asks:
    """Asks that run beside the test, and what became of each."""

    def __init__(self, group: Any, ref: gr.Ref) -> None:
        self._group, self._ref = group, ref
        self.outcomes: dict[object, object] = {}

    async def start(self, name: object, message: gr.Message[Any], **options: Any) -> None:
        """Ask, and return once the message is queued."""

        async def ask() -> None:
            try:
                self.outcomes[name] = await self._ref.ask(message, **options)
            except gr.GreenroomError as error:
                self.outcomes[name] = error

        self._group.start_soon(ask)
        await idle()


async def test_p18_at_a_restart_what_is_queued_stays_in_its_order_and_is_answered() -> None:
    hold, log = Hold(), list[object]()
    async with tree(gr.Child("a", Puppet, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        asks = Asks(group, ref)
        ref.tell(hold)
        ref.tell(Fail(Boom()))
        ref.tell(Note(1))
        await asks.start("asked", Note(2))
        ref.tell(Note(3))
        hold.until.set()
        await idle()
        assert (log, asks.outcomes, ref.incarnation) == ([1, 2, 3], {"asked": 2}, 2)
        assert runtime.dead_letter_counts() == {}


async def test_p18_the_message_in_hand_at_a_crash_does_not_come_back() -> None:
    handled: list[int] = []

    async def crash(self: Puppet) -> None:
        handled.append(self.context.incarnation)
        raise Boom

    async with tree(gr.Child("a", Puppet)) as runtime:
        runtime.ref("app/a").tell(Do(crash))
        await anyio.sleep(10)
        assert handled == [1]


async def test_the_message_in_hand_at_a_cancellation_does_not_come_back_and_its_asker_is_told() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet, shutdown=1.0)) as runtime, anyio.create_task_group() as group:
        asks = Asks(group, runtime.ref("app/a"))
        await asks.start("asked", hold, timeout=None)
        await runtime.ref("app").terminate_child("a")
        error = asks.outcomes["asked"]
        assert isinstance(error, gr.ActorCrashed)
        assert str(error) == (
            "'app/a' (incarnation 1) was stopped while it handled a Hold; whether it had effects is not known"
        )


async def test_p18_at_a_stop_queued_asks_fail_and_tells_become_dead_letters_with_their_sender() -> None:
    hold = Hold()

    async def tell_a(self: Puppet) -> None:
        self.context.runtime.ref("app/a").tell(Note("from b"))

    async with tree(gr.Child("a", Puppet), gr.Child("b", Puppet)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        letters = runtime.dead_letters()
        asks = Asks(group, ref)
        ref.tell(hold)
        ref.tell(Note("from outside"))
        await asks.start("asked", Note("asked"))
        await runtime.ref("app/b").ask(Do(tell_a))
        group.start_soon(runtime.ref("app").terminate_child, "a")
        await idle()
        hold.until.set()
        await idle()
        assert str(asks.outcomes["asked"]) == "'app/a' did not handle a Note: it was terminated by a call"
        assert isinstance(asks.outcomes["asked"], gr.ActorStopped)
        assert letters.pending() == [
            gr.DeadLetter(Note("from outside"), "app/a", None, gr.DeadLetterReason.ENDED),
            gr.DeadLetter(Note("from b"), "app/a", "app/b", gr.DeadLetterReason.ENDED),
        ]


async def test_p18_a_stop_request_passes_the_queue() -> None:
    hold, log = Hold(), list[object]()
    async with tree(gr.Child("a", Puppet, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        for number in range(10):
            ref.tell(Note(number))
        await hold.begun.wait()
        group.start_soon(runtime.ref("app").terminate_child, "a")
        await idle()
        hold.until.set()
        await idle()
        assert log == []


async def test_p18_with_drain_what_is_queued_is_handled_before_the_stop() -> None:
    hold, log = Hold(), list[object]()
    async with tree(gr.Child("a", Puppet, log, drain=True)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        asks = Asks(group, ref)
        ref.tell(hold)
        ref.tell(Note(1))
        await asks.start("asked", Note(2))
        group.start_soon(runtime.ref("app").terminate_child, "a")
        await idle()
        hold.until.set()
        await idle()
        assert (log, asks.outcomes) == ([1, 2], {"asked": 2})


async def test_p18_a_drain_is_bounded_by_the_shutdown_time(clock: VirtualClock) -> None:
    async def slow(self: Puppet) -> None:
        await anyio.sleep(1)
        self.log.append("slow")

    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, drain=True, shutdown=2.5)) as runtime:
        for _ in range(10):
            runtime.ref("app/a").tell(Do(slow))
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["slow", "slow"], 2.5)
        assert runtime.dead_letter_counts() == {("app/a", gr.DeadLetterReason.ENDED): 7}


async def test_p18_a_drain_ends_with_an_actor_that_stops_itself() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, drain=True, restart="transient")) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(gr.Stop()))
        ref.tell(Note("left"))
        await idle()
        assert log == []
        assert runtime.dead_letter_counts() == {("app/a", gr.DeadLetterReason.ENDED): 1}


async def test_p18_messages_that_come_during_on_stop_become_dead_letters() -> None:
    class Slow(Puppet):
        async def on_stop(self, exit: gr.Exit) -> None:
            self.context.ref.tell(Note("to itself"))
            await anyio.sleep(1)

    async with tree(gr.Child("a", Slow)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        asks = Asks(group, ref)
        group.start_soon(runtime.ref("app").terminate_child, "a")
        await idle()
        await asks.start("asked", Note("x"))
        await anyio.sleep(2)
        assert isinstance(asks.outcomes["asked"], gr.ActorStopped)
        assert runtime.dead_letter_counts() == {("app/a", gr.DeadLetterReason.ENDED): 1}


# --------------------------------------------------------------------------------------------- refs and incarnations


async def test_a_ref_outlives_restarts_and_counts_incarnations() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        incarnations = []
        for _ in range(3):
            incarnations.append(ref.incarnation)
            await raised(ref.ask(Fail(Boom())))
            assert await ref.ask(Note("x")) == 1
        assert incarnations == [1, 2, 3]
        assert runtime.ref("app/a") is ref


async def test_a_restarted_actor_starts_with_fresh_state_and_a_fresh_context() -> None:
    async def look(self: Puppet) -> tuple[int, int]:
        return id(self.context), self.context.incarnation

    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        assert await ref.ask(Note("x")) == 1
        before = await ref.ask(Do(look))
        await raised(ref.ask(Fail(Boom())))
        assert await ref.ask(Note("x")) == 1
        after = await ref.ask(Do(look))
        assert (before[1], after[1]) == (1, 2)
        assert before[0] != after[0]


async def test_the_ref_of_a_deleted_child_does_not_reach_its_namesake() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        old = runtime.ref("app/a")
        supervisor = runtime.ref("app")
        await supervisor.terminate_child("a")
        await supervisor.delete_child("a")
        new = await supervisor.start_child(gr.Child("a", Puppet))
        assert new is runtime.ref("app/a")
        assert old != new
        assert isinstance(await raised(old.ask(Note("x"))), gr.ActorStopped)
        assert await new.ask(Note("x")) == 1


async def test_the_ref_of_a_child_that_was_terminated_and_started_again_reaches_it() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref, supervisor = runtime.ref("app/a"), runtime.ref("app")
        await supervisor.terminate_child("a")
        assert isinstance(await raised(ref.ask(Note("x"))), gr.ActorStopped)
        await supervisor.restart_child("a")
        assert await ref.ask(Note("x")) == 1
        assert ref.incarnation == 2


async def test_a_path_that_does_not_exist_names_near_misses() -> None:
    async with tree(gr.Child("intake", Puppet)) as runtime:
        with pytest.raises(gr.NoSuchActor, match="nothing in the tree has the path 'app/intaek'; did you mean 'app/in"):
            runtime.ref("app/intaek")


async def test_a_ref_leads_to_the_next_incarnation_also_after_a_restart_of_its_supervisor() -> None:
    below = gr.Supervisor("sub", gr.Child("a", Puppet), intensity=0)
    async with gr.Runtime(gr.Supervisor("app", below)) as runtime:
        ref = runtime.ref("app/sub/a")
        await raised(ref.ask(Fail(Boom())))
        await idle()
        assert runtime.ref("app/sub/a") is ref
        assert ref.incarnation == 2
        assert await ref.ask(Note("x")) == 1


async def test_what_was_queued_when_its_supervisor_gave_up_does_not_come_back() -> None:
    below = gr.Supervisor("sub", gr.Child("a", Puppet), intensity=0)
    async with gr.Runtime(gr.Supervisor("app", below)) as runtime:
        ref = runtime.ref("app/sub/a")
        ref.tell(Fail(Boom()))
        ref.tell(Note("lost"))
        await idle()
        assert await ref.ask(Note("x")) == 1
        assert runtime.dead_letter_counts() == {("app/sub/a", gr.DeadLetterReason.ENDED): 1}


async def test_a_ref_to_a_child_that_was_added_later_does_not_come_back_with_its_supervisor() -> None:
    below = gr.Supervisor("sub", gr.Child("a", Puppet), intensity=0)
    async with gr.Runtime(gr.Supervisor("app", below)) as runtime:
        added = await runtime.ref("app/sub").start_child(gr.Child("added", Puppet))
        await raised(runtime.ref("app/sub/a").ask(Fail(Boom())))
        await idle()
        assert isinstance(await raised(added.ask(Note("x"))), gr.ActorStopped)


async def test_a_start_that_looks_for_a_later_sibling_is_told_of_the_order() -> None:
    class Early(gr.Actor):
        async def on_start(self) -> None:
            self.context.runtime.ref("app/late")

    with pytest.raises(gr.StartFailed) as caught:
        async with tree(gr.Child("early", Early), gr.Child("late", Puppet)):
            pass
    assert isinstance(caught.value.__cause__, gr.NoSuchActor)
    assert caught.value.__cause__.specified
    assert "'app/late' just now: it has not been started yet (children start left to right)" in str(caught.value)


# ------------------------------------------------------------------------------------------------- while it is down

BACKOFF = gr.Backoff(10.0, jitter=0.0)


async def test_p19_while_an_actor_waits_for_its_restart_messages_queue(clock: VirtualClock) -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, backoff=BACKOFF)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom()))
        await idle()
        ref.tell(Note(1))
        await ref.send(Note(2))
        assert await ref.ask(Note(3), timeout=20) == 3
        assert (log, clock.now()) == ([1, 2, 3], 10.0)


async def test_p19_an_ask_that_waits_for_a_restart_keeps_its_timeout(clock: VirtualClock) -> None:
    async with tree(gr.Child("a", Puppet, backoff=BACKOFF)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom()))
        await idle()
        before = clock.now()
        assert isinstance(await raised(ref.ask(Note("x"), timeout=4)), gr.AskTimeout)
        assert clock.now() == before + 4


async def test_p19_an_ask_may_choose_to_fail_at_once_while_the_actor_is_restarting(clock: VirtualClock) -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, backoff=BACKOFF)) as runtime:
        ref = runtime.ref("app/a")
        assert await ref.ask(Note("up"), when_down="fail") == 1
        ref.tell(Fail(Boom()))
        await idle()
        before = clock.now()
        with pytest.raises(gr.ActorDown) as caught:
            await ref.ask(Note("down"), when_down="fail")
        assert clock.now() == before
        assert str(caught.value) == (
            "'app/a' is being restarted: a Note was not sent. Ask with `when_down=\"wait\"` to queue it for the next "
            "incarnation"
        )
        await anyio.sleep(11)
        assert log == ["up"]


async def test_p19_an_actor_whose_restart_is_still_starting_counts_as_down() -> None:
    class Slow(Puppet):
        async def on_start(self) -> None:
            if self.context.incarnation > 1:
                await anyio.sleep(5)

    async with tree(gr.Child("a", Slow)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom()))
        await idle()
        assert isinstance(await raised(ref.ask(Note("x"), when_down="fail")), gr.ActorDown)
        assert await ref.ask(Note("x"), timeout=10) == 1


async def test_p19_when_down_fail_does_not_change_what_an_ended_actor_answers() -> None:
    async with tree(gr.Child("a", Puppet, restart="temporary")) as runtime:
        ref = runtime.ref("app/a")
        await runtime.ref("app").terminate_child("a")
        assert isinstance(await raised(ref.ask(Note("x"), when_down="fail")), gr.ActorStopped)


async def test_when_down_must_be_one_of_its_two_words() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(ValueError, match="when_down='later': choose 'wait' or 'fail'"):
            await runtime.ref("app/a").ask(Note("x"), when_down="later")  # type: ignore[arg-type]  # under test


async def test_p19_when_its_supervisor_gives_up_queued_asks_are_told() -> None:
    hold = Hold()
    inner = gr.Supervisor("inner", gr.Child("a", Puppet), intensity=0, restart="temporary")
    async with tree(inner) as runtime, anyio.create_task_group() as group:
        asks = Asks(group, runtime.ref("app/inner/a"))
        runtime.ref("app/inner/a").tell(hold)
        runtime.ref("app/inner/a").tell(Fail(Boom()))
        await asks.start("asked", Note("x"))
        hold.until.set()
        await idle()
        assert str(asks.outcomes["asked"]) == (
            "'app/inner/a' did not handle a Note: its supervisor gave up restarting it"
        )


async def test_the_last_error_of_an_actor_is_shown_with_its_next_incarnation() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        await raised(runtime.ref("app/a").ask(Fail(Boom("of this"))))
        await idle()
        shown = node(runtime, "app/a")
        assert (shown.last_error, shown.incarnation, shown.restarts) == ("error: Boom: of this", 2, 1)


LIFE = (gr.ActorStarted, gr.ActorEnded)


async def test_each_incarnation_starts_and_ends_with_an_event() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        await raised(runtime.ref("app/a").ask(Fail(Boom())))
        await idle()
        seen = [(type(event), event.path, event.incarnation) for event in events.pending() if isinstance(event, LIFE)]
        assert seen == [(gr.ActorEnded, "app/a", 1), (gr.ActorStarted, "app/a", 2)]
