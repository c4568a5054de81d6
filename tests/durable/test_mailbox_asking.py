"""Asking a persistent mailbox: the reply is kept with its question, and every other end of the question is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import MessageStatus, ReadMessage
from tests.durable.desks import DESK, Leave, Refuse, Script, Unheard, desk
from tests.durable.helpers import LEASE, Add, Note, eventually, raised, settled

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_an_ask_gets_the_reply(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        assert await runtime.ref(DESK).ask(Add(3)) == 3
        assert await runtime.ref(DESK).ask(Add(4)) == 7
        assert await runtime.ref(DESK).ask(Note("no reply")) is None  # type: ignore[func-returns-value]


async def test_r25_a_question_that_is_repeated_gets_the_reply_that_was_given(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(3), message_id="q1") == 3
        assert await runtime.ref(DESK).ask(Add(4)) == 7
        assert await runtime.ref(DESK).ask(Add(3), message_id="q1") == 3
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(3), message_id="q1") == 3
    assert script.seen == ["3", "7"]


async def test_r25_a_question_that_is_repeated_while_it_is_handled_gets_the_same_reply(database: Shared) -> None:
    script = Script()
    gate = script.gate("3")
    replies: list[int] = []
    async with database.runtime(desk(script)) as runtime:

        async def ask() -> None:
            replies.append(await runtime.ref(DESK).ask(Add(3), message_id="q1"))

        async with anyio.create_task_group() as askers:
            askers.start_soon(ask)
            await gate.begun.wait()
            askers.start_soon(ask)
            await settled()
            assert replies == []
            gate.opened.set()
    assert replies == [3, 3]
    assert script.seen == ["3"]


async def test_r25_another_question_under_an_id_that_is_taken_is_not_accepted(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        await runtime.ref(DESK).ask(Add(3), message_id="q1")
        with pytest.raises(gr.NotAccepted, match="q1") as caught:
            await runtime.ref(DESK).ask(Add(4), message_id="q1")
        assert caught.value.disposition == "conflict"


async def test_p20_rejected_is_an_answer_and_is_kept_as_one(database: Shared) -> None:
    class OutOfStock(gr.Rejected):
        """A rejection of the desk's own."""

    class Picky(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            raise OutOfStock("no more")

    child = gr.Child("desk", Picky, mailbox=gr.PersistentMailbox())
    async with database.runtime(child) as runtime:
        with pytest.raises(OutOfStock, match="no more"):
            await runtime.ref(DESK).ask(Add(1), message_id="q1")
        with pytest.raises(gr.Rejected, match="no more"):
            await runtime.ref(DESK).ask(Add(1), message_id="q1")
        assert runtime.ref(DESK).incarnation == 1
    async with database.client() as client:
        with pytest.raises(gr.Rejected, match="no more"):
            await client.ask(DESK, Add(1), message_id="q1")
        kept = await client.message(DESK, "q1")
        assert kept is not None
        assert (kept.status, kept.deliveries) == ("handled", 1)


async def test_p20_a_rejected_message_that_nobody_asked_is_handled_and_its_reason_kept(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Refuse("not today"), message_id="m1")
        await settled()
        kept = await client.message(DESK, "m1")
        assert kept is not None
        assert kept.status == "handled"
        assert "not today" in str(kept.error)


async def test_a_question_that_makes_the_actor_end_tells_its_asker_so_each_time(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script, restart="transient")) as runtime:
        with pytest.raises(gr.ActorStopped, match="stopped itself"):
            await runtime.ref(DESK).ask(Leave(), message_id="q1")
        with pytest.raises(gr.ActorStopped, match="stopped itself"):
            await runtime.ref(DESK).ask(Leave(), message_id="q1")
    async with database.client() as client:
        with pytest.raises(gr.ActorStopped, match="stopped itself"):
            await client.ask(DESK, Leave(), message_id="q1")
    assert script.starts == 1


async def test_a_question_that_nobody_handles_is_told_to_be_a_dead_letter(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        with pytest.raises(gr.DeadLettered, match="no handler"):
            await runtime.ref(DESK).ask(Unheard(), message_id="q1")
        with pytest.raises(gr.DeadLettered, match="no handler"):
            await runtime.ref(DESK).ask(Unheard(), message_id="q1")


async def test_a_question_that_crashes_its_actor_each_time_is_told_to_be_a_dead_letter(database: Shared) -> None:
    script = Script()
    script.crashes["1"] = 1000
    async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(max_deliveries=2))) as runtime:
        with pytest.raises(gr.DeadLettered, match="2 times"):
            await runtime.ref(DESK).ask(Add(1))
    assert script.seen == ["1", "1"]


async def test_a_question_survives_a_crash_of_its_actor_and_is_answered_by_the_next_incarnation(
    database: Shared,
) -> None:
    script = Script()
    script.crashes["5"] = 1
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(5)) == 5
    assert script.starts == 2


async def test_an_ask_that_is_too_slow_times_out_and_its_message_is_handled_all_the_same(database: Shared) -> None:
    script = Script()
    gate = script.gate("1")
    async with database.runtime(desk(script)) as runtime:
        with pytest.raises(gr.AskTimeout):
            await runtime.ref(DESK).ask(Add(1), message_id="q1", timeout=3.0)
        gate.opened.set()
        await settled()
        assert await runtime.ref(DESK).ask(Add(1), message_id="q1") == 1
        assert script.seen == ["1"]


async def test_an_ask_that_is_cancelled_leaves_nothing_behind_but_its_message(database: Shared) -> None:
    script = Script()
    gate = script.gate("1")
    async with database.runtime(desk(script)) as runtime, database.open() as store:
        async with anyio.create_task_group() as asker:
            asker.start_soon(lambda: runtime.ref(DESK).ask(Add(1), message_id="q1"))
            await gate.begun.wait()
            asker.cancel_scope.cancel()
        gate.opened.set()
        await settled()
        record = await store.read(ReadMessage(address=DESK, message_id="q1"))
        assert record is not None
        assert record.status is MessageStatus.HANDLED
        assert await runtime.ref(DESK).ask(Add(2)) == 3


async def test_an_actor_that_asks_itself_is_refused_at_once(database: Shared) -> None:
    class Selfish(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> None:
            await self.context.ref.ask(Note("again"))

    outcome: list[BaseException] = []

    class Guarded(Selfish):
        @gr.handles
        async def add(self, message: Add) -> int:
            outcome.append(await raised(self.note(Note("now"))))
            return message.number

    async with database.runtime(gr.Child("desk", Guarded, mailbox=gr.PersistentMailbox())) as runtime:
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    assert [type(error) for error in outcome] == [gr.WouldDeadlock]


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
async def test_a_timeout_is_a_number_of_seconds(database: Shared, timeout: float) -> None:
    async with database.runtime(desk(Script())) as runtime:
        with pytest.raises(ValueError, match="timeout"):
            await runtime.ref(DESK).ask(Add(1), timeout=timeout)


# ---------------------------------------------------------------------------------------------- from elsewhere


async def test_an_ask_from_another_runtime_gets_the_reply_of_the_owner(database: Shared) -> None:
    script, other = Script(), Script()
    async with database.runtime(desk(script)), database.runtime(desk(other)) as second:
        assert await second.ref(DESK).ask(Add(3), timeout=None) == 3
        with pytest.raises(gr.Rejected, match="never"):
            await second.ref(DESK).ask(Refuse("never"), timeout=None)
        with pytest.raises(gr.DeadLettered, match="no handler"):
            await second.ref(DESK).ask(Unheard(), timeout=None)
    assert (script.seen, other.starts) == (["3"], 0)


async def test_an_ask_is_answered_by_whoever_takes_the_address_over(database: Shared) -> None:
    script, heir = Script(), Script()
    script.gate("3")
    owned, asked = anyio.Event(), anyio.Event()
    replies: list[int] = []

    async def die_with_the_question_in_hand() -> None:
        async with database.doomed(f"after BeginDelivery {DESK} q1", desk(script)) as first:
            owned.set()
            await asked.wait()
            await first.ref(DESK).send(Note("knock"))  # a doomed runtime hears nothing from other stores by itself
            await anyio.sleep(60)

    async def ask(second: gr.Runtime) -> None:
        replies.append(await second.ref(DESK).ask(Add(3), message_id="q1", timeout=None))

    async with anyio.create_task_group() as group:
        group.start_soon(die_with_the_question_in_hand)
        await owned.wait()
        async with database.runtime(desk(heir), source=database.source(lease=10 * LEASE)) as second:
            group.start_soon(ask, second)
            await settled()
            asked.set()
            await eventually(lambda: replies == [3])
    assert (script.seen, heir.seen[:1]) == (["3"], ["3"])


async def test_a_client_gets_the_reply_of_a_runtime(database: Shared) -> None:
    async with database.runtime(desk(Script())), database.client() as client:
        assert await client.ask(DESK, Add(3), message_id="q1", timeout=None) == 3
        assert await client.ask(DESK, Add(3), message_id="q1", timeout=None) == 3


async def test_an_ask_waits_while_nobody_runs_the_actor(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)):
        """The address is known from now on."""
    async with database.client() as client, anyio.create_task_group() as group:
        replies: list[int] = []
        replied = anyio.Event()

        async def ask() -> None:
            replies.append(await client.ask(DESK, Add(3), timeout=None))
            replied.set()

        group.start_soon(ask)
        await settled()
        assert replies == []
        async with database.runtime(desk(script)):
            await replied.wait()
    assert replies == [3]


async def test_an_ask_that_outlives_its_runtime_is_told_so(database: Shared) -> None:
    script = Script()
    script.gate("1")
    outcome: list[BaseException] = []

    async with anyio.create_task_group() as group, database.runtime(desk(script)) as runtime:

        async def ask() -> None:
            outcome.append(await raised(runtime.ref(DESK).ask(Add(1), message_id="q1", timeout=None)))

        group.start_soon(ask)
        await script.gate("1").begun.wait()
    assert [type(error) for error in outcome] == [gr.ActorStopped]
    assert "message_id='q1'" in str(outcome[0])
