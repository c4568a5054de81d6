"""The stream and the counts of dead letters, and the broadcast that carries them."""

from __future__ import annotations

import anyio
import pytest

from greenroom.mailbox import Broadcast, DeadLetter, DeadLetterReason, DeadLetters
from greenroom.mailbox.dead_letters import OTHERS, RECIPIENTS

ENDED, DROPPED = DeadLetterReason.ENDED, DeadLetterReason.DROPPED


def test_dead_letters_are_counted_by_recipient_and_reason() -> None:
    letters = DeadLetters()
    for recipient, reason in [("a", ENDED), ("a", ENDED), ("a", DROPPED), ("b", ENDED)]:
        letters.publish("message", recipient, None, reason)
    assert letters.counts() == {("a", ENDED): 2, ("a", DROPPED): 1, ("b", ENDED): 1}
    assert letters.total == 4


def test_the_counts_do_not_grow_without_end_with_recipients_that_come_and_go() -> None:
    letters = DeadLetters()
    for number in range(RECIPIENTS + 100):
        letters.publish("message", f"app/{number}", None, ENDED)
    letters.publish("message", "app/0", None, ENDED)
    counts = letters.counts()
    assert len(counts) == RECIPIENTS + 1
    assert (counts["app/0", ENDED], counts[OTHERS, ENDED]) == (2, 100)
    assert letters.total == RECIPIENTS + 101


def test_the_counts_that_are_given_out_are_a_copy() -> None:
    letters = DeadLetters()
    letters.publish("message", "a", None, ENDED)
    letters.counts().clear()
    assert letters.total == 1


def test_a_subscriber_sees_what_comes_after_it_subscribed() -> None:
    letters = DeadLetters()
    letters.publish("before", "a", None, ENDED)
    with letters.subscribe() as subscription:
        letters.publish("after", "a", "b", ENDED)
        assert subscription.pending() == [DeadLetter("after", "a", "b", ENDED)]


# ------------------------------------------------------------------------------------------------------- broadcasts


async def test_a_reader_waits_for_the_next_item() -> None:
    stream: Broadcast[int] = Broadcast()
    read: list[int] = []

    async def reader() -> None:
        read.extend([item async for item in stream.subscribe()])

    async with anyio.create_task_group() as group:
        group.start_soon(reader)
        for number in range(3):
            await anyio.sleep(1)
            stream.publish(number)
        await anyio.sleep(1)
        stream.close()
    assert read == [0, 1, 2]


async def test_every_reader_sees_every_item() -> None:
    stream: Broadcast[int] = Broadcast()
    readers = [stream.subscribe() for _ in range(3)]
    stream.publish(1)
    stream.publish(2)
    assert [reader.pending() for reader in readers] == [[1, 2]] * 3


async def test_a_reader_that_lags_misses_the_oldest_and_the_publisher_never_waits() -> None:
    stream: Broadcast[int] = Broadcast()
    reader = stream.subscribe(buffer=2)
    for number in range(5):
        stream.publish(number)
    assert (reader.pending(), reader.missed) == ([3, 4], 3)


async def test_a_reader_that_closes_ends_its_iteration_and_costs_nothing_any_more() -> None:
    stream: Broadcast[int] = Broadcast()
    reader = stream.subscribe()
    stream.publish(1)
    reader.close()
    reader.close()
    stream.publish(2)
    assert [item async for item in reader] == [1]
    assert not stream.listened_to


async def test_a_reader_that_is_closed_while_it_waits_ends() -> None:
    stream: Broadcast[int] = Broadcast()
    reader = stream.subscribe()
    async with anyio.create_task_group() as group:

        async def read() -> None:
            assert [item async for item in reader] == []

        group.start_soon(read)
        await anyio.sleep(1)
        reader.close()


async def test_a_reader_that_comes_after_the_end_is_ended() -> None:
    stream: Broadcast[int] = Broadcast()
    stream.close()
    assert [item async for item in stream.subscribe()] == []


async def test_a_cancelled_reader_can_go_on_reading() -> None:
    stream: Broadcast[int] = Broadcast()
    reader = stream.subscribe()
    with anyio.move_on_after(1):
        await anext(reader)
    stream.publish(1)
    assert await anext(reader) == 1


async def test_reading_what_is_buffered_in_a_loop_lets_others_run() -> None:
    stream: Broadcast[int] = Broadcast()
    reader = stream.subscribe()
    read = 0
    with anyio.CancelScope() as scope:
        scope.cancel()
        while read < 10_000:
            stream.publish(read)
            await anext(reader)
            read += 1
    assert scope.cancelled_caught


@pytest.mark.parametrize("buffer", [0, -1])
async def test_a_buffer_holds_at_least_one(buffer: int) -> None:
    with pytest.raises(ValueError, match="buffer"):
        Broadcast[int]().subscribe(buffer=buffer)
