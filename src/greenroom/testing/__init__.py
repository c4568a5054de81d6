"""The kit that tests are made with: virtual time, crashes at every point, stores that fail, and a check of what they promised."""

from __future__ import annotations

from greenroom.runtime.durable.opening import StoreSource
from greenroom.testing.audit import InvariantBroken, audit
from greenroom.testing.crash_points import CrashPoints
from greenroom.testing.fresh_store import fresh_store
from greenroom.testing.interrupt import InterruptionFailed, Interruptions, Life, interrupt_everywhere
from greenroom.testing.ledger import Ledger
from greenroom.testing.postgres_proxy import Cut, PostgresProxy
from greenroom.testing.replay import OtherVersion, Replayed, replay
from greenroom.testing.simulation import Process, Simulated, SimulationFailed, World, simulate
from greenroom.testing.store_faults import (
    Away,
    Contention,
    Fault,
    OutcomeLost,
    Slow,
    StatementError,
    StoreFaults,
)
from greenroom.testing.store_time import StoreTime
from greenroom.testing.timeline import Deadlock, Hold
from greenroom.testing.virtual_clock import VirtualClock

__all__ = [
    "Away",
    "Contention",
    "CrashPoints",
    "Cut",
    "Deadlock",
    "Fault",
    "Hold",
    "InterruptionFailed",
    "Interruptions",
    "InvariantBroken",
    "Ledger",
    "Life",
    "OtherVersion",
    "OutcomeLost",
    "PostgresProxy",
    "Process",
    "Replayed",
    "Simulated",
    "SimulationFailed",
    "Slow",
    "StatementError",
    "StoreFaults",
    "StoreSource",
    "StoreTime",
    "VirtualClock",
    "World",
    "audit",
    "fresh_store",
    "interrupt_everywhere",
    "replay",
    "simulate",
]
