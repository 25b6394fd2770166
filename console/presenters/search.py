"""The search over everything that a person may see: jobs, studies, pipelines, models, buckets, hosts, projects, people
and pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext as _

from console.auth import access
from console.presenters import badges, site_pages
from console.presenters.badges import Badge
from console.presenters.hosts import host_filters
from console.presenters.jobs import job_filters
from console.presenters.studies import study_list
from jobs.models import Bucket, Job, Project, RegisteredModel, TrainingPipeline
from jobs.pipelines import pipelines

MOST = 5
# Of one kind alone. Who needs more writes more of the name.
MOST_OF_KIND = 200
MAX_TEXT = 128
# An id of a job or a study, also as a part of the name of a resource, of a run or of an address.
_ID = re.compile(r"(?:^|\D)(\d{19})(?:\D|$)")


@dataclass(frozen=True, slots=True)
class Hit:
    """`id`: of a job, otherwise empty. `act`: what a script does instead of following the address, or empty."""

    title: str
    detail: str
    url: str
    badge: Badge | None = None
    id: str = ""
    act: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """What was found of one kind. `more`: the address of the list with all of it; empty where nothing is left out.
    `cut`: more was found, and there is no such list.
    """

    kind: str
    title: str
    hits: tuple[Hit, ...]
    more: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    text: str
    groups: tuple[Group, ...]
    # The search is for this kind alone.
    kind: str = ""

    @property
    def count(self) -> int:
        return sum(len(group.hits) for group in self.groups)

    @property
    def count_text(self) -> str:
        return ngettext("{number} result", "{number} results", self.count).format(number=self.count)


def search(user: User, text: str, acts: bool = False, kind: str = "") -> Found:
    """Find at most five of each kind, with one query a kind. Without a text: the pages that the person may open.

    `acts`: also what scripts do on the page. `kind`: one of KINDS, of which many are found, and nothing else.
    """
    text = " ".join(text.split())[:MAX_TEXT]
    if text and kind in KINDS:
        group = KINDS[kind](user, text, MOST_OF_KIND)
        return Found(text, (group,) if group.hits else (), kind)
    groups = list(_everything(user, text) if text else (_pages(user, text, len(site_pages.PAGES)),))
    if acts:
        groups.append(_acts(text))
    return Found(text, tuple(group for group in groups if group.hits))


def _everything(user: User, text: str) -> Iterator[Group]:
    """What is named by an id or a label is meant; else pages come first, because their words are ours."""
    is_of_job = "=" in text or _ID.search(text) is not None
    jobs = (_jobs(user, text), _studies(user, text))
    if is_of_job:
        yield from jobs
    yield _pages(user, text, MOST)
    if not is_of_job:
        yield from jobs
    yield _pipelines(user, text)
    yield _models(user, text)
    yield _buckets(user, text)
    yield _hosts(user, text)
    yield _projects(user, text)
    if access.can(user, "see", User):
        yield _people(text)


def _jobs(user: User, text: str) -> Group:
    asked = {"label": text} if "=" in text else {"text": text}
    if found := _ID.search(text):
        asked = {"text": found[1]}
    filters = job_filters.Filters.of(asked)
    rows = job_filters.found(user, filters).order_by("-pk").select_related("project")
    columns = ("pk", "display_name", "state", "owner_name", "project__name")
    jobs = list(rows.only(*columns)[: MOST + 1])
    return Group("job", _("Jobs"), _first(_job(job) for job in jobs), _more(jobs, "jobs", **asked))


def _job(job: Job) -> Hit:
    return Hit(
        title=job.display_name,
        detail=f"{job.pk} · {job.owner_name} · {job.project.name}",
        url=reverse("job", args=[job.pk]),
        badge=badges.JOB[job.state],
        id=str(job.pk),
    )


def _studies(user: User, text: str) -> Group:
    asked = {"text": found[1] if (found := _ID.search(text)) else text}
    rows = study_list.studies(user, study_list.filters_of(asked)).order_by("-pk").select_related("project")
    columns = ("pk", "display_name", "state", "owner_name", "project__name")
    studies = list(rows.only(*columns)[: MOST + 1])
    hits = (
        Hit(
            title=row.display_name,
            detail=f"{row.pk} · {row.owner_name} · {row.project.name}",
            url=reverse("study", args=[row.pk]),
            badge=badges.JOB[row.state],
            id=str(row.pk),
        )
        for row in studies
    )
    return Group("study", _("Studies"), _first(hits), _more(studies, "studies", **asked))


def _pipelines(user: User, text: str, most: int = MOST) -> Group:
    """A pipeline has no page of its own: its job has, or its study."""
    rows = TrainingPipeline.objects.filter(project__in=_seen(user), display_name__icontains=text)
    rows = rows.select_related(*pipelines.WITH_TASK).defer(*pipelines.LARGE).order_by("-pk")
    found = list(rows[: most + 1])
    hits = (
        Hit(
            title=row.display_name,
            detail=f"{row.pk} · {row.project.name}",
            url=_address_of_task(row),
            badge=badges.JOB[pipelines.state_of(row)],
            id=str(row.pk),
        )
        for row in found
    )
    return _group("pipeline", _("Pipelines"), tuple(hits), text, most)


def _address_of_task(row: TrainingPipeline) -> str:
    if row.tuning_job is not None and not row.tuning_job.deleted_at:
        return reverse("study", args=[row.tuning_job.pk])
    if row.job is not None and not row.job.deleted_at:
        return reverse("job", args=[row.job.pk])
    return f"{reverse('pipelines')}?{urlencode({'project': row.project.name})}"


def _models(user: User, text: str, most: int = MOST) -> Group:
    named = Q(display_name__icontains=text) | Q(model_id__icontains=text)
    rows = RegisteredModel.objects.filter(named, project__in=_seen(user)).select_related("project")
    models = list(rows.order_by("-pk")[: most + 1])
    hits = (
        Hit(
            title=row.display_name,
            detail=f"{row.model_id} · {row.project.name}",
            url=reverse("model", args=[row.project.name, row.model_id]),
        )
        for row in models
    )
    return _group("model", _("Models"), tuple(hits), text, most)


def _buckets(user: User, text: str, most: int = MOST) -> Group:
    projects = access.projects_allowing(user, "see_files")
    rows = Bucket.objects.filter(project__in=projects, name__icontains=text).select_related("project")
    found = list(rows.order_by("name")[: most + 1])
    hits = (
        Hit(f"gs://{row.name}", row.project.name, reverse("bucket", args=[row.project.name, row.name]))
        for row in found
    )
    return _group("bucket", _("Buckets"), tuple(hits), text, most)


def _seen(user: User) -> QuerySet[Project]:
    return access.visible(user, Project.objects.all())


def _hosts(user: User, text: str) -> Group:
    rows = host_filters.found(user, host_filters.Filters(text=text)).select_related("location")
    hosts = list(rows.only("pk", "name", "address", "status", "location__name")[: MOST + 1])
    hits = (
        Hit(
            title=host.name,
            detail=f"{host.address} · {host.location.name}",
            url=reverse("host", args=[host.pk]),
            badge=badges.HOST[host.status],
        )
        for host in hosts
    )
    return Group("host", _("Hosts"), _first(hits), _more(hosts, "hosts", text=text))


def _projects(user: User, text: str, most: int = MOST) -> Group:
    named = Q(name__icontains=text) | Q(title__icontains=text)
    projects = list(access.visible(user, Project.objects.order_by("name")).filter(named)[: most + 1])
    hits = (Hit(row.name, row.title, reverse("project", args=[row.name])) for row in projects)
    return _group("project", _("Projects"), tuple(hits), text, most)


def _people(text: str) -> Group:
    people = list(
        User.objects.filter(username__icontains=text).order_by("-is_active", "username")[: MOST + 1]
    )
    here = reverse("people")
    hits = (
        Hit(
            title=row.username,
            detail=_("admin") if row.is_superuser else "" if row.is_active else _("disabled"),
            url=f"{here}?{urlencode({'text': row.username})}",
        )
        for row in people
    )
    return Group("person", _("People"), _first(hits), _more(people, "people", text=text))


def _pages(user: User, text: str, most: int) -> Group:
    found = site_pages.pages(user, text, most)
    return Group("page", _("Pages"), tuple(Hit(gettext(page.title), "", page.url) for page in found))


def _acts(text: str) -> Group:
    found = site_pages.acts(text)
    return Group(
        "act", _("Acts"), tuple(Hit(gettext(act.title), "", reverse(act.page), act=act.name) for act in found)
    )


def _first(hits: Iterator[Hit]) -> tuple[Hit, ...]:
    return tuple(hits)[:MOST]


def _group(kind: str, title: str, hits: Sequence[Hit], text: str, most: int) -> Group:
    """Of a kind whose list has no search of its own: the search has a page for it alone."""
    more = _more(hits, "search", q=text, kind=kind) if most == MOST else ""
    return Group(kind, title, tuple(hits[:most]), more, len(hits) > most and not more)


def _more(rows: Sequence[object], page: str, **query: str) -> str:
    if len(rows) <= MOST:
        return ""
    return f"{reverse(page)}?{urlencode(query)}" if query else reverse(page)


KINDS: Mapping[str, Callable[[User, str, int], Group]] = {
    "pipeline": _pipelines,
    "model": _models,
    "bucket": _buckets,
    "project": _projects,
}
