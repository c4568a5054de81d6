"""Short lists that lie in one column, as JSON. Nothing is searched in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

EMPTY: Final = "[]"


def list_text(values: Iterable[object]) -> str:
    """A list as it is stored."""
    return msgspec.json.encode(tuple(values)).decode()


def text_list(text: str) -> list[Any]:
    """A stored list."""
    values: list[Any] = msgspec.json.decode(text)
    return values
