"""What has become of messages to tasks, as their owners' turns say it (I3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.content import PutContent
from greenroom.persistence.messages import MessageReply, MessageStatus, ReadMessage
from tests.persistence.stores import done, message
from tests.persistence.tasks_help import TaskOwner, owned, signal

if TYPE_CHECKING:
    from greenroom.persistence import MessageRecord, Store
    from tests.persistence.stores import Database


async def told(store: Store, task: TaskOwner, message_id: str = "m1") -> MessageRecord:
    record = await store.read(ReadMessage(address=task.address, message_id=message_id))
    assert record is not None
    return record


async def test_a_reply_commits_with_the_row_of_its_message(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        reply = MessageReply(message_id="m1", accepted=True, reply=b'"yes"')
        await task.commit(0, signal(1, database.time.at(0), "m1"), consumed_seq=1, replies=(reply,))
        record = await told(store, task)
        assert (record.status, record.reply, record.error) == (MessageStatus.HANDLED, b'"yes"', None)
        assert record.delivered_at is not None
        address = await store.read(ReadAddress(address=task.address))
        assert address is not None
        assert (address.ready, address.queued) == (0, 0)


async def test_acceptance_and_reply_are_two_moments(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        accepted = MessageReply(message_id="m1", accepted=True)
        await task.commit(0, signal(1, database.time.at(0), "m1"), consumed_seq=1, replies=(accepted,))
        first = await told(store, task)
        assert (first.reply, first.error) == (None, None)
        assert first.delivered_at is not None
        database.time.pass_time(5)
        await task.commit(1, replies=(MessageReply(message_id="m1", accepted=True, reply=b"7"),))
        then = await told(store, task)
        assert (then.reply, then.delivered_at) == (b"7", first.delivered_at)


async def test_what_was_rejected_was_never_accepted(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        reply = MessageReply(message_id="m1", accepted=False, error=b'"no"')
        await task.commit(0, signal(1, database.time.at(0), "m1"), consumed_seq=1, replies=(reply,))
        record = await told(store, task)
        assert (record.error, record.delivered_at) == (b'"no"', None)


async def test_a_reply_that_is_said_again_is_the_same(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        content = await done(store, PutContent(data=b"x" * 100_000))
        reply = MessageReply(message_id="m1", accepted=True, reply=content)
        await task.commit(0, signal(1, database.time.at(0), "m1"), consumed_seq=1, replies=(reply,))
        first = await told(store, task)
        await task.commit(1, replies=(reply,))
        assert await told(store, task) == first


async def test_a_message_without_a_row_has_no_reply(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        await task.commit(0, replies=(MessageReply(message_id="m1", accepted=True, reply=b"7"),))
        record = await told(store, task)
        assert (record.status, record.reply, record.delivered_at) == (MessageStatus.QUEUED, None, None)
