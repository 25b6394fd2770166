"""Tuning jobs, and their trials.

All that a search knows is in rows of trials, so any process can make the next suggestion after any crash.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField
from jobs.models.jobs import Job
from jobs.models.projects import Project
from jobs.rules.lifecycle.states import JobState
from jobs.rules.tuning.trials import Ending, TrialState


class PresentTuningJobs(models.Manager["TuningJob"]):
    """What was not deleted."""

    def get_queryset(self) -> models.QuerySet[TuningJob]:
        return super().get_queryset().filter(deleted_at=None)


class TuningJob(models.Model):
    """A HyperparameterTuningJob. `outcome`: its decided end, while trials still have to be closed."""

    id = models.BigIntegerField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="tuning_jobs")
    location_name = models.CharField(max_length=63)
    display_name = models.CharField(max_length=128)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="tuning_jobs"
    )
    owner_name = models.CharField(max_length=150)
    request_id = models.CharField(max_length=200, null=True, blank=True, help_text="Idempotency-Key")
    study = models.JSONField(help_text="the canonical StudySpec document (rules/tuning/study.py)")
    trial_spec = models.JSONField(help_text="the canonical CustomJobSpec document of each trial")
    max_trials = models.PositiveIntegerField()
    parallel_trials = models.PositiveIntegerField()
    max_failed_trials = models.PositiveIntegerField(help_text="0: rules/tuning decides")
    labels = models.JSONField(default=dict)
    may_prioritize = models.BooleanField(help_text="its owner was allowed a high priority at submit")
    seed = models.BigIntegerField(help_text="with it and the rows, each suggestion comes out the same")

    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in JobState])
    outcome = models.CharField(max_length=16, blank=True)
    reason = SentenceField(blank=True, help_text="why it cannot go on now")
    error_code = models.IntegerField(null=True, blank=True, help_text="gRPC code")
    error_message = SentenceField(blank=True)

    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    outlook = models.JSONField(
        null=True, blank=True, help_text="what more trials are expected to bring (rules/tuning/price.py)"
    )
    outlook_at = models.DateTimeField(null=True, blank=True, help_text="when that was looked at")
    extended_at = models.DateTimeField(null=True, blank=True, help_text="when it last got more trials")
    due_at = models.DateTimeField(null=True, blank=True, help_text="when to look again, whatever happens")
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = PresentTuningJobs()
    every = models.Manager["TuningJob"]()

    class Meta:
        ordering = ["-id"]
        base_manager_name = "every"
        indexes = [
            models.Index(fields=["due_at"], name="tuning_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=["project", "-id"], name="tuning_of_project"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "owner", "request_id"],
                name="tuning_request_once_each",
                condition=Q(request_id__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class PriorStudy(models.Model):
    """What a study learns from an earlier one, copied when it is submitted: whatever becomes of the earlier study,
    suggestions stay the same."""

    tuning_job = models.ForeignKey(TuningJob, on_delete=models.CASCADE, related_name="prior_studies")
    place = models.PositiveSmallIntegerField(help_text="in the list of the document")
    study_id = models.BigIntegerField(help_text="of the earlier study")
    display_name = models.CharField(max_length=128)
    trials = models.JSONField(
        help_text="[{number, parameters, metrics}]: of those that ended; failed: no metrics"
    )

    class Meta:
        ordering = ["tuning_job", "place"]
        constraints = [models.UniqueConstraint(fields=["tuning_job", "place"], name="prior_study_once")]


class TuningSecret(models.Model):
    """A secret variable of the replicas of one pool of each trial, as it was at submit. It goes when no trial can come
    any more."""

    tuning_job = models.ForeignKey(TuningJob, on_delete=models.CASCADE, related_name="secrets")
    pool = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=256, help_text="of the variable")
    sealed = models.BinaryField()

    class Meta:
        ordering = ["tuning_job", "pool", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tuning_job", "pool", "name"], name="tuning_secret_once")
        ]


class Trial(models.Model):
    """One point of the space, tried by one job. `parameters` are drawn when the job is about to get its place
    (`wanted_at`), and never change after that."""

    tuning_job = models.ForeignKey(TuningJob, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in TrialState])
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="trial_row")
    wanted_at = models.DateTimeField(null=True, blank=True, help_text="when a place was found for its job")
    parameters = models.JSONField(null=True, blank=True, help_text="{name: value}; null: not drawn yet")
    why = models.JSONField(null=True, blank=True, help_text="what the search expected of this point")
    sampler_sealed = models.BinaryField(
        null=True, blank=True, help_text="what a sampler of Optuna remembers with this trial"
    )
    job_state = models.CharField(max_length=16, help_text="that of its job when the study was last looked at")
    final = models.JSONField(
        null=True, blank=True, help_text="{step, elapsed, metrics}: its final measurement"
    )
    measurements = models.JSONField(
        null=True,
        blank=True,
        help_text="of one that is over: about a hundred, by step, as `final`",
    )
    infeasible_reason = SentenceField(blank=True)
    ending = models.CharField(
        max_length=8,
        blank=True,
        default="",
        db_default="",
        choices=[(s.value, s.value) for s in Ending],
        help_text="how it came to its end, where the state of its job does not say it",
    )
    stopped_early = SentenceField(blank=True, help_text="which rule stopped it, as a sentence")
    shadow = models.JSONField(
        null=True,
        blank=True,
        help_text="{rule: seconds after which it would have stopped this trial}; when it is over",
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["tuning_job", "number"]
        indexes = [
            models.Index(
                fields=["wanted_at"],
                name="trial_wants_parameters",
                condition=Q(wanted_at__isnull=False, parameters__isnull=True),
            ),
            models.Index(fields=["tuning_job"], name="trial_live", condition=Q(ended_at=None)),
            models.Index(
                fields=["id"],
                name="trial_without_shadow",
                condition=Q(ended_at__isnull=False, shadow__isnull=True),
            ),
        ]
        constraints = [models.UniqueConstraint(fields=["tuning_job", "number"], name="trial_number_once")]

    def __str__(self) -> str:
        return f"{self.tuning_job_id}/{self.number}"
