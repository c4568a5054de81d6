"""Enum members: by name, which outlives a change of value; combinations of flags by value, since they have no name."""

from __future__ import annotations

from enum import Enum, Flag
from typing import Any

from greenroom.codec.plan import Fault, Plain, Plan, expected


def enum_plan(cls: type[Enum]) -> Plan:
    """For an Enum class that has members, so that nothing can derive from it: the static type says all."""
    return _flag_plan(cls) if issubclass(cls, Flag) else _member_plan(cls)


def _member_plan(cls: type[Enum]) -> Plan:
    name, members = cls.__qualname__, cls.__members__

    def pack(value: Any) -> Plain:
        if type(value) is not cls:
            raise expected(name, value)
        return value._name_

    def unpack(plain: Plain) -> Any:
        if type(plain) is not str:
            raise expected(f"a member name of {name}", plain)
        member = members.get(plain)
        if member is None:
            raise Fault(f"{name} has no such member")
        return member

    return Plan(name, pack, unpack, proof=(cls,))


def _flag_plan(cls: type[Flag]) -> Plan:
    name = cls.__qualname__

    def pack(value: Any) -> Plain:
        if type(value) is not cls:
            raise expected(name, value)
        return value._value_

    def unpack(plain: Plain) -> Any:
        if type(plain) is not int:
            raise expected(f"the int value of {name}", plain)
        try:
            flags = cls(plain)
        except ValueError as error:
            raise Fault(f"{name} has no such flags") from error
        if type(flags) is not cls:
            raise Fault(f"{name} has no such flags")
        return flags

    return Plan(name, pack, unpack, proof=(cls,))
