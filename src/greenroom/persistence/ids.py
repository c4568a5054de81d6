"""Identities: unique without asking anybody, and nearly in the order of their making."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from itertools import count


def _beginning() -> tuple[str, Iterator[int]]:
    # The time comes first, so that ids of one process are neighbours in an index; the counter makes them cheap: a random
    # number for each would cost more than the rest of a small transition.
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}", count(1)


_prefix, _numbers = _beginning()


def new_id() -> str:
    """A fresh identity, 32 hexadecimal digits. May be called from any thread. Not a secret: ids can be guessed."""
    return f"{_prefix}{next(_numbers):010x}"


def _after_fork() -> None:
    global _prefix, _numbers
    _prefix, _numbers = _beginning()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
