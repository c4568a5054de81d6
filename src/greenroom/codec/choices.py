"""Types that leave open which class a value has: unions, Literal, base classes.

Their values are encoded so that they describe themselves; the type then only says what is allowed, on both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import Fault, Plain, Plan, expected


def optional_plan(inner: Plan) -> Plan:
    """`X | None`: JSON's null tells them apart, and X keeps its own form."""
    pack_inner, unpack_inner = inner.pack, inner.unpack
    proof = None if inner.proof is None else (*inner.proof, type(None))
    return Plan(
        f"{inner.name} | None",
        lambda value: None if value is None else pack_inner(value),
        lambda plain: None if plain is None else unpack_inner(plain),
        proof,
    )


def union_plan(members: Sequence[Plan], dynamic: Dynamic) -> Plan:
    name = " | ".join(member.name for member in members)
    proof = tuple(cls for member in members if member.proof is not None for cls in member.proof)
    on_trial = [member for member in members if member.proof is None]

    def demand(value: Any) -> None:
        if isinstance(value, proof):
            return
        for member in on_trial:
            try:
                member.pack(value)
            except Fault:
                if len(on_trial) == 1 and type(value).__name__ == member.name.partition("[")[0]:
                    raise  # it can only have been meant for this one, whose complaint says more
            else:
                return
        raise expected(name, value)

    return _open_plan(name, demand, dynamic, None if on_trial else proof)


def literal_plan(allowed: Sequence[Any], dynamic: Dynamic) -> Plan:
    name = f"Literal[{', '.join(repr(value) for value in allowed)}]"
    known = {(type(value), value) for value in allowed}

    def demand(value: Any) -> None:
        try:
            good = (type(value), value) in known
        except TypeError:  # not hashable, so not among them
            good = False
        if not good:
            raise Fault(f"expected {name}, found another {type(value).__qualname__}")

    return _open_plan(name, demand, dynamic, None)


def base_plan(cls: type[Any], dynamic: Dynamic) -> Plan:
    """A class whose instances belong to registered subclasses of it."""
    name = cls.__qualname__

    def demand(value: Any) -> None:
        if not isinstance(value, cls):
            raise expected(name, value)

    return _open_plan(name, demand, dynamic, (cls,))


def _open_plan(name: str, demand: Callable[[Any], None], dynamic: Dynamic, proof: tuple[type[Any], ...] | None) -> Plan:
    pack_any, unpack_any = dynamic.pack, dynamic.unpack

    def pack(value: Any) -> Plain:
        demand(value)
        return pack_any(value)

    def unpack(plain: Plain) -> Any:
        value = unpack_any(plain)
        demand(value)
        return value

    return Plan(name, pack, unpack, proof)
