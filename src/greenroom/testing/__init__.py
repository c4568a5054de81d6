"""The kit that tests are made with: `VirtualClock`, and the `Deadlock` it raises."""

from __future__ import annotations

from greenroom.testing.timeline import Deadlock, Hold
from greenroom.testing.virtual_clock import VirtualClock

__all__ = ["Deadlock", "Hold", "VirtualClock"]
