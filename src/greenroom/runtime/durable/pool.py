"""`DurableActors`: a pool of durable actors by key, each activated when it has mail and let go when it has nothing to do.

The pool is a supervisor. Its children are the actors that are resident: they are started by need, under the name of their key, and none
is restarted. One that crashes gives its address back, which is still due, and is activated again after a pause; one that crashes again
and again without getting a message done is parked, and the pool goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

from greenroom.actors import Cell, DurableActor, Exit, Ref, Verdict, described, is_durable
from greenroom.errors import BadSpec, LeaseLost
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
        max_resident: actors (int > 0) in memory at once; beyond it the least recently used one that is idle goes, and mail waits.
        idle: seconds without a message after which an actor is dropped from memory.
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

    life_class = property(lambda self: PoolLife)


@define(eq=False)
class Resident:
    """An actor of a pool that is in memory, or on its way out."""

    member: Member
    custody: Custody
    used: float = 0.0
    """When it was last given a message."""

    @property
    def is_idle(self) -> bool:
        """It has nothing in hand, and nothing that is known of waits for it."""
        life = self.member.life
        messages = getattr(life, "messages", None)
        return messages is not None and self.member.started and messages.hand is None and self.custody.is_idle


class PoolLife(SupervisorLife):
    """One incarnation of a pool."""

    spec: DurableActors

    def __init__(self, cell: Cell, owner: Any, spec: SupervisorSpec) -> None:
        super().__init__(cell, owner, spec)
        self.storage: Storage = self.services.storage  # type: ignore[assignment]
        self._residents: OrderedDict[str, Resident] = OrderedDict()
        """By key, the least recently used first."""
        self._crashes: dict[str, int] = {}
        """How often each has crashed since it last got a message done."""
        self._resting: set[str] = set()
        """Those whose pause after a crash is not over."""
        self._again: set[str] = set()
        """Those that got mail while they were ending."""
        self._crowded = False
        """Somebody had to be left waiting, since too many are resident."""

    async def _start_children(self) -> Exit | None:
        if self.storage is None:
            error = BadSpec(f"{self.cell.path!r} keeps its actors in a store, and this runtime has none")
            return Exit("error", error)
        await self.storage.commit_surely(RegisterPool(pool=self.cell.path, capacity=self.spec.mailbox.capacity))
        self.storage.pools.add(self)
        self._watch_idle()
        return None

    def _end(self, exit: Exit) -> None:
        if self.storage is not None:
            self.storage.pools.remove(self)
        super()._end(exit)

    # ----------------------------------------------------------------------------------------------------- activation

    def activate(self, key: str) -> None:
        """There is mail for this key: let its actor come to life, unless it is alive, rests from a crash, or has no room."""
        if self.stopping or self._nursery is None or key in self._resting:
            return
        if key in self.members:
            self._again.add(key)
            return
        if len(self._residents) >= self.spec.max_resident and not self._drop_idle(1, at_once=True):
            self._crowded = True
            return
        member = self.add(self.spec.template, key)
        custody: Custody = member.cell.mailbox.custody  # type: ignore[assignment]
        resident = self._residents[key] = Resident(member, custody, self.services.loop.now())
        custody.used = lambda: self._used(key, resident)
        custody.progressed = lambda: self._crashes.pop(key, None)
        self._context.run(self.begin, member)

    def _used(self, key: str, resident: Resident) -> None:
        resident.used = self.services.loop.now()
        if self._residents.get(key) is resident:
            self._residents.move_to_end(key)

    def _watch_idle(self) -> None:
        if not self.stopping:
            self._drop_idle(len(self._residents), at_once=False)
            self.services.timers.after(self.spec.idle / 2, self._watch_idle)

    def _drop_idle(self, count: int, *, at_once: bool) -> int:
        """Let up to so many go that have been idle for long enough (`at_once`: that are idle). Returns how many."""
        now, dropped = self.services.loop.now(), 0
        for resident in tuple(self._residents.values()):
            if dropped == count or not (at_once or now - resident.used >= self.spec.idle):
                break
            life = resident.member.life
            if resident.is_idle and life is not None and not life.messages.stopping:  # type: ignore[attr-defined]
                life.messages.stop_self()  # type: ignore[attr-defined]
                dropped += 1
        return dropped

    # ----------------------------------------------------------------------------------------------------------- ends

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        key = life.cell.path.rpartition("/")[2]
        resident = self._residents.get(key)
        if resident is not None and resident.member.life is life and not self.stopping:
            self._note_crash(key, resident, verdict.exit)
        super().life_ended(life, verdict)

    def _note_crash(self, key: str, resident: Resident, exit: Exit) -> None:
        if exit.clean or isinstance(exit.cause, LeaseLost):
            return
        crashes = self._crashes[key] = self._crashes.get(key, 0) + 1
        if crashes >= self.spec.mailbox.max_deliveries + CRASHES:
            del self._crashes[key]
            why = described(exit.cause) if exit.cause is not None else str(exit)
            resident.custody.park_later(
                ParkReason.CRASH_LOOP, f"it has crashed {crashes} times in a row, the last time by {why}"
            )
            return
        self._resting.add(key)
        self.services.timers.after(delay(PAUSES, crashes - 1, 0.0), lambda: self._rested(key))

    def _rested(self, key: str) -> None:
        self._resting.discard(key)
        self.activate(key)

    def remove(self, member: Member) -> None:
        super().remove(member)
        resident = self._residents.get(member.name)
        if resident is None or resident.member is not member:
            return
        del self._residents[member.name]
        again = member.name in self._again or resident.custody.left_mail
        self._again.discard(member.name)
        if again:
            self.activate(member.name)
        elif self._crowded:
            self._crowded = False
            self.storage.hurry()


class Pools:
    """The pools of this runtime, by path, and which of their addresses are known to be open."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pools: dict[str, PoolLife] = {}
        self._open: OrderedDict[str, None] = OrderedDict()

    @property
    def any(self) -> bool:
        return bool(self._pools)

    def add(self, pool: PoolLife) -> None:
        """A pool is up: what is due in it is looked for."""
        self._pools[pool.cell.path] = pool
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
        return Cell(path, custody.queue, self._storage.services).ref

    async def open_if_pooled(self, address: str) -> None:
        """Before something is sent to an address: it is there if it belongs to a pool here. Raises `StoreUnavailable`."""
        pool = self.of(address)
        if pool is None:
            return
        if address in self._open:
            self._open.move_to_end(address)
            return
        await self._storage.store.commit(
            OpenAddress(address=address, kind=AddressKind.ACTOR, capacity=pool.spec.mailbox.capacity)
        )
        self._open[address] = None
        if len(self._open) > KNOWN_OPEN:
            self._open.popitem(last=False)
