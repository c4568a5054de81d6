"""What the in-memory mailbox promises beside its order and bound: who may use it, who is woken, who lets whom run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.errors import WrongThread
from greenroom.mailbox import DeadLetters, Envelope, Mailbox, MemoryMailbox, Notice, current_loop, message_type
from greenroom.mailbox.memory import IN_A_ROW
from tests.mailbox.helpers import Driven, mailbox_by_hand


def mailbox_here(**options: Any) -> MemoryMailbox:
    """A mailbox on the running event loop."""
    return MemoryMailbox("app/a", Mailbox(**options), current_loop(), DeadLetters())


def letter(text: str) -> Envelope:
    return (text, None, None)


async def test_a_receiver_is_woken_by_a_message() -> None:
    mailbox = mailbox_here()
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.wait)
        await anyio.sleep(1)
        mailbox.put_nowait(letter("x"))
    assert mailbox.queue.popleft() == letter("x")


async def test_a_receiver_is_woken_by_a_notice() -> None:
    mailbox = mailbox_here()
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.wait)
        await anyio.sleep(1)
        mailbox.put_notice(Notice("tick", lambda: True))
    assert mailbox.statistics().depth == 1


async def test_a_receiver_is_woken_by_what_is_put_back() -> None:
    mailbox = mailbox_here()
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.wait)
        await anyio.sleep(1)
        mailbox.put_back([letter("x"), letter("y")])
    assert list(mailbox.queue) == [letter("x"), letter("y")]


async def test_a_cancelled_receiver_leaves_the_mailbox_as_it_was() -> None:
    mailbox = mailbox_here()
    with anyio.move_on_after(1) as scope:
        await mailbox.wait()
    assert scope.cancelled_caught
    mailbox.put_nowait(letter("x"))
    mailbox.look_up()
    assert mailbox.statistics().depth == 1


async def test_two_messages_wake_one_receiver_once() -> None:
    mailbox = mailbox_here()
    woken = 0

    async def receive() -> None:
        nonlocal woken
        await mailbox.wait()
        woken += 1

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await anyio.sleep(1)
        mailbox.put_nowait(letter("x"))
        mailbox.put_nowait(letter("y"))
        mailbox.look_up()
    assert woken == 1


async def test_p21_another_thread_may_put_nothing_in() -> None:
    mailbox = mailbox_here(capacity=1)

    def put() -> None:
        with pytest.raises(WrongThread):
            mailbox.put_nowait(letter("x"))
        for driven in [Driven(mailbox.put(letter("x"))) for _ in range(2 * IN_A_ROW)]:
            assert isinstance(driven.error, WrongThread)

    await anyio.to_thread.run_sync(put)
    assert mailbox.statistics().depth == 0
    mailbox.put_nowait(letter("fills it"))
    await anyio.to_thread.run_sync(put_waiting(mailbox))
    assert mailbox.statistics().waiting_senders == 0


def put_waiting(mailbox: MemoryMailbox) -> Callable[[], None]:
    def put() -> None:
        assert isinstance(Driven(mailbox.put(letter("x"))).error, WrongThread)

    return put


async def test_p21_a_sender_that_never_waits_lets_others_run_now_and_then() -> None:
    mailbox = mailbox_here(capacity=None)
    turns: list[int] = []

    async def look() -> None:
        while True:
            turns.append(mailbox.statistics().depth)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        for number in range(1000):
            await mailbox.put(letter(str(number)))
        group.cancel_scope.cancel()
    assert max(after - before for before, after in pairwise(turns)) <= 2 * IN_A_ROW


async def test_a_sender_cancelled_while_it_lets_others_run_has_sent_nothing() -> None:
    mailbox = mailbox_here(capacity=None)
    sent = 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        for number in range(1000):
            await mailbox.put(letter(str(number)))
            sent += 1
    assert scope.cancelled_caught
    assert mailbox.statistics().depth == sent == IN_A_ROW - 1


def test_senders_that_are_cancelled_leave_their_places_to_those_behind_them() -> None:
    mailbox, _ = mailbox_by_hand(Mailbox(capacity=1))
    mailbox.put_nowait(letter("first"))
    senders = [Driven(mailbox.put(letter(str(number)))) for number in range(4)]
    senders[0].cancel()
    senders[2].cancel()
    for expected in ("first", "1", "3"):
        assert mailbox.queue.popleft()[0] == expected
        mailbox.admit_waiting()
    assert mailbox.statistics().waiting_senders == 0


def test_a_sender_that_was_given_room_and_is_cancelled_before_it_knows_has_sent() -> None:
    mailbox, _ = mailbox_by_hand(Mailbox(capacity=1))
    mailbox.put_nowait(letter("first"))
    sender = Driven(mailbox.put(letter("second")))
    mailbox.queue.popleft()
    mailbox.admit_waiting()
    sender.step()
    assert (sender.ended, sender.error) == (True, None)
    assert list(mailbox.queue) == [letter("second")]


@pytest.mark.backends("asyncio")
async def test_a_sender_that_asyncio_cancels_in_the_moment_it_is_given_room_has_sent_nothing() -> None:
    mailbox = mailbox_here(capacity=1)
    mailbox.put_nowait(letter("first"))
    async with asyncio.TaskGroup() as group:
        sender = group.create_task(mailbox.put(letter("cancelled")))
        behind = group.create_task(mailbox.put(letter("behind it")))
        await anyio.sleep(1)
        mailbox.queue.popleft()
        mailbox.admit_waiting()
        sender.cancel()
        await behind
    assert sender.cancelled()
    taken = []
    while mailbox.queue:
        message = mailbox.queue.popleft()[0]
        taken.append(mailbox.open_notice(message) if isinstance(message, Notice) else message)
    assert taken == [None, "behind it"]
    mailbox.put_nowait(letter("the bound is what it was"))
    with pytest.raises(gr.MailboxFull):
        mailbox.put_nowait(letter("too much"))


def test_p18_closing_tells_askers_why_and_keeps_telling_it() -> None:
    mailbox, dead_letters = mailbox_by_hand(Mailbox())
    mailbox.close("it was closed for a test")
    mailbox.put_nowait(letter("x"))
    assert dead_letters.total == 1
    assert mailbox.closed
    mailbox.reopen()
    mailbox.put_nowait(letter("y"))
    assert mailbox.statistics().depth == 1


def test_notices_to_a_closed_mailbox_vanish() -> None:
    mailbox, dead_letters = mailbox_by_hand(Mailbox())
    mailbox.put_notice(Notice("before", lambda: True))
    mailbox.close("it was closed for a test")
    mailbox.put_notice(Notice("after", lambda: True))
    assert (mailbox.statistics().depth, dead_letters.total) == (0, 0)


def test_what_was_held_does_not_let_more_in_than_the_bound_when_it_is_put_back() -> None:
    mailbox, _ = mailbox_by_hand(Mailbox(capacity=2))
    mailbox.put_nowait(letter("held"))
    held = mailbox.queue.popleft()
    mailbox.hold(1)
    mailbox.put_nowait(letter("queued"))
    sender = Driven(mailbox.put(letter("waits")))
    mailbox.put_back([held])
    mailbox.hold(-1)
    assert not sender.ended
    assert [item[0] for item in mailbox.queue] == ["held", "queued"]
    assert mailbox.statistics().depth == 2


def test_the_name_of_a_message_type_leaves_out_where_it_was_defined() -> None:
    class Local(gr.Message[None]):
        class Inner(gr.Message[None]):
            pass

    assert [message_type(Local()), message_type(Local.Inner())] == ["Local", "Local.Inner"]
