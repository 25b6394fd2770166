"""What stands above jobs: training pipelines, and the models that they leave; tuning jobs, and their trials.

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
from jobs.rules.tuning.trials import TrialState


class Present(models.Manager["RegisteredModel"]):
    """What was not deleted."""

    def get_queryset(self) -> models.QuerySet[RegisteredModel]:
        return super().get_queryset().filter(deleted_at=None)


class PresentVersions(models.Manager["ModelVersion"]):
    """What was not deleted."""

    def get_queryset(self) -> models.QuerySet[ModelVersion]:
        return super().get_queryset().filter(deleted_at=None)


class PresentPipelines(models.Manager["TrainingPipeline"]):
    """What was not deleted."""

    def get_queryset(self) -> models.QuerySet[TrainingPipeline]:
        return super().get_queryset().filter(deleted_at=None)


class RegisteredModel(models.Model):
    """A model of a project, with versions. `model_id` is its name in addresses: chosen by a person, or a number."""

    id = models.BigIntegerField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="models")
    model_id = models.CharField(max_length=63)
    location_name = models.CharField(max_length=63)
    display_name = models.CharField(max_length=128)
    description = models.TextField(blank=True)
    labels = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = Present()
    every = models.Manager["RegisteredModel"]()

    class Meta:
        ordering = ["-id"]
        base_manager_name = "every"
        constraints = [
            models.UniqueConstraint(
                fields=["project", "model_id"], name="model_id_once", condition=Q(deleted_at=None)
            )
        ]

    def __str__(self) -> str:
        return self.model_id


class ModelVersion(models.Model):
    """One version of a model. `document` is the Model as the pipeline asked for it."""

    id = models.BigIntegerField(primary_key=True)
    model = models.ForeignKey(RegisteredModel, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    aliases = models.JSONField(default=list)
    description = models.TextField(blank=True)
    # An address that people give, and /model.
    artifact_uri = models.CharField(max_length=2100)
    document = models.JSONField(default=dict)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="model_versions")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = PresentVersions()
    every = models.Manager["ModelVersion"]()

    class Meta:
        ordering = ["-number"]
        base_manager_name = "every"
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="model_version_once")]

    def __str__(self) -> str:
        return f"{self.model_id}@{self.number}"


class TrainingPipeline(models.Model):
    """A pipeline of one custom task. Its state is that of its job, until a model has to be recorded.

    `inputs` and `upload` stay as the client sent them. `version`: the model that it left.
    """

    id = models.BigIntegerField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="training_pipelines")
    location_name = models.CharField(max_length=63)
    display_name = models.CharField(max_length=128)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="training_pipelines"
    )
    definition = models.CharField(max_length=300)
    inputs = models.JSONField()
    upload = models.JSONField(null=True, blank=True, help_text="modelToUpload; null: it leaves no model")
    model_id = models.CharField(max_length=63, blank=True)
    parent_model = models.CharField(max_length=63, blank=True)
    labels = models.JSONField(default=dict)
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="training_pipeline")
    version = models.OneToOneField(
        ModelVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="training_pipeline"
    )
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True)

    objects = PresentPipelines()
    every = models.Manager["TrainingPipeline"]()

    class Meta:
        ordering = ["-id"]
        base_manager_name = "every"
        indexes = [
            models.Index(fields=["project", "-id"], name="pipeline_of_project"),
            # The sweep asks each time which pipelines still have to leave their model.
            models.Index(
                fields=["id"],
                name="pipeline_without_model",
                condition=Q(upload__isnull=False, version__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


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
    job_state = models.CharField(max_length=16, help_text="that of its job when the study was last looked at")
    final = models.JSONField(
        null=True, blank=True, help_text="{step, elapsed, metrics}: its final measurement"
    )
    measurements = models.JSONField(
        null=True, blank=True, help_text="of one that is over: about a hundred, by step, as `final`"
    )
    infeasible_reason = SentenceField(blank=True)
    stopped_early = SentenceField(blank=True, help_text="which rule stopped it, as a sentence")
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
        ]
        constraints = [models.UniqueConstraint(fields=["tuning_job", "number"], name="trial_number_once")]

    def __str__(self) -> str:
        return f"{self.tuning_job_id}/{self.number}"
