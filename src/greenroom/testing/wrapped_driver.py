"""A driver around a driver: what the kit puts between a store and its database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from greenroom.persistence import Driver, Durability, Hold, Query, Renewer, Transition
    from greenroom.persistence.driver import Applied, Inbox, News


class WrappedDriver:
    """Does what the driver inside does. Subclasses change some of it."""

    def __init__(self, inner: Driver) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def durability(self) -> Durability:
        return self.inner.durability

    @property
    def inbox(self) -> Inbox:
        return self.inner.inbox

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        self.inner.run(main)

    async def pause(self, seconds: float) -> None:
        await self.inner.pause(seconds)

    async def open(self) -> None:
        await self.inner.open()

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        return await self.inner.apply(batch_id, items)

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        return await self.inner.recover(batch_id, items)

    async def read(self, query: Query[Any]) -> Any:
        return await self.inner.read(query)

    async def news(self) -> News:
        return await self.inner.news()

    async def close(self) -> None:
        await self.inner.close()

    def renewer(self) -> Renewer:
        return self.inner.renewer()

    def hold(self, execution_id: str) -> Hold | None:
        return self.inner.hold(execution_id)
