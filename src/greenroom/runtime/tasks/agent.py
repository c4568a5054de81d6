"""`Agent`: what performs tasks. One straight async function that may run for a month, through deaths and deploys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from greenroom.errors import BadSpec
from greenroom.runtime.replay import Task
from greenroom.runtime.tasks.on_signal import collect

if TYPE_CHECKING:
    from greenroom.runtime.tasks.migrating import Past

Req_contra = TypeVar("Req_contra", contravariant=True)
Res_co = TypeVar("Res_co", covariant=True)


class Failed(Exception):
    """Raised by an agent's `perform`: the task ends as `failed`, for this reason, and is not tried again.

    Raised by an operation: it has failed for good, and is not invoked again whatever its `RetryPolicy`.

    Args:
        reason: for people.
        details: anything that can be stored, for whoever gets the failure.
    """

    def __init__(self, reason: str, details: object = None) -> None:
        self.reason, self.details = reason, details
        super().__init__(reason)


class Agent(Generic[Req_contra, Res_co]):
    """Performs tasks: requests of one type in, results of another out.

        class Reviewer(gr.Agent[Review, Report]):
            async def perform(self, task: gr.Task, request: Review) -> Report:
                plan = await task.run(make_plan, request.topic)
                ...

    `perform` is control code. It acts through `task` alone: what it awaits there is recorded, so that it can be run again over the
    record wherever it stopped. It must not read the clock, draw random numbers or touch the world by itself; `task.now()`, `task.random()`,
    `task.uuid()` and operations (`task.run`) do that. An agent is made anew for each activation, with the arguments of its `gr.Agents`.
    """

    version: ClassVar[str] = "1"
    """Of this control code. A task records the one with which its attempt began."""

    other_versions: ClassVar[Literal["replay", "refuse", "migrate"]] = "replay"
    """What to do with a task whose attempt began with another `version`: go on with it, by replay (it is parked as `diverged` if that
    shows that the code does something else now); park it as `incompatible` at once; or go on with what `migrate` makes of it."""

    signal_methods: ClassVar[Mapping[type, str]] = MappingProxyType({})
    """For Greenroom's own use: the names of methods marked `on_signal`, by the class of their messages."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.signal_methods = collect(cls)
        if cls.other_versions not in ("replay", "refuse", "migrate"):
            raise BadSpec(
                f"{cls.__qualname__}.other_versions = {cls.other_versions!r}: 'replay', 'refuse' or 'migrate'"
            )
        if cls.other_versions == "migrate" and cls.migrate is Agent.migrate:
            raise BadSpec(f"{cls.__qualname__}.other_versions is 'migrate', and there is no method `migrate`")

    async def perform(self, task: Task, request: Req_contra) -> Res_co:
        """Pursue one task and return its result.

        Raise `Failed` to end the task as failed. A failure that a `task.*` call raised (`OperationFailed`, `WaitTimeout`) and that is let
        out does the same. Anything else is a crash: the activation is restarted by replay, a bounded number of times.
        """
        raise Failed(f"{type(self).__qualname__} has no `perform`")

    def migrate(self, past: Past) -> object:
        """With `other_versions = "migrate"`: the request with which this code goes on, where code of another version has left a task.

        The task begins a new segment with it, as by `task.continue_as`: what `perform` is to know of the past has to be in there. It is
        asked once, and its answer is on record. While an operation of the old code has been sent and has no outcome, the task is parked
        as `incompatible` instead.
        """
        raise Failed(f"{type(self).__qualname__} has no `migrate`")
