"""A store that is opened from outside, for the length of a block."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from greenroom.errors import Misuse, StoreRefused
from greenroom.mailbox import current_loop
from greenroom.persistence import Committer, Refused, StoreNow, Transition, find_store
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.payloads import Payloads
from greenroom.runtime.stored import Durability, Shown

T = TypeVar("T")


class OpenedStore:
    """What all that a client does goes by."""

    def __init__(self, store: str | StoreSource) -> None:
        self._source = StoreSource(store) if isinstance(store, str) else store
        self._payloads = Payloads()
        self._block: AbstractAsyncContextManager[Committer] | None = None
        self._opened: Committer | None = None

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise Misuse("this Client has been entered before: make a new one")
        self._block = self._source.open(current_loop())
        await find_store(self._source.url)
        self._opened = await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None
        self._opened = None
        await self._block.__aexit__(kind, error, trace)

    @property
    def _store(self) -> Committer:
        if self._opened is None:
            raise Misuse("this Client is not open: use it inside `async with gr.Client(url) as client:`")
        return self._opened

    @property
    def _shown(self) -> Shown:
        return Shown(self._store, self._payloads)

    @property
    def name(self) -> str:
        """The store, for people: without a password."""
        return self._store.name

    @property
    def durability(self) -> Durability:
        """What an acknowledgement to this client promises.

        `full`: it survives the death of the process and of the machine. `reduced`: only that of the process.
        """
        return self._store.durability.value

    async def now(self) -> datetime:
        """The store's time, UTC."""
        return await self._store.read(StoreNow())

    def register(self, *classes: type[Any]) -> None:
        """Make classes known that replies and messages are made of, where they have a name of their own (`greenroom.wire(tag=...)`).

        Others are found by themselves, if their module is loaded. Raises `NotEncodable`.
        """
        self._payloads.register(*classes)

    async def _commit(self, transition: Transition[T]) -> T:
        answer = await self._store.commit(transition)
        if isinstance(answer, Refused):
            raise StoreRefused(answer.reason.value, answer.detail)
        return answer
