"""Messages, replies and states as the store keeps them: the codec's bytes, and what the store calls their class."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from greenroom.actors import Ref, Terminated
from greenroom.codec import Codec, import_class
from greenroom.codec.tags import declared, default_tag
from greenroom.errors import Undecodable
from greenroom.persistence import message_digest


class Encoded(NamedTuple):
    """A message ready for the store."""

    type: str
    """What the store calls its class."""
    body: bytes
    digest: str
    """Of both: equal messages have equal ones."""


_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})
"""Classes whose instances never change, and come back as they were."""


def _reader(cls: type[Any]) -> Callable[[Any], Iterable[object]]:
    """What reads all fields of an instance of a frozen class; of another class, something that is not plain."""
    names = [field.name for field in attrs.fields(cls)]
    # As attrs itself tells whether a base is frozen.
    if cls.__setattr__ is not attrs.make_class("Frozen", [], frozen=True).__setattr__:
        return lambda message: (message,)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: [getattr(message, name) for name in names]


def loaded_class(tag: str) -> type[Any]:
    """The class called `module:qualname`, in a module that is loaded already: data must not decide what code is run.

    Raises `LookupError`, with the way out, when there is none.
    """
    module = tag.partition(":")[0]
    if module not in sys.modules:
        raise LookupError(f"the module {module!r} is not loaded here: import it in the program that reads this store")
    return import_class(tag)


class Payloads:
    """Encodes and decodes for one store. Knows the classes it was given, and those in modules that are loaded.

    Args:
        find: the ref of a path, for messages that hold refs. None: such messages cannot be decoded.
    """

    def __init__(self, find: Callable[[str], Ref] | None = None) -> None:
        self._codec = Codec(resolve=loaded_class)
        self._find = find
        self._readers: dict[type[Any], Callable[[Any], Iterable[object]]] = {}
        """What reads the fields of a class, one that cannot be relied upon being something that is never plain."""
        self._codec.register_external(Ref, "greenroom:Ref", lambda ref: ref.path, self._ref)
        self._codec.register(Terminated, names={"Ref": Ref})

    def _ref(self, path: Any) -> Ref:
        if self._find is None:
            raise LookupError("a ref means something only inside a running tree")
        return self._find(str(path))

    def register(self, *classes: type[Any]) -> None:
        """Make classes known. Raises `NotEncodable` naming what could not be stored, and why."""
        self._codec.register(*classes)

    def learn(self, hint: Any) -> None:
        """Make the classes known that values of this type are of. Raises `NotEncodable`."""
        if hint is not None:
            self._codec.check(hint)
            if isinstance(hint, type) and attrs.has(hint):
                self._codec.register(hint)

    def encode(self, message: object) -> Encoded:
        """A message for the store. Raises `NotEncodable` naming the field that could not come back."""
        tag = self._codec.tag_of(type(message))
        if tag is None:
            self._codec.register(type(message))
            tag = self._codec.tag_of(type(message)) or ""
        body = self._codec.encode(message)
        return Encoded(tag, body, message_digest(tag, body))

    def is_lasting(self, message: object) -> bool:
        """Can it never be another than it is? Then it need not be decoded where it was encoded: it would come back equal.

        True of frozen classes of plain values, which nearly all messages are. Whatever holds anything else has to be taken apart
        and made anew: its sender may go on changing it.
        """
        kind = type(message)
        read = self._readers.get(kind)
        if read is None:
            read = self._readers[kind] = _reader(kind)
        return _PLAIN.issuperset(map(type, read(message)))

    def encode_value(self, value: object) -> bytes:
        """Any value: a reply, a state, an answer. Raises `NotEncodable`."""
        return self._codec.encode(value)

    def type_of(self, value: object) -> str:
        """What the store calls a value's class."""
        return self._codec.tag_of(type(value)) or f"builtins:{type(value).__qualname__}"

    def tags(self, kind: type[Any]) -> tuple[str, ...]:
        """What the store calls a class: today's name, then those that older data may have for it. Raises `NotEncodable`."""
        self._codec.register(kind)
        own = self._codec.tag_of(kind) or default_tag(kind)
        return tuple(dict.fromkeys((own, *declared(kind).aliases, default_tag(kind))))

    def decode(self, data: bytes, source: str) -> Any:
        """What was encoded.

        Args:
            source: whose bytes they are, for the error ("message 17 of 'service/intake'").
        Raises:
            Undecodable: names the type, the field and the source; never a guess.
        """
        return self._codec.decode(data, source=source)

    def decode_plain(self, data: bytes, source: str) -> Any:
        """The JSON of what was encoded, as plain Python values, whatever classes are known. Raises `Undecodable`."""
        try:
            return msgspec.json.decode(data)
        except msgspec.MsgspecError as error:
            raise Undecodable("the data", "", f"it is not JSON: {error}", source) from error
