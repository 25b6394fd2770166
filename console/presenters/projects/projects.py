"""Projects: the list with the use of each, and the page of one project with its quotas, members and share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import Count
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from agents.infra.sentences import shown
from agents.infra.shared_answers import SharedAnswers
from agents.models import Gpu
from console.auth import access
from console.forms.projects import EACH, WHOLE
from jobs.artifacts import room
from jobs.models import Job, Membership, Project, Quota
from jobs.projects import log_storage, quotas, usage
from jobs.projects.quotas import QuotaTarget
from jobs.rules.lifecycle.states import JobState
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.quota import GB, NO_LIMITS, Limits, Metric, Use

# Stored logs grow slowly, and are added up from the runs of all jobs of a project.
LOGS_KEPT = timedelta(minutes=1)
_log_bytes: SharedAnswers[int, int] = SharedAnswers(LOGS_KEPT, 256)
# The shares of all projects are computed together from all runs, for the page of each project.
KEPT = timedelta(seconds=10)
_shares: SharedAnswers[str, dict[int, Share]] = SharedAnswers(KEPT, 1)


@dataclass(frozen=True, slots=True)
class ProjectRow:
    name: str
    url: str
    title: str
    role: str
    members: int
    running: int
    waiting: int
    gpus: str
    archived: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """The use of one quota. `limit` is None if no limit is set. `change` is the address to change it, or empty."""

    label: str
    used: float
    limit: float | None
    change: str

    @property
    def full(self) -> bool:
        return self.limit is not None and self.used >= self.limit

    @property
    def most(self) -> float:
        """The maximum of the meter, which cannot be zero."""
        return max(self.limit or 0, 1)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of a project, in GB."""

    log_gb: float = 0.0
    storage_gb: float = 0.0


NOTHING = Stored()


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: int
    name: str
    role: str
    active: bool
    running: int
    gpus: str
    limits: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class ProjectPage:
    row: Project
    bars: tuple[Bar, ...]
    each: tuple[Bar, ...]
    members: tuple[MemberRow, ...]
    lately_hours: float
    part: float
    verbs: frozenset[access.Verb]
    people: tuple[str, ...]
    gpu_types: tuple[str, ...]
    log_warning: str


def project_list(user: User) -> list[ProjectRow]:
    rows = list(access.visible(user, Project.objects.order_by("name")))
    roles = dict(Membership.objects.filter(user=user).values_list("project", "role"))
    use = quotas.use_by_project([row.pk for row in rows])
    members = dict(Membership.objects.values_list("project").annotate(Count("pk")).order_by())
    queued = dict(
        Job.every.filter(project__in=rows, state=JobState.QUEUED)
        .values_list("project")
        .annotate(count=Count("*"))
        .order_by()
    )
    shown = [
        ProjectRow(
            name=row.name,
            url=reverse("project", args=[row.name]),
            title=row.title,
            role=roles.get(row.pk, ""),
            members=members.get(row.pk, 0),
            running=use[row.pk].running,
            waiting=queued.get(row.pk, 0),
            gpus=held(use[row.pk]),
            archived=row.archived_at is not None,
        )
        for row in rows
    ]
    return sorted(shown, key=lambda row: row.archived)


def page(project: Project, user: User) -> ProjectPage:
    now = timezone.now()
    verbs = access.verbs(user, project)
    use, of_people = quotas.use_of(project, now)
    queued = quotas.queued(project)
    whole, each = (quotas.limits_of(QuotaTarget(project, each=flag)) for flag in (False, True))
    shares = _shares.get("all", lambda: usage.shares(now))
    own = shares[project.pk]
    active = set(Project.objects.filter(archived_at=None).values_list("pk", flat=True))
    total = sum(share.weight for pk, share in shares.items() if pk in active)
    may = "set_quotas" in verbs
    return ProjectPage(
        row=project,
        bars=bars(
            whole,
            use,
            sum(queued.values()),
            project,
            WHOLE if may else None,
            _read_stored(project),
        ),
        each=limits_only(each, project, EACH if "manage_members" in verbs else None),
        members=member_rows(project, of_people, queued, "manage_members" in verbs),
        lately_hours=own.used_gpu_seconds / 3600,
        part=own.weight / total if project.pk in active else 0.0,
        verbs=verbs,
        people=people() if "manage_members" in verbs else (),
        gpu_types=gpu_types(),
        log_warning=shown(log_storage.warning(project)),
    )


def _read_stored(project: Project) -> Stored:
    return Stored(
        round(_log_bytes.get(project.pk, lambda: quotas.recent_log_bytes(project)) / GB, 2),
        round(room.stored_bytes([project.pk]).get(project.pk, 0) / GB, 2),
    )


def defaults() -> tuple[tuple[Bar, ...], tuple[Bar, ...]]:
    """Return the limits of new projects: for the whole project, and for each member."""
    whole, each = (quotas.limits_of(QuotaTarget(None, each=flag)) for flag in (False, True))
    return limits_only(whole, None, WHOLE), limits_only(each, None, EACH)


def bars(
    limits: Limits,
    use: Use,
    queued: int,
    project: Project | None,
    whose: str | None,
    stored: Stored = NOTHING,
) -> tuple[Bar, ...]:
    """Return a bar for each GPU type that is limited or in use, then for jobs and hours.

    `whose` None: the person cannot change the limits.
    """
    kinds = sorted({*limits.gpus, *(kind for kind, count in use.gpus.items() if count)})
    here = reverse("project", args=[project.name]) if project else reverse("default-quotas")

    def bar(label: str, used: float, limit: float | None, metric: Metric, kind: str = "") -> Bar:
        asked = {"metric": metric, "accelerator_type": kind, "whose": whose, "limit": limit}
        query = urlencode({name: value for name, value in asked.items() if value not in (None, "")})
        return Bar(label, used, limit, "" if whose is None else f"{here}?{query}#change")

    return (
        *(bar(kind, use.gpus.get(kind, 0), limits.gpus.get(kind), Metric.GPUS, kind) for kind in kinds),
        bar(_("Running jobs"), use.running, limits.running, Metric.RUNNING),
        bar(_("Waiting jobs"), queued, limits.queued, Metric.QUEUED),
        bar(_("GPU-hours this month"), use.gpu_hours, limits.gpu_hours, Metric.GPU_HOURS),
        bar(_("GB of stored logs"), stored.log_gb, limits.log_gb, Metric.LOG_GB),
        bar(_("GB of stored files"), stored.storage_gb, limits.storage_gb, Metric.STORAGE_GB),
    )


def limits_only(
    limits: Limits, project: Project | None, whose: str | None, use: Use | None = None, queued: int = 0
) -> tuple[Bar, ...]:
    if limits == NO_LIMITS:
        return ()
    return tuple(bar for bar in bars(limits, use or Use(), queued, project, whose) if bar.limit is not None)


def member_rows(
    project: Project, use: dict[int | None, Use], queued: dict[int | None, int], may_change: bool
) -> tuple[MemberRow, ...]:
    own = defaultdict(list)
    for quota in Quota.objects.filter(project=project).exclude(user=None):
        own[quota.user_id].append(quota)
    rows = Membership.objects.filter(project=project).select_related("user").order_by("user__username")
    return tuple(
        MemberRow(
            id=row.user_id,
            name=row.user.username,
            role=row.role,
            active=row.user.is_active,
            running=use.get(row.user_id, Use()).running,
            gpus=held(use.get(row.user_id, Use())),
            limits=limits_only(
                quotas.read_limits(own[row.user_id]),
                project,
                row.user.username if may_change else None,
                use.get(row.user_id),
                queued.get(row.user_id, 0),
            ),
        )
        for row in rows
    )


def held(use: Use) -> str:
    """Word the held GPUs, such as `2 NVIDIA_L4, 8 NVIDIA_H100_80GB`."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(use.gpus.items()) if count)


def people() -> tuple[str, ...]:
    return tuple(User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True))


def gpu_types() -> tuple[str, ...]:
    # In no order: by that of the rows, each GPU would be a type of its own.
    there = set(
        Gpu.objects.filter(present=True).order_by().values_list("accelerator_type", flat=True).distinct()
    )
    limited = set(Quota.objects.filter(metric=Metric.GPUS).values_list("accelerator_type", flat=True))
    return tuple(sorted(there | limited))
