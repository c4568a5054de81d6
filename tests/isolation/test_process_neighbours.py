"""Process children: what an actor reaches from its process. Refs, timers, watches."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

import greenroom as gr
from tests.isolation import workers
from tests.isolation.trees import WITNESS, WORKER, serving
from tests.isolation.workers import Echo, Heard, PlainPuppet, Puppet, do


async def test_p27_a_ref_comes_back_as_the_very_same() -> None:
    async with serving() as service:
        assert await service.worker.ask(Echo(service.witness)) is service.witness


async def test_p27_a_ref_travels_as_path_and_incarnation_and_is_one_in_the_worker_too() -> None:
    async with serving() as service:
        there = await service.worker.ask(do(workers.compare, service.witness, service.witness))
        assert there == (True, WITNESS, 1)


async def test_p27_the_own_ref_of_an_actor_is_the_one_that_others_have() -> None:
    async with serving() as service:
        assert await service.worker.ask(do(workers.own_ref)) is service.worker


async def test_p27_a_ref_to_what_its_supervisor_has_forgotten_is_one_to_what_has_ended() -> None:
    pool = gr.DynamicSupervisor("pool", Puppet)
    worker = gr.Child("worker", Puppet, isolation="process")
    async with gr.Runtime(gr.Supervisor("service", pool, worker)) as runtime:
        ref = await runtime.ref("service/pool").start_child()
        await runtime.ref("service/pool").terminate_child(ref)
        back = await runtime.ref(WORKER).ask(Echo(ref))
        with pytest.raises(gr.ActorStopped):
            await back.ask(Echo(1))


@pytest.mark.parametrize("factory", [Puppet, PlainPuppet])
async def test_p25_an_actor_tells_another_from_its_process(factory: type[gr.Actor]) -> None:
    async with serving(factory) as service:
        await service.worker.ask(do(workers.tell, service.witness, "hello"))
        assert service.heard == ["hello"]


async def test_an_actor_sends_from_its_process_and_waits_for_room() -> None:
    async with serving(witness_mailbox=gr.Mailbox(capacity=1)) as service:
        await service.worker.ask(do(workers.send, service.witness, "hello"))
        assert service.heard == ["hello"]


async def test_an_actor_that_would_wait_for_room_in_its_own_mailbox_is_told() -> None:
    async with serving(mailbox=gr.Mailbox(capacity=1)) as service:
        with pytest.raises(gr.ActorCrashed) as crash:
            await service.worker.ask(do(workers.send_twice, service.worker))
    assert isinstance(crash.value.__cause__, gr.WouldDeadlock)


async def test_an_actor_asks_another_from_its_process() -> None:
    async with serving() as service:
        assert await service.worker.ask(do(workers.ask, service.witness, "hello")) == 1


async def test_p25_a_plain_handler_asks_and_blocks() -> None:
    async with serving(PlainPuppet) as service:
        assert await service.worker.ask(do(workers.ask_blocking, service.witness, "hello")) == 1


async def test_p25_a_thread_of_the_actor_asks_and_blocks() -> None:
    async with serving(PlainPuppet) as service:
        assert await service.worker.ask(do(workers.ask_blocking_from_a_thread, service.witness, "hello")) == [1]


async def test_asks_and_tells_of_one_actor_keep_their_order() -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.ask_then_tell, service.witness, 20))
        assert service.heard == list(range(20))


async def test_p22_the_sender_of_a_dead_letter_is_the_actor_in_the_process() -> None:
    async with serving() as service:
        letters = service.runtime.dead_letters()
        supervisor = service.runtime.ref("service")
        await service.worker.ask(do(workers.tell, supervisor, "hello"))
        letter = await anext(letters)
        assert (letter.sender, letter.recipient, letter.message) == (WORKER, "service", Heard("hello"))


async def test_a_tell_that_the_recipient_has_no_room_for_is_a_dead_letter() -> None:
    async with serving(witness_mailbox=gr.Mailbox(capacity=1)) as service, anyio.create_task_group() as group:
        group.start_soon(lambda: never_answered(service.witness))
        await anyio.wait_all_tasks_blocked()
        service.witness.tell(Heard("takes the only place"))
        await service.worker.ask(do(workers.tell, service.witness, "one too many"))
        assert service.runtime.dead_letter_counts() == {(WITNESS, gr.DeadLetterReason.DROPPED): 1}
        group.cancel_scope.cancel()


async def never_answered(ref: gr.Ref) -> Any:
    await ref.ask(Echo("for ever"), timeout=None)


async def test_an_ask_from_a_process_has_the_time_of_the_event_loop() -> None:
    async with serving() as service:
        before = anyio.current_time()
        assert await service.worker.ask(do(workers.ask_in_vain, service.witness, 3600), timeout=None) == "AskTimeout"
        assert anyio.current_time() == pytest.approx(before + 3600)


async def test_an_ask_from_a_process_raises_what_became_of_it() -> None:
    async with serving() as service:
        supervisor = service.runtime.ref("service")
        assert await service.worker.ask(do(workers.ask_in_vain, supervisor, 5)) == "UnhandledMessage"


async def test_a_path_that_nobody_has_answers_as_what_has_ended() -> None:
    async with serving() as service:
        ref = await service.worker.ask(do(workers.look_up, "service/nobody"))
        with pytest.raises(gr.ActorStopped, match="nothing in the tree has this path"):
            await ref.ask(Echo(1))


async def test_what_does_not_reach_into_a_process_says_so_and_the_way_out() -> None:
    expected = {
        "nursery": r"Misuse: .*open an anyio\.create_task_group",
        "stash": "Misuse: .*keep the message in an attribute",
        "unstash": "Misuse: .*no stash",
        "tree": r"Misuse: `runtime\.tree`",
        "call": "Misuse: .*from_thread.call",
        "self-ask": "WouldDeadlock: .*wait for itself",
        "administration": "Misuse: `which_children`",
        "partition": "Misuse: `partition`",
        "when_down": "Misuse: .*when_down",
        "blocking": r"Misuse: .*await ref\.ask",
        "thread": r"WrongThread: .*from_thread",
        "no message": r"NotAMessage: ",
        "unencodable tell": r"NotEncodable: .*Heard\.what.*lock",
        "unencodable ask": r"NotEncodable: .*Heard\.what.*lock",
    }
    async with serving() as service:
        texts = await service.worker.ask(do(workers.misuses))
    wrong = {call: texts.get(call) for call, text in expected.items() if not re.match(text, texts.get(call, ""))}
    assert wrong == {}
    assert texts.keys() == expected.keys()


# ------------------------------------------------------------------------------------------------------ its context


async def test_context_stop_ends_it_after_the_reply() -> None:
    async with serving() as service:
        assert await service.worker.ask(do(workers.stop_self)) == "still answered"
        assert await service.ended() == gr.Exit("normal")


async def test_a_timer_ticks_by_the_time_of_the_event_loop() -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.set_timer, 60, "tick"))
        await anyio.sleep(59)
        assert await service.worker.ask(do(workers.kept)) == []
        await anyio.sleep(2)
        assert await service.worker.ask(do(workers.kept)) == ["tick"]


async def test_a_repeating_timer_ticks_until_it_is_cancelled() -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.set_repeating_timer, 10, "tick", "key"))
        await anyio.sleep(25)
        await service.worker.ask(do(workers.cancel_timer, "key"))
        await anyio.sleep(25)
        assert await service.worker.ask(do(workers.kept)) == ["tick", "tick"]


async def test_a_timer_of_the_same_key_is_replaced() -> None:
    async with serving() as service:
        await service.worker.ask(do(workers.set_timer, 10, "first", "key"))
        await service.worker.ask(do(workers.set_timer, 20, "second", "key"))
        await anyio.sleep(30)
        assert await service.worker.ask(do(workers.kept)) == ["second"]


async def test_what_it_watches_is_reported_when_it_has_ended() -> None:
    pool = gr.DynamicSupervisor("pool", Puppet)
    worker = gr.Child("worker", Puppet, isolation="process")
    async with gr.Runtime(gr.Supervisor("service", pool, worker)) as runtime:
        ref = await runtime.ref("service/pool").start_child()
        await runtime.ref(WORKER).ask(do(workers.watch, ref))
        await runtime.ref("service/pool").terminate_child(ref)
        assert await runtime.ref(WORKER).ask(do(workers.kept)) == [("service/pool/1", "shutdown")]
