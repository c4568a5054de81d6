"""The operations of a run: what has to be known before one is sent, its flight, and the row of its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from greenroom.persistence import INLINE_LIMIT, Payload
from greenroom.persistence.operations import Decision, Dispatch, EffectKind
from greenroom.persistence.operations import Intent as StoredIntent
from greenroom.runtime.replay import (
    CallId,
    Effect,
    EffectKnown,
    Fault,
    OperationCall,
    OperationKind,
    OutcomeRow,
    OutcomeStatus,
)
from greenroom.runtime.tasks.flight import Flight, Landed, News, Tried, status_of
from greenroom.runtime.tasks.ids import child_id, operation_key
from greenroom.runtime.tasks.loading import intent_of
from greenroom.runtime.tasks.posting import asking, tell
from greenroom.runtime.tasks.retries import UNCERTAIN

if TYPE_CHECKING:
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn


class Operations:
    """See the module. For the event loop's thread."""

    __slots__ = ("_known", "_run", "flights", "versions")

    def __init__(self, run: Run) -> None:
        self._run = run
        self.flights: dict[OperationCall, Flight] = {}
        self._known = run.segment.operations
        """Those that were sent before this activation, with an intent and without an outcome."""
        self.versions: dict[CallId, int] = {call: record.version for call, record in self._known.items()}
        """Of operations with an intent: the latest one that was dispatched."""

    # --------------------------------------------------------------------------------------------- before it is sent

    async def first_decided(self, turn: Turn, calls: Iterable[OperationCall]) -> OutcomeRow | None:
        """The row of the first of these calls that needs no sending: what commits with it, or an operator has decided about. None: all
        are to be sent. Raises `Diverged` where something else was decided about than is called now."""
        for call in calls:
            if call.kind is OperationKind.RUN and call.id not in self._known:
                continue
            if call.kind in (OperationKind.SUBMIT, OperationKind.CALLBACK, OperationKind.TELL):
                body = self._run.activation.codec.encode(await self._done_at_once(turn, call))
                return self._outcome(turn, call, OutcomeStatus.SUCCEEDED, body)
            row = await self._by_decision(turn, call)
            if row is not None:
                return row
        return None

    async def _done_at_once(self, turn: Turn, call: OperationCall) -> str | None:
        """Make something part of the turn. Gives its identity, where it has one.

        Raises `StoreRefused` for a child that no pool would take: in the turn it would be refused with all the rest of that.
        """
        run = self._run
        if call.kind is OperationKind.CALLBACK:
            return run.callbacks.open(turn, call)
        if call.kind is OperationKind.TELL:
            await tell(run, turn, call)
            return None
        await run.activation.pool.desk.check_pool(call.name)
        turn.submits += (call,)
        run.activation.has_children = True
        task = run.segment.task
        return child_id(task.task_id, task.attempt, task.segment, call.id)

    async def _by_decision(self, turn: Turn, call: OperationCall) -> OutcomeRow | None:
        record = self._known.get(call.id)
        run = self._run
        codec = run.activation.codec
        if record is None or record.decision is None:
            return None
        # It was decided about that one, and no other that happens to stand in its place.
        run.engine.confirm((await intent_of(run.storage, call.id, record),))
        if record.decision is Decision.REPEAT:
            return None
        if record.decision is Decision.SUCCEEDED:
            result = codec.encode(None) if record.result is None else await self._run.storage.fetch(record.result)
            return self._outcome(turn, call, OutcomeStatus.SUCCEEDED, result)
        fault = Fault("decided", "OperatorDecision", f"{record.decided_by} said that it did not happen")
        return self._outcome(turn, call, OutcomeStatus.FAILED, codec.encode(fault))

    def within_limit(self, calls: Sequence[OperationCall]) -> Sequence[OperationCall]:
        """Those that may be sent now, in their order: so many of a task may be in flight at once."""
        parallel = self._run.activation.pool.spec.parallel
        return calls if parallel is None else calls[: max(0, parallel - len(self.flights))]

    def intend(self, turn: Turn) -> None:
        """Write down what must be on record before these are sent (I8)."""
        unsafe = [call for call in turn.send if _effect(call) is not Effect.SAFE]
        for call in unsafe:
            record = self._known.get(call.id)
            if call.id not in self.versions:
                turn.intents += (call,)
            elif record is not None and _effect(call) in UNCERTAIN and record.version > 0 and record.decision is None:
                turn.unresolved += (call,)
        if unsafe and not turn.unresolved:
            turn.dispatches += tuple(
                Dispatch(call=str(call.id), invocation=self._next_invocation(call), intended=True) for call in unsafe
            )

    def is_usual(self, call: OperationCall) -> bool:
        """Sending it is all there is to do about it."""
        return call.kind is OperationKind.RUN and call.id not in self._known and len(call.params) <= INLINE_LIMIT

    def intent(self, call: OperationCall, params: Payload) -> StoredIntent:
        """What is to be on record of it, its arguments brought to the content store if they are large."""
        return StoredIntent(
            call=str(call.id),
            name=call.name,
            effect=EffectKind(call.target.effect.value),
            key=self.key(call),
            params=params,
            params_digest=sha256(call.params).hexdigest(),
        )

    def key(self, call: OperationCall) -> str:
        """Its idempotency key."""
        record, task = self._known.get(call.id), self._run.segment.task
        return operation_key(task.task_id, task.attempt, task.segment, call.id) if record is None else record.key

    def _next_invocation(self, call: OperationCall) -> int:
        tries = self._run.segment.tries.get(call.id)
        return 1 if tries is None else tries.latest + 1

    # ------------------------------------------------------------------------------------------------- on its way

    def send(self, call: OperationCall) -> None:
        """Everything that it needs is durable: let it out."""
        run = self._run
        tries = run.segment.tries.get(call.id)
        flight = self.flights[call] = Flight(
            run,
            call,
            invocation=1 if tries is None else tries.latest + 1,
            began=None if tries is None else tries.began,
            intended=_effect(call) is not Effect.SAFE,
            definition=asking(run, call) if call.kind is OperationKind.ASK else call.target,
        )
        run.activation.spawn(flight.main, str(call.id))

    def dispatched(self, dispatches: Sequence[Dispatch], versions: Sequence[int]) -> None:
        """These dispatches are on record, under these versions."""
        for dispatch, version in zip(dispatches, versions, strict=True):
            self.versions[CallId.read(dispatch.call)] = version

    def tell(self, call: OperationCall) -> None:
        """Its task wants it no more."""
        if call in self.flights:
            self.flights[call].cancel()

    def land(self) -> None:
        """Its task is about to be let go: what is in hand may end."""
        for flight in self.flights.values():
            flight.land()

    def drop(self) -> None:
        """Its task is let go: cut all short."""
        for flight in self.flights.values():
            flight.drop()

    def rest(self) -> None:
        """Nothing is in flight, for a while (see `Machine.rest`)."""
        self.flights.clear()

    def note_try(self, turn: Turn, tried: Tried) -> None:
        """An invocation has failed and another is to follow: that is on record before it begins."""
        self.note_end(turn, tried)
        turn.again += (tried.flight,)
        flight = tried.flight
        if flight.intended:
            invocation = flight.invocation + 1
            turn.dispatches += (Dispatch(call=str(flight.call.id), invocation=invocation, intended=True),)

    # ------------------------------------------------------------------------------------------------- its outcome

    def note_end(self, turn: Turn, news: News) -> None:
        """An invocation has ended, and it is worth a record."""
        if news.end is not None:
            turn.invocations += (news.end,)

    def landed(self, turn: Turn, landed: Landed) -> OutcomeRow:
        """The row of an operation that has ended."""
        call, status = landed.flight.call, status_of(landed)
        if turn.dispatches:  # it was to be sent again, and is not any more
            turn.dispatches = tuple(dispatch for dispatch in turn.dispatches if dispatch.call != call.id)
        self.note_end(turn, landed)
        in_doubt = landed.unknown or (status is OutcomeStatus.CANCELLED and landed.effect is EffectKnown.POSSIBLE)
        return self._outcome(
            turn,
            call,
            status,
            landed.body,
            effect=landed.effect,
            unresolved=in_doubt and _effect(call) in UNCERTAIN,
            cause=landed.cause,
        )

    def withdrawn(self, turn: Turn, call: OperationCall) -> OutcomeRow:
        """The row of an operation that was cancelled before this activation sent it (T12, T13)."""
        sent = self.versions.get(call.id, 0) > 0
        return self._outcome(
            turn,
            call,
            OutcomeStatus.CANCELLED,
            b"",
            effect=EffectKnown.POSSIBLE if sent else EffectKnown.NONE,
            unresolved=sent and _effect(call) in UNCERTAIN,
        )

    def _outcome(
        self,
        turn: Turn,
        call: OperationCall,
        status: OutcomeStatus,
        body: bytes,
        *,
        effect: EffectKnown = EffectKnown.POSSIBLE,
        unresolved: bool = False,
        cause: BaseException | None = None,
    ) -> OutcomeRow:
        run = self._run
        row = OutcomeRow(
            seq=run.place.seq + 1,
            at=run.place.next_at(run.storage.now()),
            stamp=run.engine.machine.stamp(),
            call=call.id,
            name=call.name,
            params=call.params,
            status=status,
            body=body,
            effect=effect,
            unresolved=unresolved,
            admitted=call.admitted_by,
            cause=cause,
        )
        version = self.versions.pop(call.id, None)
        if version is not None:
            turn.versions = {**turn.versions, row.seq: version}
        return row


def _effect(call: OperationCall) -> Effect:
    effect: Effect = call.target.effect if call.kind is OperationKind.RUN else Effect.SAFE
    return effect
