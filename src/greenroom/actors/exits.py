"""From what came out of a child's code to how it ended. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from attrs import frozen

from greenroom.actors.messages import Exit, Ignore, Rejected, Stop


@frozen
class Verdict:
    """What an exception out of a child means."""

    exit: Exit
    fatal: BaseException | None = None
    """KeyboardInterrupt or SystemExit: ends the whole tree, non-zero."""
    ignored: bool = False
    """`Ignore`: only meaningful out of a start."""


class Contained(Exception):
    """SystemExit or the like out of a child's own thread: the exit of that child, and no order to the event loop or the tree.

    Carried by this through the event loop, where the exception itself would end more than the child.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def classify(error: BaseException, cancelled: type[BaseException]) -> Verdict:
    """How a child ended that let `error` out.

    Groups are split: KeyboardInterrupt and SystemExit end the tree; of the rest, a cancellation that is not ours counts as the
    error only when nothing else does; one exception is unwrapped, several stay together as one group: one exit, one restart. A `Stop`
    counts only when nothing has failed beside it.
    """
    fatal: list[BaseException] = []
    errors: list[BaseException] = []
    foreign: list[BaseException] = []

    for one in _leaves(error):
        if isinstance(one, Contained):
            errors.append(one.error)
        elif isinstance(one, (KeyboardInterrupt, SystemExit)):
            fatal.append(one)
        elif isinstance(one, cancelled):
            foreign.append(one)
        else:
            errors.append(one)
    stops = [one for one in errors if isinstance(one, Stop)]
    alone = len(stops) == len(errors) and not fatal
    errors = [*stops[:1]] if alone else [one for one in errors if not isinstance(one, Stop)]
    # Lists are asked whether they are empty, exceptions never: one may say that it is false, or raise.
    cause = _one(errors or fatal or foreign or [error], error)
    if fatal:
        return Verdict(Exit("error", cause), fatal=fatal[0])
    if isinstance(cause, Stop):
        return Verdict(cause.exit)
    return Verdict(Exit("error", cause), ignored=isinstance(cause, Ignore))


def _one(errors: list[BaseException], whole: BaseException) -> BaseException:
    if len(errors) > 1 and isinstance(whole, BaseExceptionGroup):
        return BaseExceptionGroup(whole.message, errors)
    return errors[0]


def is_cancellation(error: BaseException, cancelled: type[BaseException]) -> bool:
    """Is it nothing but a cancellation? A nursery of trio's own makes a group of those of its tasks."""
    return all(isinstance(leaf, cancelled) for leaf in _leaves(error))


def lone(error: BaseException) -> BaseException:
    """What a group stands for when that is one thing (a task group in a handler makes such groups); else the error itself.

    One exception, however deep; or several that all stop the actor, or all refuse its message: the first of them.
    """
    leaves = list(_leaves(error))
    one_kind = any(all(isinstance(leaf, kind) for leaf in leaves) for kind in (Stop, Rejected))
    return leaves[0] if len(leaves) == 1 or one_kind else error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    # No recursion: groups in groups may be deeper than the interpreter allows calls.
    rest = [error]
    while rest:
        one = rest.pop()
        if isinstance(one, BaseExceptionGroup):
            rest.extend(reversed(one.exceptions))
        else:
            yield one


def suspended_stack(coroutine: Any) -> str:
    """Where a suspended coroutine waits, outermost first, as a traceback would show it."""
    frames: list[tuple[FrameType, int]] = []
    while coroutine is not None:
        frame = (
            getattr(coroutine, "cr_frame", None)
            or getattr(coroutine, "gi_frame", None)
            or getattr(coroutine, "ag_frame", None)
        )
        if frame is None:
            break
        frames.append((frame, frame.f_lineno))
        coroutine = (
            getattr(coroutine, "cr_await", None)
            or getattr(coroutine, "gi_yieldfrom", None)
            or getattr(coroutine, "ag_await", None)
        )
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
