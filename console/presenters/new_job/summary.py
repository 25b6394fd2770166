"""What a job asks for, what it would do to quotas, and when it could start: the summary beside the new-job form.

It says what it can about a form that is not complete yet: a name and a program change neither replicas nor GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.translation import gettext as _

from console.presenters import brought, sizes
from console.presenters.brought import Brought
from console.presenters.new_job import preview
from console.presenters.new_job.preview import Preview
from jobs.models import Project
from jobs.projects import quotas
from jobs.rules.scheduling.quota import QuotaAccount, gpus_of
from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse_task import is_image
from jobs.rules.spec.secret_variables import without_values
from jobs.rules.spec.tasks import HOST_IMAGE
from jobs.scheduling import capacity, machine_types


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A limit and its use, before and after the start of the job. `limit` is a text, as "16" or "5000 h"."""

    who: str
    what: str
    before: str
    after: str
    limit: str
    over: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """`replicas` is None where the form cannot be read. `document`: in its canonical form, if nothing is missing, and
    what it brings."""

    replicas: int | None = None
    pools: int = 0
    gpus: tuple[tuple[str, int], ...] = ()
    quotas: tuple[QuotaLine, ...] = ()
    start: Preview | None = None
    document: Mapping[str, Any] | None = None
    brings: tuple[Brought, ...] = ()

    @property
    def gpu_count(self) -> int:
        return sum(count for _kind, count in self.gpus)


def of(document: Mapping[str, Any], location: str, project: Project, user: User) -> Summary:
    complete = True
    try:
        asked, types = machine_types.read(document, location)
    except InvalidDocument:
        complete = False
        try:
            asked, types = machine_types.read(_completed(document), location)
        except InvalidDocument:
            return Summary()
    spec = asked.job_spec
    gpus = gpus_of(request.needs for request in capacity.replica_requests(spec, types))
    accounts = quotas.accounts(project, user, timezone.now())
    canonical = to_document(asked) if complete else None
    return Summary(
        spec.replica_count,
        sum(pool is not None for pool in spec.pools),
        tuple(sorted(gpus.items())),
        tuple(line for account in accounts for line in _quota_lines(account, gpus)),
        preview.of(spec, location, types, project, user, accounts),
        canonical,
        brought.of_document(canonical) if canonical else (),
    )


def _completed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with a name, and with a program in each pool, if these are still missing. What the job brings counts
    neither for replicas nor for GPUs."""
    found: dict[str, Any] = deepcopy(dict(document))
    found["displayName"] = found.get("displayName") or "job"
    job_spec = found.get("jobSpec")
    pools = job_spec.get("workerPoolSpecs") if isinstance(job_spec, dict) else None
    for pool in pools if isinstance(pools, list) else ():
        if isinstance(pool, dict):
            _complete_task(pool)
    completed = without_values(found)
    return completed if isinstance(completed, dict) else {}


def _complete_task(pool: dict[str, Any]) -> None:
    package, container = pool.pop("pythonPackageSpec", None), pool.get("containerSpec")
    pool.pop("trainyard", None)
    if isinstance(package, dict):
        pool["containerSpec"] = container = {"env": package.get("env", [])}
    if isinstance(container, dict):
        image = container.get("imageUri")
        if not isinstance(image, str) or not is_image(image):
            container["imageUri"] = HOST_IMAGE
        container["command"] = container.get("command") or ["true"]


def _quota_lines(account: QuotaAccount, gpus: Mapping[str, int]) -> Iterator[QuotaLine]:
    """The limits of the account that the job counts against."""
    limits, use = account.limits, account.use
    for kind, count in sorted(gpus.items()):
        limit, used = limits.gpus.get(kind), use.gpus.get(kind, 0)
        if limit is not None:
            yield _line(account, kind, used, used + count, limit)
    if limits.running is not None:
        yield _line(account, _("running jobs"), use.running, use.running + 1, limits.running)
    if limits.gpu_hours is not None and gpus:
        used_h, limit_h = sizes.decimal(use.gpu_hours), sizes.localized(f"{limits.gpu_hours:g}")
        over = use.gpu_hours >= limits.gpu_hours
        yield QuotaLine(
            account.who, _("GPU-hours of this month"), used_h, _("more with each hour"), limit_h, over
        )


def _line(account: QuotaAccount, what: str, before: int, after: int, limit: int) -> QuotaLine:
    return QuotaLine(account.who, what, str(before), str(after), str(limit), after > limit)
