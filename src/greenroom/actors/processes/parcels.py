"""What travels between a process child and its worker, as bytes: values by the codec, refs by path, errors as far as they can.

An exception that is a word of the language between actors (`Rejected`, `Stop`, `Ignore`, our own errors) arrives as what it was, made
without running its class's code. Every other is told in text, as a `RemoteError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from greenroom.actors.actor import Actor
from greenroom.actors.messages import Ignore, Rejected, Stop, Terminated, reply_type
from greenroom.actors.ref import Ref
from greenroom.codec import Codec, Resolver, default_tag, import_class
from greenroom.errors import GreenroomError, NotEncodable, RemoteError

_WORDS = (Rejected, Stop, Ignore, GreenroomError)


@frozen
class Assignment:
    """Who a worker is to be. `call` is a `references.Call`, encoded apart: to decode it may run the user's modules."""

    path: str
    incarnation: int
    backend: str
    memory_limit: int | None
    log_level: int
    call: bytes


class Parcels:
    """One side's codec: what it makes can be opened by the other side's.

    Args:
        find_ref: makes a ref of (path, incarnation).
        resolve: finds the class of a tag.
        ref_class: of the refs on this side.
    """

    def __init__(
        self, find_ref: Callable[[str, int], Ref], resolve: Resolver = import_class, ref_class: type[Ref] = Ref
    ) -> None:
        self._resolve = resolve
        self._codec = codec = Codec(resolve=resolve)
        codec.register_external(
            ref_class, "greenroom:Ref", lambda ref: (ref.path, ref.incarnation), lambda it: find_ref(*it)
        )
        if ref_class is not Ref:  # annotations name it, though no value here is exactly one
            codec.register_external(Ref, "greenroom:Ref elsewhere", _elsewhere, _elsewhere)
        codec.register(Terminated, names={"Ref": Ref})
        self.encode = codec.encode
        """Raises `NotEncodable`."""

    def encode_for(self, ref: Ref, message: object, *more: object) -> bytes:
        """A message with its address. Raises `NotEncodable`, naming the message and not what it was wrapped in."""
        try:
            return self.encode((ref, message, *more))
        except NotEncodable:
            self.encode(message)
            raise

    def decode(self, data: bytes) -> Any:
        """Raises `Undecodable`."""
        return self._codec.decode(data, source="the pipe between a process child and its worker")

    def teach(self, cls: object) -> None:
        """Register what an actor class says of its messages, on both sides: a class with a tag of its own is not found by it.

        What cannot be registered is left: whoever sends it is told.
        """
        if not (isinstance(cls, type) and issubclass(cls, Actor)):
            return
        for message in cls.__handlers__:
            for kind in (message, reply_type(message)):
                try:
                    if isinstance(kind, type) and hasattr(kind, "__attrs_attrs__"):
                        self._codec.register(kind)
                except NotEncodable:
                    continue

    def pack_error(self, error: BaseException) -> bytes:
        """An exception as bytes. Never fails for what is in it."""
        if isinstance(error, _WORDS) and not isinstance(error, RemoteError):
            tag = default_tag(type(error))
            fields = {name: value for name, value in vars(error).items() if not name.startswith("__")}
            try:
                if self._resolve(tag) is type(error):
                    return self.encode((tag, error.args, fields, error))
            except (NotEncodable, LookupError):
                pass
            if isinstance(error, Rejected):
                return self.encode((default_tag(Rejected), (), {}, error))
        return self.encode((None, (), {}, error))

    def unpack_error(self, data: bytes) -> BaseException:
        """The exception that was packed: itself if it is a word of ours, else a `RemoteError`. Raises `Undecodable`."""
        tag, arguments, fields, told = self.decode(data)
        assert isinstance(told, RemoteError)
        if tag is None:
            return told
        cls: Any = self._resolve(tag)
        if not (isinstance(cls, type) and issubclass(cls, _WORDS)):
            return told
        error: BaseException = cls.__new__(cls, *arguments)
        error.args = arguments or ((told.text,) if told.text else ())
        vars(error).update(fields)
        error.__cause__ = told.cause
        for note in told.notes:
            error.add_note(note)
        if told.trace.startswith("Traceback"):
            error.add_note(f"raised elsewhere:\n{told.trace}")
        return error


def _elsewhere(value: object) -> Any:
    raise TypeError("a ref of the parent's side cannot be in its worker")
