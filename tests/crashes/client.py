"""A client process to be traced, stopped and killed: python client.py URL FIRST COUNT [SENDERS] [backend]

It sends the messages m<FIRST>, m<FIRST + 1>, … to the address "desk", shared out among the senders, each of which waits for one
acknowledgement before it sends the next. What was acknowledged goes to the standard output, one line each, by one `write`.
"""

from __future__ import annotations

import os
import sys

import anyio

from greenroom.persistence import AcceptMessage, Receipt, message_digest, open_store

SENDERS = 1
BACKEND = "asyncio"


def body_of(number: int) -> bytes:
    """Bytes that can be found again in a trace and in a table."""
    return f"<body of m{number}>".encode()


def note(number: int) -> AcceptMessage:
    body = body_of(number)
    return AcceptMessage(
        address="desk", message_id=f"m{number}", type="Note", body=body, digest=message_digest("Note", body)
    )


async def main(url: str, first: int, count: int, senders: int) -> None:
    async with open_store(url) as store:

        async def send(sender: int) -> None:
            for number in range(first + sender, first + count, senders):
                receipt = await store.commit(note(number))
                assert isinstance(receipt, Receipt), receipt
                os.write(1, f"{receipt.message_id} {receipt.disposition.value}\n".encode())

        async with anyio.create_task_group() as group:
            for sender in range(senders):
                group.start_soon(send, sender)


if __name__ == "__main__":
    url, first, count, *more = sys.argv[1:]
    senders = int(more[0]) if more else SENDERS
    anyio.run(main, url, int(first), int(count), senders, backend=more[1] if len(more) > 1 else BACKEND)
