"""Actors that wait for each other's room: they are named, and go on when one of them has more (R25)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.persistence import Held
from greenroom.runtime.durable.standstill import rings
from tests.durable.helpers import events_of
from tests.durable.puppets import Do, Look, Puppet, record_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

ANN, BOB = "service/ann", "service/bob"


class Flooding(Puppet):
    """On `flood`, sends the other one three messages, and one from outside waits behind it."""

    def __init__(self, other: str) -> None:
        async def step(puppet: Puppet) -> None:
            for word in ("1", "2", "3"):
                await puppet.context.runtime.ref(other).send(Do(word))

        super().__init__({"flood": step})


def pair(capacity: int) -> tuple[gr.Child, gr.Child]:
    mailbox = gr.PersistentMailbox(capacity=capacity)
    return (
        gr.Child("ann", partial(Flooding, BOB), mailbox=mailbox),
        gr.Child("bob", partial(Flooding, ANN), mailbox=mailbox),
    )


async def test_r25_two_that_hold_messages_for_each_other_without_room_are_named_and_go_on_with_more_room(
    database: Shared,
) -> None:
    async with database.runtime(*pair(2)):
        """The addresses are known from now on."""
    async with database.client() as client:
        for address in (ANN, BOB):
            await client.send(address, Do("flood"), message_id="flood")
            await client.send(address, Do("behind"), message_id="behind")
    async with database.runtime(*pair(2), source=database.source(sweep=1.0)) as runtime:
        events = runtime.events()
        await anyio.sleep(60)
        (told,) = events_of(gr.Standstill, events)
        assert told.addresses == (ANN, BOB)
        async with database.open() as store:
            for address in (ANN, BOB):
                assert (await record_of(store, address)).held > 0
    async with database.runtime(*pair(10)) as runtime:
        for address in (ANN, BOB):
            seen: list[str] = []
            for _ in range(60):  # what was held comes when its turn comes: a question may be ahead of it
                seen = sorted(await runtime.ref(address).ask(Look(), timeout=600))
                if len(seen) == 5:
                    break
                await anyio.sleep(1)
            assert seen == ["1", "2", "3", "behind", "flood"]


def edges(*pairs: str) -> list[Held]:
    return [Held(*pair) for pair in pairs]


def test_who_waits_for_somebody_that_will_have_room_is_in_no_ring() -> None:
    assert rings(edges("ab", "bc", "dc")) == frozenset()


def test_a_ring_is_told_from_its_first_member_whoever_else_waits_for_it() -> None:
    assert rings(edges("ca", "ab", "bc", "xa", "yx")) == {("a", "b", "c")}


def test_separate_rings_are_told_each() -> None:
    assert rings(edges("ab", "ba", "cd", "dc")) == {("a", "b"), ("c", "d")}


names = st.sampled_from("abcdef")


@given(st.sets(st.tuples(names, names).filter(lambda pair: pair[0] != pair[1])))
def test_a_ring_is_found_exactly_where_somebody_waits_for_himself_in_the_end(pairs: set[tuple[str, str]]) -> None:
    found = rings(Held(*pair) for pair in pairs)
    for ring in found:
        assert all(step in pairs for step in zip(ring, (*ring[1:], ring[0]), strict=True))
    reached = set(pairs)
    while more := {(a, d) for a, b in reached for c, d in reached if b == c} - reached:
        reached |= more
    in_a_ring = {a for a, b in reached if a == b}
    assert bool(found) is bool(in_a_ring)
    assert {address for ring in found for address in ring} <= in_a_ring
