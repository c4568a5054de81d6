"""Field annotations as types: strings evaluated, type variables replaced by what a generic class was given."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

Bindings = Mapping[Any, Any]
"""What type variables stand for."""


class Unresolved(Exception):
    """An annotation that cannot be evaluated; the text says which name is missing and what to do."""


def field_hint(cls: type[Any], attribute: attrs.Attribute[Any], bindings: Bindings, names: Mapping[str, Any]) -> Any:
    """The type of a field of `cls`, with `bindings` for the type variables of `cls` itself.

    Args:
        names: what the annotation may refer to beside its module's globals: the locals of a function, for its classes.
    Raises:
        Unresolved: a name in it is not known.
    """
    if attribute.type is None:  # a field without annotation
        return Any
    owner = _owner(cls, attribute.name)
    return substituted(_evaluated(owner, attribute.type, names), _seen_from(owner, cls, bindings))


def substituted(hint: Any, bindings: Bindings) -> Any:
    """The hint with its type variables replaced; one that nothing is known about becomes its bound, or Any."""
    if isinstance(hint, TypeVar):
        return _replacement(hint, bindings)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):  # a bare generic class: its variables are free
        return hint
    return hint[tuple(_replacement(parameter, bindings) for parameter in parameters)]


def _replacement(parameter: Any, bindings: Bindings) -> Any:
    if parameter in bindings:
        return bindings[parameter]
    if not isinstance(parameter, TypeVar):
        return parameter  # a TypeVarTuple or ParamSpec: refused by whoever meets it
    if parameter.__constraints__:
        return typing.Union[parameter.__constraints__]  # noqa: UP007 - made of a tuple
    bound = parameter.__bound__
    return Any if bound is None or isinstance(bound, typing.ForwardRef) else bound


def class_bindings(cls: type[Any], arguments: tuple[Any, ...]) -> Bindings:
    return dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))


def _owner(cls: type[Any], name: str) -> type[Any]:
    for owner in cls.__mro__:
        if name in inspect.get_annotations(owner):
            return owner
    return cls


def _seen_from(owner: type[Any], cls: type[Any], bindings: Bindings) -> Bindings:
    """What the type variables of a base stand for in a class that derives from `Base[argument]`."""
    if owner is cls:
        return bindings
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and issubclass(origin, owner):
            arguments = tuple(substituted(argument, bindings) for argument in typing.get_args(base))
            return _seen_from(owner, origin, class_bindings(origin, arguments))
    return {}


def _evaluated(owner: type[Any], annotation: Any, names: Mapping[str, Any]) -> Any:
    holder = type(owner.__name__, (), {"__annotations__": {"it": annotation}})
    module = sys.modules.get(owner.__module__)
    known = {} if module is None else vars(module)
    try:
        return typing.get_type_hints(holder, known, {owner.__name__: owner, **names})["it"]
    except NameError as error:
        raise Unresolved(
            f"its annotation {annotation!r} names {error.name!r}, which is unknown where {owner.__name__} is defined: "
            "define it at module level (not under TYPE_CHECKING), or register with names=locals()"
        ) from error
    except (TypeError, AttributeError, SyntaxError) as error:
        raise Unresolved(f"its annotation {annotation!r} is not a type: {error}") from error
