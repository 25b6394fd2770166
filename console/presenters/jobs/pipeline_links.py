"""From a job, or the study of a trial, to its training pipeline and to the model that it left; and back."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from jobs.models import ModelVersion, TrainingPipeline

# A training pipeline stands at the top of the page that begins with it.
_BEFORE = 1


@dataclass(frozen=True, slots=True)
class NamedLink:
    name: str
    url: str


def pipeline_link(pipeline: TrainingPipeline, project: str) -> NamedLink:
    """`project`: its name. The list of pipelines, from this one on."""
    asked = urlencode({"project": project, "before": pipeline.pk + _BEFORE})
    return NamedLink(pipeline.display_name, f"{reverse('pipelines')}?{asked}#pipeline-{pipeline.pk}")


def model_link(version: ModelVersion, project: str) -> NamedLink:
    url = reverse("model", args=[project, version.model.model_id])
    return NamedLink(f"{version.model.display_name}, {version.number}", f"{url}#version-{version.number}")


def pipeline_of(project: str, **task: int) -> NamedLink | None:
    """`task`: `job` or `tuning_job`, with its id."""
    row = TrainingPipeline.objects.filter(**task).only("pk", "display_name").first()
    return pipeline_link(row, project) if row else None


def models_of(project: str, **where: int) -> tuple[NamedLink, ...]:
    """The models that a job left, or those that a pipeline of a study left."""
    rows = (
        ModelVersion.objects.filter(model__deleted_at=None, **where).select_related("model").defer("document")
    )
    return tuple(model_link(each, project) for each in rows)
