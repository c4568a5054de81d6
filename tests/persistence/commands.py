"""Random sequences of transitions over few hot keys, for differential tests (R9).

A `Command` is a kind and some numbers. What it becomes depends on the state of a reference database: which generation is
current, which messages wait. So most transitions are ones that somebody could mean, and some are stale, wrong or repeated.
Strategies live here, so that later kinds of transitions join them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from greenroom.persistence.addresses import (
    ACTORS,
    ClaimAddress,
    CloseAddress,
    OpenAddress,
    ParkAddress,
    ParkReason,
    ReleaseAddress,
    StateWrite,
    UnparkAddress,
)
from greenroom.persistence.callbacks import AnswerCallback, CancelCallback, CreateCallback, ExpireCallback
from greenroom.persistence.content import PutContent, message_digest
from greenroom.persistence.deliveries import (
    BeginDelivery,
    BuryMessage,
    CancelTimer,
    FinishDelivery,
    Outgoing,
    SetTimer,
    ToOutside,
    UndoDelivery,
)
from greenroom.persistence.executions import DrainExecution, EndExecution, RegisterExecution, ReleaseLost
from greenroom.persistence.messages import AcceptMessage, AdmitDue, DropDead, RequeueDead
from greenroom.persistence.outbox import BeginSend, FailSend, FinishSend, FlushHeld, RequeueSend
from greenroom.persistence.pools import RegisterPool
from greenroom.persistence.retention import Prunable, Prune
from greenroom.persistence.transitions import Transition
from tests.persistence.task_commands import TASK_KINDS
from tests.persistence.world import ADDRESSES, CALLBACKS, SECRETS, Command, World


def register(world: World) -> Transition[Any]:
    return RegisterExecution(
        execution_id=world.fresh() if world.pick(6) else world.execution(),
        host="h",
        pid=1,
        boot_id="boot-1",
        lease=world.choose((30.0, 60.0)),
    )


def claim(world: World) -> Transition[Any]:
    return ClaimAddress(
        address=world.choose(ADDRESSES),
        kind=world.choose(ACTORS),
        execution_id=world.execution(),
        capacity=world.choose((None, 2, 3, 5)),
    )


def open_address(world: World) -> Transition[Any]:
    return OpenAddress(
        address=world.choose((*ADDRESSES, "d")), kind=world.choose(ACTORS), capacity=world.choose((None, 2))
    )


def register_pool(world: World) -> Transition[Any]:
    return RegisterPool(pool=world.choose(("p", "q")), capacity=world.choose((None, 2, 3)))


def accept(world: World) -> Transition[Any]:
    address = world.choose((*ADDRESSES, *ADDRESSES, "d", "nowhere"))
    message_id = world.fresh() if world.pick(5) else world.known_message(address)
    body = world.choose((b"1", b"1", b"1", b"2"))
    return AcceptMessage(
        address=address,
        message_id=message_id,
        type="N",
        body=body,
        digest=message_digest("N", body),
        sender=world.choose((None, "s1", "s2")),
        deliver_at=world.moment(),
        urgent=not world.pick(9),
    )


def begin(world: World) -> Transition[Any]:
    address = world.busy(in_hand=False)
    return BeginDelivery(
        **world.fence(address), seq=world.place(address, in_hand=False), max_deliveries=world.choose((1, 2, 5))
    )


def finish(world: World) -> Transition[Any]:
    address = world.busy(in_hand=True)
    timers: list[SetTimer | CancelTimer] = []
    for _ in range(world.choose((0, 0, 1, 2))):
        key = world.choose(("k1", "k2"))
        if world.pick(3):
            deliver_at = world.time.at(world.choose((-1.0, 5.0, 15.0)))
            timers.append(
                SetTimer(key=key, message_id=world.fresh(), type="T", body=b"t", digest="d", deliver_at=deliver_at)
            )
        else:
            timers.append(CancelTimer(key=key))
    outgoing = tuple(
        Outgoing(
            recipient=world.choose((*ADDRESSES, *ADDRESSES, "nowhere")),
            message_id=world.fresh() if world.pick(6) else world.known_message(address),
            type="N",
            body=b"1",
            digest=message_digest("N", b"1"),
            deliver_at=world.moment(),
        )
        for _ in range(world.choose((0, 0, 1, 2, 3)))
    )
    outside = tuple(
        ToOutside(destination="mail", message_id=world.fresh(), type="M", body=b"m")
        for _ in range(world.choose((0, 1, 1)))
    )
    seq = world.place(address, in_hand=True)
    return FinishDelivery(
        **world.fence(address),
        seq=seq,
        reply=world.choose((None, None, b"r")),
        error=world.choose((None, None, None, b"e")),
        state=world.choose((None, StateWrite(payload=b"s", type="S", version=world.pick(3)))),
        outgoing=outgoing,
        timers=tuple(timers),
        outside=outside,
        next_seq=world.choose((None, seq + 1, world.place(address, in_hand=False))),
        max_deliveries=world.choose((1, 5)),
    )


def undo(world: World) -> Transition[Any]:
    address = world.busy(in_hand=True)
    return UndoDelivery(**world.fence(address), seq=world.place(address, in_hand=True))


def bury(world: World) -> Transition[Any]:
    address = world.choose(ADDRESSES)
    error = world.choose((None, b"e"))
    return BuryMessage(**world.fence(address), seq=world.place(address, in_hand=False), reason="bad", error=error)


def settle_dead(world: World) -> Transition[Any]:
    dead = world.column("SELECT DISTINCT address FROM messages WHERE status = 'dead' ORDER BY 1")
    address = world.choose(dead) if dead and world.pick(8) else world.choose(ADDRESSES)
    kind: type[RequeueDead | DropDead] = world.choose((RequeueDead, RequeueDead, DropDead))
    return kind(address=address, message_id=world.dead_message(address))


def park(world: World) -> Transition[Any]:
    return ParkAddress(**world.fence(world.choose(ADDRESSES)), reason=ParkReason.OVERSIZE, detail="large")


def unpark(world: World) -> Transition[Any]:
    parked = world.column("SELECT address FROM addresses WHERE parked IS NOT NULL ORDER BY 1")
    return UnparkAddress(address=world.choose(parked) if parked and world.pick(8) else world.choose(ADDRESSES))


def give_up(world: World) -> Transition[Any]:
    kind: type[ReleaseAddress | CloseAddress] = world.choose((ReleaseAddress, ReleaseAddress, CloseAddress))
    return kind(**world.fence(world.choose(ADDRESSES)))


def create_callback(world: World) -> Transition[Any]:
    return CreateCallback(
        **world.fence(world.choose(ADDRESSES)),
        callback_id=world.choose(CALLBACKS),
        secret_digest=world.choose(SECRETS),
        name="n",
        expires_at=world.moment(),
    )


def answer(world: World) -> Transition[Any]:
    body = world.choose((b"1", b"1", b"2"))
    callback_id = world.choose((*CALLBACKS, *CALLBACKS, *CALLBACKS, "nothing"))
    secrets = world.one("SELECT secrets FROM callbacks WHERE callback_id = ?", callback_id)
    secret = secrets.split()[0] if secrets and world.pick(4) else world.choose(SECRETS)
    return AnswerCallback(callback_id=callback_id, secret_digest=secret, answer=body, digest=message_digest("", body))


def settle_callback(world: World) -> Transition[Any]:
    if world.pick(3):
        late = world.one("SELECT callback_id FROM callbacks WHERE status = 'open' AND expires_at <= ?", world.now())
        return ExpireCallback(callback_id=late or world.choose(CALLBACKS))
    return CancelCallback(callback_id=world.choose((*CALLBACKS, "nothing")))


def outbox_row(world: World) -> Transition[Any]:
    rows = world.connection.execute(
        "SELECT address, ordinal, status FROM outbox WHERE held = 0 ORDER BY 1, 2"
    ).fetchall()
    address, ordinal, status = world.choose(rows) if rows else ("a", 1, "pending")
    row: dict[str, Any] = {"address": address, "ordinal": ordinal}
    if status == "dead" and world.pick(4):
        return RequeueSend(**row)
    match world.pick(6):
        case 0:
            return FinishSend(**row)
        case 1 | 2:
            return FailSend(**row, seconds=world.choose((None, None, 5.0)))
        case 3:
            return RequeueSend(**row)
        case _:
            return BeginSend(**row, seconds=10.0)


def flush(world: World) -> Transition[Any]:
    recipients = tuple(address for address in ADDRESSES if world.pick(2))
    return FlushHeld(address=world.choose(ADDRESSES), recipients=recipients)


def forget(world: World) -> Transition[Any]:
    kind = world.choose([kind for kind in Prunable if kind is not Prunable.BATCHES])
    # Which of several observations of one moment are the oldest depends on their ids, which no caller can know.
    limit = 10_000 if kind is Prunable.OBSERVATIONS else world.choose((1, 3, 100))
    age = timedelta(seconds=world.choose((0, 10, 30)))
    return Prune(kind=kind, age=age, limit=limit, dry_run=world.pick(4) == 0)


KINDS: dict[str, tuple[int, Callable[[World], Transition[Any]]]] = {
    "accept": (14, accept),
    "begin": (12, begin),
    "finish": (14, finish),
    "claim": (6, claim),
    "open_address": (2, open_address),
    "register_pool": (1, register_pool),
    "register": (3, register),
    "drain": (1, lambda world: DrainExecution(execution_id=world.execution())),
    "end": (1, lambda world: EndExecution(execution_id=world.execution())),
    "release_lost": (
        2,
        lambda world: ReleaseLost(
            execution_id=world.lost(), suspect=bool(world.pick(4)), limit=world.choose((1, 2, 10))
        ),
    ),
    "undo": (2, undo),
    "bury": (2, bury),
    "settle_dead": (4, settle_dead),
    "admit": (3, lambda world: AdmitDue(address=world.choose(ADDRESSES), limit=world.choose((1, 2, 10)))),
    "park": (1, park),
    "unpark": (2, unpark),
    "give_up": (2, give_up),
    "create_callback": (4, create_callback),
    "answer": (4, answer),
    "settle_callback": (3, settle_callback),
    "outbox_row": (6, outbox_row),
    "flush": (2, flush),
    "content": (1, lambda world: PutContent(data=b"c" * (1 + world.pick(3)))),
    "forget": (2, forget),
    **TASK_KINDS,
}


def lists_of(kinds: Sequence[str]) -> st.SearchStrategy[list[Command]]:
    """Commands of these kinds, as often as they weigh, and passing time."""
    names = [name for name in kinds for _ in range(KINDS[name][0])]
    return st.lists(
        st.builds(
            Command,
            kind=st.sampled_from([*names, "time", "time", "time"]),
            numbers=st.lists(st.integers(0, 10_000), min_size=8, max_size=8).map(tuple),
        ),
        min_size=8,
        max_size=60,
    )


ABOUT_TASKS = (*TASK_KINDS, "register", "release_lost", "end", "answer", "settle_callback", "flush")
ABOUT_ACTORS = tuple(name for name in KINDS if name not in TASK_KINDS)

commands = lists_of(ABOUT_ACTORS) | lists_of(ABOUT_TASKS) | lists_of(tuple(KINDS))


def beginning() -> list[Command]:
    """Commands that make something for the random ones to work on: two executions, pools, three claimed addresses."""
    opening = [Command("register", (number,) * 8) for number in (1, 2)]
    opening += [Command("register_task_pool", (number,) * 8) for number in (0, 1)]
    return opening + [Command("claim", (number, 1, 1, number, number, 1, 1, 1)) for number in range(3)]


def becomes(command: Command, world: World) -> Transition[Any]:
    """The transition that a command means in the present state."""
    world.numbers, world.used = command.numbers, 0
    return KINDS[command.kind][1](world)
