"""Refs in a worker: the same `Ref`, with stand-ins behind it whose mailbox is the wire to the parent."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

from attrs import frozen

from greenroom.actors.messages import Message
from greenroom.actors.ref import Ref
from greenroom.actors.wire import Kind
from greenroom.errors import Misuse
from greenroom.mailbox import Envelope, EventLoop, Slot

if TYPE_CHECKING:
    from greenroom.actors.parcels import Parcels
    from greenroom.actors.worker_link import Link


class Outbox:
    """What a `Ref` uses of a mailbox. The real one is in the parent, and so is the wait for room."""

    parked = None
    must_wait = False
    limit = 0  # never room enough to be told in place: `Ref.tell` hands everything to `put_nowait`
    queue: tuple[Envelope, ...] = ()

    def __init__(self, cell: RemoteCell, neighbours: Neighbours) -> None:
        self.thread = neighbours.loop.thread
        self._cell = cell
        self._neighbours = neighbours

    def put_nowait(self, envelope: Envelope) -> None:
        """Raises `NotEncodable`. A message that the parent has no room for becomes a dead letter there."""
        message, _, reply = envelope
        if reply is None:
            self._neighbours.link.tell(self._cell.ref, message)
        # else an ask: it is sent by `Asks.add`, which knows how long it may take

    async def put(self, envelope: Envelope) -> None:
        """Wait for room. Raises `NotEncodable`, or what the parent answers."""
        message, _, reply = envelope
        link, ref = self._neighbours.link, self._cell.ref
        if reply is not None:
            link.ask(reply, Kind.ASK, self._neighbours.parcels.encode_for(ref, message, None))
            return
        room = self._neighbours.loop.slot()
        link.ask(room, Kind.SEND, self._neighbours.parcels.encode_for(ref, message))
        try:
            await room
        finally:
            link.forget(room)


@frozen(eq=False)
class Asks:
    """What a `Ref` uses of the runtime's timeouts. The parent keeps the time, by its own clock."""

    neighbours: Neighbours

    def add(self, reply: Slot, timeout: float, recipient: str, message: object) -> None:
        ref = self.neighbours.find(recipient, 0)
        self.neighbours.link.ask(reply, Kind.ASK, self.neighbours.parcels.encode_for(ref, message, timeout))

    def forget(self, reply: Slot, timeout: float) -> None:
        self.neighbours.link.forget(reply)


@frozen(eq=False)
class WorkerServices:
    """What a `Ref` uses of the services of a tree."""

    loop: EventLoop
    asks: Asks


class NoAdministration:
    """Specs name classes and functions of the parent: supervisors are administered there."""

    async def call(self, name: str, *args: object) -> NoReturn:
        raise Misuse(
            f"`{name}` is not for a process of its own: tell an actor on the parent's side, and let that call its supervisor"
        )

    def route(self, key: object) -> NoReturn:
        raise Misuse(
            "`partition` is not for a process of its own: give it the partition's path, `runtime.ref('.../0')`, or let the "
            "sender choose it"
        )


class RemoteCell:
    """What a `Ref` uses of an address."""

    administration = NoAdministration()

    def __init__(self, path: str, incarnation: int, neighbours: Neighbours) -> None:
        self.path = path
        self.incarnation = incarnation
        self.services = neighbours.services
        self._neighbours = neighbours
        self._context: Any = None
        self.mailbox = Outbox(self, neighbours)
        stand_in: Any = self
        self.ref = Ref(stand_in)

    @property
    def is_restarting(self) -> NoReturn:
        raise Misuse(
            '`when_down="fail"` is not for a process of its own, which cannot see who is down: ask with a timeout'
        )

    def in_own_loop(self) -> bool:
        return self._neighbours.loop.current_task() is self._neighbours.task

    def starts_under(self, supervisor: object) -> bool:
        return False

    def offer_context(self, context: object) -> None:
        self._context = context

    def take_context(self) -> Any:
        context, self._context = self._context, None
        return context


class Neighbours:
    """Everybody this worker knows by name. Refs of one path are one and the same while anybody keeps them."""

    link: Link
    parcels: Parcels

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.task = loop.current_task()
        self.services = WorkerServices(loop, Asks(self))
        self._cells: WeakValueDictionary[str, RemoteCell] = WeakValueDictionary()
        self._lock = threading.Lock()

    def cell(self, path: str, incarnation: int) -> RemoteCell:
        with self._lock:
            cell = self._cells.get(path)
            if cell is None:
                cell = self._cells[path] = RemoteCell(path, incarnation, self)
            cell.incarnation = max(cell.incarnation, incarnation)
            return cell

    def find(self, path: str, incarnation: int) -> Ref:
        return self.cell(path, incarnation).ref

    def tell_blocking(self, ref: Ref, message: Message[Any]) -> None:
        self.link.tell(ref, message)
