"""The codec itself: registration, `encode`, `decode`."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import msgspec

from greenroom.codec.choices import base_plan
from greenroom.codec.classes import is_value_class
from greenroom.codec.containers import teach_containers
from greenroom.codec.depth import DEEPEST, too_deep
from greenroom.codec.dynamic import Dynamic, any_plan
from greenroom.codec.exceptions import pack_exception, teach_exceptions
from greenroom.codec.externals import external_form
from greenroom.codec.leaves import LEAVES, teach, teach_natives
from greenroom.codec.moments import MOMENTS
from greenroom.codec.plan import TAG, Fault, Pack, Unpack, decode_plain, encode_plain, hint_name, shortened
from greenroom.codec.registry import Registry
from greenroom.codec.tags import Resolver, declared, default_tag
from greenroom.codec.walk import Walk, standard_plans
from greenroom.errors import NotEncodable, Undecodable

T = TypeVar("T")
_NO_NAMES: Mapping[str, Any] = types.MappingProxyType({})


class Codec:
    """Turns values into bytes and back, exactly: what `decode` returns equals what was encoded, and has the same types.

    The bytes are JSON, canonical (equal values of equal types have equal bytes, whatever order their sets and dicts are
    in), and name the type of each attrs value where nothing else does. What could not come back is refused before it is
    encoded, by the path of its field. Nothing in data is ever executed; only known types are made.

    Known types are those that were registered, those that registered classes have fields of, and the standard ones:
    None, bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, UUID, paths, list, tuple, set,
    frozenset, dict. Exceptions travel as text and come back as `RemoteError`.

    Changing a class: a field that older data lacks takes its default. A field that the class does not have is refused,
    never skipped: skipping would act on half of what a newer version sent, and would take a damaged name for a missing
    field. A class that has given up a field says so, `@wire(retired=[...])`; a class that was renamed keeps its data by
    `@wire(aliases=[...])`.

    Args:
        resolve: asked for the class of a tag that is not known (see `import_class`), and to make sure that a class can
            be found again before it is registered under its default tag. Such a codec also registers by itself the
            classes of values that it is given to encode. None: only what was registered is known.

    Threads: all methods may be called from any thread.
    """

    def __init__(self, *, resolve: Resolver | None = None) -> None:
        self._resolve = resolve
        self._registry = Registry()
        self._lock = threading.RLock()
        self._dynamic = Dynamic(self._find_packer, self._find_unpacker)
        for leaf in (*LEAVES, *MOMENTS):
            teach(leaf, self._dynamic)
        teach_natives(self._dynamic)
        teach_containers(self._dynamic, any_plan(self._dynamic))
        teach_exceptions(self._dynamic)
        self._standard = standard_plans(self._dynamic)
        self._builtin = frozenset(self._dynamic.packers)

    def register(self, *classes: type[Any], names: Mapping[str, Any] = _NO_NAMES) -> None:
        """Make attrs and Enum classes known, and those that their fields are of.

        A class with the module and qualname of a known one replaces it. Registering twice is registering once.

        Args:
            names: what annotations may refer to beside their module's globals; `locals()` for classes made in a
                function.
        Raises:
            NotEncodable: names everything in any of the classes that would be lost or could not come back: fields with
                `init=False`, types that cannot be encoded, base classes without a registered subclass, tags already
                taken, classes that could not be found again by name. Nothing is registered then.
        """
        with self._lock:
            if all(cls in self._registry.tags for cls in classes):
                return
            walk = self._walk(names)
            walk.register(classes)
            self._adopt(walk, ", ".join(hint_name(cls) for cls in classes))

    def register_external(
        self, cls: type[T], tag: str, to_plain: Callable[[T], object], from_plain: Callable[[Any], T]
    ) -> None:
        """Make known a class that is no attrs class, by two functions. Register it before classes with fields of it.

        Args:
            cls: instances of exactly this class are meant, not those of subclasses.
            tag: its name in data.
            to_plain: gives anything that this codec can encode.
            from_plain: makes a value of what `to_plain` gave; whatever it raises makes the data undecodable.
        Raises:
            NotEncodable: the tag is taken, or the class is one of those that every codec knows.
        """
        with self._lock:
            if cls in self._builtin:
                raise NotEncodable(hint_name(cls), (f"{cls.__name__} is encoded by the codec itself",))
            walk = self._walk(_NO_NAMES)
            walk.problems += walk.registry.claim(cls, tag)
            walk.registry.plans[cls] = base_plan(cls, self._dynamic)
            walk.registry.forms[cls] = external_form(cls, tag, to_plain, from_plain, self._dynamic)
            self._adopt(walk, hint_name(cls))

    def check(self, hint: Any, *, names: Mapping[str, Any] = _NO_NAMES) -> None:
        """Make sure that values of a type can be encoded, without registering it.

        Args:
            hint: a class, or any annotation (`list[Order] | None`).
        Raises:
            NotEncodable: as `register`; all problems at once.
        """
        with self._lock:
            walk = self._walk(names)
            walk.plan(hint, hint_name(hint))
        if walk.problems:
            raise NotEncodable(hint_name(hint), tuple(dict.fromkeys(walk.problems)))

    def tag_of(self, cls: type[Any]) -> str | None:
        """The name that data has for a registered class; None if it is not registered."""
        return self._registry.tags.get(cls)

    def encode(self, value: object) -> bytes:
        """The canonical bytes of a value.

        Raises:
            NotEncodable: names the field, at any depth, whose value would not come back equal, or not at all.
        """
        try:
            data = encode_plain(self._dynamic.pack(value))
        except Fault as fault:
            root = _root_of(value)
            raise NotEncodable(root, (f"{fault.path(root)}: {fault.reason}",)) from fault.__cause__
        except RecursionError:
            root = _root_of(value)
            raise NotEncodable(root, (f"{root}: is nested too deeply, or holds itself",)) from None
        if too_deep(data):
            root = _root_of(value)
            raise NotEncodable(root, (f"{root}: is nested more than {DEEPEST} levels deep: send its parts one by one",))
        return data

    def decode(self, data: bytes, *, source: str | None = None) -> Any:
        """The value that was encoded.

        Args:
            source: where the bytes were found, for the error ("journal row 17 of task T1").
        Raises:
            Undecodable: the bytes are damaged, name an unknown type, or do not fit the type's fields as they are today.
        """
        plain: Any = None
        try:
            plain = decode_plain(data)
            return self._dynamic.unpack(plain)
        except Fault as fault:
            root = self._root_name(plain)
            raise Undecodable(root, fault.path(root), fault.reason, source) from fault.__cause__
        except msgspec.MsgspecError as error:
            raise Undecodable("the data", "", f"it is not JSON: {error}", source) from error
        except RecursionError:
            raise Undecodable(self._root_name(plain), "", "it is nested too deeply", source) from None
        except MemoryError:
            raise
        except Exception as error:  # whatever the bytes set off in code that is not ours, it is they that will not do
            reason = f"decoding it raised {type(error).__qualname__}"
            raise Undecodable(self._root_name(plain), "", reason, source) from error

    def _root_name(self, plain: Any) -> str:
        if type(plain) is not dict or TAG not in plain:
            return "list" if type(plain) is list else "the data"
        tag = str(plain[TAG])
        claim = self._registry.claims.get(tag)
        if claim is not None:
            return claim.cls.__name__
        return tag.removeprefix("!") if tag in self._dynamic.unpackers else f"a value tagged {shortened(tag)}"

    def _walk(self, names: Mapping[str, Any]) -> Walk:
        return Walk(self._registry.copy(), self._dynamic, self._standard, self._resolve, names)

    def _adopt(self, walk: Walk, subject: str) -> None:
        if walk.problems:
            raise NotEncodable(subject, tuple(dict.fromkeys(walk.problems)))
        old, new = self._registry, walk.registry
        for cls in old.tags.keys() - new.tags.keys():  # replaced by another making of the same class
            self._dynamic.packers.pop(cls, None)
        for tag in old.claims.keys() - new.claims.keys():
            self._dynamic.unpackers.pop(tag, None)
        for tag, claim in new.claims.items():
            if old.claims.get(tag) != claim or old.forms.get(claim.cls) is not new.forms[claim.cls]:
                self._dynamic.teach(claim.cls, tag, new.forms[claim.cls])
        self._registry = new

    def _find_packer(self, cls: type[Any]) -> Pack:
        if issubclass(cls, BaseException):
            return pack_exception
        name = default_tag(cls)
        if not (is_value_class(cls) or issubclass(cls, Enum)):
            raise Fault(
                f"a value of type {name.removeprefix('builtins:')} cannot be encoded: "
                "make it an attrs class or one of the standard types"
            )
        if self._resolve is None:
            raise Fault(f"its class {name} is not registered: give it to Codec.register, here and where it is decoded")
        if declared(cls).tag is not None:
            raise Fault(
                f"its class {name} has a tag of its own, by which nobody could import it: "
                "give it to Codec.register, here and where it is decoded"
            )
        try:
            self.register(cls)
        except NotEncodable as error:
            raise Fault("; ".join(error.problems)) from error
        return self._dynamic.packers[cls]

    def _find_unpacker(self, tag: str) -> Unpack:
        if self._resolve is None or tag.startswith("!"):
            raise Fault(
                f"the type tag {shortened(tag)} is unknown: register its class, "
                f"or put the tag among the @wire(aliases=...) of the class that it has become"
            )
        try:
            cls: Any = self._resolve(tag)
            self.register(cls)
        except MemoryError:
            raise
        except Exception as error:  # importing may raise anything
            raise Fault(f"the class of the type tag {shortened(tag)} was not found: {error}") from error
        with self._lock:
            if tag not in self._dynamic.unpackers:
                walk = self._walk(_NO_NAMES)
                walk.registry.also(cls, tag)
                self._adopt(walk, tag)
        return self._dynamic.unpackers[tag]


def _root_of(value: object) -> str:
    """What an error calls the value that was to be encoded."""
    return type(value).__qualname__.rpartition("<locals>.")[2]
