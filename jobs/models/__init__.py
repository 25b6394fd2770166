"""Rows about jobs. Constraints live here, behaviour does not.

`state` of a job and a replica is written by advance.py and schedule.py only, always `WHERE id AND version`.
Facts about a run are written by learning.py only, each once. What must never happen is forbidden by triggers as well
(migration 0002): a terminal job changes its state or its error, a transition is changed or deleted.

Rows are locked in this order, always: a host, then jobs by id, then runs by id. README.md says why.
"""

from __future__ import annotations

from jobs.models.audit import AuditEntry
from jobs.models.history import ShellSession, Tick, Transition
from jobs.models.jobs import Job, Replica
from jobs.models.logs import LogGap, LogPiece, LogSegment
from jobs.models.machine_types import MachineType
from jobs.models.maintenance import HostMaintenance
from jobs.models.notifications import Notification, NotificationTarget
from jobs.models.projects import Membership, Project, Role
from jobs.models.quotas import DefaultQuota, Quota
from jobs.models.runs import GpuClaim, Run
from jobs.models.samples import RunSample
from jobs.models.strays import Proof, Stray
from jobs.models.usage import MonthlyUse, Usage

__all__ = [
    "AuditEntry",
    "DefaultQuota",
    "GpuClaim",
    "HostMaintenance",
    "Job",
    "LogGap",
    "LogPiece",
    "LogSegment",
    "MachineType",
    "Membership",
    "MonthlyUse",
    "Notification",
    "NotificationTarget",
    "Project",
    "Proof",
    "Quota",
    "Replica",
    "Role",
    "Run",
    "RunSample",
    "ShellSession",
    "Stray",
    "Tick",
    "Transition",
    "Usage",
]
