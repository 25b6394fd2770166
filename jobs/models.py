"""Rows about jobs. Constraints live here, behaviour does not.

`state` of a job and a replica is written by advance.py and schedule.py only, always `WHERE id AND version`.
Facts about a run are written by intake.py only, each once. What must never happen is forbidden by triggers as well
(migration 0002): a terminal job changes its state or its error, a transition is changed or deleted.

Rows are locked in this order, always: a host, then jobs by id, then runs by id. README.md says why.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agents.models import Gpu, Host
from jobs.rules.states import JobState, ReplicaState, RunPhase


class Project(models.Model):
    """The tenant."""

    name = models.SlugField(max_length=63, unique=True)
    title = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="membership_once")]


class Kept(models.Manager["Job"]):
    def get_queryset(self) -> models.QuerySet[Job]:
        return super().get_queryset().filter(deleted_at=None)


class Job(models.Model):
    """A CustomJob. Its id is made by services.py (time in milliseconds, then six random digits).

    A deleted job keeps its row and its history: nobody sees it any more, and its logs are gone.
    """

    id = models.BigIntegerField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="jobs")
    location_name = models.CharField(max_length=63)
    display_name = models.CharField(max_length=128)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="jobs"
    )
    owner_name = models.CharField(max_length=150)
    request_id = models.CharField(max_length=200, null=True, blank=True, help_text="Idempotency-Key")
    spec = models.JSONField(help_text="the canonical CustomJobSpec document (rules.spec.to_document)")
    labels = models.JSONField(default=dict)
    replica_count = models.PositiveIntegerField()

    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in JobState])
    version = models.PositiveIntegerField(default=1)
    attempt = models.PositiveIntegerField(default=1)
    job_retries = models.PositiveIntegerField(default=0)
    internal_tries = models.PositiveIntegerField(default=0)
    reason = models.TextField(blank=True, help_text="why it waits, in words")
    flags = models.JSONField(default=list, help_text="[{flag, since, text}]")
    outcome = models.CharField(
        max_length=16,
        blank=True,
        help_text="decided end, before all runs are closed; QUEUED: another attempt",
    )
    error_code = models.IntegerField(null=True, blank=True, help_text="gRPC code")
    error_message = models.TextField(blank=True)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    queued_at = models.DateTimeField(help_text="when the current attempt began to wait")
    due_at = models.DateTimeField(null=True, blank=True, help_text="when to look again, whatever happens")
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = Kept()
    every = models.Manager["Job"]()

    class Meta:
        ordering = ["-id"]
        base_manager_name = "every"
        indexes = [
            models.Index(fields=["due_at"], name="job_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["project", "-id"], name="job_of_project"),
            models.Index(fields=["state", "id"], name="job_by_state"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "request_id"], name="job_request_once", condition=Q(request_id__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class Replica(models.Model):
    """A named slot of a pool."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="replicas")
    name = models.CharField(max_length=40, help_text="workerpool1-0")
    pool = models.PositiveSmallIntegerField()
    index = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in ReplicaState])
    restarts = models.PositiveIntegerField(default=0, help_text="in this attempt")

    class Meta:
        ordering = ["job", "pool", "index"]
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="replica_once")]


class Run(models.Model):
    """One start of one replica's command on one host. Never started twice, never reused."""

    id = models.CharField(max_length=80, primary_key=True, help_text="<job>-<replica>-a<attempt>-r<number>")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="runs")
    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="runs")
    attempt = models.PositiveIntegerField()
    number = models.PositiveIntegerField(help_text="0 for the first start of the attempt, then the restarts")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="runs")
    created_at = models.DateTimeField()

    # The claim. Held until the host has proved that nothing of the run is left (released_at).
    cpus = models.FloatField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    port = models.PositiveIntegerField()
    gpu_uuids = models.JSONField(default=list)
    released_at = models.DateTimeField(null=True, blank=True)
    order = models.JSONField(help_text="what the runner is told (agents/README.md, frame start)")

    # What should be.
    stop_wanted_at = models.DateTimeField(null=True, blank=True)
    stop_grace_s = models.FloatField(default=0)
    stop_reason = models.TextField(blank=True)

    # Facts, from the host.
    phase = models.CharField(
        max_length=16, choices=[(p.value, p.value) for p in RunPhase], default=RunPhase.CREATED
    )
    boot_id = models.CharField(max_length=64, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True, help_text="by the host's monotonic clock")
    exit_code = models.IntegerField(null=True, blank=True)
    exit_signal = models.IntegerField(null=True, blank=True)
    why = models.CharField(max_length=16, blank=True)
    refusal = models.CharField(max_length=32, blank=True)
    message = models.TextField(blank=True)
    oom = models.BooleanField(null=True, blank=True)
    containment = models.CharField(max_length=16, blank=True)
    survivors = models.JSONField(default=list)

    # Its log, here and there. [0, log_stored) is stored or is a recorded gap.
    log_size = models.BigIntegerField(default=0, help_text="as the host last told")
    log_stored = models.BigIntegerField(default=0)
    log_rolled = models.BigIntegerField(default=0, help_text="[0, log_rolled) is in segments, not in pieces")
    log_proof = models.BinaryField(default=b"", help_text="SHA-256 digests of the 8 MiB blocks hashed so far")
    log_digest_host = models.CharField(max_length=100, blank=True)
    log_digest_here = models.CharField(max_length=100, blank=True)
    log_complete_at = models.DateTimeField(null=True, blank=True)
    prove_due_at = models.DateTimeField(null=True, blank=True)
    forgotten_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["host"], name="run_on_host", condition=Q(forgotten_at=None)),
            models.Index(fields=["host"], name="run_holding", condition=Q(released_at=None)),
            models.Index(fields=["prove_due_at"], name="run_to_prove", condition=~Q(prove_due_at=None)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["replica", "attempt", "number"], name="run_once"),
            models.UniqueConstraint(
                fields=["host", "port"], condition=Q(released_at=None), name="port_held_once"
            ),
            models.CheckConstraint(condition=Q(log_stored__gte=0), name="log_stored_not_negative"),
        ]


class GpuClaim(models.Model):
    """A GPU held by a run. The second key: no two rows of one GPU are unreleased."""

    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="claims")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gpu_claims")
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["gpu"], condition=Q(released_at=None), name="gpu_held_once")
        ]


class Transition(models.Model):
    """History and outbox at once: one row for each change, with cause and actor. Never updated."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    host_at = models.DateTimeField(null=True, blank=True, help_text="by the host's clock, where it told")
    subject = models.CharField(max_length=80, help_text="job, a replica's name, or a run's id")
    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    attempt = models.PositiveIntegerField()
    cause = models.TextField()
    actor = models.CharField(max_length=150)

    class Meta:
        ordering = ["id"]


class LogPiece(models.Model):
    """The hot tail of a log: bytes [start, end), as they came from the host."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="pieces")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    z = models.BooleanField()
    data = models.BinaryField()
    at = models.JSONField(default=list, help_text="[[offset, wall seconds], ...]")
    wall = models.FloatField(null=True, help_text="the first of these times")

    class Meta:
        ordering = ["run", "start"]
        constraints = [
            models.UniqueConstraint(fields=["run", "start"], name="piece_once"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="piece_not_empty"),
        ]


class LogSegment(models.Model):
    """Pieces rolled into one file of the Storage. `index` is [[start, end, file offset, length, z, marks], ...]."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="segments")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    key = models.CharField(max_length=300)
    index = models.JSONField()
    wall = models.FloatField(null=True, help_text="when its first bytes were printed")

    class Meta:
        ordering = ["run", "start"]
        constraints = [models.UniqueConstraint(fields=["run", "start"], name="segment_once")]


class LogGap(models.Model):
    """A range that is missing, and why. Shown, never silent."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gaps")
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    reason = models.TextField()

    class Meta:
        ordering = ["run", "start"]
        constraints = [models.UniqueConstraint(fields=["run", "start"], name="gap_once")]


class ShellSession(models.Model):
    """Who had a shell on which run, from when to when, and why it closed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="shells")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    user_name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    close_reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-opened_at"]


class Tick(models.Model):
    """When each periodic work was done last; also the claim of who does it now."""

    name = models.CharField(max_length=40, unique=True)
    at = models.DateTimeField()
    serial = models.BigIntegerField(default=0, help_text="how often it was done")
