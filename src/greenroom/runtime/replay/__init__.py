"""Replay: how control code runs in turns, and comes back.

The control code of a task is an ordinary coroutine function. It runs over a journal: rows go in, in their order; calls come out. Given
the same rows it makes the same calls, whatever the event loop and whoever ran first, so a task that was dropped from memory, or whose
process died, is brought back by running its control code again over its journal. There is no replay mode.

    journal rows → `Engine.process` → turns of branches → open operations, timers, an end → `Engine.next_step` → the driver → rows

The pieces, from the inside out. Rules over values: `paths` (identity), `rows` (the journal), `trace`, `timers`, `signals`, `scopes`,
`marks`, `draws`, `matching`, `endings`, `steps`. State: `machine` (rows in) and `calls` (what control code asks), over `branch_state`.
Scheduling: `engine`, the only one that awaits. For control code: `task`, `branches`, `operations`.

The driver belongs to whoever has a store: it loads the rows, lets the engine process them, and does what `next_step` says. What it
owes in return stands in `docs/replay.md`.
"""

from greenroom.errors import (
    BranchCancelled,
    BranchNotEnded,
    Cancelled,
    ConcurrentBranchUse,
    Diverged,
    ForeignCancellation,
    ForeignDeadline,
    JournalBroken,
    NurseryEnded,
    OperationFailed,
    OutsideBranch,
    ScopeLeftOpen,
    ScopeOutOfOrder,
    SegmentBusy,
    StrayCancelled,
)
from greenroom.runtime.replay.branch_state import OperationCall, OperationKind
from greenroom.runtime.replay.branches import Branch, Branches, Limit
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.engine import Engine
from greenroom.runtime.replay.marks import Recorded
from greenroom.runtime.replay.notices import CancellationIgnored, CleanupCut, EndDiscarded, Notice, Stopped
from greenroom.runtime.replay.operations import Effect, Operation, OperationDef, RetryPolicy, operation, unpacked
from greenroom.runtime.replay.paths import CallId
from greenroom.runtime.replay.replies import SignalReply
from greenroom.runtime.replay.rows import (
    ControlKind,
    ControlRow,
    EffectKnown,
    End,
    EndKind,
    Fault,
    Intent,
    JournalRow,
    OutcomeRow,
    OutcomeStatus,
    SignalRow,
    Stamp,
    Start,
    TimeRow,
)
from greenroom.runtime.replay.signals import CALLBACK_KEY
from greenroom.runtime.replay.steps import Finish, Idle, Send, Step, Withdraw, WriteTime
from greenroom.runtime.replay.task import CHILD_KEY, NO_ANSWER, ChildTask, Task, callback_key, callback_token, child_key
from greenroom.runtime.replay.waits import BranchWait, ForeignWait, ForeignWaits, Turn

__all__ = [
    "CALLBACK_KEY",
    "CHILD_KEY",
    "NO_ANSWER",
    "Branch",
    "BranchCancelled",
    "BranchNotEnded",
    "BranchWait",
    "Branches",
    "CallId",
    "CancellationIgnored",
    "Cancelled",
    "ChildTask",
    "CleanupCut",
    "ConcurrentBranchUse",
    "ControlKind",
    "ControlRow",
    "Diverged",
    "Effect",
    "EffectKnown",
    "End",
    "EndDiscarded",
    "EndKind",
    "Engine",
    "Fault",
    "Finish",
    "ForeignCancellation",
    "ForeignDeadline",
    "ForeignWait",
    "ForeignWaits",
    "Idle",
    "Intent",
    "JournalBroken",
    "JournalRow",
    "Limit",
    "Notice",
    "NurseryEnded",
    "Operation",
    "OperationCall",
    "OperationDef",
    "OperationFailed",
    "OperationKind",
    "OutcomeRow",
    "OutcomeStatus",
    "OutsideBranch",
    "Recorded",
    "RetryPolicy",
    "ScopeLeftOpen",
    "ScopeOutOfOrder",
    "SegmentBusy",
    "Send",
    "SignalReply",
    "SignalRow",
    "Stamp",
    "Start",
    "Step",
    "Stopped",
    "StrayCancelled",
    "Task",
    "TimeRow",
    "Turn",
    "ValueCodec",
    "Withdraw",
    "WriteTime",
    "callback_key",
    "callback_token",
    "child_key",
    "operation",
    "unpacked",
]
