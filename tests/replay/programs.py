"""Control programs as values: made by hypothesis, run by `Performance`, changed by `mutants`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias, cast

from anyio.lowlevel import checkpoint
from attrs import evolve, frozen
from hypothesis import strategies as st

from greenroom.actors import Rejected
from greenroom.errors import Cancelled, OperationFailed, WaitTimeout
from greenroom.runtime.replay.branches import Branches
from greenroom.runtime.replay.task import Task
from tests.replay.values import CODEC, Hint, Nudge, Steer, burn, echo, pay


@frozen
class Perform:
    """An operation. With `sees`, everything noted so far is among its parameters: any change of order shows."""

    operation: str
    sees: bool


@frozen
class Sleep:
    seconds: int


@frozen
class Receive:
    kinds: tuple[str, ...]
    timeout: int | None


@frozen
class Group:
    body: Block
    branches: tuple[Block, ...]


@frozen
class CancelGroup:
    """Cancels the nearest nursery around it."""


@frozen
class Spawn:
    """Starts one more branch in the nearest nursery around it."""

    body: Block


@frozen
class Within:
    seconds: int
    body: Block


@frozen
class Cleanup:
    seconds: int
    body: Block


@frozen
class Attempt:
    catches: str
    body: Block
    handler: Block
    final: Block


@frozen
class Raise:
    pass


@frozen
class Draw:
    pass


@frozen
class Yield:
    """Lets the event loop run whatever it likes, in the middle of a turn."""


@frozen
class NewRoad:
    """One more operation before a statement, for those who get here with this code."""

    then: Statement


@frozen
class Choose:
    """Which way depends on how much has been noted by all branches."""

    one: Block
    other: Block


@frozen
class Twice:
    body: Block


Statement: TypeAlias = (
    Perform
    | Sleep
    | Receive
    | Group
    | CancelGroup
    | Spawn
    | Within
    | Cleanup
    | Attempt
    | Raise
    | Draw
    | Yield
    | NewRoad
    | Choose
    | Twice
)
Block: TypeAlias = tuple[Statement, ...]

OPERATIONS = {"echo": echo, "pay": pay, "burn": burn}
KINDS = {"Steer": Steer, "Hint": Hint}
CAUGHT: dict[str, tuple[type[BaseException], ...]] = {
    "failures": (OperationFailed, WaitTimeout),
    "groups": (ExceptionGroup,),
    "cancelled": (Cancelled,),
    "errors": (Exception,),
    "everything": (BaseException,),
}


class Boom(Exception):
    pass


# -------------------------------------------------------------------------------------------------------- running


class Run:
    """One run of a program: what its branches note, in the order of their turns, and the calls they make."""

    def __init__(self, task: Task, notes: list[str], calls: list[str]) -> None:
        self.task = task
        self.notes = notes
        self.calls = calls

    def note(self, text: str) -> None:
        self.notes.append(text)

    async def block(self, block: Block, place: str, around: Branches | None) -> None:
        for number, statement in enumerate(block):
            await self.statement(statement, f"{place}.{number}", around)

    async def statement(self, statement: Statement, place: str, around: Branches | None) -> None:
        task, call = self.task, self.calls.append
        match statement:
            case Perform(name, sees):
                value = " ".join(self.notes) if sees else place
                call(f"run {name}")
                self.note(f"{place} {await task.run(OPERATIONS[name], value)}"[:60])
            case Sleep(seconds):
                call(f"sleep {seconds}")
                await task.sleep(seconds)
                self.note(f"{place} woke {task.now().isoformat()}")
            case Receive(kinds, timeout):
                call(f"receive {kinds} {timeout}")
                message = await task.receive(*(KINDS[kind] for kind in kinds), timeout=timeout)
                self.note(f"{place} got {message}")
            case Group(body, branches):
                call("nursery")
                started = []
                try:
                    async with task.nursery() as opened:
                        for number, branch in enumerate(branches):
                            call("start")
                            started.append(opened.start_soon(self.branch, branch, f"{place}/{number}", opened))
                        await self.block(body, f"{place}:", opened)
                finally:
                    call("leave nursery")
                for branch_ in started:
                    try:
                        self.note(f"{place} result {branch_.result}")
                    except Exception as error:  # noqa: BLE001 - whatever it is, all runs must agree on it
                        self.note(f"{place} {type(error).__name__}")
            case CancelGroup():
                if around is not None:
                    call("cancel")
                    around.cancel()
            case Spawn(body):
                if around is not None:
                    call("start")
                    around.start_soon(self.branch, body, f"{place}*", around)
            case Within(seconds, body):
                call(f"limit {seconds}")
                try:
                    with task.move_on_after(seconds) as limit:
                        await self.block(body, f"{place}<", around)
                finally:
                    call("leave limit")
                self.note(f"{place} {limit.expired}")
            case Cleanup(seconds, body):
                call(f"cleanup {seconds}")
                try:
                    async with task.cleanup(seconds):
                        await self.block(body, f"{place}!", around)
                finally:
                    call("leave cleanup")
            case Attempt(catches, body, handler, final):
                try:
                    await self.block(body, f"{place}t", around)
                except CAUGHT[catches] as error:
                    if not isinstance(error, (Exception, Cancelled)):
                        raise
                    self.note(f"{place} caught {type(error).__name__}")
                    await self.block(handler, f"{place}h", around)
                finally:
                    self.note(f"{place} finally")
                    await self.block(final, f"{place}f", around)
            case Raise():
                raise Boom(place)
            case Draw():
                self.note(f"{place} {task.uuid()} {task.random()}")
            case Yield():
                await checkpoint()
            case NewRoad(then):
                if task.version("new-road"):
                    self.note(f"{place} {await task.run(echo, 'new road')}")
                await self.statement(then, place, around)
            case Choose(one, other):
                await self.block(one if len(self.notes) % 2 else other, f"{place}?", around)
            case Twice(body):
                for time in range(2):
                    await self.block(body, f"{place}x{time}", around)

    async def branch(self, block: Block, place: str, around: Branches) -> str:
        self.note(f"{place} begins")
        try:
            await self.block(block, place, around)
        finally:
            self.note(f"{place} ends")
        return f"{len(self.notes)}"


class Performance:
    """Control code that runs a program. Its result is everything that was noted, so that any difference shows."""

    def __init__(self, program: Block, handler: Block | None = None) -> None:
        self.program = program
        self.handler = handler
        """What is done for each `Nudge`; None: nobody takes them as they come."""
        self.notes: list[str] = []
        """Of the last run."""
        self.calls: list[str] = []

    async def __call__(self, task: Task) -> object:
        self.notes, self.calls = [], []
        await Run(task, self.notes, self.calls).block(self.program, "", None)
        return self.notes

    @property
    def handlers(self) -> dict[str, Callable[[Task, Any], Awaitable[object]]]:
        return {} if self.handler is None else dict.fromkeys(CODEC.tags(Nudge), self._nudged)

    async def _nudged(self, task: Task, message: Nudge) -> str:
        self.notes.append(f"nudged {message.text}")
        if message.text.endswith("7"):
            raise Rejected("not that one")
        await Run(task, self.notes, self.calls).block(self.handler or (), f"!{message.text}", None)
        return f"{len(self.notes)}"


# --------------------------------------------------------------------------------------------------------- making

operations = st.builds(Perform, st.sampled_from([*["echo", "pay"] * 4, "burn"]), st.booleans())
leaves: st.SearchStrategy[Any] = st.one_of(
    *[operations] * 4,
    st.builds(Sleep, st.integers(0, 4)),
    st.builds(
        Receive, st.sampled_from([("Steer",), ("Hint",), ("Steer", "Hint")]), st.sampled_from([None, 0, 1, 3, 5])
    ),
    st.sampled_from([CancelGroup(), CancelGroup(), CancelGroup(), Raise(), Draw(), Yield(), Yield()]),
)


def blocks(depth: int, least: int = 1) -> st.SearchStrategy[Block]:
    return st.lists(statements(depth), min_size=least, max_size=4).map(tuple)


def statements(depth: int) -> st.SearchStrategy[Any]:
    if depth == 0:
        return leaves
    full, maybe = blocks(depth - 1), blocks(depth - 1, 0)
    group = st.builds(Group, maybe, st.lists(full, min_size=1, max_size=3).map(tuple))
    return st.one_of(
        leaves,
        *[group] * 4,
        st.builds(Within, st.integers(0, 4), full),
        st.builds(Cleanup, st.integers(0, 4), full),
        *[st.builds(Attempt, st.sampled_from(sorted(CAUGHT)), full, maybe, maybe)] * 2,
        st.builds(Spawn, full),
        st.builds(Choose, maybe, full),
        st.builds(Twice, full),
    )


programs: st.SearchStrategy[Block] = blocks(3, 2)


# -------------------------------------------------------------------------------------------------------- changing

Change: TypeAlias = Callable[[Block, int], Iterator[Block]]


def everywhere(block: Block, change: Change) -> Iterator[Block]:
    """What a change makes of a block at each place in it, at any depth."""
    for index, statement in enumerate(block):
        yield from change(block, index)
        for inner in _inside(statement, change):
            yield (*block[:index], inner, *block[index + 1 :])


def _inside(statement: Statement, change: Change) -> Iterator[Statement]:
    for name in ("body", "handler", "final", "one", "other"):
        block = getattr(statement, name, None)
        if block is not None:
            yield from (
                cast("Statement", evolve(cast("Any", statement), **{name: made})) for made in everywhere(block, change)
            )
    if isinstance(statement, Group):
        for index, branch in enumerate(statement.branches):
            before, after = statement.branches[:index], statement.branches[index + 1 :]
            yield from (evolve(statement, branches=(*before, made, *after)) for made in everywhere(branch, change))


def mutants(program: Block) -> Iterator[Block]:
    """Every program that one small change makes of this one."""
    return everywhere(program, _mutated)


def _mutated(block: Block, index: int) -> Iterator[Block]:
    before, statement, after = block[:index], block[index], block[index + 1 :]
    yield (*before, *after)
    yield (*before, Perform("echo", False), statement, *after)
    if after:
        yield (*before, after[0], statement, *after[1:])
    changed: tuple[Statement, ...] = ()
    match statement:
        case Perform(name, sees):
            changed = Perform("pay" if name == "echo" else "echo", sees), Perform(name, not sees)
        case Sleep(seconds):
            changed = (Sleep(seconds + 1),)
        case Receive(kinds, timeout):
            other = ("Hint",) if kinds == ("Steer",) else ("Steer",)
            changed = Receive(other, timeout), Receive(kinds, 2 if timeout is None else None)
        case Within(seconds, body):
            changed = (Within(seconds + 1, body),)
            yield (*before, *body, *after)
        case Cleanup(seconds, body):
            changed = (Cleanup(seconds + 1, body),)
            yield (*before, *body, *after)
        case Group(body, branches):
            changed = Group(body, branches[::-1]), Group(body, branches[1:])
        case _:
            pass
    yield from ((*before, made, *after) for made in changed)


def marked(program: Block) -> Iterator[Block]:
    """Every program that one more operation makes of this one, on a new road that is marked."""
    return everywhere(program, lambda block, at: iter([(*block[:at], NewRoad(block[at]), *block[at + 1 :])]))
