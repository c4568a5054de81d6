"""`DurableActors`: a pool of durable actors by key, each activated when it has mail and let go when it has nothing to do.

The pool is a supervisor. Its children are the actors that are resident: they are started by need, under the name of their key, and none
is restarted. One that crashes gives its address back, which is still due, and is activated again after a pause; one that crashes again
and again without getting a message done is parked, and the pool goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, cast

from attrs import define

from greenroom.actors import ActorLife, Cell, DurableActor, Exit, Ref, Timer, Verdict, described, is_durable
from greenroom.errors import ActorStopped, BadSpec, LeaseLost, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import DEFAULT_CAPACITY, PersistentMailbox, is_seconds, is_whole
from greenroom.mailbox.persistent import MAX_DELIVERIES
from greenroom.persistence import AddressKind, OpenAddress, ParkReason, RegisterPool
from greenroom.runtime.durable.custody import Custody
from greenroom.supervisors import Backoff, Child, SupervisorLife, SupervisorSpec
from greenroom.supervisors.member import Member
from greenroom.supervisors.restarts import delay

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")

MAX_RESIDENT = 10_000

KNOWN_OPEN = 100_000
"""Addresses that are remembered to be open, so that sending to them again costs no further commit."""

CRASHES = 5
"""Crashes in a row that an actor may have beyond those that make its message a dead letter, before it is parked."""

PAUSES = Backoff(0.1, maximum=30.0)
"""Between a crash and the next activation."""

ELSEWHERE = 1.0
"""Seconds for which a key is left alone that could not be had: it is parked, or another runtime has it."""

TURN = 1.0
"""Seconds for which an actor may stay resident, though it is never idle, when others wait for a place."""

WAITING = 128
"""Keys that are noted as waiting for a place. The store knows the others."""

GLANCE = 16
"""Residents that are looked at for an idle one whenever a key begins to wait; all of them are at each turn."""

LONGEST_KEY = 200


def check_key(pool: str, key: str) -> None:
    """Raise `BadSpec` for what cannot be a key."""
    if not key.strip() or len(key) > LONGEST_KEY or "/" in key or not key.isprintable():
        raise BadSpec(
            f"{key!r} cannot be a key in {pool!r}: 1 to {LONGEST_KEY} printable characters, not blank, without '/'"
        )


class DurableActors(SupervisorSpec):
    """A pool of durable actors by key: `runtime.ref("service/accounts/alice")` is one, whether it is in memory or not.

    An actor is made when a message waits for it, in one of the processes that run this pool on the same store, and dropped when it has
    been idle for a while: a million of them cost rows. Its key is `self.context.key`.

    Args:
        factory, args: `factory(*args)` makes the actor at each activation: a `DurableActor` class, or a `functools.partial` of one.
        max_resident: actors (int > 0) in memory at once. Beyond it the least recently used one that is idle goes, and mail waits; when
            none is idle, those go that have been in memory for longest, after the message in hand.
        idle: seconds without a message after which an actor is dropped from memory; what it runs in its nursery ends with that.
        capacity, max_deliveries: of each mailbox, as for a `PersistentMailbox`.
        shutdown: as of a `Child`, for each actor.

    An actor that crashes is activated again after a pause that grows from 0.1 to 30 s. A message that has crashed it `max_deliveries`
    times is a dead letter; one that crashes without a message (in its constructor, say) is parked as `crash_loop` after a few more.

    Raises `BadSpec`.
    """

    stops_together = True
    refuses_children = "its actors are started by their mail, and gone when they have none"

    def __init__(
        self,
        name: str,
        factory: Callable[..., DurableActor[Any]],
        *args: object,
        max_resident: int = MAX_RESIDENT,
        idle: float = 60.0,
        capacity: int | None = DEFAULT_CAPACITY,
        max_deliveries: int = MAX_DELIVERIES,
        shutdown: float | None = 5.0,
    ) -> None:
        self._place(name, "permanent", None, False, None, "pool")
        self._govern(1, 5.0)
        where = f"pool {name!r}: "
        if not is_durable(factory):
            raise BadSpec(f"{where}{factory!r}: give a gr.DurableActor class, or a functools.partial of one")
        if not is_whole(max_resident, least=1):
            raise BadSpec(f"{where}max_resident={max_resident!r}: a whole number of actors above 0")
        if not is_seconds(idle):
            raise BadSpec(f"{where}idle={idle!r}: a number of seconds above 0")
        self.max_resident = max_resident
        self.idle = float(idle)
        self.mailbox = PersistentMailbox(capacity, max_deliveries)
        self.template = Child("actor", factory, *args, restart="temporary", shutdown=shutdown, mailbox=self.mailbox)


@define(eq=False)
class Resident:
    """An actor of a pool that is in memory, or on its way out."""

    member: Member
    custody: Custody
    since: float
    """When it was activated."""
    used: float
    """When it last had something to do."""

    @property
    def life(self) -> ActorLife | None:
        return cast("ActorLife | None", self.member.life)

    @property
    def is_leaving(self) -> bool:
        """It is on its way out: it takes nothing in hand any more."""
        return self.life is None or self.life.exit is not None or self.life.messages.stopping

    @property
    def is_idle(self) -> bool:
        """It has nothing in hand, and nothing that is known of waits for it."""
        life = self.life
        return life is not None and self.member.started and life.messages.hand is None and self.custody.is_idle

    def leave(self) -> None:
        """Let it end after the message in hand."""
        if self.life is not None:
            self.life.messages.stop_self()


class PoolLife(SupervisorLife):
    """One incarnation of a pool."""

    spec: DurableActors

    def __init__(self, cell: Cell, owner: Any, spec: SupervisorSpec) -> None:
        super().__init__(cell, owner, spec)
        self.storage: Storage = self.services.storage  # type: ignore[assignment]
        self._residents: OrderedDict[str, Resident] = OrderedDict()
        """By key, the least recently used first. Never more than `max_resident`, those that are leaving included."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """Keys that get the next places, in order. Invariant: empty while there is room."""
        self._leaving: set[str] = set()
        """Those that were asked to go, to make room."""
        self._resting: dict[str, bool] = {}
        """Keys that are left alone for a while; whether they are to be activated then."""
        self._again: set[str] = set()
        """Those that may have got mail that their resident does not see."""
        self._crashes: dict[str, int] = {}
        """How often each has crashed since it last got a message done."""
        self.crowded = False
        """More wait than are noted here. They are in the store, and looked for there when some of these have had their turn."""
        self._turns: Timer | None = None
        self._idle_timer: Timer | None = None

    async def _start_children(self) -> Exit | None:
        if self.storage is None:
            return Exit("error", BadSpec(f"{self.cell.path!r} keeps its actors in a store, and this runtime has none"))
        register = RegisterPool(pool=self.cell.path, capacity=self.spec.mailbox.capacity)
        try:
            await self.storage.commit_surely(register, self._go_on)
        except ActorStopped:
            return None
        self.storage.pools.add(self)
        return None

    def _go_on(self) -> None:
        if self.stopping:
            raise self.stopped()

    def _end(self, exit: Exit) -> None:
        if self.storage is not None:
            self.storage.pools.remove(self)
        super()._end(exit)

    # ----------------------------------------------------------------------------------------------------- activation

    def activate(self, key: str) -> None:
        """There may be mail for this key: let its actor come to life, now or when there is room and it has rested."""
        if self.stopping or self._nursery is None:
            return
        resident = self._residents.get(key)
        if resident is not None:
            if resident.is_leaving or not resident.member.started:
                self._again.add(key)
        elif key in self._resting:
            self._resting[key] = True
        elif len(self._residents) < self.spec.max_resident:
            self._begin(key)
        elif key in self._waiting or len(self._waiting) < WAITING:
            self._waiting[key] = None
            self._let_idle_go(islice(self._residents.values(), GLANCE))
            if self._turns is None:
                self._turns = self.services.timers.after(TURN, self._take_turns)
        else:
            self.crowded = True

    def _begin(self, key: str) -> None:
        now = self.services.loop.now()
        member = self.add(self.spec.template, key)
        custody: Custody = member.cell.mailbox.custody  # type: ignore[assignment]
        self._watch_idle(now + self.spec.idle)
        resident = self._residents[key] = Resident(member, custody, now, now)
        custody.progressed = lambda: self._progressed(key, resident)
        self._context.run(self.begin, member)

    def life_started(self, life: Any, info: object) -> None:
        self._again.discard(self._key_of(life))  # it looks for mail from here on
        super().life_started(life, info)

    def _progressed(self, key: str, resident: Resident) -> None:
        """It has dealt with a message."""
        self._crashes.pop(key, None)
        self._touch(key, resident)
        if self._waiting and resident.custody.is_idle:
            self._let_go((resident,))

    def _touch(self, key: str, resident: Resident) -> None:
        resident.used = self.services.loop.now()
        self._residents.move_to_end(key)

    @staticmethod
    def _key_of(life: Any) -> str:
        key: str = life.cell.path.rpartition("/")[2]
        return key

    # -------------------------------------------------------------------------------------------------- making room

    def _watch_idle(self, deadline: float) -> None:
        if self._idle_timer is None:
            self._idle_timer = self.services.timers.at(deadline, self._drop_idle)

    def _drop_idle(self) -> None:
        """Let those go that have been idle for long enough. What is busy is in use."""
        self._idle_timer = None
        now = self.services.loop.now()
        while self._residents and not self.stopping:
            key, resident = next(iter(self._residents.items()))
            if now < resident.used + self.spec.idle:
                self._watch_idle(resident.used + self.spec.idle)
                return
            if resident.is_idle:
                resident.leave()
            self._touch(key, resident)

    def _let_idle_go(self, residents: Iterable[Resident]) -> None:
        """Make room for those that wait: of these residents, those go that are idle."""
        self._let_go(resident for resident in residents if resident.is_idle)

    def _let_go(self, residents: Iterable[Resident]) -> None:
        """Let residents go until there are as many as wait for their places."""
        for resident in residents:
            if len(self._leaving) >= len(self._waiting):
                return
            if not resident.is_leaving:
                self._leaving.add(resident.member.name)
                resident.leave()

    def _take_turns(self) -> None:
        """Keys still wait: those make room that are idle by now, then those that have had their turn, the earliest first."""
        self._turns = None
        if not self._waiting or self.stopping:
            return
        self._let_idle_go(self._residents.values())
        past = self.services.loop.now() - TURN
        by_age = sorted(self._residents.values(), key=lambda resident: resident.since)
        self._let_go(takewhile(lambda resident: resident.since <= past, by_age))
        self._turns = self.services.timers.after(TURN, self._take_turns)

    def _fill(self) -> None:
        """A place is free."""
        while self._waiting and len(self._residents) < self.spec.max_resident and not self.stopping:
            self._begin(self._waiting.popitem(last=False)[0])
        if self.crowded and not self._waiting:
            self.crowded = False
            self.storage.hurry()

    # ----------------------------------------------------------------------------------------------------------- ends

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        key = self._key_of(life)
        resident = self._residents.get(key)
        if resident is not None and resident.member.life is life and not self.stopping:
            self._note_end(key, resident, verdict.exit)
        super().life_ended(life, verdict)

    def _note_end(self, key: str, resident: Resident, exit: Exit) -> None:
        """How its resident ended decides when a key may be activated next."""
        its_fault = exit.kind == "error" and not isinstance(exit.cause, (LeaseLost, StoreUnavailable))
        if not its_fault:
            if not resident.member.started:  # it is another's, or parked; or nothing is anybody's here just now
                told = resident.life is not None and resident.life.messages.stopping
                self._rest(key, ELSEWHERE, then=told or self.storage.execution is None)
            return
        crashes = self._crashes[key] = self._crashes.get(key, 0) + 1
        if crashes < self.spec.mailbox.max_deliveries + CRASHES:
            self._rest(key, delay(PAUSES, crashes - 1, 0.0), then=True)
            return
        del self._crashes[key]
        why = described(exit.cause) if exit.cause is not None else str(exit)
        detail = f"it has crashed {crashes} times in a row, the last time by {why}"
        resident.custody.park_later(ParkReason.CRASH_LOOP, detail)

    def _rest(self, key: str, seconds: float, *, then: bool) -> None:
        self._resting[key] = then
        self.services.timers.after(seconds, lambda: self._rested(key))

    def _rested(self, key: str) -> None:
        if self._resting.pop(key, False):
            self.activate(key)

    def remove(self, member: Member) -> None:
        super().remove(member)
        key = member.name
        resident = self._residents.pop(key)
        self._leaving.discard(key)
        again = key in self._again or resident.custody.left_mail
        self._again.discard(key)
        self._fill()
        if again:
            self.activate(key)


DurableActors.life_class = PoolLife


class Pools:
    """The pools of this runtime, by path, and which of their addresses are known to be open."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pools: dict[str, PoolLife] = {}
        self._capacities: dict[str, int | None] = {}
        """Of the mailboxes in each pool that has been up: while one is down its addresses can be sent to, too."""
        self._open: OrderedDict[str, None] = OrderedDict()

    @property
    def any(self) -> bool:
        return bool(self._pools)

    @property
    def crowded(self) -> bool:
        """Is there a pool that takes no more for now?"""
        return any(pool.crowded for pool in self._pools.values())

    def add(self, pool: PoolLife) -> None:
        """A pool is up: what is due in it is looked for."""
        self._pools[pool.cell.path] = pool
        self._capacities[pool.cell.path] = pool.spec.mailbox.capacity
        self._storage.hurry()

    def remove(self, pool: PoolLife) -> None:
        if self._pools.get(pool.cell.path) is pool:
            del self._pools[pool.cell.path]

    def of(self, address: str) -> PoolLife | None:
        """The pool that an address belongs to."""
        return self._pools.get(address.rpartition("/")[0])

    def activate(self, address: str) -> bool:
        """Something waits at this address. False: it belongs to no pool here."""
        pool = self.of(address)
        if pool is not None:
            pool.activate(address.rpartition("/")[2])
        return pool is not None

    def ref(self, path: str) -> Ref | None:
        """The ref of an actor of a pool, whether it is in memory or not; None when the path belongs to no pool here.

        Raises `BadSpec` for an impossible key.
        """
        pool = self.of(path)
        if pool is None:
            return None
        check_key(pool.cell.path, path.rpartition("/")[2])
        custody = Custody(self._storage, path, AddressKind.ACTOR, pool.spec.mailbox, pooled=True)
        cell = Cell(path, custody.queue, self._storage.services)
        cell.mailbox.close("it is not in memory just now")  # who watches it is told so at once, as of one that has been
        return cell.ref

    async def open_if_pooled(self, address: str) -> None:
        """Before something is sent to an address: it is there if it belongs to a pool here. Raises `StoreUnavailable`."""
        pool = address.rpartition("/")[0]
        if pool not in self._capacities:
            return
        if address in self._open:
            self._open.move_to_end(address)
            return
        await self._storage.store.commit(
            OpenAddress(address=address, kind=AddressKind.ACTOR, capacity=self._capacities[pool])
        )
        self._open[address] = None
        if len(self._open) > KNOWN_OPEN:
            self._open.popitem(last=False)
