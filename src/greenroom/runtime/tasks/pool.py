"""One incarnation of a pool of agents: it claims tasks by need, gives those that have something to do their places, and stops them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from greenroom.actors import Cell, Exit, current_actor, in_control_code
from greenroom.errors import ActorStopped, BadSpec, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import Slot
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import RunnableTasks
from greenroom.runtime.tasks.activation import Activation
from greenroom.runtime.tasks.agent import Agent
from greenroom.runtime.tasks.agents import Agents
from greenroom.runtime.tasks.patience import Patience
from greenroom.supervisors import SupervisorLife, SupervisorSpec

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage
    from greenroom.runtime.tasks.desk import Desk

logger = logger_named("greenroom.tasks")

AGAIN = 1.0
"""Seconds after which the queue is looked at again when a task in it could not be had."""


class AgentsLife(SupervisorLife):
    """See the module."""

    spec: Agents[Any, Any]

    def __init__(self, cell: Cell, owner: Any, spec: SupervisorSpec) -> None:
        super().__init__(cell, owner, spec)
        self.storage: Storage = self.services.storage  # type: ignore[assignment]
        self.path = cell.path
        self.context = copy_context()
        """What drivers of tasks run in, whoever wakes them."""
        self.control_context = self.context.copy()
        """Of which a copy is what control code runs in."""
        self.control_context.run(current_actor.set, in_control_code(cell))
        self.patience = Patience(self.services.timers)
        self.version = ""
        """Of the agent's code."""
        self.version_policy = "replay"
        self._active: dict[str, Activation] = {}
        """By address."""
        self._resting: OrderedDict[Activation, None] = OrderedDict()
        """Those that wait for something durable, the longest first."""
        self._rising: deque[tuple[Activation, Slot]] = deque()
        """Those that have something to do again, and wait for a place."""
        self.busy = 0
        """Places taken. Invariant: nobody waits for one while there is one."""
        self._stalled: dict[Activation, None] = {}
        """Those that have lost their task and their place, and whose control code has not ended yet."""
        self._begins_at = 0.0
        """No task is begun before, by the pool's rate."""
        self._more = True
        """There may be more in the queue than was claimed."""
        self._looking = False
        self._queued_again: set[str] = set()
        """Addresses that were found in the queue while what they were here before had not ended: the queue is looked at again then."""
        self._served_by: str | None = None
        """The execution that is on record as serving the pool from here."""
        self._given_up = False
        """What does not end was waited for long enough."""

    @property
    def desk(self) -> Desk:
        return self.storage.tasks

    def make_agent(self) -> Agent[Any, Any]:
        """A fresh agent. Raises whatever the factory raises; `BadSpec` when it made something else."""
        agent = self.spec.make()
        if not isinstance(agent, Agent):
            raise BadSpec(f"pool {self.path!r}: its factory made a {type(agent).__qualname__}, which is no gr.Agent")
        return agent

    async def _start_children(self) -> Exit | None:
        if self.storage is None:
            return Exit("error", BadSpec(f"{self.path!r} keeps its tasks in a store, and this runtime has none"))
        try:
            agent = self.make_agent()
            self.version, self.version_policy = agent.version, agent.other_versions
        except Exception as error:  # noqa: BLE001 - whatever it is: the pool cannot start
            return Exit("error", error)
        try:
            await self._register()
        except ActorStopped:
            return None
        self.desk.add(self)
        return None

    async def _register(self) -> None:
        """Say that the pool is served here. Raises `ActorStopped` when it is to stop."""
        execution = self.storage.living()
        execution_id = None if execution is None else execution.id
        spec = self.spec
        register = RegisterTaskPool(
            pool=self.path,
            queue_limit=spec.queue_limit,
            per_group=spec.per_group,
            rate=spec.rate,
            execution_id=execution_id,
        )
        await self.storage.commit_surely(register, self._go_on)
        self._served_by = execution_id

    def _go_on(self) -> None:
        if self.stopping:
            raise self.stopped()

    def _end(self, exit: Exit) -> None:
        if self.storage is not None:
            self.desk.remove(self)
        for activation in self._active.values():  # of those that rest no driver has seen that the nursery was torn down
            activation.abandon()
        super()._end(exit)

    # ------------------------------------------------------------------------------------------------------ claiming

    def look(self) -> None:
        """There may be something in the queue."""
        self._more = True
        self._fill()

    @property
    def _has_place(self) -> bool:
        return self.busy < self.spec.max_running and not self.desk.solitude.is_taken

    @property
    def _has_room(self) -> bool:
        return self._has_place and not (self.stopping or self.storage.draining)

    def _fill(self) -> None:
        """A place may be free: for those that are here already, then for the queue."""
        self.desk.solitude.look()
        while self._rising and self._has_place:
            slot = self._rising.popleft()[1]
            if not slot.done():
                self.busy += 1
                slot.set_result(None)
        if self._more and self._has_room and not self._looking and self.storage.execution is not None:
            self._looking = True
            self.spawn(self._claim, f"{self.path} claims")

    async def _claim(self) -> None:
        try:
            execution = self.storage.execution
            if execution is not None and execution.id != self._served_by:
                await self._register()
            while self._more and self._has_room:
                self._more = False
                unclaimed = sum(not activation.owned for activation in self._active.values())
                limit = self.spec.max_running - self.busy + unclaimed
                begun = self.services.loop.now() < self._begins_at
                query = RunnableTasks(pool=self.path, limit=limit, per_group=self.spec.per_group, begun=begun)
                page = await self.storage.store.read(query)
                activated = sum(self._activate(address) for address in page)
                # A page of tasks that are here already tells nothing of others, and asking at once would give it again.
                self._more |= len(page) == limit and activated > 0
        except StoreUnavailable as error:
            logger.warning("%s: its queue could not be looked at, trying again: %s", self.path, error)
            self.services.timers.after(AGAIN, self.look)
        except ActorStopped:  # it needs no tasks any more
            self._more = False
        finally:
            self._looking = False

    def _activate(self, address: str) -> bool:
        """Claim a task that stands in the queue, if there is room for it. False: it is here already, or there is none."""
        if address in self._active:
            self._queued_again.add(address)
            return False
        if not self._has_room:  # those that rose while the queue was read have taken it
            self._more = True
            return False
        activation = self._active[address] = Activation(self, address)
        self.busy += 1
        activation.drive()
        return True

    def begins_in(self, seconds: float) -> None:
        """The pool's rate lets no task be begun for so long."""
        self._begins_at = self.services.loop.now() + seconds
        self.services.timers.after(seconds, self.look)

    def activation(self, address: str) -> Activation | None:
        """The task's activation here."""
        return self._active.get(address)

    def held(self) -> Iterator[tuple[str, Activation]]:
        """The activations of tasks that are owned here, with their addresses."""
        return ((address, each) for address, each in self._active.items() if each.owned and not each.ended)

    def activation_ended(self, activation: Activation) -> None:
        """Nothing of it runs any more."""
        if activation in self._stalled:
            del self._stalled[activation]
        else:
            self._leave(activation)
        if activation.address in self._queued_again:
            self._queued_again.discard(activation.address)
            self._more = True
        if not activation.owned:
            self.services.timers.after(AGAIN, self.look)
        if self.stopping:
            how = "cancelled" if activation.cancelled else "stopped"
            self.services.watch.life_ended(f"{self.path}/{activation.task_id}", how)
            self._wake()
        else:
            self._fill()

    def _leave(self, activation: Activation) -> None:
        del self._active[activation.address]
        if activation in self._resting:
            del self._resting[activation]
        else:
            self.busy -= 1

    def activation_stalled(self, activation: Activation) -> None:
        """It has lost its task, and its control code may go on for ever: its place is for others."""
        self._leave(activation)
        self._stalled[activation] = None
        self._fill()

    def lease_lost(self) -> None:
        """What was owned here is not any more."""
        for activation in tuple(self._active.values()):
            activation.lost()

    # -------------------------------------------------------------------------------------------------------- places

    def rests(self, activation: Activation) -> None:
        """It waits for something durable: its place is free, and it may be dropped to make room."""
        self.busy -= 1
        self._resting[activation] = None
        if self.spec.per_group is not None:  # its place among its group is free only when it is let go
            activation.evict()
        for oldest in tuple(self._resting)[: max(0, len(self._active) - self.spec.max_resident)]:
            oldest.evict()
        self._fill()

    async def rises(self, activation: Activation) -> None:
        """It has something to do again: wait for a place."""
        if self._has_place or activation.stopping:
            self.busy += 1
        else:
            slot = self.services.loop.slot()
            self._rising.append((activation, slot))
            await slot
        del self._resting[activation]

    # ------------------------------------------------------------------------------------------------------ stopping

    def cancel(self) -> None:
        super().cancel()
        self._cut_short()

    def kill(self) -> None:
        super().kill()
        self._cut_short()

    async def _stop_children(self) -> None:
        for activation in tuple(self._active.values()):
            activation.request_stop()
        for _, slot in self._rising:  # they are to be let go, and need no place for that
            if not slot.done():
                self.busy += 1
                slot.set_result(None)
        self._rising.clear()
        self.desk.solitude.look()
        timer = self.services.timers.after(self.spec.grace, self._cut_short)
        if self._cancelled:
            self._cut_short()
        while (self._active or self._stalled) and not self._given_up:
            await self.park()
        timer.cancel()

    def _cut_short(self) -> None:
        """Their time to stop is up."""
        for activation in (*self._active.values(), *self._stalled):
            activation.cancel()
        self.services.timers.after(self.services.settings.kill_time, self._give_up)

    def _give_up(self) -> None:
        self._given_up = True
        for activation in (*self._active.values(), *self._stalled):
            logger.error(
                "%s does not end, though it was cancelled: an operation or its control code swallows that",
                activation.address,
            )
            self.services.watch.life_ended(f"{self.path}/{activation.task_id}", "stuck")
        self._wake()

    def _outlives(self) -> bool:
        return bool(self._active or self._stalled) or super()._outlives()


Agents.life_class = AgentsLife
