"""R35: what a transition is called does not depend on when it comes, nor on identities that were made up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from greenroom.persistence import (
    AddressKind,
    BeginDelivery,
    ClaimAddress,
    Disposition,
    EndExecution,
    FinishDelivery,
    MessageRecord,
    MessageStatus,
    NextMessages,
    Prunable,
    Prune,
    PutContent,
    Receipt,
    RegisterPool,
    new_id,
    outgoing_id,
)
from greenroom.testing.store_time import StoreTime
from greenroom.testing.transition_names import TransitionNames
from tests.testing.desks import message

if TYPE_CHECKING:
    from greenroom.persistence import Transition

TIME = StoreTime().now()


def begin(seq: int, *, execution_id: str = "e1") -> BeginDelivery:
    return BeginDelivery(address="desk", execution_id=execution_id, generation=1, seq=seq)


def stored(seq: int, message_id: str) -> MessageRecord:
    return MessageRecord(
        address="desk",
        seq=seq,
        message_id=message_id,
        type="Note",
        body=b"{}",
        sender=None,
        timer=None,
        status=MessageStatus.QUEUED,
        deliveries=0,
        accepted_at=TIME,
        deliver_at=None,
        delivered_at=None,
        reply=None,
        error=None,
        reason=None,
    )


def names(*items: Transition[object]) -> list[str]:
    made = TransitionNames()
    return [made.of(item) for item in items]


def test_a_name_says_the_kind_and_what_it_is_about() -> None:
    assert names(
        message("desk", "m1"),
        ClaimAddress(address="desk", kind=AddressKind.ACTOR, execution_id="e1"),
        EndExecution(execution_id="e1"),
        RegisterPool(pool="service/accounts"),
        Prune(kind=Prunable.MESSAGES, age=timedelta(days=7)),
    ) == [
        "AcceptMessage desk m1",
        "ClaimAddress desk",
        "EndExecution e1",
        "RegisterPool service/accounts",
        "Prune messages",
    ]


def test_content_goes_by_the_digest_of_its_bytes() -> None:
    first, second, again = names(PutContent(data=b"1"), PutContent(data=b"2"), PutContent(data=b"1"))
    assert first != second
    assert again == f"{first} (2)"


def test_the_second_of_the_same_name_is_numbered() -> None:
    assert names(*(message("desk", "m1") for _ in range(3))) == [
        "AcceptMessage desk m1",
        "AcceptMessage desk m1 (2)",
        "AcceptMessage desk m1 (3)",
    ]


def test_a_transition_that_is_tried_again_keeps_its_name() -> None:
    made, item = TransitionNames(), message("desk", "m1")
    assert made.of(item) == made.of(item) == "AcceptMessage desk m1"


def test_a_message_in_a_mailbox_goes_by_its_identity_once_its_place_is_known() -> None:
    made = TransitionNames()
    assert made.of(begin(7)) == "BeginDelivery desk #7"
    made.learn(message("desk", "m1"), Receipt("m1", Disposition.ACCEPTED, 7))
    assert made.of(begin(7)) == "BeginDelivery desk m1"
    made.learn(NextMessages(address="desk"), (stored(8, "m2"),))
    assert made.of(FinishDelivery(address="desk", execution_id="e1", generation=1, seq=8)) == "FinishDelivery desk m2"


def test_an_owners_write_is_not_named_by_its_execution() -> None:
    assert names(begin(1, execution_id=new_id())) == ["BeginDelivery desk #1"]


def test_identities_that_were_made_up_go_by_the_order_in_which_they_are_met() -> None:
    first, second = new_id(), new_id()
    assert names(
        EndExecution(execution_id=second),
        message("desk", outgoing_id("till", first, 1)),
        EndExecution(execution_id=second),
    ) == ["EndExecution ~1", "AcceptMessage desk till|~2|1", "EndExecution ~1 (2)"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("mn")), max_size=8))
def test_all_names_in_one_store_are_different(sent: list[tuple[str, str]]) -> None:
    found = names(*(message(address, message_id) for address, message_id in sent))
    assert len(set(found)) == len(sent)
