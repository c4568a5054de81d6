"""What the set-based functions say, and what batches' rows keep of it, as answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import asyncpg

from greenroom.persistence.answers import decode_answer
from greenroom.persistence.deliveries import Delivery, Handled
from greenroom.persistence.messages import Disposition, Receipt
from greenroom.persistence.transitions import RefusalReason, Refused, Transition

BATCH: Final = "transition_ids, answers, kind, addresses, keys, verdicts, numbers"
"""The columns of a batch's row that `stored_answer` needs."""


def accepted(address: str, message_id: str, verdict: str, number: int | None) -> Receipt | Refused:
    """The answer to an `AcceptMessage`."""
    if verdict == "full":
        return Refused(RefusalReason.FULL, f"the mailbox of {address!r} holds its {number} messages")
    return Receipt(message_id, Disposition(verdict), number if number is not None and number > 0 else None)


def begun(_address: str, seq: str, _verdict: str, number: int | None) -> Delivery:
    """The answer to a `BeginDelivery` that went its ordinary way."""
    assert number is not None  # the function has it so
    return Delivery(int(seq), number)


def handled(address: str, seq: str, verdict: str, number: int | None) -> Handled:
    """The answer to a `FinishDelivery` that went its ordinary way."""
    return Handled(next=begun(address, seq, verdict, number)) if verdict == "begun" else Handled()


_MAKERS: Final[dict[str, Callable[[str, str, str, int | None], Any]]] = {
    "AcceptMessage": accepted,
    "BeginDelivery": begun,
    "FinishDelivery": handled,
}


def stored_answer(row: asyncpg.Record, transition_id: str) -> Any:
    """The answer to one transition out of its batch's row; None when the batch does not hold it."""
    if transition_id not in row["transition_ids"]:
        return None
    if row["kind"] is None:
        return decode_answer(row["answers"], transition_id)
    at = row["transition_ids"].index(transition_id)
    address, key, verdict, number = (
        None if row[name] is None else row[name][at]  # an array that would be all NULL is none
        for name in ("addresses", "keys", "verdicts", "numbers")
    )
    return _MAKERS[row["kind"]](str(address), str(key), str(verdict), number)


def stored_answers(row: asyncpg.Record, items: Sequence[Transition[Any]]) -> list[Any]:
    """The answers to transitions of one batch, in their order."""
    return [stored_answer(row, item.transition_id) for item in items]
