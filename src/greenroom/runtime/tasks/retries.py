"""Whether an operation whose invocation has failed is invoked again, and when. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from greenroom.runtime.replay import Effect, RetryPolicy

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0

UNCERTAIN: Final = frozenset({Effect.RECONCILED, Effect.ONCE})
"""What must not be sent again while nobody knows whether it happened (I8)."""


def pause_after(invocation: int, drawn: float) -> float:
    """Seconds from the failure of an invocation (from 1) to the next: exponential, with full jitter; `drawn` is from 0 to 1."""
    return drawn * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(invocation, 30))


def may_retry(
    policy: RetryPolicy,
    effect: Effect,
    invocation: int,
    *,
    began: datetime | None,
    again_at: datetime,
    deadline: datetime | None,
) -> bool:
    """Whether another invocation may begin.

    Args:
        invocation: the one that has failed, from 1.
        began: when the first one did, where the policy asks for that.
        again_at: when the next one would.
        deadline: the task's.
    """
    if effect in UNCERTAIN or invocation >= policy.invocations:
        return False
    if policy.within is not None and began is not None and again_at > began + timedelta(seconds=policy.within):
        return False
    return deadline is None or again_at < deadline
