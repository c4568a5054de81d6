"""The supervising loop: one event-loop task and one nursery for each supervisor.

Everything that happens below comes through one queue, in order of arrival: ends of children, queued restarts, administration
calls (OTP: exits and calls are served as they come). The loop takes an event, asks the rules (`restarts`), and performs what they
say; while it starts or stops children it looks only at them and at its own stop. A restart that failed is queued behind whatever
has come meanwhile.

Its children's tasks live in its nursery, so nothing of theirs can outlive it: a supervisor whose child is stuck goes on around it
and ends when the child does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from attrs import define

from greenroom.actors import (
    ActorEnded,
    ActorLife,
    ActorStarted,
    Cell,
    Exit,
    Life,
    Owner,
    State,
    Verdict,
    body_for,
    classify,
    described,
    text_of,
)
from greenroom.errors import ActorStopped, StartFailed
from greenroom.mailbox import Slot
from greenroom.mailbox.parking import Nursery
from greenroom.supervisors import ladder, starting
from greenroom.supervisors.administration import Administrator
from greenroom.supervisors.member import Afterwards, Member
from greenroom.supervisors.reports import Context, SupervisorReport, is_wanted, publish
from greenroom.supervisors.restarting import Ended, Restarter, Retry
from greenroom.supervisors.specs import Child, SupervisorSpec
from greenroom.supervisors.starting import StartAtOnce


@define(eq=False)
class Call:
    """An administration call."""

    name: str
    args: tuple[object, ...]
    reply: Slot


class SupervisorLife:
    """One incarnation of a supervisor. As `Life` it is steered by the supervisor above, as `Owner` it holds the lives below."""

    def __init__(self, cell: Cell, owner: Owner, spec: SupervisorSpec) -> None:
        self.cell = cell
        self.spec = spec
        self.services = cell.services
        self.exit: Exit | None = None
        self.settled = False
        self.lingering = False
        """Like a child's whose thread was abandoned, while there is one below that must not be replaced yet."""
        self.members: dict[str, Member] = {}
        """The children, in start order."""
        self.serial = 0
        """Number of the latest dynamic child."""
        self.stopping = False
        self._owner = owner
        self._cancelled = False
        self._killed = False
        self._nursery: Nursery | None = None
        self._events: deque[Ended | Retry | Call] = deque()
        self._outlasting: set[Any] = set()
        """After the end: lives below whose threads were abandoned and may still run."""
        self._slot: Slot | None = None
        self._idle = False
        """Its loop waits for events, and has nothing else in hand."""
        self._start: StartAtOnce | None = None
        """What it is busy with although its loop waits."""
        self._context = copy_context()
        self._administrator = Administrator(self)
        self.restarter = Restarter(self)
        cell.incarnation += 1
        self.incarnation = cell.incarnation
        cell.life = self
        cell.state = State.STARTING
        cell.administration = self._administrator

    # ---------------------------------------------------------------------------------------- the supervisor above

    def start(self) -> None:
        """Begin, in the nursery of the supervisor above."""
        self._owner.spawn(self.main, self.cell.path)

    def request_stop(self) -> None:
        self.stopping = True
        self._wake()

    def cancel(self) -> None:
        self._cancelled = self.stopping = True
        for member in self.members.values():
            if member.life is not None:
                ladder.cut_short(member)
        self._wake()

    def kill(self) -> None:
        self._cancelled = self._killed = self.stopping = True
        for member in self.members.values():
            if member.life is not None:
                member.life.kill()
        self._wake()

    # --------------------------------------------------------------------------------------------- the lives below

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(main, name=name)

    def life_started(self, life: Any, info: object) -> None:
        member = self._member_of(life)
        if member is not None:
            member.started = True
            member.info = info
            member.started_at = self.services.loop.now()
            start = self._start
            if start is not None and start.life is life and not self.stopping:
                self._start = None
                self._administrator.answer_start(start)
                if not self._events:
                    return  # idle again; its loop has not noticed
            self._wake()

    def life_ending(self, life: Any, exit: Exit) -> None:
        """Its end will tell."""

    def life_settled(self, life: Any) -> None:
        self._wake()

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        if self.exit is not None:
            self._outlasted(life, self.exit)
            return
        member = self._member_of(life)
        if member is not None:
            self.post(Ended(member, life, verdict))

    def _outlasted(self, life: Any, exit: Exit) -> None:
        """An abandoned thread below has ended after this supervisor. The last one frees its place."""
        self._outlasting.discard(life)
        if self.lingering and not self._outlasting:
            self.lingering = False
            self._owner.life_ended(self, Verdict(exit))

    def _member_of(self, life: Any) -> Member | None:
        member = self.members.get(life.cell.path.rpartition("/")[2])
        return member if member is not None and member.life is life else None

    def post_call(self, name: str, args: tuple[object, ...]) -> Slot:
        """Queue an administration call; the answer comes in the slot."""
        reply = self.services.loop.slot()
        self.post(Call(name, args, reply))
        return reply

    @property
    def idle(self) -> bool:
        """Would an event that came now be served at once?"""
        return self._idle and not self._events and self._start is None

    def start_at_once(self, member: Member) -> Slot:
        """Begin the start of a new child while the loop is idle; the answer to `start_child` comes in the slot."""
        # In the supervisor's own context: an actor must not inherit what its starter happens to carry.
        self._start = start = self._context.run(StartAtOnce, self, member)
        return start.reply

    def post(self, event: Ended | Retry | Call) -> None:
        """Queue an event for the supervising loop."""
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    async def park(self) -> None:
        """Wait until something has changed."""
        self._slot = self.services.loop.slot()
        try:
            await self._slot
        finally:
            self._slot = None

    # ---------------------------------------------------------------------------------------------------- the task

    async def main(self) -> None:
        """The event-loop task. Never raises, but for a cancellation from outside the tree."""
        outside: BaseException | None = None
        exit = Exit("killed")
        try:
            async with self.services.loop.open_nursery() as self._nursery:
                try:
                    exit = await self._run()
                except BaseException:
                    self.kill()  # what the nursery waits for now must end
                    raise
        except BaseException as error:  # noqa: BLE001
            # Only a defect of ours, or the loop's own end, comes here: the nursery has cancelled and awaited all children.
            verdict = classify(error, self.services.loop.cancelled)
            exit = verdict.exit
            if verdict.fatal is not None:
                self.services.watch.fatal(verdict.fatal)
            elif isinstance(error, self.services.loop.cancelled):
                outside = error
        self._end(Exit("killed", exit.cause) if self._cancelled and exit.clean else exit)
        if outside is not None:
            raise outside

    def _end(self, exit: Exit) -> None:
        self.stopping = True
        self.exit = exit
        self.settled = True
        self._administrator.refuse_all(self._events)
        for member in self.members.values():
            if member.life is not None and member.life.lingering and not member.replaces_abandoned:
                self._outlasting.add(member.life)
                self.lingering = True
            if not member.cell.mailbox.closed:
                member.down("its supervisor has ended")
            self.services.directory.remove(member.cell)
        cell = self.cell
        cell.former = self._addresses_to_keep()
        cell.exit = exit
        if exit.cause is not None:
            cell.last_error = str(exit)
        if self.services.events.listened_to:
            now = self.services.loop.now()
            self.services.events.publish(ActorEnded(at=now, path=cell.path, incarnation=self.incarnation, exit=exit))
        cell.tell_watchers(exit)
        self._owner.life_ended(self, Verdict(exit))

    def _addresses_to_keep(self) -> dict[str, Cell]:
        """Of the children that the spec names, for the next incarnation; dynamic ones and those added later do not come back."""
        kept = dict(self.cell.former or {})
        for group in self.spec.groups():
            for spec in group:
                member = self.members.get(spec.name)
                if member is not None:
                    kept[spec.name] = member.cell
        return kept

    async def _run(self) -> Exit:
        failure = await self._start_children()
        if failure is None and not self.stopping:
            self.cell.state = State.RUNNING
            if self.services.events.listened_to:
                now = self.services.loop.now()
                self.services.events.publish(ActorStarted(at=now, path=self.cell.path, incarnation=self.incarnation))
            self._owner.life_started(self, None)
            exit = await self._serve()
        else:
            exit = failure or Exit("shutdown")
        if not self.stopping:
            self._owner.life_ending(self, exit)
        self.stopping = True
        if self.cell.state is not State.STARTING:
            self.cell.state = State.STOPPING
        self._administrator.refuse_all(self._events)
        await self._stop_children()
        await self._outwait_stuck()
        return exit

    async def _start_children(self) -> Exit | None:
        """Left to right, one at a time (a parallel group at once); the first failure ends it."""
        former, self.cell.former = self.cell.former or {}, None
        for group in self.spec.groups():
            if self.stopping:
                break
            members = [self.add(spec, former=former.get(spec.name)) for spec in group]
            for member, error in (await starting.start(self, members)).items():
                self.report("start_error", text_of(error), member, Exit("error", error))
                ladder.settle(self, member, Afterwards.DOWN, "its start failed")
                failed = StartFailed(member.cell.path, described(error))
                failed.__cause__ = error
                return Exit("error", failed)
        return None

    async def _serve(self) -> Exit:
        while not self.stopping:
            start = self._start
            if start is not None and start.over:
                self._start = None
                self._administrator.answer_start(start)
            elif start is not None or not self._events:
                self._idle = True
                await self.park()
                self._idle = False
            else:
                exit = await self._serve_one(self._events.popleft())
                if exit is not None:
                    return exit
        if self._start is not None and not self._start.reply.done():
            self._start.reply.set_exception(self.stopped())
        self._start = None
        return Exit("shutdown")

    async def _serve_one(self, event: Ended | Retry | Call) -> Exit | None:
        """Its own frame: while the loop waits for the next event, it must not keep the last one's child in memory."""
        if isinstance(event, Call):
            await self._administrator.answer(event.name, event.args, event.reply)
            return None
        if isinstance(event, Retry):
            return await self.restarter.retry(event)
        return await self.restarter.child_ended(event)

    async def _stop_children(self) -> None:
        running = [member for member in reversed(self.members.values()) if member.life is not None or member.restarting]
        batches = [running] if self.spec.stops_together or self._cancelled else [[member] for member in running]
        for batch in batches:
            if self._killed:
                self.kill()
            elif self._cancelled:
                self.cancel()
            await ladder.stop(self, batch, Afterwards.DOWN, "its supervisor is stopping or has stopped")

    async def _outwait_stuck(self) -> None:
        """Stuck children hold the nursery open. The supervisor above is told that all else is done."""
        while self._outlives():
            if not self.settled:
                self.settled = True
                self.cell.state = State.STUCK
                self._owner.life_settled(self)
            await self.park()
            self._administrator.refuse_all(self._events)

    def _outlives(self) -> bool:
        """Does something below still run?"""
        return any(member.runs for member in self.members.values())

    # -------------------------------------------------------------------------------------------------- one child

    def add(
        self,
        spec: Child | SupervisorSpec,
        name: str | None = None,
        more: tuple[object, ...] = (),
        former: Cell | None = None,
    ) -> Member:
        """Give a child its place, at the end of the start order. A dynamic one has a name and arguments of its own.

        `former`: its address below the last incarnation of this supervisor, which it takes over.
        """
        member = Member(spec, self.cell.path, self.services, name, more, former)
        self.members[member.name] = member
        return member

    def remove(self, member: Member) -> None:
        """Forget a child that does not run."""
        member.down("it has ended and its supervisor has forgotten it")
        del self.members[member.name]
        self.services.directory.remove(member.cell)

    def begin(self, member: Member) -> Life:
        """Begin a new incarnation of a child: it will say that it has started, or end."""
        member.prepare()
        spec = member.spec
        life: Life
        if isinstance(spec, Child):
            args = (*spec.args, *member.more) if member.more else spec.args
            life = ActorLife(
                member.cell,
                self,
                lambda life: body_for(spec.factory, args, spec.isolation, life, spec.ask_failure, spec.memory_limit),
                shutdown=0.0 if spec.shutdown == "kill" else spec.shutdown,
                drain=spec.drain,
            )
        else:
            life = (spec.life_class or SupervisorLife)(member.cell, self, spec)
        member.life = life
        life.start()
        return life

    def take_verdict(self, life: Life) -> Verdict | None:
        """The verdict on a life that has ended before it had started; its event is used up with it."""
        for event in self._events:
            if isinstance(event, Ended) and event.life is life:
                self._events.remove(event)
                return event.verdict
        return None

    # ---------------------------------------------------------------------------------------------------- reports

    def report(
        self, context: Context, reason: str, member: Member, exit: Exit | None = None, *, count: int = 1
    ) -> None:
        """Log a report on a child, and show it to the readers of events. Costs nothing when there is neither."""
        if not is_wanted(self.services, context):
            return
        publish(
            self.services,
            SupervisorReport(
                at=self.services.loop.now(),
                path=self.cell.path,
                context=context,
                reason=reason,
                offender=member.record(count),
                exit=exit,
            ),
        )

    def stopped(self) -> ActorStopped:
        """What a call gets that came too late."""
        return ActorStopped(
            self.cell.path, why=f"the supervisor {'is stopping' if self.exit is None else f'has ended ({self.exit})'}"
        )
