"""Lists, tuples, sets and dicts, with plans for what they hold.

A container keeps its exact type. Where it has no order of its own it is given one, so that equal values have equal
bytes: sets and dicts are sorted by the bytes of their elements and keys (str keys by themselves).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import Fault, Pack, Plain, Plan, each, encode_plain, expected, tagged


def list_plan(item: Plan) -> Plan:
    name, pack_item, unpack_item = f"list[{item.name}]", item.pack, item.unpack

    def pack(value: Any) -> Plain:
        if type(value) is not list:
            raise expected(name, value)
        return each(value, pack_item)

    def unpack(plain: Plain) -> Any:
        if type(plain) is not list:
            raise expected(name, plain)
        return each(plain, unpack_item)

    return Plan(name, pack, unpack)


def tuple_plan(item: Plan) -> Plan:
    """`tuple[item, ...]`."""
    name, pack_item, unpack_item = f"tuple[{item.name}, ...]", item.pack, item.unpack

    def pack(value: Any) -> Plain:
        if type(value) is not tuple:
            raise expected(name, value)
        return each(value, pack_item)

    def unpack(plain: Plain) -> Any:
        if type(plain) is not list:
            raise expected(name, plain)
        return tuple(each(plain, unpack_item))

    return Plan(name, pack, unpack)


def fixed_tuple_plan(items: Sequence[Plan]) -> Plan:
    """`tuple[a, b, c]`: as many elements as the type says."""
    name = f"tuple[{', '.join(item.name for item in items) or '()'}]"
    packs, unpacks = [item.pack for item in items], [item.unpack for item in items]

    def convert(values: Any, turns: list[Pack]) -> list[Any]:
        if len(values) != len(turns):
            raise Fault(f"expected {name}, found {len(values)} element(s)")
        results: list[Any] = []
        try:
            for turn, value in zip(turns, values, strict=True):
                results.append(turn(value))
        except Fault as fault:
            fault.steps.append(f"[{len(results)}]")
            raise
        return results

    def pack(value: Any) -> Plain:
        if type(value) is not tuple:
            raise expected(name, value)
        return convert(value, packs)

    def unpack(plain: Plain) -> Any:
        if type(plain) is not list:
            raise expected(name, plain)
        return tuple(convert(plain, unpacks))

    return Plan(name, pack, unpack)


def set_plan(kind: type[set[Any]] | type[frozenset[Any]], item: Plan) -> Plan:
    name, pack_item, unpack_item = f"{kind.__name__}[{item.name}]", item.pack, item.unpack

    def pack(value: Any) -> Plain:
        if type(value) is not kind:
            raise expected(name, value)
        try:
            plains = [pack_item(element) for element in value]
        except Fault as fault:
            fault.steps.append("[an element]")
            raise
        plains.sort(key=encode_plain)
        return plains

    def unpack(plain: Plain) -> Any:
        if type(plain) is not list:
            raise expected(name, plain)
        values = each(plain, unpack_item)
        try:
            result = kind(values)
        except TypeError as error:
            raise Fault(f"an element of a {kind.__name__} is not hashable") from error
        if len(result) != len(values):
            raise Fault(f"an element of a {kind.__name__} is there twice")
        return result

    return Plan(name, pack, unpack)


def dict_plan(key: Plan, item: Plan, *, text_keys: bool) -> Plan:
    """A dict. One whose keys are all str is a JSON object, any other a list of pairs.

    `text_keys`: whether they may all be str (`dict[str, …]`, `dict[Any, …]`); otherwise it is always pairs.
    """
    name = f"dict[{key.name}, {item.name}]"
    pack_key, unpack_key, pack_item, unpack_item = key.pack, key.unpack, item.pack, item.unpack

    def pack(value: Any) -> Plain:
        if type(value) is not dict:
            raise expected(name, value)
        plains: list[tuple[Plain, Plain]] = []
        step = "key"
        try:
            for each_key, each_item in value.items():
                step = "key"
                plain_key = pack_key(each_key)
                step = "value"
                plains.append((plain_key, pack_item(each_item)))
        except Fault as fault:
            fault.steps.append(f"[{step} {len(plains)}]")
            raise
        if text_keys and all(type(each_key) is str for each_key in value):
            return dict(sorted(plains, key=itemgetter(0)))
        return [list(pair) for pair in sorted(plains, key=_first_bytes)]

    def unpack(plain: Plain) -> Any:
        if type(plain) is dict and text_keys:
            pairs: Any = plain.items()
        elif type(plain) is list and all(type(pair) is list and len(pair) == 2 for pair in plain):
            pairs = plain
        else:
            raise expected(name, plain)
        values: dict[Any, Any] = {}
        step = "key"
        try:
            for count, (plain_key, plain_item) in enumerate(pairs):
                step = "key"
                each_key = unpack_key(plain_key)
                step = "value"
                values[each_key] = unpack_item(plain_item)
                if len(values) == count:
                    step = "key"
                    raise Fault("this key of a dict is there twice")
        except Fault as fault:
            fault.steps.append(f"[{step} {count}]")
            raise
        except TypeError as error:
            raise Fault("a key of a dict is not hashable") from error
        return values

    return Plan(name, pack, unpack)


def _first_bytes(pair: tuple[Plain, Plain]) -> bytes:
    return encode_plain(pair[0])


def teach_containers(dynamic: Dynamic, item: Plan) -> None:
    """Let the self-describing encoding know them; JSON tells a list by itself."""
    dynamic.packers[list] = list_plan(item).pack
    for tag, kind, plan in (
        ("!dict", dict, dict_plan(item, item, text_keys=True)),
        ("!tuple", tuple, tuple_plan(item)),
        ("!set", set, set_plan(set, item)),
        ("!frozenset", frozenset, set_plan(frozenset, item)),
    ):
        dynamic.teach(kind, tag, tagged(tag, plan.pack, plan.unpack))
