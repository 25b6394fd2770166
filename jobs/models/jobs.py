"""Jobs and their named replicas."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField, SentenceRowsField
from jobs.models.projects import Project
from jobs.rules.lifecycle.states import JobState, ReplicaState
from jobs.rules.spec.custom_job import DEFAULT_TIMEOUT_S


class Kept(models.Manager["Job"]):
    def get_queryset(self) -> models.QuerySet[Job]:
        return super().get_queryset().filter(deleted_at=None)


class Job(models.Model):
    """A CustomJob. Its id is made by services.py (time in milliseconds, then six random digits).

    A deleted job keeps its row and its history, but is not shown any more, and its logs are deleted.
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
    machine_types = models.JSONField(
        default=dict,
        help_text="the machine types defined by admins that the job asks for, as they were when it was submitted",
    )
    resolved = models.JSONField(
        default=dict,
        db_default={},
        help_text="what it brings, by pools, as it was at submit: digests, commits (preparations/brought.py)",
    )
    replica_count = models.PositiveIntegerField()
    gpu_count = models.PositiveIntegerField(default=0, db_default=0, help_text="of all replicas together")
    # A number and no key: the job that it was made from may be deleted for good one day.
    cloned_from = models.BigIntegerField(null=True, blank=True, help_text="the job that it is a copy of")
    trial = models.CharField(
        max_length=10,
        blank=True,
        default="",
        db_default="",
        help_text="its number, if it is a trial of a tuning job",
    )
    undrawn = models.BooleanField(
        default=False,
        db_default=False,
        help_text="its parameters are drawn when a place is found for it; it does not start without them",
    )

    # What the scheduler needs of the spec, read when the job is submitted.
    resource_request = models.TextField(
        default="",
        db_default="",
        blank=True,
        help_text="resource_requests.encode_request; empty: not read yet",
    )
    timeout_s = models.FloatField(default=DEFAULT_TIMEOUT_S, db_default=DEFAULT_TIMEOUT_S)
    wait_limit_s = models.FloatField(
        null=True, blank=True, help_text="how long an attempt may wait for capacity; null: for ever"
    )
    priority = models.IntegerField(default=0, db_default=0)
    spot = models.BooleanField(default=False, db_default=False, help_text="other jobs may take its place")

    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in JobState])
    version = models.PositiveIntegerField(default=1)
    attempt = models.PositiveIntegerField(default=1)
    job_retries = models.PositiveIntegerField(default=0)
    internal_tries = models.PositiveIntegerField(default=0)
    reason = SentenceField(blank=True, help_text="why it waits, as text")
    earliest_start_at = models.DateTimeField(
        null=True, blank=True, help_text="when it starts at the latest, where that is known"
    )
    preempted_by = SentenceField(
        blank=True, help_text="why it must leave its hosts and wait again, as a sentence; empty: it need not"
    )
    flags = SentenceRowsField(default=list, help_text="[{flag, since, text}]")
    outcome = models.CharField(
        max_length=16,
        blank=True,
        help_text="the decided end, before all runs are closed; QUEUED: another attempt",
    )
    error_code = models.IntegerField(null=True, blank=True, help_text="gRPC code")
    error_message = SentenceField(blank=True)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    cancel_reason = SentenceField(
        blank=True, default="", db_default="", help_text="its error, where no person asked for the cancel"
    )
    queued_at = models.DateTimeField(help_text="when the current attempt began to wait")
    # Waiting for quota does not count as waiting for capacity. Kept for jobs with `wait_limit_s`.
    quota_since = models.DateTimeField(
        null=True, blank=True, help_text="since when it waits for quota, if it does"
    )
    quota_s = models.FloatField(
        default=0.0, db_default=0.0, help_text="how long the attempt has waited for quota before that"
    )
    due_at = models.DateTimeField(null=True, blank=True, help_text="when to look again, whatever happens")
    # Set aside after a fault of Trainyard (lifecycle/faulty_jobs.py), or before a retry (retry_waits.py).
    rests_until = models.DateTimeField(
        null=True, blank=True, help_text="until then it is offered no place, although it waits for one"
    )
    fault = models.JSONField(
        null=True, blank=True, help_text="{cause, tries} of the fault for which it was set aside last"
    )
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = Kept()
    every = models.Manager["Job"]()

    class Meta:
        ordering = ["-id"]
        base_manager_name = "every"
        indexes = [
            models.Index(fields=["due_at"], name="job_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["rests_until"], name="job_rests", condition=Q(rests_until__isnull=False)),
            models.Index(fields=["project", "-id"], name="job_of_project"),
            models.Index(fields=["state", "id"], name="job_by_state"),
            # Quotas and the list of projects count the jobs of a state by project and owner; the list of jobs adds up
            # GPUs, without trials that are over. It reads this index alone.
            models.Index(
                fields=["state", "project", "owner", "gpu_count", "deleted_at", "trial"], name="job_totals"
            ),
            # A search for a part of a name reads this index alone, from the newest job on.
            models.Index(fields=["-id", "display_name", "project", "deleted_at"], name="job_names"),
            # The list of jobs is sorted by these.
            models.Index(fields=["gpu_count", "id"], name="job_by_gpus"),
            models.Index(fields=["display_name", "id"], name="job_by_name"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "owner", "request_id"],
                name="job_request_once_each",
                condition=Q(request_id__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class JobLabel(models.Model):
    """A label of a job, in rows that an index finds.

    Those of the submitted document are here and in `Job.labels`, which never changes. Those that people add later are
    only here.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="label_rows", db_index=False)
    # That of the job. The index alone says which jobs of a person's projects have a label.
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.CharField(max_length=64)
    value = models.CharField(max_length=64, blank=True)
    added_by = models.CharField(max_length=150, blank=True, help_text="empty: it came with the document")

    class Meta:
        indexes = [models.Index(fields=["key", "value", "-job", "project"], name="job_label_found")]
        constraints = [models.UniqueConstraint(fields=["job", "key"], name="job_label_once")]


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
