"""Values without parts, of the standard library: numbers, text, bytes, identifiers, paths.

Each kind says how its exact class becomes plain data and back. Where the static type names the kind, that data stands
alone; elsewhere it stands under a tag, except for the kinds that JSON itself can tell apart.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any
from uuid import UUID

import attrs

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import BODY, TAG, Fault, Pack, Plain, Plan, Unpack, body_of, expected, tagged

SMALLEST, LARGEST = -(2**63), 2**64 - 1
"""The integers that any JSON reader with 64-bit integers takes exactly; larger ones are tagged hexadecimal text."""

_HEX = re.compile(r"-?0x[0-9a-f]+")
_ODD_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@attrs.frozen
class Leaf:
    """One kind. `accepts`: the classes whose instances may stand where `kind` is annotated, keeping their own type.

    `native`: JSON tells this kind apart by itself, so that it needs no tag where nothing else is known.
    """

    kind: type[Any]
    name: str
    to_plain: Pack
    from_plain: Unpack
    accepts: tuple[type[Any], ...]
    native: bool = False

    @property
    def tag(self) -> str:
        return f"!{self.name}"


def teach(leaf: Leaf, dynamic: Dynamic) -> None:
    """Let the self-describing encoding know this kind."""
    to_plain, from_plain = leaf.to_plain, leaf.from_plain
    if leaf.native:
        dynamic.packers[leaf.kind] = to_plain
    else:
        dynamic.teach(leaf.kind, leaf.tag, tagged(leaf.tag, to_plain, from_plain))


def leaf_plan(leaf: Leaf, dynamic: Dynamic) -> Plan:
    kind, name, accepts, to_plain, from_plain = leaf.kind, leaf.name, leaf.accepts, leaf.to_plain, leaf.from_plain

    def pack(value: Any) -> Plain:
        if type(value) is kind:
            return to_plain(value)
        if isinstance(value, accepts):
            return dynamic.pack(value)
        raise expected(name, value)

    def unpack(plain: Plain) -> Any:
        if type(plain) is dict and TAG in plain:
            value = dynamic.unpack(plain)
            if isinstance(value, accepts):
                return value
            raise expected(name, value)
        return from_plain(plain)

    return Plan(name, pack, unpack, proof=accepts)


# ------------------------------------------------------------------------------------------------------- JSON's own


def _same(value: Any) -> Plain:
    return value


def _exactly(kind: type[Any], name: str) -> Unpack:
    def unpack(plain: Plain) -> Any:
        if type(plain) is kind:
            return plain
        raise expected(name, plain)

    return unpack


def _pack_int(value: int) -> Plain:
    if SMALLEST <= value <= LARGEST:
        return value
    return {TAG: "!int", BODY: hex(value)}  # not decimal: Python refuses to convert more than 4300 digits


def _unpack_int(plain: Plain) -> int:
    if isinstance(plain, int):  # a bool is an int to every type checker, and stays a bool
        return plain
    raise expected("int", plain)


def _unpack_large_int(plain: dict[str, Plain]) -> int:
    body = body_of(plain)
    if type(body) is str and _HEX.fullmatch(body):
        return int(body, 16)
    raise Fault("a large int must be hexadecimal text")


def _pack_float(value: float) -> Plain:
    if math.isfinite(value):
        return value
    return {TAG: "!float", BODY: "nan" if value != value else "inf" if value > 0 else "-inf"}


def _unpack_float(plain: Plain) -> float:
    if type(plain) is float or isinstance(plain, int):  # an int may stand for a float, and stays an int
        return plain
    raise expected("float", plain)


def _unpack_odd_float(plain: dict[str, Plain]) -> float:
    body = body_of(plain)
    if type(body) is str and body in _ODD_FLOATS:
        return _ODD_FLOATS[body]
    raise Fault("a float that is no number must be 'nan', 'inf' or '-inf'")


def pack_text(value: str) -> str:
    if not value.isascii():  # a flag of the object: free for most text
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Fault("holds a lone surrogate, which UTF-8 cannot carry: send the text as bytes") from None
    return value


# ------------------------------------------------------------------------------------------------------- as text


def unpack_text(plain: Plain, name: str) -> str:
    if type(plain) is str:
        return plain
    raise expected(f"{name} as text", plain)


def _from_text(name: str, read: Callable[[str], Any]) -> Unpack:
    def unpack(plain: Plain) -> Any:
        text = unpack_text(plain, name)
        try:
            return read(text)
        except (ValueError, InvalidOperation) as error:
            raise Fault(f"the text is not a {name}") from error

    return unpack


def _pack_bytes(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), validate=True)


_unpack_bytes = _from_text("bytes", _read_bytes)


def _pack_path(value: PurePath) -> Plain:
    text = str(value)
    try:
        return pack_text(text)
    except Fault:
        # Unix names are bytes, and Python keeps those that are not UTF-8 as lone surrogates.
        return {"raw": _pack_bytes(os.fsencode(text))}


def _unpack_path(kind: type[PurePath]) -> Unpack:
    def unpack(plain: Plain) -> PurePath:
        if type(plain) is dict and plain.keys() == {"raw"}:
            return kind(os.fsdecode(_unpack_bytes(plain["raw"])))
        return kind(unpack_text(plain, "path"))

    return unpack


def _path(name: str, kind: type[PurePath]) -> Leaf:
    # PosixPath and WindowsPath are one kind: "a path of the machine that reads it".
    return Leaf(kind, name, _pack_path, _unpack_path(kind), (kind,))


HERE = type(Path())

LEAVES: tuple[Leaf, ...] = (
    Leaf(NoneType, "None", _same, _exactly(NoneType, "None"), (NoneType,), native=True),
    Leaf(bool, "bool", _same, _exactly(bool, "bool"), (bool,), native=True),
    Leaf(int, "int", _pack_int, _unpack_int, (int,), native=True),
    Leaf(float, "float", _pack_float, _unpack_float, (float, int), native=True),
    Leaf(str, "str", pack_text, _exactly(str, "str"), (str,), native=True),
    Leaf(bytes, "bytes", _pack_bytes, _unpack_bytes, (bytes,)),
    Leaf(Decimal, "Decimal", str, _from_text("Decimal", Decimal), (Decimal,)),
    Leaf(UUID, "UUID", str, _from_text("UUID", UUID), (UUID,)),
    _path("Path", HERE),
    _path("PurePosixPath", PurePosixPath),
    _path("PureWindowsPath", PureWindowsPath),
)


def teach_natives(dynamic: Dynamic) -> None:
    """The two kinds of number that JSON has no form for."""
    dynamic.unpackers["!int"] = _unpack_large_int
    dynamic.unpackers["!float"] = _unpack_odd_float
