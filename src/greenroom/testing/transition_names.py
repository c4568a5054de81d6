"""Names of transitions: what a run commits, called the same in each run of the same scenario.

A name says the kind and what it is about: `AcceptMessage shop/till sale-1`. Messages in a mailbox go by their identity, not by
their place. The second of the same name ends in ` (2)`. Identities that were made up at run time (of executions; of messages
that were sent without one) are called `~1`, `~2`, in the order in which they are met.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from greenroom.persistence import AcceptMessage, MessageRecord, Prune, PutContent, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.persistence import Transition

MADE_UP: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
"""An identity by `new_id`."""

TELLING: Final = ("execution_id", "pool", "schedule", "address", "callback_id", "message_id", "ordinal", "name")
"""Fields that say what a transition is about, in this order. An owner's execution is not named with each of its writes."""


class TransitionNames:
    """The names in one store, from its beginning: over all executions that it has seen."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """By transition: one that is tried again keeps its name."""
        self._count: Counter[str] = Counter()
        self._made_up: dict[str, str] = {}
        self._messages: dict[tuple[str, int], str] = {}
        """The identity of the message at each place that was seen."""

    def of(self, item: Transition[Any]) -> str:
        """The name of a transition that is about to be applied."""
        name = self._names.get(item.transition_id)
        if name is None:
            name = MADE_UP.sub(self._call, " ".join((type(item).__name__, *self._about(item))))
            self._count[name] += 1
            if self._count[name] > 1:
                name = f"{name} ({self._count[name]})"
            self._names[item.transition_id] = name
        return name

    def _call(self, match: re.Match[str]) -> str:
        return self._made_up.setdefault(match.group(), f"~{len(self._made_up) + 1}")

    def _about(self, item: Transition[Any]) -> Iterable[str]:
        if isinstance(item, Prune):
            return (item.kind.value,)
        if isinstance(item, PutContent):
            return (sha256(item.data).hexdigest()[:12],)
        fields = {field: getattr(item, field) for field in TELLING if hasattr(item, field)}
        if "address" in fields:
            fields.pop("execution_id", None)
        seq = getattr(item, "seq", None)
        if seq is not None:
            fields["message_id"] = self._messages.get((fields["address"], seq), f"#{seq}")
        return map(str, fields.values())

    def learn(self, item: object, answer: object) -> None:
        """See what a transition or a query was answered: it may tell which message is at which place."""
        if isinstance(answer, tuple):
            for record in answer:
                if isinstance(record, MessageRecord) and record.seq is not None:
                    self._messages[record.address, record.seq] = record.message_id
        elif isinstance(item, AcceptMessage) and isinstance(answer, Receipt) and answer.seq is not None:
            self._messages[item.address, answer.seq] = answer.message_id
