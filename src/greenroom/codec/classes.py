"""attrs classes: a JSON object with a key for each field.

Decoding goes through the class's own `__init__`, so that validators, converters and defaults have their say. Where
a class runs code of its own there, that code could refuse or change what was sent; such a value is therefore built
a second time while it is encoded, and refused if the copy differs. What encoding lets through thus comes back equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import attrs

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import TAG, Fault, Pack, Plain, Plan, Tagged, Unpack, expected, shortened

_BUILTIN_DATA = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, BaseException, type)
_UNREMARKABLE = {"__dict__", "__weakref__", "_attrs_cached_hash", "__orig_class__"}
_ABSENT: Any = object()


class ClassPlan:
    """The plan of one attrs class, or of one `Class[argument]`.

    `fields` is filled after the plan exists, because a class may hold itself.
    """

    def __init__(self, cls: type[Any], retired: frozenset[str], form: str | None = None) -> None:
        """`form`: how the parametrised form is written, if it is one."""
        self.cls = cls
        self.name = form or cls.__name__
        self._is_form = form is not None
        self._retired = retired
        self._packs: list[tuple[str, Pack]] = []
        self._unpacks: list[tuple[str, str, Unpack, bool]] = []
        self._make = _maker(cls)
        self._runs_code = _runs_code(cls)
        self._has_dict = cls.__dictoffset__ != 0

    def add(self, attribute: attrs.Attribute[Any], plan: Plan) -> None:
        """Add a field; must be called in the order of the names, which is the order in data."""
        alias = attribute.alias or attribute.name
        self._packs.append((attribute.name, plan.pack))
        self._unpacks.append((attribute.name, alias, plan.unpack, attribute.default is attrs.NOTHING))

    def fill(self, plain: dict[str, Plain], value: Any) -> dict[str, Plain]:
        """Add the fields of a value to an object."""
        name = ""
        try:
            for name, pack in self._packs:
                plain[name] = pack(getattr(value, name))
        except Fault as fault:
            fault.steps.append(f".{name}")
            raise
        except AttributeError as error:
            if hasattr(value, name):
                raise
            raise Fault("has no value", f".{name}") from error
        if self._has_dict:
            self._refuse_strays(value)
        if self._runs_code:
            self._refuse_changed(value)
        return plain

    def make(self, plain: dict[str, Plain]) -> Any:
        """A value of the fields in an object; its tag, if there is one, is the caller's."""
        arguments: dict[str, Any] = {}
        name = ""
        seen = int(TAG in plain)
        try:
            for name, alias, unpack, required in self._unpacks:
                item = plain.get(name, _ABSENT)
                if item is not _ABSENT:
                    arguments[alias] = unpack(item)
                    seen += 1
                elif required:
                    raise Fault("is missing and has no default")
        except Fault as fault:
            fault.steps.append(f".{name}")
            raise
        if seen != len(plain):
            self._refuse_unknown(plain)
        try:
            return self._make(**arguments)
        except Exception as error:  # validators and converters are the class's own code and may raise anything
            raise Fault(f"{self.name} itself refused these fields, by {type(error).__qualname__}") from error

    def static(self, dynamic: Dynamic, bare: ClassPlan) -> Plan:
        """The plan for a place annotated with this class: no tag, but for instances of a subclass.

        `bare`: the plan of the class without arguments (itself, if it has none).
        """
        cls, name, fill, make, tagged_make = self.cls, self.name, self.fill, self.make, bare.make

        def pack(value: Any) -> Plain:
            if type(value) is cls:
                return fill({}, value)
            if isinstance(value, cls):
                return dynamic.pack(value)
            raise expected(name, value)

        def unpack(plain: Plain) -> Any:
            if type(plain) is not dict:
                raise expected(name, plain)
            if TAG not in plain:
                return make(plain)
            tag = plain[TAG]
            if type(tag) is str and dynamic.unpackers.get(tag) == tagged_make:  # this class, by any of its names
                return make(plain)
            value = dynamic.unpack(plain)
            if not isinstance(value, cls):
                raise expected(name, value)
            return value

        return Plan(name, pack, unpack, proof=None if self._is_form else (cls,))

    def tagged(self, tag: str) -> Tagged:
        """The form with its tag beside its fields."""
        fill = self.fill
        return Tagged(lambda value: fill({TAG: tag}, value), self.make)

    def _refuse_unknown(self, plain: dict[str, Plain]) -> None:
        known = {name for name, *_ in self._unpacks} | self._retired | {TAG}
        unknown = sorted(plain.keys() - known)
        if unknown:
            raise Fault(
                f"{self.name} has no field {', '.join(map(shortened, unknown[:5]))}: was this written by a newer "
                "version, or should @wire(retired=[...]) on the class name it?"
            )

    def _refuse_strays(self, value: Any) -> None:
        strays = vars(value).keys() - _UNREMARKABLE - {name for name, _ in self._packs}
        for name in sorted(strays):
            if not isinstance(getattr(self.cls, name, None), cached_property):
                raise Fault(f"has an attribute {name!r} that is not an attrs field and would be lost")

    def _refuse_changed(self, value: Any) -> None:
        arguments = {alias: getattr(value, name) for name, alias, *_ in self._unpacks}
        try:
            copy = self._make(**arguments)
        except Exception as error:  # the class's own code, as above
            raise Fault(
                f"{self.name} would refuse these very fields when it is decoded, by {type(error).__qualname__}: "
                "its converters and validators must accept what they have made"
            ) from error
        for name, _ in self._packs:
            before, after = getattr(value, name), getattr(copy, name)
            if not _same(before, after):
                raise Fault(
                    f"would be changed when it is decoded: a converter or __attrs_post_init__ of {self.name} gives "
                    "something else when it is applied to its own result",
                    f".{name}",
                )


def is_value_class(cls: type[Any]) -> bool:
    return "__attrs_attrs__" in cls.__dict__


def class_problems(cls: type[Any]) -> Iterator[str]:
    """What would be lost, in every instance of the class, whatever its fields hold; each names the class."""
    name = cls.__name__
    content = next((base for base in _BUILTIN_DATA if issubclass(cls, base)), None)
    if content is not None:
        yield f"{name} is a {content.__name__}, whose own content is no attrs field: make it a field of its own"
    fields = attrs.fields_dict(cls)
    for field in fields.values():
        if not field.init:
            yield (
                f"{name}.{field.name}: has init=False, so that a decoded {name} could not be given it: "
                "let __init__ take it, or make it a property"
            )
    for owner in cls.__mro__:
        if is_value_class(owner):
            continue  # attrs adds slots of its own, for cached properties, which can be computed again
        slots = owner.__dict__.get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if slot not in fields and slot not in _UNREMARKABLE:
                yield f"{name}.{slot}: is a slot of {owner.__name__} but no attrs field, and would be lost"


def _same(before: Any, after: Any) -> bool:
    try:
        return before is after or (type(before) is type(after) and bool(before == after))
    except Exception:  # noqa: BLE001 - any __eq__ may raise; what cannot be compared is not known to be the same
        return False


def _runs_code(cls: type[Any]) -> bool:
    return (
        hasattr(cls, "__attrs_post_init__")
        or hasattr(cls, "__attrs_pre_init__")
        or "__attrs_init__" in cls.__dict__
        or any(field.converter is not None or field.validator is not None for field in attrs.fields(cls))
    )


def _maker(cls: type[Any]) -> Callable[..., Any]:
    if "__attrs_init__" not in cls.__dict__:
        return cls

    def make(**arguments: Any) -> Any:  # the class has an __init__ of its own, with parameters that we cannot know
        value: Any = object.__new__(cls)
        value.__attrs_init__(**arguments)
        return value

    return make
