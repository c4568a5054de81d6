"""The self-describing encoding: for `Any`, unions, base classes, and the value that is handed to `encode` itself.

JSON's own kinds stand for None, bool, int, float, str and list; everything else is an object with its tag. What comes
back therefore has exactly the type that went in, at any depth, whatever the annotations say. A dict has a tag like the
rest: were an object without one a dict, then a value whose tag was damaged would come back as a dict, in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.codec.plan import TAG, Fault, Pack, Plain, Plan, Tagged, Unpack, each


class Dynamic:
    """The two tables that the self-describing encoding reads: by exact class, and by tag.

    `find_packer` and `find_unpacker` are asked when a table has no entry; they return one or raise Fault.
    """

    def __init__(self, find_packer: Callable[[type[Any]], Pack], find_unpacker: Callable[[str], Unpack]) -> None:
        self.packers: dict[type[Any], Pack] = {}
        self.unpackers: dict[str, Unpack] = {}
        self._find_packer = find_packer
        self._find_unpacker = find_unpacker

    def teach(self, cls: type[Any], tag: str, form: Tagged) -> None:
        self.packers[cls] = form.pack
        self.unpackers[tag] = form.unpack

    def pack(self, value: object) -> Plain:
        kind = type(value)
        packer = self.packers.get(kind)
        if packer is None:
            packer = self._find_packer(kind)
        return packer(value)

    def unpack(self, plain: Plain) -> Any:
        kind = type(plain)
        if kind is dict:
            tag = plain.get(TAG)
            if type(tag) is not str:
                raise Fault(f"an object needs the text of a type tag under {TAG!r} here")
            unpacker = self.unpackers.get(tag)
            if unpacker is None:
                unpacker = self._find_unpacker(tag)
            return unpacker(plain)
        if kind is list:
            return each(plain, self.unpack)
        return plain


def any_plan(dynamic: Dynamic) -> Plan:
    return Plan("Any", dynamic.pack, dynamic.unpack, proof=(object,))
