"""Being an execution: registered, its lease renewed by a thread of its own, its fence kept in step with the lease (R10, R11).

Renewal shares neither thread nor connection with the commits, so that a long queue of them does not cost the lease. It stops
when the event loop has not ticked for half a lease: an execution that cannot work must not keep others from its work.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Final

import anyio

from greenroom.errors import LeaseLost
from greenroom.mailbox.parking import EventLoop, current_loop
from greenroom.persistence.beside import beside
from greenroom.persistence.clock import StoreClock, system_clock
from greenroom.persistence.driver import Hold
from greenroom.persistence.executions import DrainExecution, EndExecution, RegisterExecution
from greenroom.persistence.fence import Fence
from greenroom.persistence.ids import new_id
from greenroom.persistence.store import LEASE, Store
from greenroom.persistence.transitions import Refused

RETRY: Final = 1.0
"""Seconds between tries of a renewal that did not reach the database."""


class Renewal:
    """Renews one lease, round by round.

    Args:
        lease: seconds; a third of it passes between two renewals, a tenth is the margin by which the fence closes earlier.
        on_lost: called on the loop's thread, once, when the lease can no longer be renewed or has passed.
    """

    def __init__(
        self,
        store: Store,
        fence: Fence,
        loop: EventLoop,
        boot: Callable[[], float],
        *,
        lease: float,
        on_lost: Callable[[], object],
    ) -> None:
        self._store, self._fence, self._loop, self._boot = store, fence, loop, boot
        self._lease = lease
        self._on_lost = on_lost
        self._renewer = store.renewer()
        self._ticked = boot()
        self._stop = threading.Event()

    def start(self) -> None:
        name = f"greenroom-lease {self._fence.execution_id}"
        threading.Thread(target=self._main, name=name, daemon=True).start()

    def stop(self) -> None:
        """Renew no more. Safe to call twice."""
        self._stop.set()

    def _main(self) -> None:
        pause: float | None = self._lease / 3
        try:
            while pause is not None and not self._stop.wait(pause):
                pause = self.round()
        except RuntimeError:  # both loops' way to say that they have ended: nobody is left whose lease this were
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the connection. In the renewal's thread."""
        self._renewer.close()

    def round(self) -> float | None:
        """Renew once. Returns the seconds until the next round; None when there is none. In the renewal's thread."""
        alive = self._boot() - self._ticked <= self._lease / 2
        self._loop.post(self._tick)
        renewed: bool | None = None
        if alive:
            sent = self._boot()  # before the wait, so that the fence never outlasts the lease
            try:
                renewed = self._renewer.renew(self._fence.execution_id, self._lease)
            except Exception:  # noqa: BLE001 - whatever it is, it is tried again until the fence closes
                renewed = None
            if renewed:
                self._fence.extend(sent + self._lease * 0.9)
            elif renewed is False:
                self._fence.close("the database renews it no more")
        if not self._fence.is_open:
            if not self._stop.is_set():
                self._loop.post(self._on_lost)
            return None
        return min(self._lease / 3, self._fence.seconds_left) if renewed else min(RETRY, self._lease / 10)

    def _tick(self) -> None:
        self._ticked = self._boot()


class Execution:
    """This process, as the store knows it. Made by `start_execution`."""

    def __init__(self, store: Store, execution_id: str, fence: Fence, hold: Hold | None) -> None:
        self.id = execution_id
        self.fence = fence
        """To be asked before each effect."""
        self._store = store
        self._hold = hold
        self._renewal: Renewal | None = None

    def renew_by(self, renewal: Renewal) -> None:
        self._renewal = renewal
        renewal.start()

    async def drain(self) -> None:
        """Claim nothing from now on.

        Raises:
            LeaseLost: it has ended already.
        """
        answer = await self._store.commit(DrainExecution(execution_id=self.id))
        if isinstance(answer, Refused):
            raise LeaseLost(self.id, answer.detail)

    async def end(self) -> None:
        """It is over: what it owned may be claimed at once. Cancel-safe by a shield, bounded by the store's bound.

        Raises:
            StoreUnavailable: nobody was told; the lease lapses.
        """
        self.fence.close("the execution has ended")
        self.abandon()
        with anyio.CancelScope(shield=True):
            try:
                await self._store.commit(EndExecution(execution_id=self.id))
            finally:
                if self._hold is not None:
                    await beside(self._hold.release)

    def abandon(self) -> None:
        """Renew the lease no more, and leave it to lapse: for an execution in which something still runs (P7)."""
        if self._renewal is not None:
            self._renewal.stop()


async def start_execution(
    store: Store,
    *,
    on_lost: Callable[[], object],
    execution_id: str | None = None,
    lease: float = LEASE,
    clock: StoreClock | None = None,
) -> Execution:
    """Register this process as an execution, and keep its lease.

    Args:
        on_lost: called on the loop's thread, once, when the lease is lost. The fence is closed by then.
        lease: seconds (> 0) that others wait before they take over from an execution that gives no sign.
        clock: for the testing kit; that of the store.
    Raises:
        StoreUnavailable: nothing was registered, or the row will lapse by itself.
        LeaseLost: the id is taken.
    """
    clock = clock or system_clock()
    execution_id = execution_id or new_id()
    hold = await beside(lambda: store.hold(execution_id))
    try:
        sent = clock.boot()
        answer = await store.commit(
            RegisterExecution(
                execution_id=execution_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                boot_id=clock.boot_id,
                lease=lease,
                locked=hold is not None,
            )
        )
        if isinstance(answer, Refused):
            raise LeaseLost(execution_id, answer.detail)
    except BaseException:
        if hold is not None:
            hold.release()
        raise
    fence = Fence(execution_id, clock.boot, sent + lease * 0.9)
    execution = Execution(store, execution_id, fence, hold)
    execution.renew_by(Renewal(store, fence, current_loop(), clock.boot, lease=lease, on_lost=on_lost))
    return execution
