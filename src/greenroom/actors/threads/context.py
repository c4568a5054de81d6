"""The context of an actor on a thread: the same calls, carried over to the event loop where timers, watches and the stash live."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenroom.actors.context import Context
from greenroom.actors.messages import Message
from greenroom.actors.ref import Ref
from greenroom.errors import RuntimeNotRunning

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife


class ThreadContext(Context):
    """`self.context` of an actor with `isolation="thread"`.

    Its calls are posted to the event loop and take effect there in the order they were made, before the reply to the message in
    hand; `stash` waits for its answer. Once the incarnation is over (its thread was abandoned, say) they do nothing. There is no
    `nursery`. Other actors are reached by `self.context.runtime.from_thread`.
    """

    __slots__ = ("_on_loop",)

    def __init__(self, life: ActorLife, on_loop: Context) -> None:
        super().__init__(life, on_loop.ref)
        self._on_loop = on_loop

    def stop(self) -> None:
        """End normally after the message in hand (its reply is still sent)."""
        self._post(self._life.messages.stop_self)

    def watch(self, ref: Ref) -> None:
        """As `Context.watch`. Raises `TypeError` for anything but a `Ref`."""
        self._post(self._on_loop.watch, _checked(ref))

    def unwatch(self, ref: Ref) -> None:
        """As `Context.unwatch`. Raises `TypeError` for anything but a `Ref`."""
        self._post(self._on_loop.unwatch, _checked(ref))

    def cancel(self, key: str) -> None:
        """As `Context.cancel`."""
        self._post(self._on_loop.cancel, key)

    def stash(self, message: Message[Any]) -> None:
        """As `Context.stash`; waits for the event loop, since it may raise `StashFull` or `Misuse`."""

        async def stash() -> None:
            self._on_loop.stash(message)

        self.runtime.from_thread.call(stash)

    def unstash(self, count: int | None = None) -> None:
        """As `Context.unstash`."""
        self._post(self._on_loop.unstash, count)

    def _set_timer(self, delay: float, period: float | None, message: Message[Any], key: object) -> None:
        # `after` and `every` have checked their arguments here; the delay counts from when the event loop takes it up.
        self._post(self._on_loop._set_timer, delay, period, message, key)

    def _post(self, call: Callable[..., object], *args: object) -> None:
        life = self._life

        def act() -> None:
            if not life.alive:
                return
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001
                # The thread has gone on and cannot be told. Out of here it would end the whole loop: it is the actor's crash.
                life.fail(error)

        try:
            life.loop.post(act)
        except RuntimeError as error:  # asyncio: the loop is closed; trio.RunFinishedError is one, too
            raise RuntimeNotRunning("the context of an actor") from error


def _checked(ref: Ref) -> Ref:
    if not isinstance(ref, Ref):
        raise TypeError(f"only an actor can be watched, by its Ref; not {ref!r}")
    return ref
