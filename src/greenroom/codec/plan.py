"""What the codec knows about one type: how to make JSON-ready data of its values, and values of the data again.

Everything else in this package makes plans or uses them. "Plain" data is what msgspec turns into bytes and back
without losing anything: None, bool, int of 64 bits, finite float, str without lone surrogates, lists and str-keyed
dicts of these.

A value that must say its own type is an object with its tag under the key `TAG`; its fields stand beside the tag (attrs
classes) or its content under `BODY` (everything else). An object without a tag stands where a static type says what it
is: a dict, or an attrs class.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs
import msgspec

Plain: TypeAlias = Any
Pack: TypeAlias = Callable[[Any], Plain]
Unpack: TypeAlias = Callable[[Plain], Any]

TAG = "$"
BODY = "="

encode_plain = msgspec.json.Encoder().encode
"""Bytes of plain data. Canonical because plans hand over their objects and sets already sorted."""

decode_plain = msgspec.json.Decoder().decode


class Fault(Exception):
    """Why a value or its data will not do, and where; the codec makes `NotEncodable` or `Undecodable` of it.

    The place is collected on the way out, innermost step first, so that nothing is paid for it while all is well.
    """

    def __init__(self, reason: str, *steps: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps = list(steps)

    def path(self, root: str) -> str:
        return root + "".join(reversed(self.steps))


@attrs.frozen
class Plan:
    """How values of one type travel.

    `pack` raises Fault for a value that is not of the type or would not come back equal; `unpack` raises Fault for data
    that `pack` could not have made. `proof`: the classes for which `isinstance` alone shows that a value belongs to the
    type; None when only trying `pack` tells (the elements of a container count too).
    """

    name: str
    pack: Pack
    unpack: Unpack
    proof: tuple[type[Any], ...] | None = None


@attrs.frozen
class Tagged:
    """How values of one class travel when nothing else says their class: objects that begin with its tag."""

    pack: Pack
    unpack: Unpack


def tagged(tag: str, pack: Pack, unpack: Unpack) -> Tagged:
    """Under a tag, with the data of `pack` as the body."""
    return Tagged(lambda value: {TAG: tag, BODY: pack(value)}, lambda plain: unpack(body_of(plain)))


def body_of(plain: dict[str, Plain]) -> Plain:
    """What a tagged object holds, when it may have nothing beside it."""
    if len(plain) != 2 or BODY not in plain:
        raise Fault(f"data tagged {shortened(plain[TAG])} must have {BODY!r} beside its tag, and nothing else")
    return plain[BODY]


def each(values: Iterable[Any], turn: Callable[[Any], Any]) -> list[Any]:
    """Pack or unpack the elements of a sequence; a Fault learns which one it was."""
    results: list[Any] = []
    append = results.append
    try:
        for value in values:
            append(turn(value))
    except Fault as fault:
        fault.steps.append(f"[{len(results)}]")
        raise
    return results


def described(value: object) -> str:
    """The type of a value, for a message: never its content, which may be private."""
    kind = type(value)
    if kind is dict and isinstance(value, dict) and isinstance(value.get(TAG), str):
        return f"data tagged {shortened(value[TAG])}"
    return "None" if value is None else kind.__qualname__


def expected(name: str, found: object) -> Fault:
    return Fault(f"expected {name}, found {described(found)}")


def shortened(text: str, limit: int = 120) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")


def hint_name(hint: object) -> str:
    """A type as its author would write it."""
    if hint is None or hint is types.NoneType:
        return "None"
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__qualname__.rpartition("<locals>.")[2]
    return str(hint).replace("typing.", "").replace("<class '", "").replace("'>", "")
