"""What a tree is made of: specifications. Values, checked whole when they are built; nothing runs here.

Defaults and meanings are OTP's (`supervisor`: child_spec(), sup_flags()); durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVarTuple, Unpack

from pykka import ThreadingActor

from greenroom.actors import Actor, Isolation, check_isolation, check_memory_limit, is_durable
from greenroom.errors import BadSpec
from greenroom.mailbox import Mailbox, PersistentMailbox, is_whole
from greenroom.supervisors.options import (
    AutoShutdown,
    AutoShutdownType,
    Backoff,
    Restart,
    RestartType,
    Shutdown,
    Strategy,
    StrategyType,
    check_intensity,
    check_limit,
    check_name,
    check_seconds,
    check_shutdown,
    choice,
)

Ts = TypeVarTuple("Ts")


class _Placed:
    """What every kind of child has in common, as the supervisor above it sees it."""

    name: str
    restart: RestartType
    shutdown: Shutdown
    significant: bool
    backoff: Backoff | None
    intensity_limit: tuple[int, float] | None = None
    start_timeout: float | None = None

    def _place(
        self, name: str, restart: str, shutdown: object, significant: bool, backoff: Backoff | None, kind: str
    ) -> None:
        self.name = check_name(name, kind)
        where = f"{kind} {name!r}: "
        self.restart = choice(RestartType, restart, where + "restart")
        self.shutdown = check_shutdown(shutdown, where + "shutdown")
        self.significant = bool(significant)
        if backoff is not None and not isinstance(backoff, Backoff):
            raise BadSpec(f"{where}backoff={backoff!r}: give a gr.Backoff(...), or None for no delay")
        self.backoff = backoff
        if significant and self.restart is RestartType.PERMANENT:
            raise BadSpec(
                f"{where}significant=True with restart='permanent': it would never end for good; make it transient or temporary"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Child(_Placed):
    """One actor of a supervisor.

    Args:
        name: its step of the path, unique below its supervisor.
        factory, args: `factory(*args)` makes the actor at each start; for keyword arguments use `functools.partial`.
        restart: `"permanent"` always, `"transient"` after a fault, `"temporary"` never.
        isolation: `"task"` on the event loop, `"thread"` for blocking code (or an existing `pykka.ThreadingActor`, as it is),
            `"process"` in an interpreter of its own.
        shutdown: seconds from the stop request to the cancellation; `"kill"` (as 0, which is reported) cancels at once, without
            `on_stop`; None waits without limit.
        start_timeout: seconds that construction and `on_start` may take.
        significant: its end can end the supervisor, see `auto_shutdown`.
        backoff: delay before restarts; None: the supervisor's.
        mailbox: a `gr.Mailbox`; None: 10,000 messages, `reject`. A `gr.PersistentMailbox` keeps messages in the runtime's store; that
            is what None means for a `gr.DurableActor`.
        intensity: (restarts, period) allowed to this child, checked before the supervisor's; exceeded, the supervisor gives up.
        drain: at a stop handle what is queued first, within `shutdown`.
        replace_abandoned: start a new incarnation though an abandoned thread may still run: two copies might work at once.
        ask_failure: of a Pykka class only. What a failing ask does: `"reply"` (the default) as in Pykka, the asker gets the error and
            the actor lives; `"crash"` as in a gr.Actor. A failing tell always crashes it. Messages come to its `on_receive`; what is
            sent through Pykka's own refs and proxies passes its mailbox and that one's bound by.
        memory_limit: of a process child, bytes of address space (RLIMIT_AS): beyond them its code gets a MemoryError. The
            interpreter and what it loads are counted, 50 MB at the least.

    Raises `BadSpec`. Source: OTP `supervisor`, child_spec().
    """

    needs_store = False
    """It works on the store, though it has no mailbox there."""

    def __init__(
        self,
        name: str,
        factory: Callable[[Unpack[Ts]], Actor | ThreadingActor],
        *args: Unpack[Ts],
        restart: Restart = "permanent",
        isolation: Isolation = "task",
        shutdown: Shutdown = 5.0,
        start_timeout: float | None = None,
        significant: bool = False,
        backoff: Backoff | None = None,
        mailbox: object = None,
        intensity: tuple[int, float] | None = None,
        drain: bool = False,
        replace_abandoned: bool = False,
        ask_failure: Literal["reply", "crash"] | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._place(name, restart, shutdown, significant, backoff, "child")
        where = f"child {name!r}: "
        if not callable(factory):
            raise BadSpec(
                f"{where}factory={factory!r} cannot be called: give an Actor class, or a function that makes one"
            )
        if start_timeout is not None:
            start_timeout = check_seconds(start_timeout, where + "start_timeout")
        if intensity is not None:
            intensity = check_limit(intensity, where)
        self.durable = is_durable(factory)
        """Its actor is a `DurableActor`."""
        if mailbox is None:
            mailbox = PersistentMailbox() if self.durable else Mailbox()
        if not isinstance(mailbox, (Mailbox, PersistentMailbox)):
            raise BadSpec(
                f"{where}mailbox={mailbox!r}: give a gr.Mailbox(capacity=..., overflow=...) or a gr.PersistentMailbox(...)"
            )
        if self.durable and isinstance(mailbox, Mailbox):
            raise BadSpec(
                f"{where}a durable actor's messages are in the store: mailbox=gr.PersistentMailbox(...), or none"
            )
        if self.durable and isolation != "task":
            raise BadSpec(
                f"{where}isolation={isolation!r}: a durable actor runs on the event loop, where its state is committed"
            )
        self.factory: Callable[..., Any] = factory
        self.args: tuple[object, ...] = args
        self.isolation: Isolation = isolation
        self.start_timeout = start_timeout
        self.mailbox: Mailbox | PersistentMailbox = mailbox
        self.intensity_limit = intensity
        self.drain = bool(drain)
        self.replace_abandoned = bool(replace_abandoned)
        self.ask_failure = ask_failure
        self.memory_limit = memory_limit
        check_memory_limit(where, memory_limit, isolation)
        check_isolation(where, factory, args, isolation, ask_failure)

    @property
    def intensity(self) -> tuple[int, float] | None:
        """(restarts, period) allowed to this child alone; None: only the supervisor's limit holds."""
        return self.intensity_limit

    def renamed(self, name: str, *more: object) -> Child:
        """The same child under another name, with further arguments."""
        copy = Child.__new__(Child)
        copy.__dict__.update(self.__dict__)
        copy.name = name
        copy.args = (*self.args, *more)
        return copy


class Parallel:
    """Children that start at once when their supervisor does; it waits for all of them before it goes on.

    If one fails to start, the others of the group are stopped with the rest. Stops, and starts in a restart, stay one by one.

    Args:
        children: `Child`s or supervisors.

    Raises `BadSpec` for anything else.
    """

    def __init__(self, *children: Child | SupervisorSpec) -> None:
        for child in children:
            if not isinstance(child, (Child, SupervisorSpec)):
                raise BadSpec(f"Parallel({child!r}): give it gr.Child(...) or supervisor specs")
        self.children = children


class SupervisorSpec(_Placed):
    """What all kinds of supervisor have in common."""

    strategy: StrategyType = StrategyType.ONE_FOR_ONE
    auto_shutdown: AutoShutdownType = AutoShutdownType.NEVER
    refuses_children: str | None = None
    """Why children can be neither added nor taken away by a call, where that is so."""
    life_class: Any = None
    """What runs it; None: `SupervisorLife`."""
    stops_together = False
    """Children stop all at once instead of one by one in reverse."""

    def _govern(self, intensity: int, period: float) -> None:
        where = f"supervisor {self.name!r}: "
        self.intensity = check_intensity(intensity, where)
        self.period = check_seconds(period, where + "period")

    def groups(self) -> tuple[tuple[Child | SupervisorSpec, ...], ...]:
        """The children to start, in order; those of one group may start at once."""
        return ()


class Supervisor(SupervisorSpec):
    """Starts its children left to right, restarts them by a strategy, stops them right to left.

    Args:
        strategy: on a restart, `"one_for_one"` restarts the child, `"one_for_all"` all, `"rest_for_one"` it and those after it.
        intensity, period: more than `intensity` restarts within `period` seconds, and it gives up. Default 1 in 5 s, as OTP.
        restart, shutdown, significant, backoff: as a child of the supervisor above it. `shutdown=None` waits for the subtree.
        auto_shutdown: end when any, or the last, significant child has ended by itself for good.

    Raises `BadSpec`: unknown options, duplicate names, a significant child without `auto_shutdown`. Source: OTP `supervisor`.
    """

    def __init__(
        self,
        name: str,
        *children: Spec,
        strategy: Strategy = "one_for_one",
        intensity: int = 1,
        period: float = 5.0,
        restart: Restart = "permanent",
        shutdown: Shutdown = None,
        significant: bool = False,
        auto_shutdown: AutoShutdown = "never",
        backoff: Backoff | None = None,
    ) -> None:
        self._place(name, restart, shutdown, significant, backoff, "supervisor")
        self._govern(intensity, period)
        self.strategy = choice(StrategyType, strategy, f"supervisor {name!r}: strategy")
        self.auto_shutdown = choice(AutoShutdownType, auto_shutdown, f"supervisor {name!r}: auto_shutdown")
        self._groups = tuple(_group(name, child) for child in children)
        seen: set[str] = set()
        for group in self._groups:
            for child in group:
                if child.name in seen:
                    raise BadSpec(
                        f"supervisor {name!r} has two children named {child.name!r}: names are paths and must differ"
                    )
                seen.add(child.name)
                check_child_of(self, child)

    def groups(self) -> tuple[tuple[Child | SupervisorSpec, ...], ...]:
        return self._groups

    @property
    def children(self) -> tuple[Child | SupervisorSpec, ...]:
        """The children in start order."""
        return tuple(child for group in self._groups for child in group)


def _group(supervisor: str, spec: object) -> tuple[Child | SupervisorSpec, ...]:
    if isinstance(spec, Parallel):
        return spec.children
    if isinstance(spec, (Child, SupervisorSpec)):
        return (spec,)
    raise BadSpec(f"supervisor {supervisor!r}: {spec!r} is not a child; wrap actors in gr.Child(name, ActorClass, ...)")


def check_child_of(supervisor: SupervisorSpec, child: Child | SupervisorSpec) -> None:
    """Raise `BadSpec` when this child cannot be that supervisor's."""
    if child.significant and supervisor.auto_shutdown is AutoShutdownType.NEVER:
        raise BadSpec(
            f"child {child.name!r} is significant, but supervisor {supervisor.name!r} has auto_shutdown='never': "
            "set 'any_significant' or 'all_significant'"
        )


class DynamicSupervisor(SupervisorSpec):
    """Any number of children of one kind, started while it runs: `await ref.start_child(*more)`. No order; all stop at once.

    Args:
        factory, args: as for a `Child`; `start_child` appends its own arguments. Or a `Child` as a template, for its options.
        max_children: `start_child` refuses more; those that are restarting count. None: no limit.

    The children are named by their number. Source: OTP `supervisor`, simple_one_for_one; Elixir `DynamicSupervisor`.
    """

    stops_together = True

    def __init__(
        self,
        name: str,
        factory: Callable[..., Actor | ThreadingActor] | Child,
        *args: object,
        max_children: int | None = None,
        intensity: int = 1,
        period: float = 5.0,
        restart: Restart = "permanent",
        shutdown: Shutdown = None,
        significant: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self._place(name, restart, shutdown, significant, backoff, "supervisor")
        self._govern(intensity, period)
        if max_children is not None and (not is_whole(max_children, least=0)):
            raise BadSpec(f"supervisor {name!r}: max_children={max_children!r}: a whole number, 0 or more, or None")
        self.max_children = max_children
        self.template = (
            factory.renamed(factory.name, *args) if isinstance(factory, Child) else Child("child", factory, *args)
        )
        if isinstance(self.template.mailbox, PersistentMailbox):
            raise BadSpec(
                f"supervisor {name!r}: its children are named by number, and what is in the store needs a lasting name: "
                "use gr.DurableActors for durable actors by key, or gr.PartitionSupervisor"
            )
        check_child_of(self, self.template)


class PartitionSupervisor(SupervisorSpec):
    """The same child several times, to spread load by key: `runtime.ref("service/counters").partition(key).tell(...)`.

    Args:
        child: the template; the copies are named "0" to str(partitions - 1).
        partitions: how many (int > 0).

    Source: Elixir `PartitionSupervisor`.
    """

    def __init__(
        self,
        name: str,
        child: Child,
        *,
        partitions: int,
        intensity: int = 1,
        period: float = 5.0,
        restart: Restart = "permanent",
        shutdown: Shutdown = None,
        significant: bool = False,
        backoff: Backoff | None = None,
    ) -> None:
        self._place(name, restart, shutdown, significant, backoff, "supervisor")
        self._govern(intensity, period)
        if not is_whole(partitions, least=1):
            raise BadSpec(f"supervisor {name!r}: partitions={partitions!r}: a whole number above 0")
        if not isinstance(child, Child):
            raise BadSpec(f"supervisor {name!r}: {child!r} is not a gr.Child(...) to make partitions of")
        check_child_of(self, child)
        self.partitions = partitions
        self.template = child

    def groups(self) -> tuple[tuple[Child | SupervisorSpec, ...], ...]:
        return tuple((self.template.renamed(str(number)),) for number in range(self.partitions))


WITH_A_STORE = "Runtime(tree, store='sqlite:///service.db'), or greenroom run … --store sqlite:///service.db"
"""The way out for who has none."""


def in_the_store(spec: Child | SupervisorSpec, path: str = "") -> str | None:
    """The path of a child in this tree that keeps something in the store; None when nothing does."""
    path = f"{path}/{spec.name}".lstrip("/")
    if isinstance(getattr(spec, "mailbox", None), PersistentMailbox):
        return path
    if isinstance(spec, Child):
        return path if spec.needs_store else None
    found = (in_the_store(child, path) for group in spec.groups() for child in group)
    return next((child for child in found if child is not None), None)


Spec: TypeAlias = Child | Parallel | SupervisorSpec


def path_of(tree: Child | SupervisorSpec, spec: SupervisorSpec) -> str | None:
    """The path of a supervisor in a tree; None when it is not there."""
    if tree is spec:
        return tree.name
    if isinstance(tree, Child):
        return None
    found = (path_of(child, spec) for group in tree.groups() for child in group)
    below = next((path for path in found if path is not None), None)
    return None if below is None else f"{tree.name}/{below}"


def specifies(spec: Child | SupervisorSpec, path: str) -> bool:
    """Has this tree a place of that path, by its specification?"""
    name, _, rest = path.partition("/")
    if name != spec.name or not rest:
        return name == spec.name
    groups = spec.groups() if isinstance(spec, SupervisorSpec) else ()
    return any(specifies(child, rest) for group in groups for child in group)
