"""What control code and its owner meet when a task runs in turns."""

from __future__ import annotations

from greenroom.errors import Defect, Failure, Misuse, Refused


class Cancelled(BaseException):
    """Raised by `task.*` calls, and by nothing else, in a scope of a task that has been cancelled.

    It is the task's own, the same on both event loops and at replay. It is not the exception that the event loop cancels with
    (`anyio.get_cancelled_exc_class()`): that one never stands for a decision about the task. Let it pass; a branch that catches it
    meets it again at its next call.
    """


class OperationFailed(Failure):
    """An operation of this task has failed: live and at replay the same exception, made of what was recorded.

    `kind` says how in one word (`error`: its code raised), `type` names the exception that was raised, `message` is its text,
    `details` what the operation added. The exception itself is at most the `__cause__`, and only in the execution that saw it.
    """

    def __init__(self, operation: str, kind: str, type: str, message: str, details: object = None) -> None:
        self.operation, self.kind, self.type, self.message, self.details = operation, kind, type, message, details
        super().__init__(f"operation {operation!r} failed ({kind}): {type}{f': {message}' if message else ''}")


class BranchCancelled(Failure):
    """The result of a branch was asked for that has none: it was cancelled."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(f"branch {branch} was cancelled and has no result")


class Diverged(Failure):
    """Today's control code does not do what the journal says was done. Nothing was written, and nothing was sent.

    `seq` is the journal row, `step` the first step found to differ, `recorded` what the journal has there, `found` what today's code
    does. Keep the journal; put the old code back, or mark the change with `if task.version("name"):`.
    """

    def __init__(self, seq: int, step: str, recorded: str, found: str) -> None:
        self.seq, self.step, self.recorded, self.found = seq, step, recorded, found
        super().__init__(
            f"journal row {seq}, step {step}: recorded is {recorded}, but {found}. The control code has changed, or depends on "
            'something that is not recorded; bring the old code back, or mark the change with `if task.version("name"):`'
        )


class OutsideBranch(Misuse):
    """A `task.*` call came from an event-loop task that is no branch of the task."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(
            f"a call on task {task_id!r} came from an event-loop task that is none of its branches (a task group of your own, "
            "asyncio.gather, asyncio.wait_for, a generator finalised by the loop): start branches with "
            "`async with task.nursery() as branches: branches.start_soon(...)`"
        )


class ConcurrentBranchUse(Misuse):
    """A branch made a `task.*` call while another one of its own was open."""

    def __init__(self, branch: str, waiting: str) -> None:
        self.branch, self.waiting = branch, waiting
        super().__init__(
            f"branch {branch} already waits on {waiting} and can make no other call: to do things at once, start branches with "
            "`async with task.nursery() as branches: branches.start_soon(...)`"
        )


class ForeignDeadline(Misuse):
    """A `task.*` call was made under a deadline that the journal knows nothing of. The call was not made."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(
            f"branch {branch} called inside a deadline of the event loop (anyio.move_on_after, fail_after, trio's): where it "
            "strikes is not recorded. Use `with task.move_on_after(seconds):`"
        )


class ForeignCancellation(Misuse):
    """Something outside the task cancelled one of its branches. The activation was stopped before anything could be written."""

    def __init__(self, branch: str, waiting: str) -> None:
        self.branch, self.waiting = branch, waiting
        super().__init__(
            f"branch {branch} was cancelled by the event loop while it waited on {waiting}, and not by its task: a cancel scope, "
            "asyncio.timeout or Task.cancel around it. Use `with task.move_on_after(seconds):` or `branches.cancel()`"
        )


class ScopeOutOfOrder(Misuse):
    """A nursery, limit or cleanup of a task was left while one inside it was open, or by another branch than had entered it."""

    def __init__(self, branch: str, scope: str) -> None:
        self.branch, self.scope = branch, scope
        super().__init__(
            f"branch {branch} leaves {scope}, which is not the one it entered last: leave them in reverse order, in the branch "
            "that entered them, and close generators that hold one (contextlib.aclosing) before going on"
        )


class ScopeLeftOpen(Misuse):
    """A branch ended inside a nursery, limit or cleanup that it had entered. The activation was stopped; nothing was written."""

    def __init__(self, branch: str, scope: str) -> None:
        self.branch, self.scope = branch, scope
        super().__init__(
            f"branch {branch} ended without leaving {scope}: enter it with a `with` block, and close generators that hold one "
            "(contextlib.aclosing)"
        )


class NurseryEnded(Misuse):
    """A branch was to be started in a nursery that has ended."""

    def __init__(self, nursery: str) -> None:
        self.nursery = nursery
        super().__init__(f"{nursery} has ended: start branches while its block is open")


class BranchNotEnded(Misuse):
    """The result of a branch was asked for inside the block of its nursery."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(
            f"branch {branch} has its result after the block of its nursery: read it behind the `async with`"
        )


class StrayCancelled(Misuse):
    """`Cancelled` came out of a branch around which nothing had been cancelled: it was kept or raised by hand."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        super().__init__(
            f"branch {branch} ended with Cancelled, but no scope around it is cancelled: raise an error of your own, or cancel "
            "with `branches.cancel()`"
        )


class SegmentBusy(Refused):
    """`task.continue_as` was called where a new segment cannot begin. `open` lists what stands in the way."""

    def __init__(self, open: tuple[str, ...]) -> None:
        self.open = open
        super().__init__(
            f"a new segment begins in the root branch with nothing open; there is still: {', '.join(open)}"
        )


class JournalBroken(Defect):
    """The rows of a journal do not follow each other as they must."""
