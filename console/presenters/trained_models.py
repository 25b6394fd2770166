"""What the pages of training pipelines and of models show: rows of one page, and one model with its versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet

from agents.infra.sentences import shown
from console.auth import access
from console.presenters.badges import JOB, Badge
from jobs.models import Job, ModelVersion, Project, RegisteredModel, TrainingPipeline, TuningJob
from jobs.pipelines import pipelines, registry

PAGE = 50
Row = TypeVar("Row", RegisteredModel, TrainingPipeline)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """`why`: why it has failed."""

    id: int
    name: str
    project: str
    badge: Badge
    why: str
    job: Job | None
    tuning_job: TuningJob | None
    version: ModelVersion | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """`version`: the default one."""

    model: RegisteredModel
    version: ModelVersion
    count: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    version: ModelVersion
    pipeline: str
    default: bool
    may_delete: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """`project`: the one that the list is limited to, or "". `next`: the address of the next page, or ""."""

    rows: tuple[PipelineRow, ...] | tuple[ModelRow, ...]
    project: str
    next: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    model: RegisteredModel
    versions: tuple[VersionRow, ...]
    may_change: bool
    may_delete: bool


def pipeline_rows(user: User, query: Mapping[str, str]) -> Rows:
    rows = TrainingPipeline.objects.select_related(*pipelines.WITH_TASK).defer(*pipelines.LARGE)
    found, project, following = _page(user, rows, query)
    return Rows(tuple(_pipeline(one) for one in found), project, following)


def model_rows(user: User, query: Mapping[str, str]) -> Rows:
    found, project, following = _page(user, RegisteredModel.objects.select_related("project"), query)
    versions = registry.default_versions(found)
    counts = registry.version_counts(found)
    rows = [ModelRow(one, versions[one.pk], counts[one.pk]) for one in found if one.pk in versions]
    return Rows(tuple(rows), project, following)


def model_page(user: User, model: RegisteredModel) -> ModelPage:
    rows = ModelVersion.objects.filter(model=model).order_by("-number")
    versions = list(rows.select_related("job", "job__project", "training_pipeline"))
    deletable = {job.pk for job in access.jobs_allowing(user, "delete", [one.job for one in versions])}
    shown = tuple(
        VersionRow(
            version=one,
            pipeline=_name_of_pipeline(one),
            default=registry.DEFAULT in one.aliases,
            may_delete=one.job_id in deletable and registry.DEFAULT not in one.aliases and len(versions) > 1,
        )
        for one in versions
    )
    may_change = access.can(user, "submit", model.project)
    return ModelPage(model, shown, may_change, all(one.job_id in deletable for one in versions))


def names_of_models(project: Project) -> list[RegisteredModel]:
    """The newest models of a project, for a form that names one."""
    return list(RegisteredModel.objects.filter(project=project).order_by("-pk")[:PAGE])


def _pipeline(row: TrainingPipeline) -> PipelineRow:
    error = pipelines.error_of(row)
    return PipelineRow(
        id=row.pk,
        name=row.display_name,
        project=row.project.name,
        badge=JOB[pipelines.state_of(row)],
        why=shown(error[1]) if error else "",
        job=row.job,
        tuning_job=row.tuning_job,
        version=row.version,
        created_at=row.created_at,
        ended_at=pipelines.ended_at(row),
    )


def _name_of_pipeline(version: ModelVersion) -> str:
    pipeline = getattr(version, "training_pipeline", None)
    return pipeline.display_name if pipeline is not None else ""


def _page(user: User, rows: QuerySet[Row], query: Mapping[str, str]) -> tuple[list[Row], str, str]:
    """The rows of the page that the address asks for, the project, and the address of the next page."""
    project, before = query.get("project", ""), query.get("before", "")
    projects = access.visible(user, Project.objects.all())
    rows = rows.filter(project__in=projects.filter(name=project) if project else projects)
    if before.isascii() and before.isdigit() and len(before) < 20:
        rows = rows.filter(pk__lt=int(before))
    found = list(rows.order_by("-pk")[: PAGE + 1])
    more = len(found) > PAGE
    kept = {"project": project} if project else {}
    following = f"?{urlencode({**kept, 'before': str(found[PAGE - 1].pk)})}" if more else ""
    return found[:PAGE], project, following
