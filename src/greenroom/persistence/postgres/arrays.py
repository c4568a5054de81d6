"""Arrays on their way to the database. asyncpg writes them item by item, at half a microsecond each; one text is written at once.

So arrays of texts and of numbers go as one text, and are split by the server. A text that would be split into something else
is rare, and then all go as arrays: a statement comes in both forms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

SEPARATOR: Final = "\x1f"
NULL: Final = "\x1e"

TEXTS: Final = "text[]"
NUMBERS: Final = "bigint[]"

_SPLIT: Final = {
    TEXTS: "string_to_array(${n}::text, E'\\x1f', E'\\x1e')",
    NUMBERS: "string_to_array(${n}::text, ',', '')::bigint[]",
}


@frozen
class Statement:
    """A statement whose arguments have these types."""

    types: tuple[str, ...]
    joined: str
    apart: str

    @classmethod
    def of(cls, types: str, sql: str) -> Statement:
        """Args: types: one for each `$n` of the SQL, with blanks between them."""
        kinds = tuple(types.split())
        split = [_SPLIT.get(kind, f"${{n}}::{kind}").format(n=n) for n, kind in enumerate(kinds, 1)]
        return cls(
            kinds,
            joined=re.sub(r"\$(\d+)", lambda match: split[int(match[1]) - 1], sql),
            apart=re.sub(r"\$(\d+)", lambda match: f"{match[0]}::{kinds[int(match[1]) - 1]}", sql),
        )

    @classmethod
    def calling(cls, function: str, types: str, result: str = "*") -> Statement:
        """The call of a function with all its arguments."""
        arguments = ", ".join(f"${n}" for n in range(1, len(types.split()) + 1))
        return cls.of(types, f"SELECT {result} FROM {function}({arguments})")

    def given(self, *arguments: Any) -> tuple[Any, ...]:
        """The SQL and the arguments, as the connection takes them.

        An array argument is a list, or None, which is also what a list of nothing but None becomes.
        """
        arguments = tuple(map(_nothing, arguments))
        joined = _joined(self.types, arguments)
        return (self.apart, *arguments) if joined is None else (self.joined, *joined)


def _nothing(argument: Any) -> Any:
    """An array that would be all NULL costs nothing as NULL, on either side."""
    return None if isinstance(argument, list) and argument and argument.count(None) == len(argument) else argument


def _joined(types: Sequence[str], arguments: Sequence[Any]) -> list[Any] | None:
    """The arguments with their arrays as texts; None when one of them would be split into something else."""
    joined: list[Any] = []
    for kind, argument in zip(types, arguments, strict=True):
        if argument is None or kind not in _SPLIT:
            joined.append(argument)
        elif kind == NUMBERS:
            joined.append(",".join(["" if number is None else str(number) for number in argument]))
        else:
            text = SEPARATOR.join([NULL if text is None else text for text in argument])
            if text.count(SEPARATOR) != max(len(argument) - 1, 0) or NULL in argument or argument == [""]:
                return None
            joined.append(text)
    return joined
