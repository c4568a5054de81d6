"""Whether today's control code does what the journal says: compared when a row is taken, before its timers (T7, T25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from greenroom.errors import Diverged, JournalBroken
from greenroom.runtime.replay.branch_state import OperationCall
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.paths import CallId
from greenroom.runtime.replay.rows import Intent, OutcomeRow, OutcomeStatus, TimeRow
from greenroom.runtime.replay.trace import Trace


@frozen
class Passed:
    """What had been done when a number of rows was processed."""

    digest: bytes
    earliest: CallId | None
    """The call whose timer was due first."""


class Past:
    """What had been done, for each basis that a row of the owner may still name. Later rows never name an earlier one."""

    __slots__ = ("_oldest", "_passed")

    def __init__(self) -> None:
        self._passed: list[Passed] = []
        self._oldest = 0
        """The basis of the first of them."""

    def add(self, passed: Passed) -> None:
        """One row more was processed; the first time, none was."""
        self._passed.append(passed)

    def at(self, basis: int) -> Passed:
        """What had been done when so many rows were processed. What lies before is forgotten."""
        if not 0 <= basis - self._oldest < len(self._passed):
            raise JournalBroken(
                f"a row is based on row {basis}, which lies behind a later row's basis, or has not come yet"
            )
        del self._passed[: basis - self._oldest]
        self._oldest = basis
        return self._passed[0]


def check_outcome(row: OutcomeRow, call: OperationCall | None, passed: Passed, trace: Trace, codec: ValueCodec) -> None:
    """Raise `Diverged` unless the row is the outcome of this call of today's code. None: there is no such open call."""
    recorded = f"operation {row.name!r}"
    _check_call(row, row.seq, call, trace, codec)
    if row.status is OutcomeStatus.CANCELLED and not (call and call.cancel_requested):
        found = "today's code has not cancelled it (if a crash of another branch had, it has not come again)"
        raise Diverged(row.seq, str(row.call), f"{recorded} as cancelled", found)
    if passed.digest != row.stamp.digest:
        raise Diverged(row.seq, str(row.call), f"{recorded} after other calls", _told(trace))


def check_intents(
    intents: Iterable[Intent], seq: int, open: Mapping[CallId, OperationCall], trace: Trace, codec: ValueCodec
) -> None:
    """Raise `Diverged` unless each intent is one of the operations that are open after row `seq`."""
    for intent in intents:
        _check_call(intent, seq, open.get(intent.call), trace, codec)


def _check_call(
    recorded: OutcomeRow | Intent, seq: int, call: OperationCall | None, trace: Trace, codec: ValueCodec
) -> None:
    step, name = str(recorded.call), f"operation {recorded.name!r}"
    if call is None or not call.admitted:
        raise Diverged(seq, step, name, f"today's code has no operation open there; {_told(trace)}")
    if call.name != recorded.name:
        raise Diverged(seq, step, name, f"today's code calls {call}")
    if not same_params(recorded.params, call.params, codec, f"the parameters of {name} in journal row {seq}"):
        raise Diverged(seq, step, name, "today's code calls it with other parameters")


def check_time(row: TimeRow, passed: Passed, trace: Trace) -> None:
    """Raise `Diverged` unless the timer that the row names was the first one that was due."""
    if passed.earliest != row.timer:
        first = "no timer at all" if passed.earliest is None else f"the timer of {passed.earliest} first"
        raise Diverged(row.seq, str(row.timer), "its timer", f"today's code has {first}; {_told(trace)}")
    if passed.digest != row.stamp.digest:
        raise Diverged(row.seq, str(row.timer), "its timer after other calls", _told(trace))


def same_params(recorded: bytes, today: bytes, codec: ValueCodec, source: str) -> bool:
    """Whether they are the same parameters to today's types: a new field with a default makes no difference (R17)."""
    return recorded == today or codec.encode(codec.decode(recorded, source=source)) == today


def _told(trace: Trace) -> str:
    calls = ", ".join(trace.recent)
    return f"today's code has called: {calls}" if calls else "today's code has called nothing"
