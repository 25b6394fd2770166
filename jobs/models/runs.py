"""Runs: on which host each runs, what it holds there, and what its host has reported about it."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField
from agents.models import Gpu, Host
from jobs.models.jobs import Job, Replica
from jobs.rules.lifecycle.states import RunPhase


class MetricsProof(models.TextChoices):
    """What is known of the reports of a run's program when no more of them will come; before that it is empty."""

    NONE = "none", "it reported nothing"
    WHOLE = "whole", "all reports of the host are here"
    CUT = "cut", "the rest of them was given up"
    DIFFERS = "differs", "they are not those of the host"


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
    order = models.JSONField(help_text="what the runner gets to start it (agents/README.md, frame start)")
    held = models.BooleanField(
        default=False,
        help_text="a place to move to: it is not started before the run that it follows is closed",
    )
    held_why = SentenceField(blank=True, help_text="why its replica moves here")

    preparing = models.BooleanField(
        default=False,
        db_default=False,
        help_text="it is held back: a host of its attempt does not have all yet that its runs need",
    )
    prepared_at = models.DateTimeField(null=True, blank=True, help_text="when it was held back no longer")

    # What is wanted.
    stop_wanted_at = models.DateTimeField(null=True, blank=True)
    stop_grace_s = models.FloatField(default=0)
    stop_reason = SentenceField(blank=True)
    restart_at = models.DateTimeField(
        null=True, blank=True, help_text="until then the restart of its replica waits"
    )

    silent_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="its job ended without its proof: its host had been unreachable since then",
    )

    # Facts, reported by the host.
    phase = models.CharField(
        max_length=16, choices=[(p.value, p.value) for p in RunPhase], default=RunPhase.CREATED
    )
    boot_id = models.CharField(max_length=64, blank=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True, help_text="by the host's monotonic clock")
    monotonic_started = models.FloatField(
        null=True, blank=True, help_text="what the host's monotonic clock showed when it was started"
    )
    exit_code = models.IntegerField(null=True, blank=True)
    exit_signal = models.IntegerField(null=True, blank=True)
    why = models.CharField(max_length=16, blank=True)
    refusal = models.CharField(max_length=32, blank=True)
    message = models.TextField(blank=True)
    oom = models.BooleanField(null=True, blank=True)
    oom_sure = models.CharField(max_length=12, blank=True, help_text="certain, likely, unknown")
    memory_enforced = models.BooleanField(null=True, blank=True, help_text="null: no limit was asked for")
    containment = models.CharField(max_length=16, blank=True)
    survivors = models.JSONField(default=list)
    missing_at = models.DateTimeField(
        null=True, blank=True, help_text="when its host was found not to have it, in recovery mode"
    )
    # Closed because a person declared its host gone. The host has not proved it before `proved_at`.
    declared_lost_at = models.DateTimeField(null=True, blank=True)
    proved_at = models.DateTimeField(null=True, blank=True, help_text="when the host closed it all the same")

    # By our clock, to ten seconds: when it was last sampled, was active, used a GPU.
    sampled_at = models.DateTimeField(null=True, blank=True)
    log_sampled = models.BigIntegerField(default=0, db_default=0, help_text="log_stored at that time")
    active_at = models.DateTimeField(null=True, blank=True)
    gpu_active_at = models.DateTimeField(null=True, blank=True)
    connected = models.BooleanField(
        null=True, blank=True, help_text="whether a connection to its peers was seen; null: nobody looked"
    )

    # Its log, here and on the host. [0, log_stored) is stored or is a recorded gap.
    log_size = models.BigIntegerField(default=0, help_text="as the host last reported")
    log_stored = models.BigIntegerField(default=0)
    log_rolled = models.BigIntegerField(default=0, help_text="[0, log_rolled) is in segments, not in pieces")
    log_proof = models.BinaryField(default=b"", help_text="SHA-256 digests of the 8 MiB blocks hashed so far")
    log_digest_host = models.CharField(max_length=100, blank=True)
    log_digest_here = models.CharField(max_length=100, blank=True)
    log_complete_at = models.DateTimeField(null=True, blank=True)
    prove_due_at = models.DateTimeField(null=True, blank=True)
    forgotten_at = models.DateTimeField(null=True, blank=True)

    # What its program reported (jobs/metrics): how much of the host's journal is stored, and the hash of its lines.
    metrics_stored = models.BigIntegerField(default=0, db_default=0)
    metrics_chain = models.CharField(max_length=64, blank=True, default="", db_default="")
    metrics_proof = models.CharField(
        max_length=8, choices=MetricsProof.choices, blank=True, default="", db_default=""
    )

    metrics_read = models.BigIntegerField(
        null=True,
        help_text="up to where its log was searched for metrics; null: not asked for, or done",
    )

    # Of a run that is about to be inserted: what it needs there (jobs/preparations/need.py); or the run before it,
    # which needed the same.
    needed: tuple[Any, ...] = ()
    follows = ""

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [
            models.Index(fields=["host"], name="run_on_host", condition=Q(forgotten_at=None)),
            models.Index(fields=["host"], name="run_holding", condition=Q(released_at=None)),
            # The occupancy of a host over a month.
            models.Index(fields=["host", "released_at"], name="run_held_until"),
            models.Index(
                fields=["host"], name="run_declared_lost", condition=Q(declared_lost_at__isnull=False)
            ),
            models.Index(fields=["missing_at"], name="run_missing", condition=Q(missing_at__isnull=False)),
            models.Index(
                fields=["metrics_read"], name="run_metrics_in_log", condition=Q(metrics_read__isnull=False)
            ),
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
    """A GPU that a run holds. By the unique constraint no two unreleased rows have the same GPU."""

    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="claims")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gpu_claims")
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["gpu"], condition=Q(released_at=None), name="gpu_held_once")
        ]
