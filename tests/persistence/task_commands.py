"""The tasks' part of `commands`: what a command about a task becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from greenroom.persistence.addresses import CloseAddress, ParkAddress, ParkReason, ReleaseAddress, UnparkAddress
from greenroom.persistence.callbacks import CreateCallback, DeliverAnswer, NewCallback
from greenroom.persistence.clock import instant, maybe_instant
from greenroom.persistence.content import message_digest
from greenroom.persistence.deliveries import BeginDelivery, BuryMessage, Outgoing
from greenroom.persistence.journal import CommitTurn, ContinueAs, EntryKind, JournalEntry, OutcomeKind
from greenroom.persistence.messages import AcceptMessage, AdmitDue
from greenroom.persistence.operations import DecideOperation, Decision, Dispatch, EffectKind, Intent, InvocationEnd
from greenroom.persistence.schedules import PassMoment, RegisterSchedule, SchedulePlan
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import (
    ClaimTask,
    Ending,
    NewAttempt,
    NewTask,
    ParentPolicy,
    ParkTask,
    QuarantineTask,
    ReleaseTask,
    SubmitTask,
    TaskOutcome,
    TerminateTask,
    WakeTask,
)
from greenroom.persistence.transitions import Transition
from tests.persistence.world import ADDRESSES, CALLBACKS, SECRETS, World

POOLS = ("tp", "tp", "tp", "tq")
TASKS = ("t1", "t2", "t3")


def some(world: World, wanted: str) -> bool:
    """Is there a task for which that holds? Mostly so when there is not, something else is worth doing."""
    sql = f"SELECT count(*) FROM tasks t JOIN addresses a USING (address) WHERE {wanted}"
    return bool(world.one(sql)) or not world.pick(10)


def task(world: World, wanted: str = "1") -> str:
    """The address of a task: mostly one for which a condition over `tasks t` and `addresses a` holds."""
    known = world.column(f"SELECT t.address FROM tasks t JOIN addresses a USING (address) WHERE {wanted} ORDER BY 1")
    return world.choose(known) if known and world.pick(10) else f"task:{world.choose(TASKS)}"


def pool_of(world: World, address: str) -> str:
    pool = world.one("SELECT pool FROM tasks WHERE address = ?", address)
    chosen: str = pool if pool and world.pick(12) else world.choose(POOLS)
    return chosen


def register_task_pool(world: World) -> Transition[Any]:
    return RegisterTaskPool(
        pool=world.choose(("tp", "tq")),
        queue_limit=world.choose((None, None, 1, 3)),
        rate=world.choose((None, None, None, (2, 5.0))),
        execution_id=world.choose((None, world.execution())),
    )


def new_task(world: World, *, parent: str | None = None) -> NewTask:
    body = world.choose((b"1", b"1", b"1", b"2"))
    return NewTask(
        task_id=world.choose((*TASKS, *TASKS, "t4")),
        pool=world.choose((*POOLS, *POOLS, "nowhere")),
        request=body,
        request_type="R",
        request_digest=message_digest("R", body),
        seed=b"s",
        group=world.choose(("", "g", "h")),
        priority=world.choose((0, 0, 1)),
        deadline=world.moment(),
        not_before=world.moment(),
        capacity=world.choose((None, 2, 3)),
        parent=parent,
        parent_policy=world.choose(tuple(ParentPolicy)),
    )


def submit(world: World) -> Transition[Any]:
    return SubmitTask(task=new_task(world))


def schedule(world: World) -> Transition[Any]:
    """A schedule becomes known, or moves on."""
    name = world.choose(("s1", "s2"))
    if world.one("SELECT 1 FROM schedules WHERE schedule = ?", name) is None:
        return RegisterSchedule(schedule=name, plan=SchedulePlan(pool=POOLS[0], overlap=True, catch_up=60.0))
    moment = instant(world.now() + world.choose((-1, 1, 7, 10**6)))
    wanted = new_task(world) if world.pick(4) else None
    return PassMoment(schedule=name, moment=moment, task=wanted, overlap=bool(world.pick(2)))


def claim_task(world: World) -> Transition[Any]:
    if not some(world, "t.outcome IS NULL"):
        return submit(world)
    address = task(world, "t.runnable OR a.due_at IS NOT NULL" if world.pick(4) else "a.owner IS NOT NULL")
    return ClaimTask(
        address=address,
        pool=pool_of(world, address),
        execution_id=world.execution(),
        version=world.choose(("1", "2")),
    )


def wake_task(world: World) -> Transition[Any]:
    address = task(world, "a.due_at IS NOT NULL")
    return WakeTask(address=address, pool=pool_of(world, address))


def quarantine(world: World) -> Transition[Any]:
    address = task(world, "a.owner IS NULL")
    return QuarantineTask(address=address, pool=pool_of(world, address), detail="it cannot be read")


def say(world: World) -> Transition[Any]:
    """A message to a task."""
    address = task(world)
    body = world.choose((b"1", b"1", b"2"))
    return AcceptMessage(
        address=address,
        message_id=world.fresh() if world.pick(6) else world.known_message(address),
        type="S",
        body=body,
        digest=message_digest("S", body),
        deliver_at=world.moment(),
    )


def where(world: World, address: str) -> tuple[int, int]:
    row = world.connection.execute("SELECT attempt, segment FROM tasks WHERE address = ?", (address,)).fetchone()
    return (1, 1) if row is None else row


def rows(world: World, address: str, seq: int, at: int, count: int) -> tuple[JournalEntry, ...]:
    """Rows that go on from there."""
    entries = []
    for number in range(1, count + 1):
        at += world.choose((0, 0, 1, 7))
        entries.append(entry(world, address, seq + number, at))
    return tuple(entries)


def entry(world: World, address: str, seq: int, at: int) -> JournalEntry:
    common: dict[str, Any] = {"seq": seq, "at": instant(at)}
    own: dict[str, Any] = {"basis": seq - 1, "digest": b"d", "marks": world.choose(((), (), ("m",)))}
    kind = world.choose((EntryKind.OUTCOME, EntryKind.OUTCOME, EntryKind.OUTCOME, *EntryKind))
    if kind is EntryKind.TIME:
        return JournalEntry(**common, **own, kind=kind, call="root#9")
    if kind is not EntryKind.OUTCOME:
        said: dict[str, Any] = {"message_id": world.known_message(address), "type": "S"}
        return JournalEntry(**common, **said, kind=kind, body=b"b", answers=world.choose((None, "w")), failed=False)
    intended = world.connection.execute(
        "SELECT call, version FROM operations WHERE address = ? AND attempt = ? AND segment = ? AND status <> 'settled' "
        "ORDER BY call",
        (address, *where(world, address)),
    ).fetchall()
    fresh = f"root#{seq + 1}" if world.pick(6) else f"root#{1 + world.pick(6)}"
    call, version = world.choose(intended) if intended and world.pick(3) else (fresh, None)
    if version is not None and not world.pick(8):
        version += 1
    return JournalEntry(
        **common,
        **own,
        kind=kind,
        call=call,
        name="op",
        status=world.choose(tuple(OutcomeKind)),
        version=version,
        effect_possible=bool(world.pick(2)),
        unresolved=version is not None and not world.pick(3),
        params=b"p",
        body=world.choose((None, b"r")),
    )


def outgoing(world: World, *addresses: str) -> Outgoing:
    return Outgoing(
        recipient=world.choose((*addresses, *addresses, "nowhere")),
        message_id=world.fresh(),
        type="N",
        body=b"1",
        digest=message_digest("N", b"1"),
        deliver_at=world.moment(),
    )


def to_parent(world: World, address: str) -> Outgoing | None:
    """What its parent is told: whoever looks at the children of a task depends on it."""
    parent = world.one("SELECT parent FROM tasks WHERE address = ?", address)
    return None if parent is None else outgoing(world, parent)


def callbacks_of(world: World, address: str) -> tuple[str, ...]:
    return tuple(
        world.column("SELECT callback_id FROM callbacks WHERE address = ? AND status = 'open' ORDER BY 1", address)
    )


def last_row(world: World, address: str) -> tuple[int, int]:
    """Number and time of the last row of a segment; when it has none, 0 and when it began."""
    row = world.connection.execute(
        "SELECT seq, at FROM journal WHERE address = ? AND attempt = ? AND segment = ? ORDER BY seq DESC LIMIT 1",
        (address, *where(world, address)),
    ).fetchone()
    return row or (0, world.one("SELECT segment_at FROM tasks WHERE address = ?", address) or 0)


def turn(world: World) -> Transition[Any]:
    if not some(world, "a.owner IS NOT NULL"):
        return claim_task(world)
    address = task(world, "a.owner IS NOT NULL")
    attempt, segment = where(world, address)
    seq, at = last_row(world, address)
    wrong = world.pick(16)
    after = seq + 1 if wrong == 0 else seq
    now = at - 1 if wrong == 1 else max(at, world.now())
    written = rows(world, address, after, now, world.choose((0, 1, 1, 1, 2, 3)))
    what: dict[str, Any] = {}
    if world.pick(2):
        what |= effects(world, address, attempt, segment)
    if world.pick(3) == 0:
        what["consumed_seq"] = consumed(world, address)
    if world.pick(4) == 0:
        what["outgoing"] = tuple(outgoing(world, *ADDRESSES, *(f"task:{name}" for name in TASKS)) for _ in range(2))
    if world.pick(4) == 0:
        what["submits"] = tuple(new_task(world, parent=address) for _ in range(1 + world.pick(2)))
    if world.pick(5) == 0:
        identity = world.choose(CALLBACKS) if world.pick(3) == 0 else world.fresh()
        what["opens"] = (new_callback(world, identity), new_callback(world, world.fresh()))[world.pick(2) :]
    what |= goes_on(world, address, written[-1].at if written else instant(at))
    return CommitTurn(
        **world.fence(address),
        after=after,
        rows=written,
        next_due=world.moment(),
        phase=world.choose((None, None, "reading")),
        **what,
    )


def plain_turn(world: World) -> Transition[Any]:
    """What turns are for the most part: outcomes of operations without intents, an end, and nothing else that changes."""
    unintended = "NOT EXISTS (SELECT 1 FROM operations o WHERE o.address = t.address AND o.attempt = t.attempt)"
    wanted = f"a.owner IS NOT NULL AND {world.choose((unintended, unintended, 't.suspicions > 0', '1'))}"
    if not some(world, wanted):
        return claim_task(world)
    address = task(world, wanted)
    seq, at = last_row(world, address)
    wrong = world.pick(10)
    after = max(0, seq + {0: 1, 1: -1}.get(wrong, 0))
    now = at - 1 if wrong == 2 else max(at, world.now())
    stored = "SELECT next_due, phase FROM tasks WHERE address = ?"
    next_due, phase = world.connection.execute(stored, (address,)).fetchone() or (None, None)
    ending = Ending(outcome=TaskOutcome.SUCCEEDED, result=b"r") if world.pick(5) == 0 else None
    written = tuple(
        JournalEntry(
            seq=number,
            at=instant(now),
            kind=EntryKind.OUTCOME,
            call=f"root#{number if world.pick(8) else 1}",
            name="op",
            status=world.choose(tuple(OutcomeKind)),
            effect_possible=bool(world.pick(2)),
            params=world.choose((None, b"p")),
            body=world.choose((None, b"r")),
            admitted=world.choose((None, after)),
            basis=after,
            digest=b"d",
            marks=world.choose(((), ("m",))),
        )
        for number in range(after + 1, after + 1 + world.choose((0, 1, 1, 1, 2)))
    )
    return CommitTurn(
        **world.fence(address),
        after=after,
        rows=written,
        next_due=world.moment() if wrong == 3 else maybe_instant(next_due),
        phase="another" if wrong == 4 else phase,
        ending=ending,
    )


def consumed(world: World, address: str) -> int:
    row = world.connection.execute(
        "SELECT handled_seq, last_seq FROM addresses WHERE address = ?", (address,)
    ).fetchone()
    handled_seq, last_seq = row or (0, 0)
    return min(handled_seq + world.pick(4), last_seq + (world.pick(12) == 0))


def effects(world: World, address: str, attempt: int, segment: int) -> dict[str, Any]:
    """Intents, dispatches and ends of invocations."""
    calls = tuple(f"root#{number}" for number in range(1, 7))
    intents = tuple(
        Intent(
            call=world.choose(calls),
            name="op",
            effect=world.choose(tuple(EffectKind)),
            key="k",
            params=b"p",
            params_digest="d",
        )
        for _ in range(world.choose((0, 1, 1)))
    )
    pending = world.column(
        "SELECT call FROM operations WHERE address = ? AND attempt = ? AND segment = ? AND status = 'pending' ORDER BY 1",
        address,
        attempt,
        segment,
    )
    sent = [(call, True) for call in dict.fromkeys((*pending, *(intent.call for intent in intents))) if world.pick(3)]
    if world.pick(3) == 0:
        sent.append((world.choose(calls), bool(world.pick(2))))
    dispatches = tuple(Dispatch(call=call, invocation=1 + world.pick(4), intended=intended) for call, intended in sent)
    ends = tuple(
        InvocationEnd(
            call=world.choose(calls),
            invocation=1 + world.pick(2),
            status="succeeded",
            error=world.choose((None, "e")),
            links=(("request", "r1"),),
        )
        for _ in range(world.pick(2))
    )
    return {"intents": intents, "dispatches": dispatches, "invocations": ends}


def goes_on(world: World, address: str, at: Any) -> dict[str, Any]:
    match world.pick(10):
        case 0:
            outcome = world.choose(tuple(TaskOutcome))
            result = b"r" if outcome is TaskOutcome.SUCCEEDED else None
            error = None if outcome is TaskOutcome.SUCCEEDED else b"e"
            callbacks = callbacks_of(world, address)
            ending = Ending(
                outcome=outcome, result=result, error=error, callbacks=callbacks, to_parent=to_parent(world, address)
            )
            return {"ending": ending}
        case 1:
            signals = tuple(
                JournalEntry(seq=number, at=at, kind=EntryKind.SIGNAL, message_id="m1", type="S", body=b"b")
                for number in range(1, 1 + world.pick(3))
            )
            return {"continue_as": ContinueAs(request=b"2", request_type="R2", handed_over=signals)}
        case _:
            return {}


def release_task(world: World) -> Transition[Any]:
    restarts: Sequence[Any] = (world.time.at(-1.0), world.time.at(0.0))
    return ReleaseTask(
        **world.fence(task(world, "a.owner IS NOT NULL")),
        due_at=world.moment(),
        next_due=world.moment(),
        waits=world.choose(((), ("a", "b"))),
        restarts=world.choose((None, None, (), restarts)),
        unsuspect=bool(world.pick(3)),
    )


def park_task(world: World) -> Transition[Any]:
    address = task(world, "a.owner IS NOT NULL")
    calls = world.column(
        "SELECT call FROM operations WHERE address = ? AND attempt = ? AND segment = ? AND status <> 'settled' ORDER BY 1",
        address,
        *where(world, address),
    )
    unresolved = tuple(calls) if world.pick(8) else (*calls, "root#1")
    reason = ParkReason.UNRESOLVED if calls else world.choose(tuple(ParkReason))
    return ParkTask(**world.fence(address), reason=reason, detail="d", unresolved=unresolved)


def terminate(world: World) -> Transition[Any]:
    address = task(world, "t.outcome IS NULL")
    return TerminateTask(
        address=address,
        pool=pool_of(world, address),
        reason="because",
        error=b"e",
        callbacks=callbacks_of(world, address),
        to_parent=to_parent(world, address),
    )


def new_attempt(world: World) -> Transition[Any]:
    return NewAttempt(
        address=task(world, "t.outcome IS NOT NULL"),
        seed=b"t",
        reason="again",
        rows=world.choose((0, 0, 1, 2)),
        in_segment=not world.pick(3),
    )


def decide(world: World) -> Transition[Any]:
    found = world.connection.execute(
        "SELECT address, call, attempt, segment FROM operations WHERE status = 'unresolved' ORDER BY 1, 2, 3, 4"
    ).fetchall()
    address, call, attempt, segment = world.choose(found) if found and world.pick(8) else (task(world), "root#1", 1, 1)
    decision = world.choose(tuple(Decision))
    exact = bool(world.pick(2))
    return DecideOperation(
        address=address,
        call=call,
        attempt=attempt if exact else None,
        segment=segment if exact else None,
        decision=decision,
        result=b"r" if decision is Decision.SUCCEEDED else None,
        by="me",
    )


def new_callback(world: World, callback_id: str) -> NewCallback:
    return NewCallback(
        callback_id=callback_id, secret_digest=world.choose(SECRETS), name="n", expires_at=world.moment()
    )


def task_callback(world: World) -> Transition[Any]:
    return CreateCallback(
        **world.fence(task(world, "a.owner IS NOT NULL")),
        callback_id=world.choose(CALLBACKS),
        secret_digest=world.choose(SECRETS),
        name="n",
        expires_at=world.moment(),
    )


def deliver(world: World) -> Transition[Any]:
    if not world.one("SELECT count(*) FROM callbacks WHERE undelivered") and world.pick(4):
        return task_callback(world)
    found = world.connection.execute(
        "SELECT address, callback_id FROM callbacks WHERE undelivered ORDER BY 1, 2"
    ).fetchall()
    address, callback_id = world.choose(found) if found and world.pick(8) else (task(world), world.choose(CALLBACKS))
    return DeliverAnswer(address=address, callback_id=callback_id)


def of_an_actor(world: World) -> Transition[Any]:
    """What is rather meant for actors, at a task's address."""
    address = task(world, "a.owner IS NOT NULL OR a.parked IS NOT NULL")
    fence, seq = world.fence(address), world.place(address, in_hand=False)
    options: tuple[Callable[[], Transition[Any]], ...] = (
        lambda: ParkAddress(**fence, reason=ParkReason.DIVERGED, detail="d"),
        lambda: UnparkAddress(address=address),
        lambda: UnparkAddress(address=address),
        lambda: ReleaseAddress(**fence),
        lambda: CloseAddress(**fence),
        lambda: AdmitDue(address=address),
        lambda: AdmitDue(address=address, limit=1),
        lambda: BeginDelivery(**fence, seq=seq),
        lambda: BuryMessage(**fence, seq=seq, reason="bad"),
    )
    make: Callable[[], Transition[Any]] = world.choose(options)
    return make()


TASK_KINDS: dict[str, tuple[int, Callable[[World], Transition[Any]]]] = {
    "register_task_pool": (4, register_task_pool),
    "submit": (8, submit),
    "schedule": (4, schedule),
    "claim_task": (10, claim_task),
    "wake_task": (5, wake_task),
    "say": (6, say),
    "turn": (22, turn),
    "plain_turn": (12, plain_turn),
    "release_task": (4, release_task),
    "park_task": (2, park_task),
    "quarantine": (2, quarantine),
    "terminate": (2, terminate),
    "new_attempt": (4, new_attempt),
    "decide": (3, decide),
    "task_callback": (3, task_callback),
    "deliver": (3, deliver),
    "of_an_actor": (5, of_an_actor),
}
