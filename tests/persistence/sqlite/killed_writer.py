"""Runs writers that are killed: python killed_writer.py URL ROUNDS SEED

Each round forks a process in which several senders commit numbered messages, one after another each, and write down what was
acknowledged; the parent kills it (SIGKILL) after a random number of acknowledgements. A sender goes on with the number after
its last acknowledged one, so that what was in flight at the kill is sent again under its identity. Prints the numbers of
acknowledgements by sender, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys

import anyio

from greenroom.persistence.addresses import AddressKind, ClaimAddress, ReadAddress, ReleaseAddress
from greenroom.persistence.clock import system_clock
from greenroom.persistence.content import message_digest
from greenroom.persistence.executions import RegisterExecution
from greenroom.persistence.messages import AcceptMessage
from greenroom.persistence.store import open_store

SENDERS = 6


def note(sender: int, number: int) -> AcceptMessage:
    body = f"{sender}:{number}".encode()
    return AcceptMessage(
        address="desk", message_id=f"{sender}-{number}", type="N", body=body, digest=message_digest("N", body)
    )


async def prepare(url: str) -> None:
    async with open_store(url) as store:
        registration = RegisterExecution(
            execution_id="e1", host="h", pid=os.getpid(), boot_id=system_clock().boot_id, lease=600.0
        )
        await store.commit(registration)
        await store.commit(ClaimAddress(address="desk", kind=AddressKind.MAILBOX, execution_id="e1"))
        await store.commit(ReleaseAddress(address="desk", execution_id="e1", generation=1))
        assert await store.read(ReadAddress(address="desk")) is not None


async def write(url: str, first: dict[int, int], acknowledgements: int) -> None:
    async def send(sender: int) -> None:
        number = first[sender]
        while True:
            await store.commit(note(sender, number))
            os.write(acknowledgements, f"{sender} {number}\n".encode())
            number += 1

    async with open_store(url) as store, anyio.create_task_group() as group:
        for sender in range(SENDERS):
            group.start_soon(send, sender)


def main(url: str, rounds: int, seed: int) -> None:
    anyio.run(prepare, url)
    choice = random.Random(seed)
    acknowledged = dict.fromkeys(range(SENDERS), 0)
    for round_number in range(rounds):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            backend = ("asyncio", "trio")[round_number % 2]
            anyio.run(
                write, url, {sender: last + 1 for sender, last in acknowledged.items()}, write_end, backend=backend
            )
            os._exit(1)
        os.close(write_end)
        enough = choice.randrange(1, 60)
        with os.fdopen(read_end, "rb") as lines:
            for count, line in enumerate(lines, start=1):
                sender, number = map(int, line.split())
                assert number == acknowledged[sender] + 1
                acknowledged[sender] = number
                if count == enough:
                    os.kill(child, signal.SIGKILL)  # the rest of what it had written down is read still
        os.waitpid(child, 0)
    print(json.dumps([acknowledged[sender] for sender in range(SENDERS)]))  # noqa: T201 - for the test


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
