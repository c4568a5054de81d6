"""The store by itself: transitions submitted by hand, without a runtime and without actors. What is left of its speed in the runtime can
be seen beside it.

Messages are handled as the runtime handles them: accepted, begun, finished with the next one begun in the same commit where one waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final

import anyio
import msgspec

from benchmarks.harness import Figures, p50, p99
from benchmarks.meters import Bell
from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    BeginDelivery,
    ClaimAddress,
    Claimed,
    Committer,
    Execution,
    FinishDelivery,
    Handled,
    Receipt,
    StateWrite,
    message_digest,
    open_store,
    start_execution,
)

ENCODE: Final = msgspec.json.Encoder().encode


def note(address: str, number: int) -> AcceptMessage:
    """A message as the runtime would submit it: encoded, digested, under an identity of its own."""
    body = ENCODE({"n": number, "text": "the words of a small message"})
    return AcceptMessage(
        address=address, message_id=f"{address}-{number}", type="Note", body=body, digest=message_digest("Note", body)
    )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Committer, Execution]]:
    async with open_store(url) as store:
        execution = await start_execution(store, on_lost=lambda: None)
        yield store, execution
        await execution.end()


async def claim(store: Committer, execution: Execution, address: str) -> dict[str, Any]:
    """Become the owner of an address. Returns what its owner's writes carry."""
    answer = await store.commit(ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id=execution.id))
    assert isinstance(answer, Claimed)
    return {"address": address, "execution_id": execution.id, "generation": answer.generation}


async def accepted(url: str, senders: int, n: int) -> Figures:
    """Messages per second into one mailbox, and how long one took from its submission to its acknowledgement (ms)."""
    latencies: list[float] = []

    async with opened(url) as (store, execution):
        await claim(store, execution, "bench/sink")

        async def send(sender: int) -> None:
            for number in range(sender, n, senders):
                begin = perf_counter()
                receipt = await store.commit(note("bench/sink", number))
                latencies.append((perf_counter() - begin) * 1000)
                assert isinstance(receipt, Receipt)

        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for sender in range(senders):
                group.start_soon(send, sender)
        elapsed = perf_counter() - begin
    return {
        f"accepted_{senders}": n / elapsed,
        f"accepted_{senders}_p50": p50(latencies),
        f"accepted_{senders}_p99": p99(latencies),
    }


async def handled(url: str, pairs: int, n: int) -> Figures:
    """Messages per second from senders to owners of addresses, a sender for each, all handled."""
    return {f"handled_{pairs}": await _through(url, pairs, n, durable=False)}


async def transitions(url: str, pairs: int, n: int) -> Figures:
    """The same, with a new state each time."""
    return {f"transitions_{pairs}": await _through(url, pairs, n, durable=True)}


async def _through(url: str, pairs: int, n: int, *, durable: bool) -> float:
    each = max(1, n // pairs)
    async with opened(url) as (store, execution):
        owners = [await claim(store, execution, f"bench/a{pair}") for pair in range(pairs)]
        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for owner in owners:
                arrived = Arrivals()
                group.start_soon(_send, store, owner, arrived, each)
                group.start_soon(_handle, store, owner, arrived, each, durable)
        return each * pairs / (perf_counter() - begin)


class Arrivals:
    """Places of messages that were accepted, as the runtime tells them to an owner in its own process."""

    def __init__(self) -> None:
        self._places: deque[int] = deque()
        self._bell = Bell()

    def add(self, place: int) -> None:
        self._places.append(place)
        self._bell.ring()

    async def take(self) -> int:
        while not self._places:
            await self._bell.wait()
        return self._places.popleft()

    def next(self) -> int | None:
        """What `take` would give at once."""
        return self._places[0] if self._places else None


async def _send(store: Committer, owner: Mapping[str, Any], arrived: Arrivals, count: int) -> None:
    for number in range(count):
        receipt = await store.commit(note(owner["address"], number))
        assert isinstance(receipt, Receipt)
        assert receipt.seq is not None
        arrived.add(receipt.seq)


async def _handle(store: Committer, owner: Mapping[str, Any], arrived: Arrivals, count: int, durable: bool) -> None:
    begun: int | None = None
    for number in range(count):
        seq = await arrived.take()
        if begun != seq:
            await store.commit(BeginDelivery(seq=seq, **owner))
        begun = arrived.next()
        state = StateWrite(payload=ENCODE({"n": number}), type="State", version=1) if durable else None
        answer = await store.commit(FinishDelivery(seq=seq, next_seq=begun, state=state, **owner))
        assert isinstance(answer, Handled)
