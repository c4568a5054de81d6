"""An actor's `self.context` in a worker. Timers and watches are kept by the parent, beside the mailbox that they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from attrs import frozen

from greenroom.actors.context import Context
from greenroom.actors.messages import Message, not_a_message
from greenroom.actors.processes.wire import Kind
from greenroom.actors.ref import Ref
from greenroom.errors import Misuse
from greenroom.mailbox import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from greenroom.actors.nursery import Nursery
    from greenroom.actors.processes.worker_refs import Neighbours

R = TypeVar("R")


class WorkerContext(Context):
    """`self.context` of an actor with `isolation="process"`.

    `stop`, `watch`, `unwatch`, `after`, `every` and `cancel` take effect in the parent, in the order they were called, before the reply
    to the message in hand. There is no `nursery` and no stash. `runtime` offers `ref` and, for plain `def` handlers, `from_thread`.
    """

    __slots__ = ("_incarnation", "_neighbours", "_runtime")

    def __init__(self, ref: Ref, incarnation: int, neighbours: Neighbours, may_block: Callable[[], bool]) -> None:
        # Not the base's: there is no life here.
        self.ref = ref
        self._incarnation = incarnation
        self._neighbours = neighbours
        self._runtime = WorkerRuntime(neighbours, WorkerFromThread(neighbours, may_block))

    @property
    def runtime(self) -> Any:
        return self._runtime

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def nursery(self) -> Nursery:
        raise Misuse(
            f"{self.ref.path!r} runs in a process of its own, where `context.nursery` does not reach: open an "
            "anyio.create_task_group() in the handler, or give the child isolation='task'"
        )

    def stop(self) -> None:
        self._neighbours.link.send(Kind.STOP)

    def watch(self, ref: Ref) -> None:
        self._send(Kind.WATCH, _checked(ref))

    def unwatch(self, ref: Ref) -> None:
        self._send(Kind.UNWATCH, _checked(ref))

    def cancel(self, key: str) -> None:
        self._send(Kind.CANCEL, key)

    def _set_timer(self, delay: float, period: float | None, message: Message[Any], key: object) -> None:
        # `after` and `every` have checked their arguments here. Timers without a key have one that is nobody else's.
        name = key if isinstance(key, str) else None
        parcels = self._neighbours.parcels
        kind, seconds = (Kind.AFTER, delay) if period is None else (Kind.EVERY, period)
        self._neighbours.link.send(kind, 0, parcels.encode_for(self.ref, message, seconds, name))

    def stash(self, message: Message[Any]) -> None:
        raise Misuse(
            f"{self.ref.path!r} runs in a process of its own, and the stash is in its parent: keep the message in an attribute, "
            "or refuse it with `raise gr.Rejected(...)`"
        )

    def unstash(self, count: int | None = None) -> None:
        raise Misuse(f"{self.ref.path!r} runs in a process of its own, and has no stash there")

    async def callback(self, name: str, *, timeout: float | None) -> NoReturn:
        raise Misuse(
            f"{self.ref.path!r} runs in a process of its own, which does not reach the store: ask an actor on the parent's side to "
            f"open the callback {name!r}"
        )

    def publish(self, destination: str, message: Message[Any]) -> NoReturn:
        raise Misuse(f"{self.ref.path!r} is no gr.DurableActor, which alone can publish")

    def _unit(self, call: str) -> None:
        return None  # a durable actor never runs here

    def _refuse_durable(self, call: str, why: str) -> None:
        """Nothing to refuse: a durable actor never runs here."""

    def _send(self, kind: Kind, value: object) -> None:
        self._neighbours.link.send(kind, 0, self._neighbours.parcels.encode((value,)))


@frozen(eq=False)
class WorkerFromThread:
    """`context.runtime.from_thread` in a worker: for plain `def` handlers, and for threads of their own."""

    _neighbours: Neighbours
    _may_block: Callable[[], bool]

    def tell(self, ref: Ref, message: Message[Any]) -> None:
        """As `ref.tell`. Raises `NotEncodable`."""
        _demand_message(message)
        self._neighbours.link.tell(ref, message)

    def send(
        self, ref: Ref, message: Message[Any], *, message_id: str | None = None, deliver_at: datetime | None = None
    ) -> Receipt | None:
        """As `ref.send`, blocking this thread. Raises `Misuse` in an `async def` handler, whose loop would stand still."""
        receipt: Receipt | None = self._request("send", Kind.SEND, ref, message, message_id, deliver_at)
        return receipt

    def ask(self, ref: Ref, message: Message[R], *, timeout: float | None = 5.0, message_id: str | None = None) -> R:
        """As `ref.ask`, blocking this thread. Raises `Misuse` in an `async def` handler, whose loop would stand still."""
        answer: R = self._request("ask", Kind.ASK, ref, message, timeout, message_id)
        return answer

    def _request(self, call: str, kind: Kind, ref: Ref, message: Message[Any], *more: object) -> Any:
        _demand_message(message)
        if not self._may_block():
            raise Misuse(f"runtime.from_thread.{call} would block the event loop: use `await ref.{call}(...)`")
        return self._neighbours.link.request_blocking(kind, self._neighbours.parcels.encode_for(ref, message, *more))

    def call(self, function: object, *args: object) -> NoReturn:
        """Functions do not travel. Raises `Misuse`."""
        raise Misuse(
            "runtime.from_thread.call is not for a process of its own: ask an actor on the parent's side instead"
        )


@frozen(eq=False)
class WorkerRuntime:
    """`context.runtime` in a worker: the part of a `Runtime` that makes sense there."""

    _neighbours: Neighbours
    from_thread: WorkerFromThread

    def ref(self, path: str) -> Ref:
        """The address of this path. It is not looked up: a message to a path that nobody has becomes a dead letter, an ask raises."""
        return self._neighbours.find(path, 0)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Misuse(
            f"`runtime.{name}` is not for a process of its own: ask an actor on the parent's side, which has the whole runtime"
        )


def _demand_message(message: object) -> None:
    if not isinstance(message, Message):
        raise not_a_message(message)


def _checked(ref: Ref) -> Ref:
    if not isinstance(ref, Ref):
        raise TypeError(f"only an actor can be watched, by its Ref; not {ref!r}")
    return ref
