"""What the set-based functions say, and what batches' rows keep of it, as answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from greenroom.persistence.answers import decode_answer
from greenroom.persistence.deliveries import Delivery, Handled
from greenroom.persistence.journal import TurnCommitted
from greenroom.persistence.messages import Disposition, Receipt
from greenroom.persistence.tasks import Submission, Submitted
from greenroom.persistence.transitions import RefusalReason, Refused, Transition

BATCH: Final = "transition_ids, answers, kind, keys, verdicts, numbers"
"""The columns of a batch's row that `stored_answer` needs."""


def accepted(message_id: str, verdict: str | None, number: int | None) -> Receipt | Refused:
    """The answer to an `AcceptMessage`."""
    if verdict == "full":
        return Refused(RefusalReason.FULL, f"the mailbox holds its {number} messages")
    disposition = Disposition.ACCEPTED if verdict is None else Disposition(verdict)
    return Receipt(message_id, disposition, number if number is not None and number > 0 else None)


def begun(seq: int, number: int) -> Delivery:
    """The answer to a `BeginDelivery` that went its ordinary way."""
    return Delivery(seq, number)


def handled(next_seq: int | None, number: int) -> Handled:
    """The answer to a `FinishDelivery` that went its ordinary way."""
    return Handled() if next_seq is None else Handled(next=Delivery(next_seq, number))


def stored_answer(row: asyncpg.Record, transition_id: str) -> Any:
    """The answer to one transition out of its batch's row; None when the batch does not hold it."""
    if transition_id not in row["transition_ids"]:
        return None
    if row["kind"] is None:
        return decode_answer(row["answers"], transition_id)
    at = row["transition_ids"].index(transition_id)
    # An array that would be all NULL is none.
    values: Any = (None if row[name] is None else row[name][at] for name in ("keys", "verdicts", "numbers"))
    key, verdict, number = values
    match row["kind"]:
        case "Exchange" if verdict == "begun":
            return begun(int(key), number)
        case "Exchange" if verdict == "handled":
            return handled(None if key is None else int(key), number)
        case "AcceptMessage" | "Exchange":
            return accepted(key, verdict, number)
        case "CommitTurn":
            return TurnCommitted(seq=number)
        case "SubmitTask":
            return Submitted(Submission.ACCEPTED, 1)
        case "BeginDelivery":
            return begun(int(key), number)
        case _:
            return handled(None if key is None else int(key), number)


def stored_answers(row: asyncpg.Record, items: Sequence[Transition[Any]]) -> list[Any]:
    """The answers to transitions of one batch, in their order."""
    return [stored_answer(row, item.transition_id) for item in items]
