"""The tables about jobs. Constraints are here, behaviour is not.

Only lifecycle/advance.py and scheduling/scheduler.py write the `state` of a job or replica, always `WHERE id AND
version`. Only host_sync/facts.py writes facts about a run, each once. Triggers (guards.py) forbid what must never
happen: that a terminal job changes its state or its error, or that a transition is changed or deleted.

Rows are always locked in this order: a tuning job, a host, then jobs by id, then runs by id. README.md says why.
"""

from __future__ import annotations

from jobs.models.artifacts import (
    Artifact,
    ArtifactKind,
    Blob,
    BlobHold,
    Bucket,
    FileStorage,
    Reservation,
    StoredObject,
    Upload,
)
from jobs.models.audit import AuditEntry
from jobs.models.history import RecordingPiece, RecordingState, ShellSession, Tick, Transition
from jobs.models.hosts.locations import ImageAlias, LocationBinding
from jobs.models.hosts.logins import LoginTemplate, ProjectLogin
from jobs.models.hosts.machine_types import MachineType
from jobs.models.hosts.maintenance import HostMaintenance
from jobs.models.jobs import Job, JobLabel, Replica
from jobs.models.logs import LogGap, LogPiece, LogSegment
from jobs.models.notifications import Notification, NotificationTarget
from jobs.models.outputs import HostOutputs, LocationStorage, OutputFile, OutputStage
from jobs.models.pipelines import (
    ModelVersion,
    RegisteredModel,
    TrainingPipeline,
)
from jobs.models.preparations import Preparation, PreparationNeed
from jobs.models.projects import Membership, Project, Role
from jobs.models.queue import ExpectedStart, QueuePin
from jobs.models.quotas import DefaultQuota, LogStorage, Quota
from jobs.models.runs import GpuClaim, MetricsProof, Run
from jobs.models.samples import GpuHour, LocationHour, MetricPoint, MetricSeries, RunSample
from jobs.models.secrets import JobSecret, MaskedLog, MaskedRange, RegistryCredential, Secret
from jobs.models.strays import Proof, Stray
from jobs.models.studies import PriorStudy, Trial, TuningJob, TuningSecret
from jobs.models.templates import JobTemplate
from jobs.models.usage import MonthlyUse, Usage

__all__ = [
    "Artifact",
    "ArtifactKind",
    "AuditEntry",
    "Blob",
    "BlobHold",
    "Bucket",
    "DefaultQuota",
    "ExpectedStart",
    "FileStorage",
    "GpuClaim",
    "GpuHour",
    "HostMaintenance",
    "HostOutputs",
    "ImageAlias",
    "Job",
    "JobLabel",
    "JobSecret",
    "JobTemplate",
    "LocationBinding",
    "LocationHour",
    "LocationStorage",
    "LogGap",
    "LogPiece",
    "LogSegment",
    "LogStorage",
    "LoginTemplate",
    "MachineType",
    "MaskedLog",
    "MaskedRange",
    "Membership",
    "MetricPoint",
    "MetricSeries",
    "MetricsProof",
    "ModelVersion",
    "MonthlyUse",
    "Notification",
    "NotificationTarget",
    "OutputFile",
    "OutputStage",
    "Preparation",
    "PreparationNeed",
    "PriorStudy",
    "Project",
    "ProjectLogin",
    "Proof",
    "QueuePin",
    "Quota",
    "RecordingPiece",
    "RecordingState",
    "RegisteredModel",
    "RegistryCredential",
    "Replica",
    "Reservation",
    "Role",
    "Run",
    "RunSample",
    "Secret",
    "ShellSession",
    "StoredObject",
    "Stray",
    "Tick",
    "TrainingPipeline",
    "Transition",
    "Trial",
    "TuningJob",
    "TuningSecret",
    "Upload",
    "Usage",
]
