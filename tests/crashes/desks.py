"""The address that the client processes send to: made, and looked at, by the test itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import anyio

from greenroom.persistence import (
    AddressKind,
    ClaimAddress,
    Claimed,
    Committer,
    ListMessages,
    MessageRecord,
    ReadAddress,
    Receipt,
    open_store,
    start_execution,
)
from tests.crashes.client import body_of, note

CLIENT: Final = (sys.executable, str(Path(__file__).with_name("client.py")))
"""The command that runs a client; its arguments follow."""


async def make_desk(store: Committer) -> None:
    """Make the address "desk", owned by nobody."""
    execution = await start_execution(store, on_lost=lambda: None)
    claim = ClaimAddress(address="desk", kind=AddressKind.MAILBOX, execution_id=execution.id)
    assert isinstance(await store.commit(claim), Claimed)
    await execution.end()


def prepare(url: str) -> None:
    """The same, where no event loop runs."""

    async def main() -> None:
        async with open_store(url) as store:
            await make_desk(store)

    anyio.run(main)


def kept(url: str) -> list[str]:
    """The identities of the messages on record, in their order; that their bodies and the count of them agree is checked."""

    async def main() -> tuple[MessageRecord, ...]:
        async with open_store(url) as store:
            records = await store.read(ListMessages(address="desk", limit=10_000))
            desk = await store.read(ReadAddress(address="desk"))
            assert desk is not None
            assert desk.queued == desk.ready == len(records)
            return records

    records = anyio.run(main)
    for record in records:
        assert record.body == body_of(int(record.message_id[1:]))
    return [record.message_id for record in records]


def send_again(url: str, count: int) -> list[str]:
    """Send m1 to m<count> from here. Returns what each was answered."""

    async def main() -> list[str]:
        async with open_store(url) as store:
            receipts = [await store.commit(note(number)) for number in range(1, count + 1)]
            return [receipt.disposition.value for receipt in receipts if isinstance(receipt, Receipt)]

    return anyio.run(main)


def check_after_kill(url: str, told: list[str], count: int) -> None:
    """One sender was killed on its way to m<count>, when it had been told so much. Nothing is lost, nothing double, and it can go on.

    Raises:
        AssertionError.
    """
    acknowledged = [line.removesuffix(" accepted") for line in told]
    found = kept(url)
    assert found == [f"m{number}" for number in range(1, len(found) + 1)]
    # The message in flight may have been accepted, unacknowledged.
    assert acknowledged in (found, found[:-1])
    assert send_again(url, count) == ["duplicate"] * len(found) + ["accepted"] * (count - len(found))
    assert kept(url) == [f"m{number}" for number in range(1, count + 1)]
