"""Training pipelines, and the models that they leave, in versions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from agents.infra.sentences import SentenceField
from jobs.models.jobs import Job
from jobs.models.projects import Project
from jobs.models.studies import TuningJob


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
    """A pipeline of one custom task, or of one that tunes hyperparameters. Its state is that of its job or its tuning
    job, until a model has to be recorded.

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
    job = models.OneToOneField(
        Job, null=True, blank=True, on_delete=models.PROTECT, related_name="training_pipeline"
    )
    tuning_job = models.OneToOneField(
        TuningJob, null=True, blank=True, on_delete=models.PROTECT, related_name="training_pipeline"
    )
    without_model = SentenceField(
        blank=True, help_text="why there is no model, although its task has succeeded"
    )
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
        constraints = [
            models.CheckConstraint(
                condition=Q(job__isnull=False, tuning_job__isnull=True)
                | Q(job__isnull=True, tuning_job__isnull=False),
                name="pipeline_has_one_task",
            )
        ]

    def __str__(self) -> str:
        return str(self.id)
