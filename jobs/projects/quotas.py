"""Quotas: the limits, what is used of them (the quota ledger of the scheduler), and how admins change limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, F, Q, QuerySet

from agents.infra.refusals import Exhausted, Refused
from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import said
from jobs.models import DefaultQuota, GpuClaim, Job, Project, Quota
from jobs.models.quotas import Limit
from jobs.projects import audit, log_storage, usage
from jobs.rules.lifecycle.states import TERMINAL, JobState
from jobs.rules.scheduling.quota import (
    NO_LIMITS,
    NOT_OF_PASS,
    Limits,
    Metric,
    NeverAllowed,
    QuotaAccount,
    QuotaLedger,
    Use,
    log_refusal,
    queue_refusal,
)
from jobs.rules.spec.parse import OWN_ACCELERATOR
from jobs.wake import hints

# The states of a job that has a placement, until all of it is over.
PLACED = (JobState.PENDING, JobState.RUNNING, JobState.CANCELLING)
NOT_OVER = tuple(state for state in JobState if state not in TERMINAL)
MAX_LIMIT = 1_000_000_000
METRIC_LABELS = {
    Metric.GPUS: said("GPUs at once"),
    Metric.RUNNING: said("running jobs"),
    Metric.QUEUED: said("waiting jobs"),
    Metric.GPU_HOURS: said("GPU-hours a month"),
    Metric.LOG_GB: said("GB of stored logs"),
    Metric.STORAGE_GB: said("GB of stored files"),
}

Key = tuple[int, int | None]

RELIED_FOR = timedelta(seconds=5)
_recent_log_bytes: SharedAnswers[int, int] = SharedAnswers(RELIED_FOR, 256)

ANY_OF_QUEUE = SelectStatement(
    lambda: (
        Quota.objects.filter(project=Parameter("project"), metric=Metric.QUEUED)
        .order_by()
        .values_list("pk")[:1]
    )
)
LOG_LIMIT = SelectStatement(
    lambda: (
        Quota.objects.filter(project=Parameter("project"), metric=Metric.LOG_GB, user=None, each=False)
        .order_by()
        .values_list("value")
    )
)
GPU_LIMITS = SelectStatement(
    lambda: (
        Quota.objects.filter(project=Parameter("project"), metric=Metric.GPUS)
        .order_by()
        .values_list("each", "user", "accelerator_type", "value")
    )
)
ANY_OF_PASS = SelectStatement(
    lambda: Quota.objects.exclude(metric__in=NOT_OF_PASS).order_by().values_list("pk")[:1]
)


@dataclass(frozen=True, slots=True)
class QuotaTarget:
    """What a limit applies to: a project, each of its members, or one member. Without a project: new projects."""

    project: Project | None
    each: bool = False
    user: User | None = None

    @property
    def label(self) -> str:
        if self.project is None:
            return said("each member of new projects") if self.each else said("new projects")
        if self.user:
            return _member(self.user.username, self.project.name)
        where = _project(self.project.name)
        return said("each member of {project}", project=where) if self.each else where


def read_ledger(now: datetime) -> QuotaLedger:
    """The use and the limits of all projects and of the owners of queued jobs. A few queries, however many jobs."""
    if not ANY_OF_PASS():
        return QuotaLedger()
    rows = Quota.objects.exclude(metric__in=NOT_OF_PASS).select_related("project", "user")
    limits: dict[tuple[int, bool, int | None], list[Limit]] = defaultdict(list)
    for row in rows:
        limits[row.project_id, row.each, row.user_id].append(row)
    read = {key: read_limits(of) for key, of in limits.items()}
    names = {row.project_id: row.project.name for row in rows}
    of_member = {(pk, user): one for (pk, _, user), one in read.items() if user is not None}
    counts_hours = any(one.gpu_hours is not None for one in read.values())
    use = _use(names, now if counts_hours else None)
    nobody = (False, None)
    members = {}
    with_members = {pk for pk, each, user in read if each or user is not None}
    for pk, owner, name in _waiting_owners(with_members):
        mine = of_member.get((pk, owner), NO_LIMITS).over(read.get((pk, True, None), NO_LIMITS))
        members[pk, owner] = QuotaAccount(_member(name, names[pk]), mine, use[pk, owner])
    projects = {
        pk: QuotaAccount(_project(name), read.get((pk, *nobody), NO_LIMITS), _sum(use, pk))
        for pk, name in names.items()
    }
    return QuotaLedger(projects, members)


def use_of(project: Project, now: datetime) -> tuple[Use, dict[int | None, Use]]:
    """What a project uses now, and what each person in it uses."""
    use = _use([project.pk], now)
    return _sum(use, project.pk), {owner: one for (_, owner), one in use.items()}


def accounts(project: Project, user: User, now: datetime) -> tuple[QuotaAccount, QuotaAccount]:
    """What this person, and the project as a whole, may use and use now. Without limits no use is read."""
    own: list[Limit] = []
    each: list[Limit] = []
    all_together: list[Limit] = []
    rows = Quota.objects.filter(Q(user=user) | Q(user=None), project=project).exclude(metric__in=NOT_OF_PASS)
    for row in rows:
        (own if row.user_id else each if row.each else all_together).append(row)
    limits = read_limits(own).over(read_limits(each)), read_limits(all_together)
    hours = any(one.gpu_hours is not None for one in limits)
    use = _use([project.pk], now if hours else None) if any(one != NO_LIMITS for one in limits) else {}
    return (
        QuotaAccount(_member(user.username, project.name), limits[0], use.get((project.pk, user.pk), Use())),
        QuotaAccount(_project(project.name), limits[1], _sum(use, project.pk)),
    )


def never_allowed(project: Project, user: User, gpus: Mapping[str, int]) -> NeverAllowed | None:
    """Why a job of this person that needs these GPUs could never start; None if it could."""
    own: dict[str, int] = {}
    each: dict[str, int] = {}
    whole: dict[str, int] = {}
    for for_each, of, kind, value in GPU_LIMITS(project=project.pk):
        if of in (None, user.pk):
            (each if for_each else whole if of is None else own)[kind] = int(value)
    mine = QuotaAccount(_member(user.username, project.name), Limits({**each, **own}))
    return mine.never_allowed(gpus) or QuotaAccount(_project(project.name), Limits(whole)).never_allowed(gpus)


def _project(name: str) -> str:
    return said("project {name}", name=name)


def _member(person: str, project: str) -> str:
    return said("{person} in project {project}", person=person, project=project)


def use_by_project(ids: Iterable[int]) -> dict[int, Use]:
    """The GPUs and placed jobs of each project, without the GPU-hours of the month."""
    total: dict[int, Use] = defaultdict(Use)
    for (project, _), one in _use(ids, None).items():
        for kind, count in one.gpus.items():
            total[project].gpus[kind] += count
        total[project].running += one.running
    return total


def queued(project: Project) -> dict[int | None, int]:
    """How many jobs of a project are queued, by owner."""
    rows = Job.every.filter(project=project, state=JobState.QUEUED).values_list("owner")
    return dict(rows.annotate(count=Count("*")).order_by())


def limits_of(target: QuotaTarget) -> Limits:
    return read_limits(_rows(target))


def read_limits(rows: Iterable[Limit]) -> Limits:
    gpus: dict[str, int] = {}
    other: dict[str, float] = {}
    for row in rows:
        if row.metric == Metric.GPUS:
            gpus[row.accelerator_type] = int(row.value)
        else:
            other[row.metric] = row.value
    running, queued = other.get(Metric.RUNNING), other.get(Metric.QUEUED)
    return Limits(
        gpus,
        None if running is None else int(running),
        None if queued is None else int(queued),
        other.get(Metric.GPU_HOURS),
        other.get(Metric.LOG_GB),
        other.get(Metric.STORAGE_GB),
    )


def set_limit(
    target: QuotaTarget, metric: Metric, kind: str, value: float | None, actor: str, now: datetime
) -> None:
    """Set a limit; None removes it. Running jobs go on, whatever the new limit is."""
    _check(target, metric, kind, value)
    rows = _rows(target).filter(metric=metric, accelerator_type=kind)
    before = rows.values_list("value", flat=True).first()
    if before == value:
        return
    if value is None:
        rows.delete()
    else:
        own = {"project": target.project, "user": target.user} if target.project else {}
        rows.model._default_manager.update_or_create(
            each=target.each, metric=metric, accelerator_type=kind, **own, defaults={"value": value}
        )
    subject = f"{target.label}: {kind or METRIC_LABELS[metric]}"
    audit.record(actor, "quota.set", "quota", subject, before, value, now, target.project)
    hints.schedule()


def give_defaults(project: Project) -> None:
    """Copy the default quotas to a new project."""
    Quota.objects.bulk_create(
        Quota(
            project=project,
            metric=row.metric,
            accelerator_type=row.accelerator_type,
            each=row.each,
            value=row.value,
        )
        for row in DefaultQuota.objects.all()
    )


def check_queue(project: Project, user: User) -> None:
    """Raise Exhausted when one more job may not be queued. Locks the project, so that two submits cannot share the
    last place.
    """
    if not ANY_OF_QUEUE(project=project.pk):
        return
    rows = list(Quota.objects.filter(Q(user=user) | Q(user=None), project=project, metric=Metric.QUEUED))
    if not rows:
        return
    Project.objects.select_for_update().get(pk=project.pk)
    waiting = Job.every.filter(project=project, state=JobState.QUEUED)
    mine = next((row for row in rows if row.user_id), next((row for row in rows if row.each), None))
    whole = next((row for row in rows if not row.user_id and not row.each), None)
    for row, jobs, who in (
        (mine, waiting.filter(owner=user), _member(user.username, project.name)),
        (whole, waiting, _project(project.name)),
    ):
        why = queue_refusal(who, int(row.value), jobs.count()) if row else None
        if why:
            raise Exhausted("project", why)


def stored_log_bytes(project: Project) -> int:
    """How many bytes of logs are stored for the jobs of a project that were not deleted."""
    return log_storage.stored_bytes([project.pk]).get(project.pk, 0)


def recent_log_bytes(project: Project) -> int:
    """The same, at most RELIED_FOR old: with many runs the sum takes a while, and each submit asks."""
    return _recent_log_bytes.get(project.pk, lambda: stored_log_bytes(project))


def check_log_storage(project: Project) -> None:
    """Raise Exhausted when the logs of the project take as much as they may. Logs of jobs that were accepted are stored
    beyond the limit too, up to a quarter more; then their hosts keep the rest (log_storage.py)."""
    for limit in LOG_LIMIT.column(project=project.pk):
        why = log_refusal(_project(project.name), limit, recent_log_bytes(project))
        if why:
            raise Exhausted("project", why)


def _rows(target: QuotaTarget) -> QuerySet[Any]:
    if target.project is None:
        return DefaultQuota.objects.filter(each=target.each)
    return Quota.objects.filter(project=target.project, each=target.each, user=target.user)


def _check(target: QuotaTarget, metric: Metric, kind: str, value: float | None) -> None:
    if metric == Metric.GPUS and not OWN_ACCELERATOR.fullmatch(kind):
        raise Refused(
            "accelerator_type",
            said("{kind} is not an accelerator type; write it as NVIDIA_H100_80GB.", kind=repr(kind)),
        )
    if metric != Metric.GPUS and kind:
        raise Refused(
            "accelerator_type",
            said("The limit on {metric} is for all types together.", metric=METRIC_LABELS[metric]),
        )
    if metric == Metric.LOG_GB and (target.each or target.user):
        raise Refused("whose", said("The limit on stored logs is for the project as a whole."))
    if metric == Metric.STORAGE_GB and (target.each or target.user):
        raise Refused("whose", said("The limit on stored files is for the project as a whole."))
    if value is None:
        return
    whole = metric not in (Metric.GPU_HOURS, Metric.LOG_GB, Metric.STORAGE_GB)
    if not 0 <= value <= MAX_LIMIT or (whole and value != int(value)):
        raise Refused(
            "limit",
            said("The limit must be a whole number from 0 to {most}.", most=f"{MAX_LIMIT:.0f}")
            if whole
            else said("The limit must be a number from 0 to {most}.", most=f"{MAX_LIMIT:.0f}"),
        )


def _use(names: Iterable[int], hours_until: datetime | None) -> dict[Key, Use]:
    """The use by project and owner. GPU-hours of the month are counted only with `hours_until`."""
    found: dict[Key, Use] = defaultdict(Use)
    ids = list(names)
    wanted = set(ids)
    # Claims of an attempt or a job that is over, on hosts that are unreachable, count for no owner.
    # `run__released_at` follows from the claim. It is here for its index: without it, all runs of the past are read.
    claims = GpuClaim.objects.filter(
        released_at=None, run__released_at=None, run__attempt=F("run__job__attempt")
    )
    # One project has few jobs that are not over. With more of them SQLite would look for each claim among all jobs of
    # the projects, so there the projects are compared below.
    if len(ids) == 1:
        claims = claims.filter(run__job__project=ids[0], run__job__state__in=NOT_OVER)
    by_kind = claims.exclude(run__job__state__in=TERMINAL).values_list(
        "run__job__project", "run__job__owner", "gpu__accelerator_type"
    )
    for project, owner, kind, count in by_kind.annotate(Count("pk")).order_by():
        if project in wanted:
            found[project, owner].gpus[kind] += count
    # In the order of the index job_totals, which has all columns but the id: SQLite would read every job otherwise.
    placed = Job.every.filter(project__in=ids, state__in=PLACED).values_list("state", "project", "owner")
    for _, project, owner, count in placed.annotate(count=Count("*")).order_by():
        found[project, owner].running += count
    if hours_until is not None:
        for (project, owner), seconds in usage.gpu_seconds_this_month(ids, hours_until).items():
            found[project, owner].gpu_hours = seconds / 3600
    return found


def _sum(use: dict[Key, Use], project: int) -> Use:
    total = Use()
    for (pk, _), one in use.items():
        if pk == project:
            for kind, count in one.gpus.items():
                total.gpus[kind] += count
            total.running += one.running
            total.gpu_hours += one.gpu_hours
    return total


def _waiting_owners(projects: Iterable[int]) -> Iterable[tuple[int, int, str]]:
    """The owners of queued jobs: a pass needs only their limits."""
    waiting = Job.every.filter(state=JobState.QUEUED, project__in=list(projects), owner__isnull=False)
    rows = waiting.values_list("project", "owner", "owner__username").order_by().distinct()
    return [(project, owner, name) for project, owner, name in rows if owner is not None]
