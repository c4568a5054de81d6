"""Version marks: whether control code may take a new road, decided once and the same at every replay.

`task.version("name")` is True for an attempt that gets there with today's code, and False for one that older code has already taken
past that place. "Past" is what the journal can prove: a row of the owner that was written with the calling row, or a later one,
processed. Where it proves nothing, the new road contradicts nothing. True is recorded with the owner's next row. Neither answer
counts as a call, so that asking changes nothing for those who are told False, and the question can be taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from attrs import frozen

from greenroom.runtime.replay.rows import JournalRow, OutcomeRow, TimeRow


@frozen
class Recorded:
    """What the rows that an activation begins with say about marks."""

    marks: frozenset[str] = frozenset()
    furthest: int = -1
    """The most rows that the owner had processed at any of its rows."""

    @classmethod
    def of(cls, rows: Iterable[JournalRow]) -> Recorded:
        stamps = [row.stamp for row in rows if isinstance(row, (OutcomeRow, TimeRow))]
        if not stamps:
            return NOTHING
        return cls(
            frozenset(mark for stamp in stamps for mark in stamp.marks),
            max(stamp.basis for stamp in stamps),
        )


NOTHING: Final = Recorded()
"""What no rows say."""


NONE: Final[Mapping[str, Any]] = MappingProxyType({})
"""As nearly all control code has it: one for all of them."""


class Marks:
    """The answers of one activation."""

    __slots__ = ("_answers", "_pending", "_recorded")

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._answers: Mapping[str, bool] = NONE
        self._pending: Mapping[str, None] = NONE

    def ask(self, name: str, seq: int) -> bool:
        """The answer for a mark, asked while row `seq` is processed. The first one stays."""
        answer = self._answers.get(name)
        if answer is None:
            known = name in self._recorded.marks
            answer = known or self._recorded.furthest < seq
            self._answers = {**self._answers, name: answer}
            if answer and not known:
                self._pending = {**self._pending, name: None}
        return answer

    @property
    def pending(self) -> tuple[str, ...]:
        """Marks that the owner's next row has to carry."""
        return tuple(self._pending)

    def written(self, marks: Iterable[str]) -> None:
        """A row has carried them."""
        if self._pending:
            written = frozenset(marks)
            self._pending = {mark: None for mark in self._pending if mark not in written}
