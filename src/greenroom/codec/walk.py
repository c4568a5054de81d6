"""From a type annotation to a plan: the walk over a class's fields, made once, at registration.

Whatever could not come back is collected by name, all of it, and nothing is registered then.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import attrs

from greenroom.codec import containers
from greenroom.codec.choices import base_plan, literal_plan, optional_plan, union_plan
from greenroom.codec.classes import ClassPlan, class_problems, is_value_class
from greenroom.codec.dynamic import Dynamic, any_plan
from greenroom.codec.enums import enum_plan
from greenroom.codec.hints import Bindings, Unresolved, class_bindings, field_hint, substituted
from greenroom.codec.leaves import HERE, LEAVES, leaf_plan
from greenroom.codec.moments import MOMENTS
from greenroom.codec.plan import Plan, hint_name, tagged
from greenroom.codec.registry import Registry
from greenroom.codec.tags import Resolver, declared, default_tag
from greenroom.errors import RemoteError

_ABC = collections.abc
_ABSTRACT_CONTAINERS: dict[Any, tuple[type[Any], ...]] = {
    _ABC.Sequence: (list, tuple),
    _ABC.MutableSequence: (list,),
    _ABC.Set: (set, frozenset),
    _ABC.MutableSet: (set,),
    _ABC.Collection: (list, tuple, set, frozenset),
    _ABC.Iterable: (list, tuple, set, frozenset),
    _ABC.Mapping: (dict,),
    _ABC.MutableMapping: (dict,),
}
_MOST_OPEN_FORMS = 20
"""Forms of generic classes inside one another; only one that holds an ever longer form of itself has so many."""


def standard_plans(dynamic: Dynamic) -> dict[Any, Plan]:
    """The plans that every codec has, by annotation."""
    plans: dict[Any, Plan] = {leaf.kind: leaf_plan(leaf, dynamic) for leaf in (*LEAVES, *MOMENTS)}
    anything = any_plan(dynamic)
    return {
        **plans,
        None: plans[types.NoneType],
        Path: plans[HERE],
        PurePath: base_plan(PurePath, dynamic),
        typing.LiteralString: plans[str],
        Any: anything,
        object: anything,
    }


class Walk:
    """One registration: changes `registry`, which the codec adopts if `problems` is empty in the end."""

    def __init__(
        self,
        registry: Registry,
        dynamic: Dynamic,
        standard: Mapping[Any, Plan],
        resolve: Resolver | None,
        names: Mapping[str, Any],
    ) -> None:
        self.registry = registry
        self.problems: list[str] = []
        self._dynamic = dynamic
        self._standard = standard
        self._resolve = resolve
        self._names = names
        self._open_forms = 0
        self._owner: type[Any] = object  # what typing.Self means
        self._broken = any_plan(dynamic)  # stands where a problem was found; never used, for nothing is adopted then

    def register(self, classes: tuple[type[Any], ...]) -> None:
        good = [cls for cls in classes if self._may_register(cls)]
        for cls in good:  # all of them first, so that each may have fields of the others' bases
            self._claim(cls)
        for cls in good:
            self.plan(cls, cls.__name__)

    def _may_register(self, cls: object) -> bool:
        if not isinstance(cls, type):
            self.problems.append(f"{hint_name(cls)} is not a class")
        elif issubclass(cls, Enum):
            if cls.__members__:
                return True
            self.problems.append(f"{cls.__name__} is an Enum without members: register the ones that derive from it")
        elif issubclass(cls, BaseException):
            self.problems.append(
                f"{cls.__name__} is an exception: those need no registration and come back as RemoteError "
                "(if the receiver needs this very class, see Codec.register_external)"
            )
        elif not is_value_class(cls):
            self.problems.append(
                f"{cls.__name__} is not an attrs class: decorate it with @attrs.frozen or @attrs.define"
            )
        elif inspect.isabstract(cls):
            self.problems.append(f"{cls.__name__} is abstract: register the concrete classes that derive from it")
        else:
            return True
        return False

    def _claim(self, cls: type[Any]) -> None:
        if cls in self.registry.tags:
            return
        self.problems += self.registry.claim(cls)
        if self._resolve is not None and declared(cls).tag is None:
            self._require_found(cls, self._resolve)

    def _require_found(self, cls: type[Any], resolve: Resolver) -> None:
        """A codec that finds classes by name must not send a name by which the other side would not find this class."""
        tag = default_tag(cls)
        try:
            found: Any = resolve(tag)
        except Exception as error:  # noqa: BLE001 - a resolver may import, and an import may raise anything
            self.problems.append(f"{cls.__name__}: {error}")
            return
        if found is not cls:
            self.problems.append(
                f"{cls.__name__}: {tag} names another object by now, so that this class would not be found again: "
                "give it its own name or @wire(tag=...)"
            )

    def plan(self, hint: Any, where: str, bindings: Bindings = types.MappingProxyType({})) -> Plan:
        """The plan for an annotation; on a problem, notes it and returns a plan that will not be used."""
        return self._plan(substituted(hint, bindings), where)

    def _plan(self, hint: Any, where: str) -> Plan:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is None and isinstance(hint, collections.abc.Hashable) and hint in self._standard:
            return self._standard[hint]
        if hint is typing.Self:
            return self._class(self._owner, (), where)
        if hint in (tuple, typing.Tuple):  # noqa: UP006 - the bare forms; `tuple[()]` is another type
            arguments = (Any, ...)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, where)
        if origin is typing.Literal:
            return self._literal(arguments, where)
        if origin is typing.Annotated or origin is typing.Final:
            return self.plan(arguments[0], where)
        if isinstance(hint, typing.NewType):
            return self.plan(hint.__supertype__, where)
        kind = origin or hint
        if kind in (list, set, frozenset, dict, tuple):
            return self._container(kind, arguments, where)
        if kind in _ABSTRACT_CONTAINERS:
            return self._abstract_container(kind, arguments, where)
        if isinstance(kind, type):
            return self._class(kind, arguments, where)
        return self._refuse(where, f"{hint_name(hint)} cannot be encoded")

    def _refuse(self, where: str, reason: str) -> Plan:
        self.problems.append(f"{where}: {reason}")
        return self._broken

    def _union(self, arguments: tuple[Any, ...], where: str) -> Plan:
        members = [self.plan(member, where) for member in arguments if member is not types.NoneType]
        if len(members) == 1:
            return optional_plan(members[0])
        if types.NoneType in arguments:
            members.append(self._standard[types.NoneType])
        return union_plan(members, self._dynamic)

    def _literal(self, arguments: tuple[Any, ...], where: str) -> Plan:
        for argument in arguments:
            if isinstance(argument, Enum):
                self.plan(type(argument), where)
        return literal_plan(arguments, self._dynamic)

    def _container(self, kind: type[Any], arguments: tuple[Any, ...], where: str) -> Plan:
        if any(
            getattr(argument, "__unpacked__", False) or typing.get_origin(argument) is typing.Unpack
            for argument in arguments
        ):
            return self._refuse(
                where, f"{kind.__name__}[{', '.join(map(hint_name, arguments))}] has an unpacked part: write it out"
            )
        if kind is tuple:
            if arguments[1:] == (...,):
                return containers.tuple_plan(self.plan(arguments[0], where))
            return containers.fixed_tuple_plan([self.plan(argument, where) for argument in arguments])
        if kind is dict:
            key, value = arguments or (Any, Any)
            keys = self.plan(key, where)
            return containers.dict_plan(
                keys, self.plan(value, where), text_keys=any(keys is self._standard[each] for each in (str, Any))
            )
        item = self.plan(arguments[0] if arguments else Any, where)
        return containers.list_plan(item) if kind is list else containers.set_plan(kind, item)

    def _abstract_container(self, kind: Any, arguments: tuple[Any, ...], where: str) -> Plan:
        members = []
        for concrete in _ABSTRACT_CONTAINERS[kind]:
            given = (*(arguments or (Any,)), ...) if concrete is tuple else arguments
            members.append(self._container(concrete, given, where))
        return members[0] if len(members) == 1 else union_plan(members, self._dynamic)

    def _class(self, cls: type[Any], arguments: tuple[Any, ...], where: str) -> Plan:
        known = self.registry.plans.get(cls)
        if known is not None:
            return known
        if issubclass(cls, BaseException):
            if issubclass(RemoteError, cls):
                return base_plan(cls, self._dynamic)
            return self._refuse(
                where, f"an exception comes back as RemoteError, which is no {cls.__name__}: annotate it as Exception"
            )
        if issubclass(cls, Enum) and cls.__members__:
            return self._enum(cls)
        if is_value_class(cls) and not inspect.isabstract(cls):
            return self._value_class(cls, arguments, where)
        return self._base(cls, where)

    def _enum(self, cls: type[Enum]) -> Plan:
        self._claim(cls)
        plan = enum_plan(cls)
        self.registry.plans[cls] = plan
        self.registry.forms[cls] = tagged(self.registry.tags[cls], plan.pack, plan.unpack)
        return plan

    def _base(self, cls: type[Any], where: str) -> Plan:
        name = hint_name(cls)
        if cls in (_ABC.Callable, types.BuiltinFunctionType) or issubclass(cls, types.FunctionType):
            return self._refuse(
                where, "a function cannot be encoded: send data, and let the receiver choose the function"
            )
        if typing.is_typeddict(cls):
            return self._refuse(
                where, f"{name} is a TypedDict, which its values do not know: make it an attrs class, or a dict"
            )
        try:
            if any(self.registry.known_under(cls)) or (self._resolve is not None and _has_value_subclass(cls)):
                return base_plan(cls, self._dynamic)
        except TypeError:  # issubclass on a Protocol that is not for run time
            return self._refuse(
                where, f"{name} is a Protocol that isinstance cannot test: decorate it with @runtime_checkable"
            )
        if is_value_class(cls) or inspect.isabstract(cls) or issubclass(cls, Enum):
            return self._refuse(
                where, f"{name} is abstract, and no class that derives from it is registered: register those first"
            )
        return self._refuse(
            where,
            f"{name} cannot be encoded: it is neither an attrs class nor a base of a registered one "
            "(make it an attrs class, or see Codec.register_external)",
        )

    def _value_class(self, cls: type[Any], arguments: tuple[Any, ...], where: str) -> Plan:
        bare = self.registry.class_plans.get(cls)
        if bare is None:
            self._claim(cls)
            bare = ClassPlan(cls, declared(cls).retired)
            self.registry.class_plans[cls] = bare
            self.registry.forms[cls] = bare.tagged(self.registry.tags[cls])
            self.problems += class_problems(cls)
            self._walk_fields(bare, {})
        if not arguments:
            return bare.static(self._dynamic, bare)
        key = (cls, arguments)
        form = self.registry.class_plans.get(key)
        if form is None:
            form = ClassPlan(cls, declared(cls).retired, f"{cls.__name__}[{', '.join(map(hint_name, arguments))}]")
            self.registry.class_plans[key] = form
            if self._open_forms == _MOST_OPEN_FORMS:
                return self._refuse(where, "its type goes on for ever")
            self._open_forms += 1
            self._walk_fields(form, class_bindings(cls, arguments))
            self._open_forms -= 1
        return form.static(self._dynamic, bare)

    def _walk_fields(self, plan: ClassPlan, bindings: Bindings) -> None:
        for attribute in sorted(attrs.fields(plan.cls), key=_name):
            if not attribute.init:
                continue  # noted by class_problems
            where = f"{plan.name}.{attribute.name}"
            try:
                hint = field_hint(plan.cls, attribute, bindings, self._names)
            except Unresolved as error:
                self.problems.append(f"{where}: {error}")
                continue
            self._owner, outer = plan.cls, self._owner
            plan.add(attribute, self.plan(hint, where))
            self._owner = outer


def _name(attribute: attrs.Attribute[Any]) -> str:
    return attribute.name


def _has_value_subclass(cls: type[Any]) -> bool:
    """Whether any attrs class derives from it: enough where classes are found by their names when they are met."""
    return any(is_value_class(each) or _has_value_subclass(each) for each in type.__subclasses__(cls))
