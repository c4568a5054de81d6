"""Every public exception, in one tree.

Four branches below the root, by whose turn it is to act:

* `Misuse`: the program is wrong; change the code. Raised as early as possible.
* `Refused`: the request was understood and turned down; nothing was changed by it.
* `Failure`: something that ran has failed, or could not be reached in time.
* `Defect`: Greenroom contradicts itself; please report it.

Each class builds its own message from the fields it carries, names what was wrong, and says the way out.
"""

from __future__ import annotations

import builtins


def _revive(cls: type[GreenroomError], args: tuple[object, ...], fields: dict[str, object]) -> GreenroomError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class GreenroomError(Exception):
    """The root of every exception that Greenroom raises, `Stop`, `Ignore`, `Rejected` and `Failed` apart (those are raised by you)."""

    def __reduce__(self) -> tuple[object, ...]:
        # The message is in `args`, the fields are in `__dict__`: pickling must not go through __init__, which takes the fields.
        return _revive, (type(self), self.args, self.__dict__)


class Misuse(GreenroomError):
    """The calling program is wrong; trying again will not help."""


class Refused(GreenroomError):
    """The request was turned down and has changed nothing."""


class Failure(GreenroomError):
    """What was asked for was begun, or waited for, and did not succeed."""


class Defect(GreenroomError):
    """An invariant of Greenroom itself does not hold: a bug of ours."""


# -------------------------------------------------------------------------------------------- messages and mailboxes


def _named(message_type: str) -> str:
    return f"a {message_type}" if message_type else "a message"


class WrongThread(Misuse):
    """A call that belongs to the event loop's thread came from another one."""

    def __init__(self) -> None:
        super().__init__(
            "called from a thread that is not the event loop's: use `runtime.from_thread.tell(ref, message)`, "
            "`runtime.from_thread.ask(ref, message)` or `runtime.from_thread.call(function)` there"
        )


class MailboxFull(Refused):
    """The recipient's mailbox has no room. The message was not taken.

    Not `ActorStopped`: the recipient lives and may have room soon. `await ref.send(message)` waits for it.
    """

    def __init__(
        self, recipient: str, capacity: int | None, message_type: str = "", *, persistent: bool = False
    ) -> None:
        self.recipient, self.capacity, self.message_type = recipient, capacity, message_type
        self.persistent = persistent
        way_out = (
            "Send it again later (under its `message_id`, if it has one)"
            if persistent
            else "Wait for room with `await ref.send(...)`, or give the child another `mailbox=Mailbox(capacity=..., overflow=...)`"
        )
        super().__init__(
            f"the mailbox of {recipient!r} is full (capacity {capacity}): {_named(message_type)} was not taken. {way_out}"
        )


class TellRefused(Misuse):
    """`tell` to a persistent mailbox: it cannot wait until the message is durable, and nothing less counts as accepted there."""

    def __init__(self, recipient: str, message_type: str = "") -> None:
        self.recipient, self.message_type = recipient, message_type
        super().__init__(
            f"{recipient!r} has a persistent mailbox: `tell` could not say whether {_named(message_type)} was accepted. "
            "Use `receipt = await ref.send(message)`, which returns when it is durable"
        )


class StashFull(Refused):
    """The actor's stash has no room. The message in hand was not stashed."""

    def __init__(self, actor: str, capacity: int) -> None:
        self.actor, self.capacity = actor, capacity
        super().__init__(
            f"the stash of {actor!r} holds its {capacity} messages: unstash, or refuse with `raise gr.Rejected(...)`"
        )


class ActorStopped(Failure):
    """The recipient has ended, for good or until somebody starts it again; nobody handled the message.

    Not `ActorCrashed`: there the message itself was in hand.
    """

    def __init__(self, recipient: str, message_type: str = "", why: str = "it has ended") -> None:
        self.recipient, self.message_type, self.why = recipient, message_type, why
        super().__init__(f"{recipient!r} did not handle {_named(message_type)}: {why}")


class ActorDown(Failure):
    """The recipient is being restarted and the asker chose not to wait (`when_down="fail"`)."""

    def __init__(self, recipient: str, message_type: str = "") -> None:
        self.recipient, self.message_type = recipient, message_type
        super().__init__(
            f"{recipient!r} is being restarted: {_named(message_type)} was not sent. "
            'Ask with `when_down="wait"` to queue it for the next incarnation'
        )


class ActorCrashed(Failure):
    """The recipient crashed, or was killed, with this message in hand. Its exception is chained as `__cause__`.

    Whether the message had effects is unknown; it is not handled again.
    """

    def __init__(self, recipient: str, message_type: str = "", incarnation: int = 0, how: str = "") -> None:
        self.recipient, self.message_type, self.incarnation, self.how = recipient, message_type, incarnation, how
        super().__init__(
            f"{recipient!r} (incarnation {incarnation}) {how or 'crashed'} while it handled {_named(message_type)}; "
            "whether it had effects is not known"
        )


class AskTimeout(Failure, TimeoutError):
    """No reply came in time. The recipient was not told, and may still do the work; a late reply is dropped."""

    def __init__(self, recipient: str, message_type: str, timeout: float) -> None:
        self.recipient, self.message_type, self.timeout = recipient, message_type, timeout
        super().__init__(
            f"{recipient!r} did not answer {_named(message_type)} within {timeout:g} s; it may still do the work. "
            "Give `ask(..., timeout=...)` more, or None to wait for ever"
        )


class UnhandledMessage(Refused):
    """The recipient has no handler for this type of message. It lives on."""

    def __init__(self, recipient: str, message_type: str, handles: tuple[str, ...] = ()) -> None:
        self.recipient, self.message_type, self.handles = recipient, message_type, handles
        known = f"it handles {', '.join(handles)}" if handles else "it handles no messages"
        super().__init__(f"{recipient!r} has no handler for {message_type}: {known}")


class NotAMessage(Misuse, TypeError):
    """Something that is not a `Message` was sent."""

    def __init__(self, value_type: str, *, is_class: bool = False) -> None:
        self.value_type = value_type
        name = value_type.rpartition("<locals>.")[2]
        if is_class:
            text = f"the class {name} is not a message itself: send an instance, `{name}(...)`"
        elif hasattr(builtins, name):
            text = f"a {name} is not a message: put it into one, say `@attrs.frozen class Note(gr.Message[None]): text: {name}`"
        else:
            text = f"a {name} is not a message: declare `@attrs.frozen class {name.rpartition('.')[2]}(gr.Message[Reply]): ...`"
        super().__init__(text)


class NoSuchActor(Misuse, LookupError):
    """No actor or supervisor has this path. `specified`: the tree has a place for one, but it is not there just now."""

    def __init__(self, path: str, near: tuple[str, ...] = (), *, specified: bool = False) -> None:
        self.path, self.near, self.specified = path, near, specified
        if specified:
            hint = " just now: it has not been started yet (children start left to right), or its supervisor is being restarted or has forgotten it"
        else:
            hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        super().__init__(f"nothing in the tree has the path {path!r}{hint}")


class WouldDeadlock(Misuse):
    """The call could only be answered after the caller itself had returned."""


class BadHandler(Misuse, TypeError):
    """A class's message handlers contradict each other, their messages or the class; found when the class is created."""


# ------------------------------------------------------------------------------------------------------ supervision


class BadSpec(Misuse, ValueError):
    """A child or supervisor specification that cannot work; found before anything is started."""


class NotASupervisor(Misuse):
    """An administration call went to an actor."""

    def __init__(self, path: str, call: str) -> None:
        self.path, self.call = path, call
        super().__init__(f"{path!r} is an actor, not a supervisor: `{call}` goes to the supervisor above it")


class ChildRefused(Refused):
    """An administration call was refused; nothing changed. `child` names the child, `supervisor` whose it is."""

    _reason = "was refused"

    def __init__(self, supervisor: str, child: str) -> None:
        self.supervisor, self.child = supervisor, child
        super().__init__(f"child {child!r} of {supervisor!r} {self._reason}")


class AlreadyStarted(ChildRefused):
    """`start_child`: a child of that name runs. OTP `supervisor`, already_started."""

    _reason = "runs already: choose another name, or terminate and delete it first"


class AlreadyPresent(ChildRefused):
    """`start_child`: a child of that name is kept, down or restarting. OTP `supervisor`, already_present."""

    _reason = "is there already, though not running: use `restart_child`, or `delete_child` first"


class ChildRunning(ChildRefused):
    """`restart_child` or `delete_child` of a child that runs."""

    _reason = "is running: `terminate_child` first"


class ChildRestarting(ChildRefused):
    """`restart_child` or `delete_child` of a child that is being restarted or waits for its backoff."""

    _reason = "is being restarted: wait, or `terminate_child` first"


class ChildStillEnding(ChildRefused):
    """The child's old incarnation may still run (it is stuck, or was abandoned), so no new one may start."""

    _reason = "has an incarnation that may still be running (see `runtime.tree()`): nothing new starts in its place before that has ended"


class ChildNotFound(ChildRefused):
    """No child of that name. OTP `supervisor`, not_found."""

    _reason = "does not exist: `which_children` lists those that do"


class TooManyChildren(ChildRefused):
    """A `DynamicSupervisor` has as many children as it may (`max_children`); those that are restarting count."""

    _reason = (
        "was not started: the supervisor has its `max_children` already; `terminate_child` one first, or allow more"
    )


class StartFailed(Failure):
    """A child could not be started. What it raised is chained as `__cause__`; what had started before it was stopped again.

    `child` is the path of the child whose start failed.
    """

    def __init__(self, child: str, why: str = "") -> None:
        self.child, self.why = child, why
        super().__init__(f"{child!r} could not be started" + (f": {why}" if why else ""))


class StartTimeout(Failure, TimeoutError):
    """A child's start took longer than its `start_timeout`; it was stopped."""

    def __init__(self, child: str, timeout: float) -> None:
        self.child, self.timeout = child, timeout
        super().__init__(f"{child!r} had not started after {timeout:g} s (its start_timeout)")


class RestartLimitExceeded(Failure):
    """Restarts came faster than the intensity allows. OTP `supervisor`, reached_max_restart_intensity.

    The exit of the child that was not restarted is chained as `__cause__`.
    """

    def __init__(self, supervisor: str, child: str, intensity: int, period: float, whose: str = "supervisor") -> None:
        self.supervisor, self.child, self.intensity, self.period, self.whose = (
            supervisor,
            child,
            intensity,
            period,
            whose,
        )
        super().__init__(
            f"{supervisor!r} gave up: {child!r} had to be restarted and the {whose} allows {intensity} restart(s) in {period:g} s"
        )


class TreeFailed(Failure):
    """The top supervisor gave up. The chain of causes (`__cause__`) leads down to the crash that was one too many."""

    def __init__(self, path: str, why: str = "") -> None:
        self.path, self.why = path, why
        super().__init__(f"the tree {path!r} has ended by failure" + (f": {why}" if why else ""))


class RuntimeNotRunning(Misuse):
    """The runtime has not been entered, or has ended."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} needs a running runtime: use it inside `async with Runtime(tree) as runtime:`")


# --------------------------------------------------------------------------------------------------------- isolation


class WorkerDied(Failure):
    """A process child's worker ended without being asked: by an OS signal, by an exit status, for lack of memory."""

    def __init__(self, path: str, how: str) -> None:
        self.path, self.how = path, how
        super().__init__(f"the worker process of {path!r} {how}")


# ------------------------------------------------------------------------------------------------------- codec


class NotEncodable(Misuse):
    """A class or a value that encoding could not bring back unchanged. Nothing was encoded, nothing was registered.

    `subject` names what was asked for; `problems` names, one line each, every place that stands in the way.
    Not `Undecodable`: that one is about bytes which came from elsewhere.
    """

    def __init__(self, subject: str, problems: tuple[str, ...]) -> None:
        self.subject, self.problems = subject, problems
        if len(problems) == 1:
            super().__init__(f"cannot encode {subject}: {problems[0]}")
        else:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            super().__init__(f"cannot encode {subject}, for {len(problems)} reasons:{lines}")


class Undecodable(Failure):
    """Bytes that are not a value of a known type. No part of a value was made of them; keep the bytes.

    `type_name` is the outermost type, as far as it was recognised; `field` is the path of what is wrong inside it
    (`Order.lines[3].price`); `source` is where the bytes were found (a row, a pipe), when the reader said so.
    Not `NotEncodable`: that one is about a value in the hands of its sender.
    """

    def __init__(self, type_name: str, field: str, reason: str, source: str | None = None) -> None:
        self.type_name, self.field, self.reason, self.source = type_name, field, reason, source
        super().__init__(f"{'' if source is None else f'{source}: '}cannot decode {field or type_name}: {reason}")


class RemoteError(Failure):
    """An exception that was raised elsewhere (in a worker process, in an earlier life), as far as it can be told in text.

    It is never an instance of the original class: that class may not exist here, and making one would run its code.
    `type_name` is the class as a traceback shows it, `text` what `str()` gave, `arguments` the `repr()` of each argument,
    `trace` the formatted traceback of this exception alone, `cause` the one it came from (also its `__cause__`),
    `notes` what was added to it, `members` the exceptions of a group.
    """

    def __init__(
        self,
        type_name: str,
        text: str,
        arguments: tuple[str, ...] = (),
        trace: str = "",
        cause: RemoteError | None = None,
        notes: tuple[str, ...] = (),
        members: tuple[RemoteError, ...] = (),
    ) -> None:
        super().__init__(f"{type_name}: {text}" if text else type_name)
        self.type_name, self.text, self.arguments, self.trace = type_name, text, arguments, trace
        self.cause, self.notes, self.members = cause, notes, members
        self.__cause__ = cause
        for note in notes:
            self.add_note(note)
        if trace:  # shown by whoever prints the traceback of this one, without making `str()` long
            self.add_note(f"raised elsewhere:\n{trace}")

    def __reduce__(self) -> tuple[object, ...]:
        # Through __init__, unlike the others: `__cause__` is not in `__dict__`.
        fields = (self.type_name, self.text, self.arguments, self.trace, self.cause, self.notes, self.members)
        return RemoteError, fields, self.__dict__


# --------------------------------------------------------------------------------------------------------- store


class BadStoreUrl(Misuse, ValueError):
    """The store's URL names no database that Greenroom knows, or has an option that it does not have."""

    def __init__(self, url: str, problem: str) -> None:
        self.url, self.problem = url, problem
        super().__init__(
            f"the store's URL {url!r} will not do: {problem}. Examples: 'sqlite:///service.db' (relative), "
            "'sqlite:////var/lib/service.db' (absolute), 'sqlite://:memory:', 'postgresql://user@host/database'"
        )


class PayloadTooLarge(Misuse):
    """Something to be stored is larger than it may be, `limit` bytes. Nothing of it was stored; trying again will not help."""

    def __init__(
        self, name: str, size: int, limit: int, way_out: str = "keep it elsewhere and send where it is"
    ) -> None:
        self.name, self.size, self.limit = name, size, limit
        super().__init__(f"{name} has {size:,} bytes; the limit is {limit:,}: {way_out}")


class StoreClosed(Misuse):
    """The store was used outside of its block, or from another event loop than its own. Nothing was applied."""

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(f"the store {store} is closed: use it inside `async with open_store(...) as store:`")


class IncompatibleStore(Failure):
    """The database is there, and this code must not work with it: a newer schema, foreign tables, a broken promise.

    Not `StoreUnavailable`: waiting will not help, somebody has to decide.
    """

    def __init__(self, store: str, problem: str) -> None:
        self.store, self.problem = store, problem
        super().__init__(f"the store {store} cannot be used: {problem}")


class StoreUnavailable(Failure):
    """The store did not answer in time, or is gone. Nothing half-done is visible.

    `unknown` tells the two cases apart. False: the transition was not applied and never will be. True: it had been handed to
    the database and no answer came back, so it may have been committed; ask by `AnswerTo(transition_id)` once the store is
    back, or repeat what carries an identity of its own.
    """

    def __init__(self, store: str, why: str, *, unknown: bool = False, transition_id: str | None = None) -> None:
        self.store, self.why, self.unknown, self.transition_id = store, why, unknown, transition_id
        if unknown:
            fate = f"whether the transition {transition_id} was committed is not known: ask by AnswerTo(transition_id)"
        else:
            fate = "nothing was applied"
        super().__init__(f"the store {store} did not answer: {why}; {fate}")


class TransitionFailed(Failure):
    """The database refused one transition or query by an error of its own, which is chained; nothing of it was applied.

    Others that shared its batch were not affected.
    """

    def __init__(self, kind: str, transition_id: str | None, why: str) -> None:
        self.kind, self.transition_id, self.why = kind, transition_id, why
        super().__init__(f"{kind}{'' if transition_id is None else f' {transition_id}'} was not applied: {why}")


class NotAccepted(Refused):
    """An ask could not be accepted at its durable address, and why: `disposition` is that of its receipt.

    `conflict`: another message has that id there. `late`: the actor has ended for good. `unmatched`: nothing has that address.
    """

    def __init__(self, recipient: str, message_id: str, message_type: str, disposition: str) -> None:
        self.recipient, self.message_id, self.message_type = recipient, message_id, message_type
        self.disposition = disposition
        why = {
            "conflict": "another message was accepted there under this id: an id belongs to one message",
            "late": "its actor has ended for good",
            "unmatched": "nothing has that address in the store",
        }.get(disposition, disposition)
        super().__init__(f"{recipient!r} did not accept {_named(message_type)} (id {message_id!r}): {why}")


class DeadLettered(Failure):
    """A durable message that was asked has become a dead letter: nobody will handle it unless an operator requeues it."""

    def __init__(self, recipient: str, message_id: str, message_type: str, why: str) -> None:
        self.recipient, self.message_id, self.message_type, self.why = recipient, message_id, message_type, why
        super().__init__(
            f"{recipient!r} has not handled {_named(message_type)} (id {message_id!r}), which is a dead letter now: {why}. "
            "`greenroom mailbox show` lists it; an operator requeues or drops it"
        )


class WaitTimeout(Failure):
    """What was waited for, durably, did not come in time."""

    def __init__(self, what: str, timeout: float | None) -> None:
        self.what, self.timeout = what, timeout
        super().__init__(f"{what} did not come" if timeout is None else f"{what} did not come within {timeout:g} s")


class UnknownToken(Refused):
    """A callback's token opens nothing: mistyped, invented or long past. Which of these is not told."""

    def __init__(self) -> None:
        super().__init__("this token answers no callback")


class NoSuchStore(Failure):
    """There is no database at the store's URL, or none of Greenroom's tables in it. Nothing was made there.

    Not `StoreUnavailable`: that one is there, and does not answer.
    """

    def __init__(self, store: str) -> None:
        self.store = store
        super().__init__(
            f"there is no store at {store}: a runtime makes it when it first runs, and so does `greenroom store migrate`"
        )


class StoreRefused(Refused):
    """The store turned down what an operator asked for; nothing was changed.

    `reason` says why in one word: `unknown_address`, `unknown_message` (also one that retention has forgotten), `not_pending` (it is
    no dead letter, or none any more), `not_parked`, `full`. `detail` says it for people.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(detail)


class LeaseLost(Failure):
    """This execution's lease has passed, or can no longer be renewed: it must make no further effect.

    Others may have taken its work over. A fresh execution registers anew.
    """

    def __init__(self, execution_id: str, why: str) -> None:
        self.execution_id, self.why = execution_id, why
        super().__init__(f"the execution {execution_id} has lost its lease: {why}")


# ------------------------------------------------------------------------------------------------------------- tasks


class InvalidTaskId(Misuse, ValueError):
    """Something that cannot be the id of a task."""

    def __init__(self, task_id: object) -> None:
        shown = repr(task_id)
        self.task_id = task_id
        super().__init__(
            f"{shown if len(shown) <= 250 else shown[:250] + '...'} cannot be a task_id: 1 to 200 printable characters, not blank"
        )


class InvalidMessageId(Misuse, ValueError):
    """Something that cannot be the id of a message to a task."""

    def __init__(self, message_id: object) -> None:
        shown = repr(message_id)
        self.message_id = message_id
        super().__init__(
            f"{shown if len(shown) <= 250 else shown[:250] + '...'} cannot be a message_id: 1 to 200 printable characters, not blank"
        )


class NoSuchPool(Misuse, LookupError):
    """Tasks were to be submitted to a pool that nothing has ever run on this store: no `gr.Agents` has that path."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        super().__init__(
            f"no pool of agents {pool!r} is known to this store: give the path of a gr.Agents(...), as 'service/reviewers', "
            "of a service that has run at least once"
        )


class NoSuchTask(Misuse, LookupError):
    """There is no task of this id, or it has been forgotten by retention."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(
            f"there is no task {task_id!r} in this store: it was never submitted, or retention has forgotten it"
        )


class BadCursor(Misuse, ValueError):
    """Something that is not the cursor of an event of a task."""

    def __init__(self, task_id: str, cursor: object) -> None:
        self.task_id, self.cursor = task_id, cursor
        super().__init__(
            f"{cursor!r} is no cursor of task {task_id!r}: give that of an event that was seen, or 0 for the beginning"
        )


class BadJournal(Misuse, ValueError):
    """A file is no saved journal of a task, or not of a version that this code reads."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"this is no saved journal: {why}. `greenroom export` makes them")


class TaskConflict(Refused):
    """Another request was submitted under this `task_id` before. That task is as it was; an id belongs to one request."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(
            f"another request was submitted as task {task_id!r}: an id belongs to one request, choose another"
        )


class PoolFull(Refused):
    """The queue of a pool is full: the task was not accepted. `retry_after`: seconds after which it may be worth trying again."""

    def __init__(self, pool: str, retry_after: float) -> None:
        self.pool, self.retry_after = pool, retry_after
        super().__init__(f"the queue of {pool!r} is full (queue_limit): submit it again in {retry_after:g} s")


class TaskFailed(Failure):
    """A task has ended as `failed`. `kind`, `type`, `message` and `details` say how, as they were recorded."""

    def __init__(self, task_id: str, kind: str, type: str, message: str, details: object = None) -> None:
        self.task_id = task_id
        self.kind, self.type, self.message, self.details = kind, type, message, details
        super().__init__(f"task {task_id!r} failed ({kind}): {type}{f': {message}' if message else ''}")


class TaskCancelled(Failure):
    """A task has ended as `cancelled`: it was told to, or terminated."""

    def __init__(self, task_id: str, reason: str) -> None:
        self.task_id, self.reason = task_id, reason
        super().__init__(f"task {task_id!r} was cancelled{f': {reason}' if reason else ''}")


# ------------------------------------------------------------------------------------------- control code of a task


class Cancelled(BaseException):
    """Raised by `task.*` calls, and by nothing else, in a scope of a task that has been cancelled.

    It is the task's own, the same on both event loops and at replay. It is not the exception that the event loop cancels with
    (`anyio.get_cancelled_exc_class()`): that one never stands for a decision about the task. Let it pass; a branch that catches it
    meets it again at its next call.

    `reason` says why, for people and at replay the same: what `TaskHandle.cancel` was told, or which limit or nursery it was.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Interrupted(Failure):
    """A question to a task was accepted by its handler, and the task ended before that had answered. What it had done stands."""

    def __init__(self, task_id: str, message_id: str, why: str) -> None:
        self.task_id, self.message_id, self.why = task_id, message_id, why
        super().__init__(f"the handler of message {message_id!r} to task {task_id!r} was interrupted: {why}")


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


class Stalled(Misuse):
    """Control code has waited for too long for something that is no call of the task's. The activation was broken off."""

    def __init__(self, branch: str, seconds: float) -> None:
        self.branch, self.seconds = branch, seconds
        super().__init__(
            f"branch {branch} has waited for more than {seconds:g} s for something that is no call on the task (a lock, an event, a "
            "queue, a client of yours): what takes time belongs into an operation (`task.run`), and what is waited for comes by "
            "`task.receive`, `task.sleep` or `task.callback`"
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
