"""The chance that code takes for itself, in a seed's hands: `random`, and the bytes that `secrets` makes."""

from __future__ import annotations

import random
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def seeded_chance(seed: int) -> Iterator[None]:
    """Within the block, the process's random numbers follow from the seed. There is one such chance for the whole process."""
    state, token_bytes = random.getstate(), secrets.token_bytes
    random.seed(seed)
    secret = random.Random(f"{seed} secrets")
    secrets.token_bytes = lambda nbytes=None: secret.randbytes(32 if nbytes is None else nbytes)
    try:
        yield
    finally:
        secrets.token_bytes = token_bytes
        random.setstate(state)
