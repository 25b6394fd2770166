"""What the pages of training pipelines and of models show: rows of one page, and one model with its versions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, TypeVar
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from agents.infra.sentences import shown
from console.auth import access
from console.presenters.badges import JOB, Badge
from console.presenters.jobs.pipeline_links import NamedLink, pipeline_link
from console.presenters.newest_first import cut
from jobs.models import Job, ModelVersion, Project, RegisteredModel, TrainingPipeline, TuningJob
from jobs.outputs import state as outputs
from jobs.pipelines import pipelines, registry
from jobs.rules.lifecycle.states import JobState

PAGE = 50
# Where a version came from.
_ORIGIN = ("job", "job__project", "training_pipeline", "training_pipeline__tuning_job")
WAITS = gettext_noop("Its job has succeeded. Its model is recorded when its files are stored.")
Row = TypeVar("Row", RegisteredModel, TrainingPipeline)


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """`why`: why it has failed, or for what it waits."""

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
    """`version`: the default one. `study`: the one whose best trial left it. `files`: the page of them, for those who
    may read what the job wrote."""

    model: RegisteredModel
    version: ModelVersion
    count: int
    study: TuningJob | None
    pipeline: NamedLink | None
    files: str


@dataclass(frozen=True, slots=True)
class VersionRow:
    """`hosts`: on which files lie that are not stored."""

    version: ModelVersion
    hosts: str
    study: TuningJob | None
    pipeline: NamedLink | None
    files: str
    default: bool
    may_delete: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """`project`: the one that the list is limited to, or "". `previous`, `next`: addresses of the pages beside it."""

    rows: tuple[PipelineRow, ...] | tuple[ModelRow, ...]
    project: str
    previous: str
    next: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    model: RegisteredModel
    versions: tuple[VersionRow, ...]
    may_change: bool
    may_delete: bool


def pipeline_rows(user: User, query: Mapping[str, str]) -> Rows:
    rows = TrainingPipeline.objects.select_related(*pipelines.WITH_TASK).defer(*pipelines.LARGE)
    found, *rest = _page(user, rows, query)
    return Rows(tuple(_pipeline(one) for one in found), *rest)


def model_rows(user: User, query: Mapping[str, str]) -> Rows:
    found, *rest = _page(user, RegisteredModel.objects.select_related("project"), query)
    versions = registry.default_versions(found)
    counts = registry.version_counts(found)
    readable = _readable(user, versions.values())
    rows = [
        ModelRow(one, versions[one.pk], counts[one.pk], **_origin(versions[one.pk], readable))
        for one in found
        if one.pk in versions
    ]
    return Rows(tuple(rows), *rest)


def model_page(user: User, model: RegisteredModel) -> ModelPage:
    rows = ModelVersion.objects.filter(model=model).order_by("-number")
    versions = list(rows.select_related(*_ORIGIN))
    readable = _readable(user, versions)
    deletable = {job.pk for job in access.jobs_allowing(user, "delete", [one.job for one in versions])}
    hosts = outputs.left_on_hosts(one.job_id for one in versions)
    shown = tuple(
        VersionRow(
            version=one,
            **_origin(one, readable),
            hosts=", ".join(hosts.get(one.job_id, ())),
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
    error, state = pipelines.error_of(row), pipelines.state_of(row)
    waits = state is JobState.RUNNING and pipelines.task_of(row).state == JobState.SUCCEEDED
    return PipelineRow(
        id=row.pk,
        name=row.display_name,
        project=row.project.name,
        badge=JOB[state],
        why=shown(error[1]) if error else gettext(WAITS) if waits else "",
        job=row.job,
        tuning_job=row.tuning_job,
        version=row.version,
        created_at=row.created_at,
        ended_at=pipelines.ended_at(row),
    )


class _Origin(TypedDict):
    study: TuningJob | None
    pipeline: NamedLink | None
    files: str


def _origin(version: ModelVersion, readable: Collection[int]) -> _Origin:
    """What left this version. `readable`: jobs whose files the person may read."""
    pipeline: TrainingPipeline | None = getattr(version, "training_pipeline", None)
    study = pipeline.tuning_job if pipeline is not None else None
    here = pipeline is not None and pipeline.deleted_at is None
    return {
        "study": study if study is not None and study.deleted_at is None else None,
        "pipeline": pipeline_link(pipeline, version.job.project.name)
        if pipeline is not None and here
        else None,
        "files": reverse("job-outputs", args=[version.job_id]) if version.job_id in readable else "",
    }


def _readable(user: User, versions: Iterable[ModelVersion]) -> set[int]:
    jobs = [one.job for one in versions if one.job.deleted_at is None]
    return {job.pk for job in access.jobs_allowing(user, "see_log", jobs)}


def _page(user: User, rows: QuerySet[Row], query: Mapping[str, str]) -> tuple[Sequence[Row], str, str, str]:
    """The rows of the page that the address asks for, the project, and the addresses of the pages beside it."""
    project = query.get("project", "")
    projects = access.visible(user, Project.objects.all())
    rows = rows.filter(project__in=projects.filter(name=project) if project else projects)
    found = cut(rows, query, PAGE)
    kept = {"project": project} if project else {}
    previous, following = (
        f"?{urlencode({**kept, **edge})}" if edge else "" for edge in (found.previous, found.next)
    )
    return found.rows, project, previous, following
