"""Retention: what is forgotten, and when (R32). It never touches what waits, is owned, or was not settled.

`Prune` is one small transaction; `prune` repeats it until nothing old is left.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen, validators

from greenroom.persistence.transitions import Refused, Transition

if TYPE_CHECKING:
    from greenroom.persistence.store import Store


class Prunable(Enum):
    """Kinds of rows that are forgotten by age."""

    TASKS = "tasks"
    """Terminal ones, with their mailboxes, journals, operations and attempts; none with an unresolved operation, or with messages
    that wait for room at their recipients."""
    MESSAGES = "messages"
    """Handled and dropped ones: their identities are known again from then on as new."""
    OBSERVATIONS = "observations"
    CALLBACKS = "callbacks"
    """Answered, expired and cancelled ones."""
    OUTBOX = "outbox"
    """Sent rows, and messages that were held and have been brought."""
    EXECUTIONS = "executions"
    """Ended ones that own nothing."""
    BATCHES = "batches"
    """Answers of transitions, for looking up."""
    CONTENT = "content"
    """What no row names."""


@frozen(kw_only=True)
class Retention:
    """For how long each kind is kept, after it was settled."""

    tasks: timedelta = timedelta(days=30)
    """The window within which a task that is submitted again is known to be a duplicate."""
    messages: timedelta = timedelta(days=7)
    """The window within which a message that is sent again is known to be a duplicate."""
    observations: timedelta = timedelta(days=7)
    observations_per_sender: int = 1000
    """And no more than that many from one sender, the newest."""
    callbacks: timedelta = timedelta(days=7)
    outbox: timedelta = timedelta(days=7)
    executions: timedelta = timedelta(days=7)
    batches: timedelta = timedelta(minutes=5)
    """Longer than any caller waits for its commit."""
    content: timedelta = timedelta(days=1, minutes=5)
    """Longer than the longest commit, and a day: a row that names it may be on its way."""

    def of(self, kind: Prunable) -> timedelta:
        age: timedelta = getattr(self, kind.value)
        return age


@frozen(kw_only=True)
class Prune(Transition["Pruned"]):
    """Forget up to `limit` rows of one kind that were settled longer than `age` ago. A long journal takes several times.

    Args:
        after: of messages: the address to go on from, which an earlier answer gave.
        per_sender: of observations: keep no more than the newest so many from one sender.
        dry_run: only count.
    """

    alone: ClassVar[bool] = True

    kind: Prunable
    age: timedelta
    limit: int = field(default=1000, validator=validators.ge(1))
    after: str = ""
    per_sender: int | None = None
    dry_run: bool = False


@frozen
class Pruned:
    """How many rows were (or would be) forgotten; where to go on, None when nothing old is left."""

    count: int
    after: str | None


async def prune(
    store: Store, policy: Retention | None = None, *, limit: int = 1000, dry_run: bool = False
) -> dict[Prunable, int]:
    """Forget all that the policy no longer keeps, in transactions of at most `limit` rows. Returns how many of each kind.

    With `dry_run` nothing is forgotten; the counts are those of a first round, up to `limit` an address or kind.

    Raises:
        StoreUnavailable: as by `Store.commit`; what was forgotten before stays forgotten.
    """
    policy = policy or Retention()
    counts = dict.fromkeys(Prunable, 0)
    for kind in Prunable:
        after: str | None = ""
        while after is not None:
            answer = await store.commit(
                Prune(
                    kind=kind,
                    age=policy.of(kind),
                    limit=limit,
                    after=after,
                    per_sender=policy.observations_per_sender if kind is Prunable.OBSERVATIONS else None,
                    dry_run=dry_run,
                )
            )
            assert not isinstance(answer, Refused)  # pruning is never refused
            counts[kind] += answer.count
            after = answer.after
    return counts
