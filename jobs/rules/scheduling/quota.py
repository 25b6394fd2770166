"""Quotas: how much a project, and a member of it, may hold at once and in a month. Pure.

A job that is over quota waits, and its reason names the quota. Quotas never fail or stop a job: if a limit is set below
what is held, no other job starts until less is held. A job that asks for more GPUs than a limit allows at any time is
refused when it is submitted. A limit of no running jobs, or of no GPU-hours, is a pause: jobs wait for its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agents.infra.texts import said, said_of
from jobs.rules.spec.machine_types import Needs


class Metric(StrEnum):
    """What can be limited. GPUS is by accelerator type. QUEUED and LOG_GB are checked when a job is
    submitted, and STORAGE_GB when something is stored."""

    GPUS = "gpus"
    RUNNING = "running"
    QUEUED = "queued"
    GPU_HOURS = "gpu_hours"
    LOG_GB = "log_gb"
    STORAGE_GB = "storage_gb"


# A pass over the queue does not ask for these.
NOT_OF_PASS = frozenset({Metric.QUEUED, Metric.LOG_GB, Metric.STORAGE_GB})
GB = 10**9
# From this share of the limit on stored files people are told.
STORAGE_WARNED = 0.8


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an account. None, or a type that is not in `gpus`, means no limit."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    running: int | None = None
    queued: int | None = None
    gpu_hours: float | None = None
    log_gb: float | None = None
    storage_gb: float | None = None

    def concern(self, gpus: Mapping[str, int]) -> bool:
        """Can these limits refuse a job that needs these GPUs?"""
        only_gpus = self.running is None and self.gpu_hours is None
        return not (only_gpus and self.gpus.keys().isdisjoint(gpus))

    def over(self, base: Limits) -> Limits:
        """These limits, completed by those of `base`."""
        return Limits(
            {**base.gpus, **self.gpus},
            base.running if self.running is None else self.running,
            base.queued if self.queued is None else self.queued,
            base.gpu_hours if self.gpu_hours is None else self.gpu_hours,
            base.log_gb if self.log_gb is None else self.log_gb,
            base.storage_gb if self.storage_gb is None else self.storage_gb,
        )


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class NeverAllowed:
    """Of which accelerator type a job asks for more than a limit ever allows, and why that is refused, as text."""

    kind: str
    text: str


@dataclass(slots=True)
class Use:
    """What is held now (GPUs by type, placed jobs), and the GPU-hours of this month so far."""

    gpus: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    running: int = 0
    gpu_hours: float = 0.0


@dataclass(slots=True)
class QuotaAccount:
    """What a project, or one member of it, may use and uses. `who` is its name in reasons."""

    who: str
    limits: Limits = NO_LIMITS
    use: Use = field(default_factory=Use)

    def refusal(self, gpus: Mapping[str, int]) -> str | None:
        """Why a job that needs these GPUs, more than zero of each, may not start now."""
        return self._too_many_gpus(gpus) or self._too_many_jobs() or self._too_many_hours(gpus)

    def never_allowed(self, gpus: Mapping[str, int]) -> NeverAllowed | None:
        """Why a job that needs these GPUs could not start even if nothing else of the account ran."""
        for kind in sorted(gpus):
            limit = self.limits.gpus.get(kind)
            if limit is not None and gpus[kind] > limit:
                return NeverAllowed(kind, self._never(kind, limit, gpus[kind]))
        return None

    def _never(self, kind: str, limit: int, asked: int) -> str:
        if limit:
            fewer = said("Ask for {limit} or fewer in all replicas together", limit=limit)
        else:
            fewer = said("Choose other GPUs")
        return said(
            "The quota of {kind} at once is {limit} for {who}, and this job asks for {asked}: it could never start. "
            "{fewer}, or let an admin of the deployment raise the limit.",
            kind=kind,
            limit=limit,
            who=self.who,
            asked=asked,
            fewer=fewer,
        )

    def _too_many_gpus(self, gpus: Mapping[str, int]) -> str | None:
        for kind in sorted(gpus):
            limit, used = self.limits.gpus.get(kind), self.use.gpus.get(kind, 0)
            if limit is None or used + gpus[kind] <= limit:
                continue
            if gpus[kind] > limit:
                return said(
                    "{who} may use {limit} {kind} at once, and this job needs {number}: it cannot start before an "
                    "admin of the deployment raises the limit",
                    who=self.who,
                    limit=limit,
                    kind=kind,
                    number=gpus[kind],
                )
            return self._uses(kind, used, limit, gpus[kind])
        return None

    def _uses(self, kind: str, used: int, limit: int, wanted: int) -> str:
        uses = said("{who} uses {used} of {limit} {kind}", who=self.who, used=used, limit=limit, kind=kind)
        return said("{uses}, and this job needs {number}", uses=uses, number=wanted) if used < limit else uses

    def _too_many_jobs(self) -> str | None:
        limit, runs = self.limits.running, self.use.running
        if limit is None or runs < limit:
            return None
        return said_of(
            limit,
            "{who} runs {running} of {number} job",
            "{who} runs {running} of {number} jobs",
            who=self.who,
            running=runs,
        )

    def _too_many_hours(self, gpus: Mapping[str, int]) -> str | None:
        limit, used = self.limits.gpu_hours, self.use.gpu_hours
        if limit is None or used < limit or not gpus:
            return None
        return said(
            "{who} has used {used} of the {limit} GPU-hours of this month",
            who=self.who,
            used=f"{used:.1f}",
            limit=f"{limit:g}",
        )

    def change(self, gpus: Mapping[str, int], sign: int) -> None:
        for kind, count in gpus.items():
            self.use.gpus[kind] = self.use.gpus.get(kind, 0) + sign * count
        self.use.running += sign


@dataclass(slots=True)
class QuotaLedger:
    """What every project and member holds against their limits. A scheduling pass keeps it current while it places.

    A project or member without an account has no limits. `gpus` is what a whole job needs, by accelerator type.
    """

    projects: Mapping[int, QuotaAccount] = field(default_factory=dict)
    members: Mapping[tuple[int, int], QuotaAccount] = field(default_factory=dict)

    def refusal(self, project_id: int, owner_id: int | None, gpus: Mapping[str, int]) -> str | None:
        """Why this job has to wait for quota, as text; None if it need not."""
        wanted = {kind: count for kind, count in gpus.items() if count}
        for account in self.accounts(project_id, owner_id):
            why = account.refusal(wanted)
            if why:
                return why
        return None

    def take(self, project_id: int, owner_id: int | None, gpus: Mapping[str, int]) -> None:
        """Note that a job was placed."""
        for account in self.accounts(project_id, owner_id):
            account.change(gpus, 1)

    def give(self, project_id: int, owner_id: int | None, gpus: Mapping[str, int]) -> None:
        """Note that a placed job gave everything back."""
        for account in self.accounts(project_id, owner_id):
            account.change(gpus, -1)

    def accounts(self, project_id: int, owner_id: int | None) -> list[QuotaAccount]:
        """The accounts that limit this job. The member's comes first: what a member can cure alone is named before what
        only an admin can cure."""
        member = self.members.get((project_id, owner_id)) if owner_id is not None else None
        return [account for account in (member, self.projects.get(project_id)) if account is not None]


def gpus_of(needs: Iterable[Needs]) -> dict[str, int]:
    """What all replicas of a job need together."""
    wanted: dict[str, int] = {}
    for one in needs:
        if one.gpus:
            wanted[one.accelerator_type] = wanted.get(one.accelerator_type, 0) + one.gpus
    return wanted


def queue_refusal(who: str, limit: int | None, queued: int) -> str | None:
    """Why one more job may not be queued; None if it may."""
    if limit is None or queued < limit:
        return None
    return said_of(
        queued,
        "{number} job waits already for {who}, which may have {limit}. Cancel one, or try again when one has started.",
        "{number} jobs wait already for {who}, which may have {limit}. Cancel one, or try again when one has started.",
        who=who,
        limit=limit,
    )


def log_refusal(who: str, limit_gb: float | None, stored: int) -> str | None:
    """Why a project with so many bytes of stored logs takes no more jobs; None if it does."""
    if limit_gb is None or stored < limit_gb * GB:
        return None
    return said(
        "The logs of {who} take {stored} GB, and it may store {limit} GB. Delete jobs that are over, "
        "with their logs; or an admin of the deployment may allow more.",
        who=who,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
    )


def storage_warning(who: str, limit_gb: float | None, stored: int) -> str:
    """What people of a project are to know before its stored files reach the limit; empty while there is room."""
    if limit_gb is None or stored < STORAGE_WARNED * limit_gb * GB:
        return ""
    return said(
        "{who} stores {stored} GB of files and may store {limit} GB. At the limit nothing more is stored: delete "
        "objects or artifacts that no job needs; or an admin of the deployment may allow more.",
        who=who,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
    )


def storage_refusal(who: str, limit_gb: float | None, stored: int, more: int) -> str | None:
    """Why a project that stores so many bytes may not store these; None if it may."""
    if limit_gb is None or stored + more <= limit_gb * GB:
        return None
    return said(
        "{who} stores {stored} GB of files and may store {limit} GB: {more} GB more are too many. Delete objects or "
        "artifacts that no job needs; or an admin of the deployment may allow more.",
        who=who,
        stored=f"{stored / GB:.2f}",
        limit=f"{limit_gb:g}",
        more=f"{more / GB:.2f}",
    )
