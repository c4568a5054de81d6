"""The calls on a supervisor's ref: start, terminate, restart, delete, list. Meanings and refusals are those of OTP `supervisor`.

They run in the supervising loop, one at a time, queued with the ends of children; none of them is counted as a restart.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.actors import Ref, State, described
from greenroom.errors import (
    AlreadyPresent,
    AlreadyStarted,
    BadSpec,
    ChildNotFound,
    ChildRefused,
    ChildRestarting,
    ChildRunning,
    ChildStillEnding,
    NotASupervisor,
    StartFailed,
    TooManyChildren,
)
from greenroom.mailbox import Slot
from greenroom.supervisors import ladder
from greenroom.supervisors.member import Afterwards
from greenroom.supervisors.reports import ChildCounts, ChildInfo
from greenroom.supervisors.specs import Child, DynamicSupervisor, PartitionSupervisor, SupervisorSpec, check_child_of
from greenroom.supervisors.starting import StartAtOnce, start_one

if TYPE_CHECKING:
    from greenroom.supervisors.member import Member
    from greenroom.supervisors.supervisor import SupervisorLife


class Started(NamedTuple):
    """What `start_child` and `restart_child` return for a child whose `on_start` returned something (OTP: ok, pid, info)."""

    ref: Ref
    info: Any


class Administrator:
    """Answers the calls on one supervisor."""

    def __init__(self, life: SupervisorLife) -> None:
        self._life = life

    async def call(self, name: str, *args: object) -> object:
        """From the caller's task: queue the call and wait for its answer. Raises `ActorStopped` when the supervisor is ending."""
        if self._life.stopping:
            raise self._life.stopped()
        spec = self._life.spec
        at_once = name == "start_child" and self._life.idle
        if at_once and isinstance(spec, DynamicSupervisor) and spec.template.start_timeout is None:
            return await self._life.start_at_once(self._add_dynamic(spec, args))
        return await self._life.post_call(name, args)

    async def answer(self, name: str, args: tuple[object, ...], reply: Slot) -> None:
        """In the supervisor's task: perform a call."""
        try:
            result = await getattr(self, f"_{name}")(*args)
        except (ChildRefused, BadSpec, StartFailed, NotASupervisor, TypeError) as error:
            if not reply.done():
                reply.set_exception(error)
            return
        if not reply.done():
            if self._life.stopping and name in ("start_child", "restart_child"):
                reply.set_exception(self._life.stopped())
            else:
                reply.set_result(result)

    def refuse_all(self, events: deque[Any]) -> None:
        """The supervisor is ending: whoever still waits is told so. Leaves nothing queued."""
        for event in events:
            reply = getattr(event, "reply", None)
            if reply is not None and not reply.done():
                reply.set_exception(self._life.stopped())
        events.clear()

    # ------------------------------------------------------------------------------------------------ the calls

    async def _start_child(self, *args: object) -> Ref | Started | None:
        life = self._life
        spec = life.spec
        if isinstance(spec, DynamicSupervisor):
            return await self._start_new(self._add_dynamic(spec, args))
        self._refuse_fixed("start_child")
        if len(args) != 1 or not isinstance(args[0], (Child, SupervisorSpec)):
            raise BadSpec(f"start_child on {life.cell.path!r} takes one gr.Child(...) or supervisor spec, not {args!r}")
        child = args[0]
        check_child_of(spec, child)
        present = life.members.get(child.name)
        if present is not None:
            if present.cell.state in (State.STUCK, State.ABANDONED):
                raise ChildStillEnding(life.cell.path, child.name)
            raise (AlreadyStarted if present.life is not None else AlreadyPresent)(life.cell.path, child.name)
        return await self._start_new(life.add(child))

    def _add_dynamic(self, spec: DynamicSupervisor, more: tuple[object, ...]) -> Member:
        life = self._life
        if spec.max_children is not None and len(life.members) >= spec.max_children:
            raise TooManyChildren(life.cell.path, spec.template.name)
        life.serial += 1
        return life.add(spec.template, str(life.serial), more)

    async def _start_new(self, member: Member) -> Ref | Started | None:
        return self._new_started(member, await start_one(self._life, member))

    def _new_started(self, member: Member, error: BaseException | None) -> Ref | Started | None:
        """What `start_child` answers, or raises for a start that failed: its spec is not kept."""
        if error is not None:
            ladder.settle(self._life, member, Afterwards.FORGET, "its start failed")
            raise self._failed(member, error)
        return self._started(member)

    def answer_start(self, start: StartAtOnce) -> None:
        """A start at once is over: answer its call."""
        try:
            result = self._new_started(start.member, start.conclude())
        except StartFailed as error:
            if not start.reply.done():
                start.reply.set_exception(error)
            return
        if not start.reply.done():
            start.reply.set_result(result)

    async def _terminate_child(self, name: str | Ref) -> None:
        life = self._life
        dynamic = isinstance(life.spec, DynamicSupervisor)
        key = self._key(name)
        member = life.members.get(key)
        if member is None:
            if life.spec.refuses_children is not None or (dynamic and key.isdecimal() and 0 < int(key) <= life.serial):
                return  # a former child, or one in a pool: it is not there, which is what was asked for
            raise ChildNotFound(life.cell.path, key)
        restart_called_off = member.pending is not None
        afterwards = Afterwards.FORGET if member.temporary or dynamic else Afterwards.DOWN
        await ladder.stop(life, [member], afterwards, "it was terminated by a call")
        if restart_called_off and afterwards is Afterwards.DOWN:
            life.restarter.called_off(member)
        if member.life is not None:
            raise ChildStillEnding(life.cell.path, key)

    async def _restart_child(self, name: str) -> Ref | Started | None:
        if isinstance(self._life.spec, DynamicSupervisor) or self._life.spec.refuses_children is not None:
            self._refuse_fixed("restart_child")
        member = self._down(name)
        error = await start_one(self._life, member)
        if error is not None:
            ladder.settle(self._life, member, Afterwards.DOWN, "its start failed")
            raise self._failed(member, error)
        return self._started(member)

    async def _delete_child(self, name: str) -> None:
        self._refuse_fixed("delete_child")
        self._life.remove(self._down(name))

    async def _replace_childspec(self, child: object) -> None:
        if not isinstance(child, (Child, SupervisorSpec)):
            raise BadSpec(f"replace_childspec takes a gr.Child(...) or supervisor spec, not {child!r}")
        self._refuse_fixed("replace_childspec")
        check_child_of(self._life.spec, child)
        member = self._member(child.name)
        if isinstance(child, Child) is not isinstance(member.spec, Child):
            raise BadSpec(
                f"{child.name!r} cannot turn from a supervisor into an actor or back: delete it and start it anew"
            )
        if isinstance(child, Child) and isinstance(member.spec, Child) and child.mailbox != member.spec.mailbox:
            raise BadSpec(
                f"the mailbox of {member.cell.path!r} lives on, with what is queued in it: "
                f"give {child.name!r} the same `mailbox=`, or delete it and start it anew"
            )
        member.spec = child

    async def _which_children(self) -> list[ChildInfo]:
        return [member.describe() for member in reversed(self._life.members.values())]

    async def _count_children(self) -> ChildCounts:
        members = list(self._life.members.values())
        supervisors = sum(member.kind == "supervisor" for member in members)
        return ChildCounts(
            specs=1 if isinstance(self._life.spec, DynamicSupervisor) else len(members),
            active=sum(member.life is not None and member.life.exit is None for member in members),
            supervisors=supervisors,
            workers=len(members) - supervisors,
        )

    async def _get_childspec(self, name: str | Ref) -> Child | SupervisorSpec:
        member = self._member(self._key(name))
        if isinstance(member.spec, Child) and isinstance(self._life.spec, DynamicSupervisor):
            return member.spec.renamed(member.name, *member.more)
        return member.spec

    # -------------------------------------------------------------------------------------------------- helpers

    def route(self, key: object) -> Ref:
        """The partition a key belongs to."""
        spec = self._life.spec
        if not isinstance(spec, PartitionSupervisor):
            raise NotASupervisor(self._life.cell.path, "partition")
        if isinstance(key, int):
            number = key % spec.partitions
        elif isinstance(key, (str, bytes)):
            # Not hash(): it differs from process to process.
            number = (
                zlib.crc32(key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")) % spec.partitions
            )
        else:
            raise BadSpec(f"partition({key!r}): a key is an int, a str or bytes")
        return self._life.services.directory.find(f"{self._life.cell.path}/{number}")

    def _refuse_fixed(self, call: str) -> None:
        """Where all children are made from one template, there is no spec of one child to add, take away or exchange."""
        spec = self._life.spec
        if spec.refuses_children is not None:
            raise BadSpec(f"{call} on {self._life.cell.path!r}: {spec.refuses_children}")
        if isinstance(spec, PartitionSupervisor):
            raise BadSpec(f"{call} on {self._life.cell.path!r}: its partitions are fixed by its spec")
        if isinstance(spec, DynamicSupervisor):
            raise BadSpec(
                f"{call} on {self._life.cell.path!r}: its children are made from one template and gone once they have ended"
            )

    def _key(self, name: str | Ref) -> str:
        if not isinstance(name, Ref):
            return str(name)
        parent, _, leaf = name.path.rpartition("/")
        member = self._life.members.get(leaf)
        if parent != self._life.cell.path or (member is not None and member.cell.ref is not name):
            raise ChildNotFound(self._life.cell.path, name.path)
        return leaf

    def _member(self, name: str) -> Member:
        member = self._life.members.get(name)
        if member is None:
            raise ChildNotFound(self._life.cell.path, str(name))
        return member

    def _down(self, name: str) -> Member:
        member = self._member(name)
        if member.cell.state in (State.STUCK, State.ABANDONED):
            raise ChildStillEnding(self._life.cell.path, name)
        if member.life is not None:
            raise ChildRunning(self._life.cell.path, name)
        if member.restarting:
            raise ChildRestarting(self._life.cell.path, name)
        return member

    def _started(self, member: Member) -> Ref | Started | None:
        if not member.started:
            return None  # it raised Ignore
        return member.cell.ref if member.info is None else Started(member.cell.ref, member.info)

    def _failed(self, member: Member, error: BaseException) -> StartFailed:
        if isinstance(error, StartFailed):
            return error
        failed = StartFailed(member.cell.path, described(error))
        failed.__cause__ = error
        return failed
