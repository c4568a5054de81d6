"""What is to be done next with an activation, when no turn is left and every known row is processed (T4, T12, T19)."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from attrs import frozen

from greenroom.runtime.replay.branch_state import OperationCall
from greenroom.runtime.replay.machine import Machine
from greenroom.runtime.replay.rows import End, Stamp
from greenroom.runtime.replay.timers import Timer


@frozen
class Finish:
    """Write down how the segment ended."""

    end: End


@frozen
class WriteTime:
    """A timer is due: write a time row that names it, not before its time, and process that."""

    timer: Timer
    stamp: Stamp


@frozen
class Withdraw:
    """Operations that this activation has not sent were cancelled: write their cancelled outcomes, and process those."""

    calls: tuple[OperationCall, ...]
    stamp: Stamp


@frozen
class Send:
    """Hand operations to their executors, and tell executors to stop."""

    calls: tuple[OperationCall, ...]
    cancellations: tuple[OperationCall, ...]


@frozen
class Idle:
    """Wait for a row from outside, or for a time. With nothing in flight the activation may be evicted (T23)."""

    until: datetime | None
    in_flight: int


Step: TypeAlias = Finish | WriteTime | Withdraw | Send | Idle


def next_step(machine: Machine, now: datetime) -> Step:
    """The next step. Timers that are due come before everything that would be sent."""
    if machine.end is not None:
        return Finish(machine.end)
    earliest = machine.earliest
    if earliest is not None and earliest.due <= now:
        return WriteTime(earliest, machine.stamp())
    if machine.unsent:
        withdrawn = tuple(call for call in machine.unsent.values() if call.cancel_requested)
        if withdrawn:
            return Withdraw(withdrawn, machine.stamp())
    if machine.unsent or machine.untold:
        return Send(tuple(machine.unsent.values()), tuple(machine.untold.values()))
    return Idle(None if earliest is None else earliest.due, machine.in_flight)
