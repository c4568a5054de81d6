"""What handlers of signals make of them: accepted, answered, rejected, interrupted. For whoever has asked."""

from __future__ import annotations

from attrs import frozen

from greenroom.actors import Rejected, text_of
from greenroom.runtime.replay.rows import Fault


@frozen(kw_only=True)
class SignalReply:
    """News of a signal that a handler has. Without a body or a fault: it was accepted, and the handler goes on."""

    seq: int
    """The row with which that came to be known."""
    message_id: str
    accepted: bool
    """The handler did not reject it before it waited for something first."""
    body: bytes | None = None
    """The encoded reply."""
    fault: Fault | None = None
    """Why there is none."""


def rejected(error: Rejected) -> Fault:
    return Fault("rejected", type(error).__qualname__, text_of(error))


def interrupted(reason: str) -> Fault:
    """The handler was cancelled."""
    return Fault("interrupted", "Cancelled", reason)
