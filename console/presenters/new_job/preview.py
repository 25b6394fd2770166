"""Preview what would happen to a job if it were submitted now, and list GPUs and machine types. It reserves nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from django.contrib.auth.models import User
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from agents.infra.refusals import Exhausted, Refused
from agents.infra.sentences import shown
from agents.infra.shared_answers import SharedAnswers
from agents.models import Gpu, Host, HostStatus
from console.auth import access
from jobs.models import Project
from jobs.projects import locations, log_storage, quotas
from jobs.rules.list_text import list_text
from jobs.rules.scheduling.placement import needs_text
from jobs.rules.scheduling.quota import QuotaAccount, gpus_of
from jobs.rules.spec.advice import WARNING, Advice
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import Needs, Types
from jobs.scheduling import capacity, changes, host_shapes, machine_types, output_directories, start_forecast
from jobs.scheduling.host_shapes import Shapes

SHOWN_HOSTS = 8
OFFERED_FOR = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Preview:
    tone: str
    icon: str
    headline: str
    text: str
    advice: tuple[Advice, ...] = ()
    # When it starts at the latest, if nothing that waits takes its place; or that nobody can know it.
    at: datetime | None = None
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """A machine type. `ever`: how many hosts of the location could hold it; `now`: on how many it fits now."""

    name: str
    memory_mb: int
    allocatable_mb: int
    needs: Needs
    own: bool
    ever: int
    now: int

    @property
    def text(self) -> str:
        return _in_words(self.needs, self.ever, self.now, get_language())


@dataclass(frozen=True, slots=True)
class GpuOffer:
    accelerator_type: str
    free: int
    total: int


_gpu_offers: SharedAnswers[Hashable, list[GpuOffer]] = SharedAnswers(OFFERED_FOR, 64, changes.LONGEST)


def of(
    spec: CustomJobSpec,
    location: str,
    types: Types,
    project: Project,
    user: User,
    accounts: Iterable[QuotaAccount],
) -> Preview:
    """`accounts`: what counts against the quotas of the person and of the project (quotas.accounts)."""
    gpus = gpus_of(request.needs for request in capacity.replica_requests(spec, types))
    start = _refused(project, location, spec, types, user, gpus)
    start = start or _over_quota(accounts, gpus) or _start(spec, location, types, project)
    advice = output_directories.advice_about(spec, location, types, project)
    full = log_storage.warning(project)
    return replace(start, advice=(*((Advice(WARNING, full),) if full else ()), *advice))


def _refused(
    project: Project,
    location: str,
    spec: CustomJobSpec,
    types: Types,
    user: User,
    gpus: Mapping[str, int],
) -> Preview | None:
    """Why a submit would be refused, if it would."""
    try:
        locations.check_serves(project, location)
        quotas.check_log_storage(project)
    except Exhausted as full:
        return Preview("bad", "cross", _("It would be refused."), shown(full.message))
    except Refused as refused:
        return Preview("bad", "cross", _("It can never start in this location."), shown(refused.message))
    never = capacity.refusal(spec, location, types)
    if never is not None:
        return Preview("bad", "cross", _("It can never start in this location."), shown(never.text))
    over = quotas.never_allowed(project, user, gpus)
    if over is not None:
        return Preview(
            "bad", "cross", _("It would be refused: no quota allows it, now or later."), shown(over.text)
        )
    return None


def _over_quota(accounts: Iterable[QuotaAccount], gpus: Mapping[str, int]) -> Preview | None:
    over = next(filter(None, (account.refusal(gpus) for account in accounts)), None)
    if not over:
        return None
    why, unknown = shown(over), _("When that ends cannot be known.")
    return Preview(
        "wait", "hourglass", _("It would wait for quota."), f"{why[0].upper()}{why[1:]}. {unknown}"
    )


def _start(spec: CustomJobSpec, location: str, types: Types, project: Project) -> Preview:
    now = timezone.now()
    seen = start_forecast.forecast(spec, location, types, project.pk, now)
    if not seen.hosts:
        return Preview(
            "wait", "hourglass", _("It would wait."), shown(seen.waits), at=seen.at, unknown=seen.at is None
        )
    count = spec.replica_count
    where = ngettext(
        "{number} replica on {hosts}. Jobs that already wait are placed first.",
        "{number} replicas on {hosts}. Jobs that already wait are placed first.",
        count,
    ).format(number=count, hosts=shown(list_text(seen.hosts, SHOWN_HOSTS)))
    return Preview("good", "tick", _("It could start now."), where)


def gpu_offers(user: User, location: str = "") -> list[GpuOffer]:
    """Return the GPU types of the hosts that are up and that the person may see, and how many of each are free: in this
    location, or in all. People who see the same hosts share the answer."""
    key = access.hosts_key(user), location
    return _gpu_offers.get(key, lambda: _read_gpu_offers(user, location), changes.stamp)


def _read_gpu_offers(user: User, location: str) -> list[GpuOffer]:
    up = Host.machines.filter(status=HostStatus.UP).order_by()
    if location:
        up = up.filter(location__name=locations.resolved(location, locations.names()))
    hosts = access.visible(user, up)
    kinds = Gpu.objects.filter(present=True, host__in=hosts).order_by().values_list("accelerator_type")
    total = dict(kinds.annotate(Count("pk")))
    # One join with the claims that are held, which have an index: there are many that were released.
    held = dict(kinds.filter(claims__isnull=False, claims__released_at=None).annotate(Count("pk")))
    return [GpuOffer(kind, total[kind] - held.get(kind, 0), total[kind]) for kind in sorted(total)]


def machine_offers(location: str, user: User, project: str = "") -> list[MachineOffer]:
    """Return every machine type of the location, and on how many hosts it fits: ever, and now. Hosts on which the
    project (without one: each project of the person) has no login do not count."""
    place = locations.resolved(location, locations.names())
    everything = access.is_deployment_admin(user) and not project
    own = [row.pk for row in access.projects_allowing(user, "see") if project in ("", row.name)]
    projects = None if everything else own
    empty, free = host_shapes.recent_shapes(place, projects)
    return [_machine_offer(type_, empty, free) for type_ in machine_types.catalogue(location)]


def _machine_offer(type_: machine_types.OfferedType, empty: Shapes, free: Shapes) -> MachineOffer:
    wanted = type_.needs
    ever = host_shapes.hosts_that_hold(empty, wanted)
    now = host_shapes.hosts_that_hold(free, wanted) if ever else 0
    return MachineOffer(type_.name, type_.memory_mb, wanted.memory_mb, wanted, type_.own, ever, now)


@lru_cache(maxsize=1024)
def _in_words(wanted: Needs, ever: int, now: int, _language: str | None) -> str:
    """The language is the present one, and named so that each has its own words. A form offers two hundred types."""
    fits = _("{needs}; fits on {now} of {ever} hosts now") if ever else _("{needs}; no host can hold it")
    return fits.format(needs=shown(needs_text(wanted)), now=now, ever=ever)
