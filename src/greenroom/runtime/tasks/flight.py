"""A flight: one operation from its dispatch to its outcome, over as many invocations as its policy allows.

It makes no commit of its own. What has happened it tells its activation, which commits it with whatever else there is: that an
invocation has failed and another is to follow, and how the operation has ended.
"""

from __future__ import annotations

import asyncio
import math
import random
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from attrs import define, frozen

from greenroom.actors import storable, text_of
from greenroom.actors.exits import is_cancellation
from greenroom.errors import NotEncodable
from greenroom.mailbox import Slot
from greenroom.persistence.operations import InvocationEnd
from greenroom.runtime.replay import (
    EffectKnown,
    Fault,
    Operation,
    OperationCall,
    OperationDef,
    OperationKind,
    OutcomeStatus,
    unpacked,
)
from greenroom.runtime.tasks.agent import Failed
from greenroom.runtime.tasks.endings import fault_of
from greenroom.runtime.tasks.outcomes import encoded_fault
from greenroom.runtime.tasks.retries import UNCERTAIN, may_retry, pause_after

if TYPE_CHECKING:
    from greenroom.runtime.tasks.run import Run


@frozen(kw_only=True)
class Landed:
    """An operation has ended."""

    flight: Flight
    body: bytes
    fault: Fault | None
    cause: BaseException | None
    cancelled: bool
    """It was cut short, and has no result."""
    effect: EffectKnown
    """What is known of its effect if it counts as cancelled."""
    unknown: bool
    """Whether it happened is not known, and it must not be sent again."""
    end: InvocationEnd | None
    """Of its last invocation, where that is worth a record of its own."""


@frozen(kw_only=True)
class Tried:
    """An invocation has failed, and another is to follow. The flight goes on (`Flight.go_on`) when that is committed."""

    flight: Flight
    end: InvocationEnd


News: TypeAlias = Landed | Tried


@define(eq=False)
class Flight:
    """See the module. For the event loop's thread.

    Args:
        invocation: number of the next invocation.
        began: when the first one was; None: it is still to come.
    """

    run: Run
    call: OperationCall
    invocation: int
    began: datetime | None
    intended: bool
    definition: OperationDef[..., Any]
    _value: Any = None
    """What the last invocation returned, if it has."""
    _error: BaseException | None = None
    """What it raised."""
    _returned: bool = False
    _timed_out: bool = False
    _scope: Any = None
    _sent: bool = False
    _cancelled: bool = False
    _dropped: bool = False
    _last: bool = False
    _pausing: bool = False
    """It waits between two invocations."""
    _again: Slot | None = None
    """On that it waits then, at last, until the next one is on record."""
    _committed: bool = False
    """It is."""
    _links: tuple[tuple[str, str], ...] = ()

    def cancel(self) -> None:
        """The task wants it no more: it is told to stop, and its outcome says what came of it (T10, T11)."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def go_on(self) -> None:
        """That its last invocation has failed, and another follows, is on record."""
        self._committed = True
        if self._again is not None and not self._again.done():
            self._again.set_result(None)

    def land(self) -> None:
        """Its task is about to be let go: the invocation in hand may end, and no other begins here. A question is put again elsewhere."""
        self._last = True
        if self.call.kind is OperationKind.ASK:
            self.drop()
        if self._pausing:
            self._scope.cancel()

    def drop(self) -> None:
        """Its activation ends: it is cut short, and nothing is told."""
        self._dropped = True
        if self._scope is not None:
            self._scope.cancel()

    async def main(self) -> None:
        """The event-loop task. Never raises."""
        try:
            news = await self._fly()
        except BaseException as error:  # noqa: BLE001 - a defect of ours, or the loop's own end: the activation deals with it
            self.run.flight_failed(self, error)
            return
        self.run.flight_ended(self, news)

    async def _fly(self) -> Landed | None:
        """Invoke until it is over. None: it was dropped."""
        while True:
            await self._invoke()
            if self._dropped and not self._returned:
                return None
            again_at = self._again_at()
            if again_at is None:
                return self._landed()
            self._again = self.run.activation.loop.slot()
            self._committed = False
            self.run.tried(Tried(flight=self, end=self._end()))
            self._error, self._timed_out, self._links = None, False, ()
            if not await self._pause(self._again, again_at):
                return None if self._dropped or self._last else self._landed(between=True)
            self.invocation += 1

    async def _invoke(self) -> None:
        """Run the function once. The scope is around the effect, and nothing else (T4)."""
        activation = self.run.activation
        definition = self.definition
        if not activation.may_act():
            self._dropped = True
        if self._cancelled or self._dropped:
            return
        self._sent = True
        if self.began is None and definition.retry.within is not None:
            self.began = activation.now()
        operation = self._operation() if definition.takes_operation else None
        self._scope = activation.loop.cancel_scope()
        try:
            with self._scope:
                args, kwargs = unpacked(
                    activation.codec.decode(self.call.params, source=f"the arguments of {self.call}")
                )
                if definition.timeout is None:
                    self._value = await definition.invoke(operation, args, kwargs)
                    self._returned = True
                else:
                    with anyio.move_on_after(definition.timeout) as limit:
                        self._value = await definition.invoke(operation, args, kwargs)
                        self._returned = True
                    self._timed_out = limit.cancelled_caught and not self._returned
        except (KeyboardInterrupt, SystemExit) as fatal:
            activation.fatal(fatal)
            self._dropped = True
        except BaseException as raised:
            if is_cancellation(raised, activation.loop.cancelled) and self._is_ordered:
                raise
            self._error = raised
        self._scope = None

    @property
    def _is_ordered(self) -> bool:
        """The event loop cancels what is around the invocation. Any other cancellation comes out of its own code, which has awaited what
        was cancelled elsewhere: a failure, or the task would be activated again and again without a trace."""
        if anyio.current_effective_deadline() == -math.inf:
            return True
        current = self.run.activation.loop.current_task()
        return isinstance(current, asyncio.Task) and current.cancelling() > 0

    def _operation(self) -> Operation:
        """What the function is told of this invocation."""
        return Operation(
            key=self.run.operations.key(self.call),
            id=str(self.call.id),
            invocation=self.invocation,
            deadline=self.run.activation.deadline,
            link=self._link,
            beat=partial(self.run.notes.heard, self.call),
        )

    def _link(self, name: str, value: str) -> None:
        self._links += ((storable(str(name)), storable(str(value))),)

    def _again_at(self) -> datetime | None:
        """When it is to be invoked again; None: not any more."""
        failed = self._timed_out or self._error is not None
        if not failed or self._cancelled or isinstance(self._error, Failed):
            return None
        activation = self.run.activation
        definition = self.definition
        again_at = activation.now() + timedelta(seconds=pause_after(self.invocation, random.random()))
        wanted = may_retry(
            definition.retry,
            definition.effect,
            self.invocation,
            began=self.began,
            again_at=again_at,
            deadline=activation.deadline,
        )
        return again_at if wanted else None

    async def _pause(self, again: Slot, again_at: datetime) -> bool:
        """Wait for the time of the next invocation, and until the last one is on record. False: it was cut short."""
        passed = False
        self._scope = self.run.activation.loop.cancel_scope()
        with self._scope:
            if not (self._cancelled or self._dropped or self._last):
                self._pausing = True
                await anyio.sleep(max(0.0, (again_at - self.run.activation.now()).total_seconds()))
                await again
                passed = True
        self._scope, self._pausing = None, False
        return passed

    # ---------------------------------------------------------------------------------------------------- the outcome

    def _end(self) -> InvocationEnd:
        """What the last invocation came to."""
        if self._returned:
            status, error = "succeeded", None
        elif self._timed_out:
            status, error = "timed_out", None
        elif self._error is not None and not self._cancelled:
            status, error = "failed", f"{type(self._error).__qualname__}: {text_of(self._error)}"
        else:
            status, error = "cancelled", None
        return InvocationEnd(
            call=str(self.call.id),
            invocation=self.invocation,
            status=status,
            error=error,
            links=self._links,
        )

    def _landed(self, *, between: bool = False) -> Landed:
        """`between` two invocations: the end of the last one is on record, and the next one is not begun, though it may be on record."""
        end = None
        if not between:
            end = self._end() if self.intended or self.invocation > 1 or self._links else None
        elif self.intended and self._committed:
            self.invocation += 1
            end = self._end()
        fault, body = None, b""
        if self._returned:
            try:
                body = self.run.activation.codec.encode(self._value)
            except NotEncodable as unfit:
                fault = Fault("not_encodable", type(self._value).__qualname__, text_of(unfit))
        else:
            fault = self._fault()
        if fault is not None:
            body = encoded_fault(fault, self.run.activation.codec)
        return Landed(
            flight=self,
            body=body,
            fault=fault,
            cause=self._error,
            cancelled=not self._returned and not self._timed_out and self._error is None,
            effect=EffectKnown.POSSIBLE if self._sent else EffectKnown.NONE,
            unknown=self._timed_out and self.definition.effect in UNCERTAIN,
            end=end,
        )

    def _fault(self) -> Fault | None:
        if self._timed_out:
            seconds = self.definition.timeout or 0.0
            return Fault("timeout", "TimeoutError", f"invocation {self.invocation} took longer than {seconds:g} s")
        error = self._error
        if error is None:
            return None
        if isinstance(error, Failed):
            return fault_of(error)
        return Fault("error", type(error).__qualname__, text_of(error))


def status_of(landed: Landed) -> OutcomeStatus:
    """How the outcome is recorded; asked when its row is made, for until then the task may cancel it."""
    raised = landed.cancelled or landed.fault is not None
    return OutcomeStatus.of(raised=raised, cancel_requested=landed.flight.call.cancel_requested)
