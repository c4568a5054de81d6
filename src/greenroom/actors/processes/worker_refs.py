"""Refs in a worker: what is told and asked goes over the wire to the parent, where the mailboxes are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar
from weakref import WeakValueDictionary

from greenroom.actors.messages import Message, not_a_message
from greenroom.actors.processes.wire import Kind
from greenroom.actors.ref import Ref
from greenroom.errors import Misuse, WouldDeadlock, WrongThread
from greenroom.mailbox import EventLoop, Receipt

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.actors.processes.parcels import Parcels
    from greenroom.actors.processes.worker_context import WorkerContext
    from greenroom.actors.processes.worker_link import Link

R = TypeVar("R")


class WorkerRef(Ref):
    """The address of an actor or a supervisor, in a process child. For the main thread; `runtime.from_thread` elsewhere.

    Differs from what it is at home in little: `tell` does not learn that the recipient has no room, which makes a dead letter there; an
    address that nobody has is found out by an `ask` only; there is no administration.
    """

    __slots__ = ("__weakref__", "_incarnation", "_neighbours", "_path")

    def __init__(self, path: str, neighbours: Neighbours) -> None:
        # Not the base's: there is no cell here.
        self._path = path
        self._incarnation = 0
        self._neighbours = neighbours

    @property
    def path(self) -> str:
        return self._path

    @property
    def incarnation(self) -> int:
        """Which incarnation stood here when this ref came to the worker, or came again."""
        return self._incarnation

    def __repr__(self) -> str:
        return f"<Ref {self._path}>"

    def tell(self, message: Message[Any]) -> None:
        """Raises `NotEncodable`, `NotAMessage`, `WrongThread`."""
        self._check(message)
        self._neighbours.link.tell(self, message)

    async def send(
        self, message: Message[Any], *, message_id: str | None = None, deliver_at: datetime | None = None
    ) -> Receipt | None:
        """As `Ref.send`. Raises `NotEncodable` besides."""
        self._check(message)
        request = self._neighbours.parcels.encode_for(self, message, message_id, deliver_at)
        receipt: Receipt | None = await self._request(Kind.SEND, request)
        return receipt

    async def ask(
        self,
        message: Message[R],
        *,
        timeout: float | None = 5.0,
        message_id: str | None = None,
        when_down: Literal["wait", "fail"] = "wait",
    ) -> R:
        """As `Ref.ask`; the parent keeps the time, by its own clock. Raises `NotEncodable` besides."""
        self._check(message)
        if when_down != "wait":
            raise Misuse(
                '`when_down="fail"` is not for a process of its own, which cannot see who is down: ask with a timeout'
            )
        request = self._neighbours.parcels.encode_for(self, message, timeout, message_id)
        answer: R = await self._request(Kind.ASK, request)
        return answer

    async def _request(self, kind: Kind, payload: bytes) -> Any:
        loop, link = self._neighbours.loop, self._neighbours.link
        if kind is Kind.ASK and self._path == self._neighbours.own and loop.current_task() is self._neighbours.task:
            raise WouldDeadlock(
                f"{self._path!r} would wait for itself: `ask` from its own handler can never be served. "
                "Call the method, or `tell` instead"
            )
        answer = loop.slot()
        link.ask(answer, kind, payload)
        try:
            return await answer
        finally:
            link.forget(answer)

    def _check(self, message: object) -> None:
        if not isinstance(message, Message):
            raise not_a_message(message)
        if threading.get_ident() != self._neighbours.loop.thread:
            raise WrongThread

    def partition(self, key: object) -> NoReturn:
        raise Misuse(
            "`partition` is not for a process of its own: give it the partition's path, `runtime.ref('.../0')`, or let the "
            "sender choose it"
        )

    async def _administer(self, call: str, *args: object) -> NoReturn:
        # Specs name classes and functions of the parent.
        raise Misuse(
            f"`{call}` is not for a process of its own: tell an actor on the parent's side, and let that call its supervisor"
        )


class Neighbours:
    """Everybody that the worker's actor knows by name, and what it takes to reach them."""

    link: Link
    parcels: Parcels

    def __init__(self, loop: EventLoop, own: str) -> None:
        self.loop = loop
        self.task = loop.current_task()
        self.own = own
        """The path of the actor itself."""
        self._refs: WeakValueDictionary[str, WorkerRef] = WeakValueDictionary()
        self._lock = threading.Lock()

    def find(self, path: str, incarnation: int) -> WorkerRef:
        """The ref of a path: one and the same for as long as anybody keeps it."""
        with self._lock:
            ref = self._refs.get(path)
            if ref is None:
                ref = self._refs[path] = WorkerRef(path, self)
            ref._incarnation = max(ref._incarnation, incarnation)
            return ref


class Nursling:
    """What stands for the actor's address while it is made: `Actor.__new__` takes the context from the current actor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._context: WorkerContext | None = None

    def offer_context(self, context: WorkerContext | None) -> None:
        self._context = context

    def take_context(self) -> WorkerContext | None:
        context, self._context = self._context, None
        return context
