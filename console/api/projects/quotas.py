"""Limits of a project, of its members, and of new projects. Each limit is shown with the amount in use."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from django.db import transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import described, form
from console.api.errors import BadRequest
from console.api.projects.projects import member_or_404
from console.api.request_body import RequestBody
from console.api.views import TrainyardView, person
from console.auth import access
from console.auth.access import Verb
from jobs.artifacts import room
from jobs.models import Membership, Project, Quota
from jobs.projects import log_storage, quotas
from jobs.projects.quotas import QuotaTarget
from jobs.rules.scheduling.quota import GB, Limits, Metric, Use
from jobs.rules.spec.parse import OWN_ACCELERATOR

Document = dict[str, Any]
NUMBERS = f"from 0 to {quotas.MAX_LIMIT}; null takes the limit away"
KEYS = {
    "running": Metric.RUNNING,
    "queued": Metric.QUEUED,
    "gpuHours": Metric.GPU_HOURS,
    "logGb": Metric.LOG_GB,
    "storageGb": Metric.STORAGE_GB,
}


class Limit(TypedDict):
    """`limit`: null for none."""

    limit: float | None
    used: float


class StorageLimit(Limit):
    """In GB. `warning` is there from 80 % of the limit on."""

    warning: NotRequired[str]


class PlainLimits(TypedDict):
    """Limits without what is used of them. `gpus`: by accelerator type. null: no limit."""

    gpus: dict[str, float]
    running: float | None
    queued: float | None
    gpuHours: float | None
    logGb: float | None
    storageGb: float | None


class LimitsInUse(TypedDict):
    gpus: dict[str, Limit]
    running: Limit
    queued: Limit
    gpuHours: Limit


class ProjectLimits(LimitsInUse):
    """`members`: those who have limits of their own."""

    project: str
    logGb: StorageLimit
    storageGb: StorageLimit
    eachMember: PlainLimits
    members: dict[str, LimitsInUse]


class DefaultLimits(PlainLimits):
    """What a new project begins with."""

    eachMember: PlainLimits


class LimitBody(TypedDict):
    """`limit`: null takes it away."""

    limit: Annotated[float, form(minimum=0, maximum=quotas.MAX_LIMIT)] | None


class QuotasView(TrainyardView):
    """`GET /api/v1/projects/<p>/quotas`."""

    @described("Get the limits of a project and what is used of them", ProjectLimits, needs="see_usage")
    def get(self, request: Request, project: str) -> Response:
        return Response(document(access.project_or_404(request.user, "see_usage", project)))


class OneQuota(TrainyardView):
    """PUT `{"limit": n}`, where null means no limit; DELETE. The key is an accelerator type, or one of KEYS."""

    needs: Verb = "set_quotas"

    @described("Set a limit", ProjectLimits | DefaultLimits, body=LimitBody)
    def put(self, request: Request, key: str, **names: str) -> Response:
        target = self.target(request, **names)
        if isinstance(request.data, dict) and set(request.data) != {"limit"}:
            raise BadRequest("limit", 'The body must be {"limit": n}; null removes the limit.')
        body = RequestBody(request, LimitBody)
        value = None if body.get("limit") is None else body.number("limit", NUMBERS)
        return self.change(request, target, key, value)

    @described("Take a limit away", ProjectLimits | DefaultLimits)
    def delete(self, request: Request, key: str, **names: str) -> Response:
        return self.change(request, self.target(request, **names), key, None)

    def target(self, request: Request, **names: str) -> QuotaTarget:
        """The owner of the limit in the address. Checks that the person may change this limit."""
        raise NotImplementedError

    def change(self, request: Request, target: QuotaTarget, key: str, value: float | None) -> Response:
        metric, kind = (KEYS[key], "") if key in KEYS else (Metric.GPUS, key)
        if metric == Metric.GPUS and not OWN_ACCELERATOR.fullmatch(kind):
            raise BadRequest(
                "accelerator_type",
                f"{kind} is no limit: name an accelerator type, such as NVIDIA_H100_80GB, or {', '.join(KEYS)}.",
            )
        with transaction.atomic():
            quotas.set_limit(target, metric, kind, value, person(request).username, timezone.now())
        return Response(document(target.project) if target.project else defaults())


class QuotaView(OneQuota):
    """`/api/v1/projects/<p>/quotas/<key>`."""

    def target(self, request: Request, **names: str) -> QuotaTarget:
        return QuotaTarget(access.project_or_404(request.user, self.needs, names["project"]))


class EachMemberQuotaView(OneQuota):
    """`/api/v1/projects/<p>/eachMember/quotas/<key>`."""

    needs = "manage_members"

    def target(self, request: Request, **names: str) -> QuotaTarget:
        return QuotaTarget(access.project_or_404(request.user, self.needs, names["project"]), each=True)


class MemberQuotaView(OneQuota):
    """`/api/v1/projects/<p>/members/<user>/quotas/<key>`."""

    needs = "manage_members"

    def target(self, request: Request, **names: str) -> QuotaTarget:
        project = access.project_or_404(request.user, self.needs, names["project"])
        return QuotaTarget(project, user=member_or_404(project, names["user"]))


class DefaultsView(TrainyardView):
    """`GET /api/v1/defaultQuotas`: what a new project begins with."""

    @described("Get the limits that new projects begin with", DefaultLimits, needs="set_quotas")
    def get(self, request: Request) -> Response:
        access.require(request.user, "set_quotas", Project)
        return Response(defaults())


class DefaultView(OneQuota):
    """`/api/v1/defaultQuotas/<key>` and `/api/v1/defaultQuotas/eachMember/<key>`."""

    each = False

    def target(self, request: Request, **names: str) -> QuotaTarget:
        access.require(request.user, "set_quotas", Project)
        return QuotaTarget(None, each=self.each)


def document(project: Project) -> Document:
    now = timezone.now()
    use, of_members = quotas.use_of(project, now)
    queued = quotas.queued(project)
    waiting = sum(queued.values())
    own = set(Quota.objects.filter(project=project).exclude(user=None).values_list("user", flat=True))
    people = Membership.objects.filter(project=project, user__in=own).select_related("user")
    members = {}
    for row in people.order_by("user__username"):
        limits = quotas.limits_of(QuotaTarget(project, user=row.user))
        used = of_members.get(row.user_id, Use())
        members[row.user.username] = figures(limits, used, queued.get(row.user_id, 0))
    limits = quotas.limits_of(QuotaTarget(project))
    return {
        "project": project.name,
        **figures(limits, use, waiting),
        "logGb": _log_storage(project, limits.log_gb),
        "storageGb": _storage(project, limits.storage_gb),
        "eachMember": plain(quotas.limits_of(QuotaTarget(project, each=True))),
        "members": members,
    }


def _log_storage(project: Project, limit: float | None) -> Document:
    """`warning` is there from 80 % of the limit on."""
    warning = log_storage.warning(project) if limit is not None else ""
    used = round(quotas.stored_log_bytes(project) / GB, 3)
    return {"limit": limit, "used": used, **({"warning": warning} if warning else {})}


def _storage(project: Project, limit: float | None) -> Document:
    """What buckets and artifacts store. `warning` is there from 80 % of the limit on."""
    warning = room.warning(project) if limit is not None else ""
    used = round(room.stored_bytes([project.pk]).get(project.pk, 0) / GB, 3)
    return {"limit": limit, "used": used, **({"warning": warning} if warning else {})}


def defaults() -> Document:
    each = quotas.limits_of(QuotaTarget(None, each=True))
    return {**plain(quotas.limits_of(QuotaTarget(None))), "eachMember": plain(each)}


def figures(limits: Limits, use: Use, queued: int) -> Document:
    kinds = sorted({*limits.gpus, *(kind for kind, count in use.gpus.items() if count)})
    return {
        "gpus": {kind: {"limit": limits.gpus.get(kind), "used": use.gpus.get(kind, 0)} for kind in kinds},
        "running": {"limit": limits.running, "used": use.running},
        "queued": {"limit": limits.queued, "used": queued},
        "gpuHours": {"limit": limits.gpu_hours, "used": round(use.gpu_hours, 3)},
    }


def plain(limits: Limits) -> Document:
    return {
        "gpus": dict(sorted(limits.gpus.items())),
        "running": limits.running,
        "queued": limits.queued,
        "gpuHours": limits.gpu_hours,
        "logGb": limits.log_gb,
        "storageGb": limits.storage_gb,
    }
