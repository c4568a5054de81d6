"""A durable actor's state, between the actor and the store."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define

from greenroom.actors import Actor, DurableActor, described, state_type
from greenroom.errors import Undecodable
from greenroom.persistence import Claimed, ParkReason, StateWrite

if TYPE_CHECKING:
    from greenroom.runtime.durable.payloads import Payloads
    from greenroom.runtime.durable.storage import Storage


class StateUnusable(Exception):
    """The stored state cannot be used by this code: the address is to be parked, with its state and mail as they are."""

    def __init__(self, reason: ParkReason, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(detail)


@define(eq=False)
class StoredState:
    """What the store has of one actor's state, as it was when the address was claimed or last committed."""

    address: str
    data: bytes | None
    """None: the actor has none yet."""
    version: int = 0
    initial: bytes = b""
    """What a new actor begins with."""

    @classmethod
    async def of(cls, storage: Storage, address: str, claimed: Claimed) -> StoredState:
        """As it was claimed. Raises `StateUnusable`."""
        if claimed.state is None:
            return cls(address, None)
        try:
            data = await storage.fetch(claimed.state)
        except Undecodable as error:
            raise StateUnusable(ParkReason.UNDECODABLE, f"the state of {address!r}: {error}") from error
        return cls(address, data, claimed.state_version or 0)

    def give(self, actor: DurableActor[Any], payloads: Payloads) -> None:
        """Set a new incarnation's state.

        Raises `StateUnusable`; `TypeError` for an actor that has none to begin with, `NotEncodable` for one that could not be stored.
        """
        if self.data is None:
            if not hasattr(actor, "state"):
                actor.state = _made(type(actor))
            self.initial = payloads.encode_value(actor.state)
            return
        actor.state = self._loaded(type(actor), self.data, payloads)

    def _loaded(self, cls: type[DurableActor[Any]], data: bytes, payloads: Payloads) -> Any:
        where = f"the state of {self.address!r}"
        try:
            if self.version == cls.state_version:
                return _checked(cls, payloads.decode(data, where), where)
            if self.version > cls.state_version:
                newer = f"{where} was stored as version {self.version}, by newer code than this, which knows {cls.state_version}"
                raise StateUnusable(ParkReason.INCOMPATIBLE, newer)
            plain = payloads.decode_plain(data, where)
        except Undecodable as error:
            raise StateUnusable(ParkReason.UNDECODABLE, str(error)) from error
        try:
            migrated = cls.migrate(self.version, plain)
            payloads.encode_value(migrated)  # what cannot be stored again is no state
        except Exception as error:
            failed = (
                f"{where} could not be migrated from version {self.version} to {cls.state_version}: {described(error)}"
            )
            raise StateUnusable(ParkReason.INCOMPATIBLE, failed) from error
        return _checked(cls, migrated, where)

    def restore(self, actor: DurableActor[Any], payloads: Payloads) -> None:
        """Set the state back to what it was before a handler that does not commit."""
        if self.data is None:
            actor.state = payloads.decode(self.initial, f"the first state of {self.address!r}")
        else:
            actor.state = self._loaded(type(actor), self.data, payloads)

    def changed(self, actor: DurableActor[Any], payloads: Payloads) -> bytes | None:
        """The state's bytes, when they are not those that are stored. Raises `NotEncodable`."""
        data = payloads.encode_value(actor.state)
        return None if data == self.data and self.version == type(actor).state_version else data

    async def write(self, storage: Storage, actor: DurableActor[Any], data: bytes) -> StateWrite:
        """What a commit is to store. Raises `PayloadTooLarge`."""
        payload = await storage.stow(data, name=f"the state of {self.address!r}")
        return StateWrite(
            payload=payload, type=storage.payloads.type_of(actor.state), version=type(actor).state_version
        )

    def committed(self, data: bytes, version: int) -> None:
        self.data, self.version = data, version


def _checked(cls: type[DurableActor[Any]], state: Any, where: str) -> Any:
    """The state, if it is of the actor's state type: its handlers would crash on another, one message after the other."""
    kind = state_type(cls)
    if inspect.isclass(kind) and attrs.has(kind) and not isinstance(state, kind):
        other = f"{where} is a {type(state).__qualname__}, and {cls.__qualname__} has a {kind.__qualname__}"
        raise StateUnusable(ParkReason.INCOMPATIBLE, f"{other}: raise its state_version, and convert it in `migrate`")
    return state


def _made(cls: type[DurableActor[Any]]) -> Any:
    """The state of a new actor whose constructor has set none: its type, made without arguments."""
    kind = state_type(cls)
    if inspect.isclass(kind):
        try:
            return kind()
        except TypeError as error:
            raise TypeError(f"{_no_state(cls)} ({kind.__qualname__}() raises {described(error)})") from error
    raise TypeError(_no_state(cls))


def _no_state(cls: type[Actor]) -> str:
    return f"{cls.__qualname__} has no state to begin with: set `self.state` in its __init__"
