"""`value`: `attrs.frozen` for the few classes of which every message and every turn makes some.

attrs sets each field of a frozen instance by a call, which doubles what it costs to make one. So these are frozen for the type checker
only, which sees all of our code; everything else about them is as of a frozen class.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as value
else:
    from attrs import define, setters

    value = partial(define, unsafe_hash=True, on_setattr=setters.NO_OP)

__all__ = ["value"]
