"""`Context`: what an actor may do beside handling messages. One for each incarnation."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from greenroom.actors.messages import Exit, Message, Terminated, not_a_message
from greenroom.actors.nursery import Nursery
from greenroom.actors.ref import Ref
from greenroom.actors.timers import Timer
from greenroom.actors.unit import HeldTimer, Published, Unit, open_unit
from greenroom.errors import Misuse, StashFull
from greenroom.mailbox import Envelope, Notice, message_type

if TYPE_CHECKING:
    from greenroom.actors.cell import Cell
    from greenroom.actors.life import ActorLife
    from greenroom.runtime import Runtime
    from greenroom.runtime.callback import Callback

DEFAULT_STASH = 10_000


class Context:
    """An actor's hold on its surroundings: `self.context`. Timers, watches, the stash and the nursery end with the incarnation.

    For the event loop's thread; a call from another one raises `WrongThread`.
    """

    __slots__ = ("_life", "_stash", "_timers", "_watching", "ref")

    def __init__(self, life: ActorLife, ref: Ref) -> None:
        self._life = life
        self.ref = ref
        """The actor's own address."""
        self._timers: dict[object, Timer] | None = None
        self._watching: dict[Cell, object] | None = None
        """What is watched, with the identity of each registration: news of an older one is void."""
        self._stash: deque[Envelope] | None = None

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs this tree."""
        return self._life.services.runtime

    @property
    def incarnation(self) -> int:
        """Which incarnation this is, counted from 1."""
        return self._life.incarnation

    @property
    def key(self) -> str:
        """The last name of its path; of an actor of a `DurableActors` pool, its key."""
        return self.ref.path.rpartition("/")[2]

    @property
    def nursery(self) -> Nursery:
        """The actor's own nursery; opened on first use. Raises `Misuse` for a thread or process child, which has none."""
        return self._life.nursery

    def stop(self) -> None:
        """End normally after the message in hand (its reply is still sent). As `raise Stop()`, without losing the reply."""
        self._life.loop.check_thread()
        self._life.messages.stop_self()

    # ----------------------------------------------------------------------------------------------- watching

    def watch(self, ref: Ref) -> None:
        """Ask for one `Terminated` when the present incarnation at `ref` has really ended; at once when the address has ended.

        While it is restarting, the next incarnation is meant. Twice is one registration. To go on watching, watch again.

        Raises `TypeError` for anything but a `Ref`, `Misuse` when the watching incarnation itself has ended.
        """
        self._check_ref(ref, "watch")
        self._refuse_durable(
            "watch", "its news would not outlive the process: let another actor watch, and send what it sees"
        )
        if not self._life.alive:
            raise Misuse(f"{self.ref.path!r} has ended: it watches nothing more")
        if self._watching is None:
            self._watching = {}
        if ref._cell not in self._watching:
            self._watching[ref._cell] = object()
            ref._cell.add_watcher(self)

    def unwatch(self, ref: Ref) -> None:
        """Take a watch back; a `Terminated` that is already queued is not delivered (OTP: demonitor with flush)."""
        self._check_ref(ref, "unwatch")
        if self._watching is not None:
            self._watching.pop(ref._cell, None)
        ref._cell.remove_watcher(self)

    def _check_ref(self, ref: object, call: str) -> None:
        self._life.loop.check_thread()
        if not isinstance(ref, Ref):
            raise TypeError(f"{call}({ref!r}): a gr.Ref is watched, as runtime.ref(path) gives it")

    def target_ended(self, target: Cell, exit: Exit) -> None:
        """For Greenroom's own use: a watched incarnation has ended."""
        registration = (self._watching or {}).get(target)
        self._life.mailbox.put_notice(
            Notice(Terminated(target.ref, exit, target.incarnation), lambda: self._take_watch(target, registration))
        )

    def _take_watch(self, target: Cell, registration: object) -> bool:
        if not self._life.alive or self._watching is None or registration is None:
            return False
        if self._watching.get(target) is not registration:
            return False
        del self._watching[target]
        return True

    # ------------------------------------------------------------------------------------------------- timers

    def after(self, delay: float, message: Message[Any], *, key: str | None = None) -> None:
        """Send the actor itself a message in `delay` seconds (>= 0), once.

        `key`: replaces the timer of that key. A tick of a replaced or cancelled timer is never delivered, even if it is queued.
        Ticks do not count against the mailbox's capacity. Raises `ValueError` for a negative delay.

        Of a `DurableActor`, called in a handler: set with the handler's commit, durable, and delivered as any message. Raises `Misuse`
        outside of its handlers.
        """
        _check_tick(delay, message, "delay")
        if (unit := self._unit("after")) is not None:
            unit.timers.append(HeldTimer(key, delay, message))
            return
        self._set_timer(delay, None, message, key if key is not None else object())

    def every(self, period: float, message: Message[Any], *, key: str | None = None) -> None:
        """Send the actor itself a message every `period` seconds (> 0), first after one period.

        The moments are fixed when the timer is set and do not drift. A tick that finds the last one still queued is left out, so
        a slow actor is not flooded. `key` as for `after`. Raises `ValueError` for a period that is not positive.
        """
        _check_tick(period, message, "period")
        self._refuse_durable(
            "every", "set the next timer with `after` in the handler of the last one's message: both commit together"
        )
        if period <= 0:
            raise ValueError(f"period={period!r}: a timer's period is above 0 seconds")
        self._set_timer(period, period, message, key if key is not None else object())

    def cancel(self, key: str) -> None:
        """Cancel the timer of this key, and its tick if one is queued. Nothing happens when there is none.

        Of a `DurableActor`: with the handler's commit; a tick that is queued already is still delivered.
        """
        self._life.loop.check_thread()
        if (unit := self._unit("cancel")) is not None:
            unit.timers.append(HeldTimer(key))
            return
        timer = (self._timers or {}).pop(key, None)
        if timer is not None:
            timer.cancel()

    def _set_timer(self, delay: float, period: float | None, message: Message[Any], key: object) -> None:
        self._life.loop.check_thread()
        if not self._life.alive:
            raise Misuse(f"{self.ref.path!r} has ended: it sets no more timers")
        if self._timers is None:
            self._timers = {}
        replaced = self._timers.pop(key, None)
        if replaced is not None:
            replaced.cancel()
        timers, loop = self._timers, self._life.services.loop
        queued = False

        def deliverable() -> bool:
            nonlocal queued
            queued = False
            if timers.get(key) is not timer or not self._life.alive:
                return False
            if period is None:
                del timers[key]
            return True

        def due() -> None:
            nonlocal queued
            if not queued:
                queued = True
                self._life.mailbox.put_notice(Notice(message, deliverable))
            if period is not None:
                timer.deadline = _next_moment(timer.deadline, period, loop.now())
                timer.callback = due
                self._life.services.timers.arm(timer)

        timer = self._life.services.timers.at(loop.now() + delay, due)
        timers[key] = timer

    # -------------------------------------------------------------------------------------------------- stash

    def stash(self, message: Message[Any]) -> None:
        """Put the message in hand aside, to be handled after `unstash`; its asker goes on waiting.

        Raises `StashFull` at the stash's capacity (that of the mailbox, 10,000 when that is unbounded); `Misuse` when `message`
        is not the one in hand.
        """
        self._life.loop.check_thread()
        messages = self._life.messages
        if messages.persistent:
            raise Misuse(
                f"{self.ref.path!r} has a persistent mailbox, which keeps its order: to handle this {message_type(message)} later, "
                "send it again (`await self.context.ref.send(message, deliver_at=...)`)"
            )
        if not messages.is_in_hand(message):
            raise Misuse(
                f"{self.ref.path!r} can stash only the message it has in hand, and each once; not this {message_type(message)}"
            )
        if self._stash is None:
            self._stash = deque()
        capacity = self._life.mailbox.statistics().capacity or DEFAULT_STASH
        if len(self._stash) >= capacity:
            raise StashFull(self.ref.path, capacity)
        envelope = messages.take_in_hand(message)
        if envelope is not None:
            self._stash.append(envelope)

    def unstash(self, count: int | None = None) -> None:
        """Return the oldest `count` stashed messages (None: all), in order, to the head of the mailbox: they come next."""
        self._life.loop.check_thread()
        stash = self._stash
        if not stash:
            return
        number = len(stash) if count is None else min(count, len(stash))
        self._life.mailbox.put_back([stash.popleft() for _ in range(number)])

    def forget_stashed(self, envelope: Envelope) -> None:
        """For Greenroom's own use: the handler that stashed this has failed; the message is as good as in hand."""
        self._stash = deque(stashed for stashed in self._stash or () if stashed is not envelope)
        self._life.mailbox.take_back(envelope)  # it may have unstashed it again

    # ---------------------------------------------------------------------------------------------------- store

    async def callback(self, name: str, *, timeout: float | None) -> Callback:
        """Open a callback: give its `token` to an outside system, and `await callback.wait()` for the one answer it may give.

        The answer (`client.answer(token, value)`) may come before the wait, also while the process is down. A handler that is
        run again after a crash opens the callback of its name again: it gets another token, the older ones stay good, and an answer
        that came to any of them is the answer.

        Args:
            name: of the callback, unique within the handling of one message.
            timeout: seconds (> 0) after which an answer is late and the wait raises `WaitTimeout`; None: never, by choice and in sight.

        Raises `Misuse` for an actor without a persistent mailbox; `StoreUnavailable`.
        """
        self._life.loop.check_thread()
        custody = self._life.mailbox.custody
        if custody is None:
            raise Misuse(
                f"{self.ref.path!r} keeps nothing in the store, where a callback waits: give it mailbox=gr.PersistentMailbox()"
            )
        return await custody.callback(name, self._life.messages.message_id_in_hand, timeout=timeout)  # type: ignore[no-any-return]

    def publish(self, destination: str, message: Message[Any]) -> None:
        """Send a message out of the store, with the handler's commit: to the function registered as `destination` with the runtime.

        It is published at least once, each time under the same id; the destination removes the duplicates. Raises `Misuse` but in a
        handler of a `DurableActor`.
        """
        self._life.loop.check_thread()
        if not isinstance(message, Message):
            raise not_a_message(message)
        unit = self._unit("publish")
        if unit is None:
            raise Misuse(
                f"{self.ref.path!r} is no gr.DurableActor: only what commits with a handled message can be published"
            )
        unit.published.append(Published(destination, message))

    def _unit(self, call: str) -> Unit | None:
        """The unit of the handler in hand; None for an actor that is not durable."""
        if not self._life.messages.durable:
            return None
        unit = open_unit(self._life.cell)
        if unit is None:
            raise Misuse(
                f"{self.ref.path!r} is a durable actor: it calls `{call}` in a handler, where it takes effect with the handler's commit. "
                "Elsewhere, `on_start` included, `await self.context.ref.send(message, deliver_at=...)` does"
            )
        return unit

    def _refuse_durable(self, call: str, why: str) -> None:
        if self._life.messages.durable:
            raise Misuse(f"{self.ref.path!r} is a durable actor and has no `{call}`: {why}")

    # ---------------------------------------------------------------------------------------------------- end

    def close(self) -> list[Envelope]:
        """For Greenroom's own use: the incarnation is over. Returns what was stashed: it goes back to the mailbox."""
        for timer in (self._timers or {}).values():
            timer.cancel()
        self._timers = None
        for target in self._watching or ():
            target.remove_watcher(self)
        self._watching = None
        stashed, self._stash = self._stash, None
        return list(stashed or ())


def _next_moment(last: float, period: float, now: float) -> float:
    """The first moment after `now` that is whole periods from `last`; the next there is, when a period is too short to tell."""
    missed = max(0.0, (now - last) // period)
    moment = last + period * (missed + 1)
    return moment if now < moment < math.inf else math.nextafter(now, math.inf)


def _check_tick(seconds: float, message: object, what: str) -> None:
    if not isinstance(message, Message):
        raise not_a_message(message)
    if not seconds >= 0:
        raise ValueError(f"{what}={seconds!r}: a timer's {what} is a number of seconds, 0 or more")
