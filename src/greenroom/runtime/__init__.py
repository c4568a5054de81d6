"""The runtime: runs a tree in a block of an async program, or as a whole process."""

from greenroom.runtime.from_thread import FromThread
from greenroom.runtime.process import run
from greenroom.runtime.runtime import Runtime
from greenroom.runtime.shutdown import ShutdownReport, Stage, StopRequested
from greenroom.runtime.snapshot import TreeNode
from greenroom.runtime.watchdog import LoopBlocked

__all__ = ["FromThread", "LoopBlocked", "Runtime", "ShutdownReport", "Stage", "StopRequested", "TreeNode", "run"]
