"""What busy mailboxes live by, as one batch in one call: messages come in, deliveries are begun, messages have been handled (R6).

Under load nearly every batch is such a mixture. One kind after another, in a transaction of its own, it would take a round trip for
each and four for the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from greenroom.persistence.deliveries import BeginDelivery, FinishDelivery
from greenroom.persistence.messages import AcceptMessage
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.hot import (
    HOT,
    Frame,
    Result,
    accept_answers,
    accept_columns,
    begin_columns,
    finish_columns,
    hushed,
)
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.verdicts import begun, handled

_CALL: Final = Statement.calling(
    NAMES["exchange"],
    "text text[] text[] text "
    "text[] text[] text[] text[] bytea[] bigint[] text[] bigint[] text[] bigint[] bigint[] bigint[] "
    "text[] bigint[] bigint[] bigint[] "
    "text[] bigint[] bigint[] bytea[] bigint[] bytea[] bigint[] bytea[] bigint[] text[] bigint[] bigint[] bigint[]",
    "verdicts, numbers, woken, news",
)

EXCHANGED: Final = frozenset({AcceptMessage, BeginDelivery, FinishDelivery})
"""The kinds of such a batch."""


class Exchange:
    """A batch of several of these kinds."""

    def fits(self, item: Any) -> bool:
        return HOT[type(item)].fits(item)

    def are_one_group(self, items: Sequence[Any]) -> bool:
        """Nothing depends on their order, but for places that are counted up, and owners' writes come from one execution."""
        writes = [item for item in items if not isinstance(item, AcceptMessage)]
        messages = {(item.address, item.message_id) for item in items if isinstance(item, AcceptMessage)}
        return (
            len({item.address for item in writes}) == len(writes)
            and len({item.execution_id for item in writes}) == 1
            and len(messages) == len(items) - len(writes)
        )

    async def call(self, connection: Connection, frame: Frame, items: Sequence[Any]) -> Result | None:
        accepts = [item for item in items if isinstance(item, AcceptMessage)]
        begins = [item for item in items if isinstance(item, BeginDelivery)]
        finishes = [item for item in items if isinstance(item, FinishDelivery)]
        ordered = (*accepts, *begins, *finishes)
        row = await connection.fetchrow(
            *_CALL.given(
                frame.batch_id,
                [item.transition_id for item in ordered],
                frame.own,
                (begins or finishes)[0].execution_id,
                *accept_columns(accepts),
                *begin_columns(begins),
                *finish_columns(finishes),
            )
        )
        assert row is not None  # a function with OUT arguments
        if row["numbers"] is None:
            return None
        numbers = row["numbers"][len(accepts) :]
        answers = chain(
            accept_answers(accepts, row),
            (begun(item.seq, number) for item, number in zip(begins, numbers, strict=False)),
            (handled(item.next_seq, number) for item, number in zip(finishes, numbers[len(begins) :], strict=True)),
        )
        by_item = dict(zip(map(id, ordered), answers, strict=True))
        return Result(
            [by_item[id(item)] for item in items], frozenset(row["woken"] or ()) - hushed(accepts), row["news"]
        )


EXCHANGE: Final = Exchange()
