"""A client and a service that share a store: each way there and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from attrs import evolve, frozen

import greenroom as gr
from greenroom.errors import DeadLettered
from greenroom.runtime.client import Client
from tests.runtime.clients import Add, Note, all_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.runtime.stored import AnswerDisposition
    from tests.persistence.stores import Database

pytestmark = pytest.mark.real_time  # what one process hears of another, the store finds out in real time


@frozen
class Total:
    total: int = 0


@frozen
class Pay(gr.Message[str]):
    amount: int


class Account(gr.DurableActor[Total]):
    state = Total()

    @gr.handles
    async def add(self, message: Add) -> int:
        if message.number < 0:
            raise gr.Rejected("nothing is taken away")
        self.state = evolve(self.state, total=self.state.total + message.number)
        return self.state.total


class Desk(gr.Actor):
    def __init__(self, hand_out: Callable[[str], object]) -> None:
        self.hand_out = hand_out

    @gr.handles
    async def note(self, message: Note) -> None:
        raise ValueError(message.text)

    @gr.handles
    async def pay(self, message: Pay) -> str:
        callback = await self.context.callback("payment", timeout=60.0)
        self.hand_out(callback.token)
        return f"{await callback.wait()} of {message.amount}"


def tree(hand_out: Callable[[str], object] = print) -> gr.Supervisor:
    return gr.Supervisor(
        "service",
        gr.Child("account", Account),
        gr.Child("desk", Desk, hand_out, mailbox=gr.PersistentMailbox(max_deliveries=2)),
        gr.DurableActors("accounts", Account),
        intensity=10,
    )


async def test_a_question_is_answered_by_the_service(database: Database) -> None:
    async with gr.Runtime(tree(), store=database.url), Client(database.url) as client:
        assert await client.ask("service/account", Add(3)) == 3
        assert await client.ask("service/account", Add(4), message_id="q1") == 7
        assert await client.ask("service/account", Add(4), message_id="q1") == 7
        with pytest.raises(gr.Rejected, match="nothing is taken away"):
            await client.ask("service/account", Add(-1))


async def test_what_is_sent_while_no_service_runs_is_handled_when_one_does(database: Database) -> None:
    async with gr.Runtime(tree(), store=database.url):
        pass
    async with Client(database.url) as client:
        assert (await client.send("service/account", Add(3), message_id="m1")).disposition == "accepted"
        async with gr.Runtime(tree(), store=database.url):
            assert await client.ask("service/account", Add(4)) == 7
        found = await client.message("service/account", "m1")
        assert found is not None
        assert (found.status, found.reply, found.deliveries) == ("handled", 3, 1)


async def test_accounts_of_a_pool_come_into_being_by_being_asked(database: Database) -> None:
    async with gr.Runtime(tree(), store=database.url), Client(database.url) as client:
        assert await client.ask("service/accounts/alice", Add(3)) == 3
        assert await client.ask("service/accounts/bob", Add(4)) == 4
        assert await client.ask("service/accounts/alice", Add(5)) == 8
        names = [each.address for each in await all_of(client.addresses())]
        assert {"service/accounts/alice", "service/accounts/bob"} <= set(names)


async def test_a_message_that_crashes_its_actor_each_time_becomes_a_dead_letter_that_can_be_settled(
    database: Database,
) -> None:
    async with gr.Runtime(tree(), store=database.url), Client(database.url) as client:
        with pytest.raises(DeadLettered):
            await client.ask("service/desk", Note("bad"), message_id="m1", timeout=60.0)
        (found,) = await all_of(client.dead_letters())
        assert (found.message_id, found.body, found.deliveries) == ("m1", Note("bad"), 2)
        await client.requeue("service/desk", "m1")
        with pytest.raises(DeadLettered):
            await client.ask("service/desk", Note("bad"), message_id="m1", timeout=60.0)
        await client.drop("service/desk", "m1")
        assert await all_of(client.dead_letters()) == []


async def test_k05_a_callback_is_answered_by_a_client(database: Database) -> None:
    hand_out, tokens = anyio.create_memory_object_stream[str](1)
    dispositions: list[AnswerDisposition] = []

    async def answer() -> None:
        dispositions.append(await client.answer(await tokens.receive(), "paid 5"))

    service = gr.Runtime(tree(hand_out.send_nowait), store=database.url)
    with hand_out, tokens:
        async with service, Client(database.url) as client, anyio.create_task_group() as group:
            group.start_soon(answer)
            assert await client.ask("service/desk", Pay(7), timeout=60.0) == "paid 5 of 7"
    assert dispositions == ["accepted"]


async def test_the_service_is_seen_among_the_executions(database: Database) -> None:
    async with gr.Runtime(tree(), store=database.url), Client(database.url) as client:
        (execution,) = await client.executions()
        assert (execution.state, execution.alive) == ("active", True)
        address = await client.address("service/account")
        assert address is not None
        assert address.owner == execution.execution_id
    async with Client(database.url) as client:
        assert await client.executions() == ()
        (execution,) = await client.executions(ended=True)
        assert execution.state == "ended"
