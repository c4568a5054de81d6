"""The runtime: runs a tree in a block of an async program, or as a whole process."""

from greenroom.runtime.callback import Callback
from greenroom.runtime.client import Client
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.pool import DurableActors
from greenroom.runtime.durable.relay import OutboxMessage
from greenroom.runtime.durable.standstill import Standstill
from greenroom.runtime.durable.sweep import SweepFailed
from greenroom.runtime.from_thread import FromThread
from greenroom.runtime.process import run
from greenroom.runtime.replay import (
    Branch,
    Branches,
    ChildTask,
    Effect,
    Limit,
    Operation,
    OperationDef,
    RetryPolicy,
    Task,
    operation,
)
from greenroom.runtime.runtime import Runtime
from greenroom.runtime.shutdown import ShutdownReport, Stage, StopRequested
from greenroom.runtime.snapshot import TreeNode
from greenroom.runtime.stored import AddressInfo, ExecutionInfo, MessageInfo, ObservationInfo, OutboxInfo
from greenroom.runtime.tasks.agent import Agent, Failed
from greenroom.runtime.tasks.agents import Agents
from greenroom.runtime.tasks.events import JournalEvent
from greenroom.runtime.tasks.handle import TaskHandle
from greenroom.runtime.tasks.length import JournalLong
from greenroom.runtime.tasks.migrating import Past, PastOperation
from greenroom.runtime.tasks.on_signal import on_signal
from greenroom.runtime.tasks.operator import OperationInfo, OperatorDecision
from greenroom.runtime.tasks.saved import SavedJournal, SavedOperation, SavedRow
from greenroom.runtime.tasks.schedule import MomentSkipped, Schedule
from greenroom.runtime.tasks.scheduled import ScheduleInfo
from greenroom.runtime.tasks.stalls import PoolUnserved, TaskStalled
from greenroom.runtime.tasks.status import TaskStatus
from greenroom.runtime.tasks.submitting import SubmitOptions
from greenroom.runtime.watchdog import LoopBlocked

__all__ = [
    "AddressInfo",
    "Agent",
    "Agents",
    "Branch",
    "Branches",
    "Callback",
    "ChildTask",
    "Client",
    "DurableActors",
    "Effect",
    "ExecutionInfo",
    "Failed",
    "FromThread",
    "JournalEvent",
    "JournalLong",
    "Limit",
    "LoopBlocked",
    "MessageInfo",
    "MomentSkipped",
    "ObservationInfo",
    "Operation",
    "OperationDef",
    "OperationInfo",
    "OperatorDecision",
    "OutboxInfo",
    "OutboxMessage",
    "Past",
    "PastOperation",
    "PoolUnserved",
    "RetryPolicy",
    "Runtime",
    "SavedJournal",
    "SavedOperation",
    "SavedRow",
    "Schedule",
    "ScheduleInfo",
    "ShutdownReport",
    "Stage",
    "Standstill",
    "StopRequested",
    "StoreSource",
    "SubmitOptions",
    "SweepFailed",
    "Task",
    "TaskHandle",
    "TaskStalled",
    "TaskStatus",
    "TreeNode",
    "on_signal",
    "operation",
    "run",
]
