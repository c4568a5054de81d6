"""How deep data may be nested.

Plans call one another, so that depth costs stack, and what was encoded near the bottom of one stack may have to be
decoded high up on another. A limit of our own, well below what Python's recursion limit allows, keeps the promise that
whatever was encoded can be decoded.
"""

from __future__ import annotations

import re
from itertools import accumulate

DEEPEST = 200
"""Levels of JSON lists and objects. An attrs value in a list is two of them."""

_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(code for code in range(256) if code not in _STEPS)


def too_deep(data: bytes) -> bool:
    """Whether JSON is nested deeper than DEEPEST. Data with no more brackets than that, which is most, costs nothing."""
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    brackets = _TEXT.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > DEEPEST
