"""Identities: unique without asking anybody, and nearly in the order of their making."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from itertools import count


def _maker() -> Callable[[], str]:
    # The time comes first, so that ids of one process are neighbours in an index; the counter makes them cheap: a random
    # number for each would cost more than the rest of a small transition.
    prefix = f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers):010x}"


_make = _maker()


def new_id() -> str:
    """A fresh identity, 32 hexadecimal digits. May be called from any thread. Not a secret: ids can be guessed."""
    return _make()


def _after_fork() -> None:
    global _make  # noqa: PLW0603 - the child of a fork must not go on with its parent's numbers
    _make = _maker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
