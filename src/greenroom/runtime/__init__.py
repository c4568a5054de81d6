"""The runtime: runs a tree in a block of an async program, or as a whole process."""

from greenroom.runtime.client import Client
from greenroom.runtime.durable.callbacks import Callback
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.pool import DurableActors
from greenroom.runtime.durable.relay import OutboxMessage
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
from greenroom.runtime.tasks.handle import TaskHandle, TaskStatus
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
    "Limit",
    "LoopBlocked",
    "MessageInfo",
    "ObservationInfo",
    "Operation",
    "OperationDef",
    "OutboxInfo",
    "OutboxMessage",
    "RetryPolicy",
    "Runtime",
    "ShutdownReport",
    "Stage",
    "StopRequested",
    "StoreSource",
    "SubmitOptions",
    "SweepFailed",
    "Task",
    "TaskHandle",
    "TaskStatus",
    "TreeNode",
    "operation",
    "run",
]
