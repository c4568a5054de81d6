"""The answers of transitions can be looked up for a while, by whoever could not wait for them (R5, R8)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.persistence.addresses import Claimed, StateWrite
from greenroom.persistence.answers import AnswerTo, decode_answer, decode_answers, encode_answers
from greenroom.persistence.content import Content, stow
from greenroom.persistence.deliveries import DeadLettered, Delivery, Handled
from greenroom.persistence.messages import AdmitDue, Admitted, Disposition, Receipt, RequeueDead
from greenroom.persistence.retention import Prunable, Prune
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.fake_driver import Say
from tests.persistence.stores import claiming, done, message, outgoing, owner, register

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from greenroom.persistence.transitions import Transition
    from tests.persistence.stores import Database

payloads = st.none() | st.binary(max_size=20) | st.builds(Content, digest=st.text(), size=st.integers(0, 2**40))
refusals = st.builds(
    Refused,
    reason=st.sampled_from(RefusalReason),
    detail=st.text(),
    seconds=st.none() | st.floats(0, 1e9, allow_nan=False),
)
deliveries = st.builds(Delivery, seq=st.integers(1, 2**62), deliveries=st.integers(0, 9))
dead = st.builds(DeadLettered, seq=st.integers(1, 2**62), deliveries=st.integers(0, 9))
answers = st.one_of(
    refusals,
    deliveries,
    dead,
    st.builds(
        Receipt,
        message_id=st.text(),
        disposition=st.sampled_from(Disposition),
        seq=st.none() | st.integers(1, 2**62),
    ),
    st.builds(
        Claimed,
        generation=st.integers(1, 2**62),
        handled_seq=st.integers(0, 9),
        last_seq=st.integers(0, 9),
        state=payloads,
        state_type=st.none() | st.text(),
        state_version=st.none() | st.integers(0, 9),
    ),
    st.builds(
        Handled,
        outgoing=st.lists(st.sampled_from(Disposition), max_size=3).map(tuple),
        next=st.none() | deliveries,
        next_dead=st.none() | dead,
        next_refused=st.none() | refusals,
    ),
)


@given(st.lists(answers, max_size=8))
def test_the_answers_of_a_batch_come_back_equal_and_in_order(given_answers: list[Any]) -> None:
    items = [Say(word="x") for _ in given_answers]
    data = encode_answers(items, given_answers)
    assert decode_answers(data, items) == given_answers
    assert [decode_answer(data, item.transition_id) for item in items] == given_answers
    assert decode_answer(data, "another") is None


async def check(store: Store, transition: Transition[Any]) -> None:
    answer = await store.commit(transition)
    assert await store.read(AnswerTo(transition_id=transition.transition_id)) == answer


async def test_answers_of_many_kinds_are_found_by_their_transitions(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await owner(store, "counter")
        await desk.send("m1")
        await desk.send("m2")
        large = await stow(store, b"x" * 100_000)
        for transition in (
            register("e2"),
            register("e2"),
            message("desk", "m3"),
            message("desk", "m3"),
            message("nowhere", "m4"),
            desk.begin(1),
            desk.finish(
                1,
                state=StateWrite(payload=large, type="S", version=1),
                outgoing=(outgoing("counter", "x"), outgoing("nowhere", "y")),
                next_seq=2,
            ),
            desk.bury(3),
            RequeueDead(address="desk", message_id="m3"),
            desk.release(),
            desk.release(),
            claiming("desk", "e1"),
        ):
            await check(store, transition)


async def test_an_answer_that_nobody_got_is_found_by_another_store(database: Database) -> None:
    async with database.open() as store:
        transition = register("e1")
        answer = await done(store, transition)
    async with database.open() as store:
        assert await store.read(AnswerTo(transition_id=transition.transition_id)) == answer


async def test_the_answer_to_what_never_happened_is_none(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(AnswerTo(transition_id="never")) is None
        assert await store.read(AnswerTo(transition_id="")) is None


async def test_answers_are_forgotten_after_their_time(database: Database) -> None:
    async with database.open() as store:
        transition = register("e1")
        await done(store, transition)
        database.time.pass_time(301)
        await done(store, Prune(kind=Prunable.BATCHES, age=timedelta(minutes=5)))
        assert await store.read(AnswerTo(transition_id=transition.transition_id)) is None


async def test_an_admission_with_a_moment_is_found_too(database: Database) -> None:
    async with database.open() as store:
        await owner(store)
        await done(store, message("desk", "m1", deliver_at=database.time.at(60)))
        admission = AdmitDue(address="desk")
        assert await done(store, admission) == Admitted(0, database.time.at(60))
        assert await store.read(AnswerTo(transition_id=admission.transition_id)) == Admitted(0, database.time.at(60))


@pytest.mark.parametrize("count", [1, 3])
def test_answers_and_transitions_must_be_as_many(count: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        encode_answers([Say(word="x"), Say(word="y")], ["x"] * count)
