"""Supervisors: specifications, the rules of restarting, the supervising loop and its shutdown ladder."""

from greenroom.supervisors.administration import Started
from greenroom.supervisors.options import Backoff
from greenroom.supervisors.reports import (
    ChildCounts,
    ChildInfo,
    ChildRecord,
    RestartDelayed,
    RestartWaiting,
    SupervisorReport,
)
from greenroom.supervisors.specs import (
    Child,
    DynamicSupervisor,
    Parallel,
    PartitionSupervisor,
    Spec,
    Supervisor,
    SupervisorSpec,
    in_the_store,
    path_of,
    specifies,
)
from greenroom.supervisors.supervisor import SupervisorLife

__all__ = [
    "Backoff",
    "Child",
    "ChildCounts",
    "ChildInfo",
    "ChildRecord",
    "DynamicSupervisor",
    "Parallel",
    "PartitionSupervisor",
    "RestartDelayed",
    "RestartWaiting",
    "Spec",
    "Started",
    "Supervisor",
    "SupervisorLife",
    "SupervisorReport",
    "SupervisorSpec",
    "in_the_store",
    "path_of",
    "specifies",
]
