"""Recovery mode: hosts have runs that this database does not know (agents/hosts/recovery.py detects it).

Until an admin confirms, hosts report and logs are fetched; nothing is decided, placed, started, stopped or forgotten.
The admin sees both differences: runs that hosts have and the database does not (strays), and runs that the database
expects on a host that does not have them. When the admin confirms, the chosen strays are stopped, the missing runs are
closed as lost, and everything goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from agents.hosts import recovery
from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.links.control_plane import Wanted
from agents.models import Host, HostStatus, Recovery
from jobs.host_sync import lost_hosts
from jobs.lifecycle import snapshot
from jobs.models import Job, Proof, Run, Stray
from jobs.projects import audit
from jobs.rules.lifecycle.states import TERMINAL, RunPhase
from jobs.scheduling import pass_lock
from jobs.wake import announce, hints

MAX_WHY = 500
# What is read of each difference: there may be thousands, and a host's facts are large.
_STRAY = ("run", "phase", "proof", "started_at", "found_at", "stop_wanted_at", "stop_by", "host__name")
_RUN = ("phase", "host__name", "job__display_name")


@dataclass(frozen=True, slots=True)
class Differences:
    """How hosts and database differ. `unsealed`: runs without a valid seal. `unheard`: hosts without a report yet."""

    recovery: Recovery | None
    strays: tuple[Stray, ...]
    unsealed: tuple[Stray, ...]
    missing: tuple[Run, ...]
    unheard: tuple[Host, ...]


def differences() -> Differences:
    return Differences(current(), tuple(sealed()), tuple(unsealed()), tuple(missing()), tuple(unheard()))


def current() -> Recovery | None:
    return Recovery.objects.filter(confirmed_at=None).first()


def sealed() -> QuerySet[Stray]:
    return Stray.objects.filter(proof=Proof.SEALED).select_related("host").only(*_STRAY)


def unsealed() -> QuerySet[Stray]:
    rows = Stray.objects.exclude(proof=Proof.SEALED).filter(dismissed_at=None, host__retired_at=None)
    return rows.select_related("host").only(*_STRAY)


def missing() -> QuerySet[Run]:
    return Run.objects.filter(missing_at__isnull=False).select_related("host", "job").only(*_RUN)


def unheard() -> QuerySet[Host]:
    return Host.objects.exclude(status__in=(HostStatus.UP, HostStatus.NEW)).only("name")


def pull_logs_only(wanted: Mapping[str, Wanted]) -> dict[str, Wanted]:
    """Reduce what is wanted to the fetching of logs and recordings: nothing else happens before an admin confirms."""
    return {run: Wanted(pull_from=want.pull_from, recordings=want.recordings) for run, want in wanted.items()}


def mark_missing(runs: Sequence[str], now: datetime) -> None:
    """Mark runs as missing: they would be started now, so their host does not have them."""
    with transaction.atomic():
        snapshot.lock_runs(ids=runs)
        Run.objects.filter(pk__in=runs, missing_at=None).exclude(phase=RunPhase.CLOSED).update(missing_at=now)


def begin(why: str, actor: str, now: datetime) -> None:
    """Begin recovery mode by hand, for an admin who knows that the database is older than what was done with it."""
    why = why.strip()
    if not why or len(why) > MAX_WHY:
        raise Refused("why", said("Say in 1 to {most} characters why; everybody can read it.", most=MAX_WHY))
    with transaction.atomic():
        pass_lock.lock_pass()
        if not recovery.begin(said("{person} says: {why}", person=actor, why=why), now):
            raise Refused("recovery", said("Trainyard is in recovery mode already."))
        audit.record(actor, "recovery.begin", "deployment", "recovery", None, {"why": why}, now)
        announce.hint("hosts")


def confirm(stop: Collection[str], actor: str, now: datetime) -> None:
    """End recovery mode. The strays in `stop` are stopped; missing runs are lost, and their jobs follow their rules."""
    with transaction.atomic():
        pass_lock.lock_pass()
        rows = list(Recovery.objects.filter(confirmed_at=None))
        if not rows:
            raise Refused("recovery", said("Nothing waits to be confirmed."))
        unknown = set(stop) - set(Stray.objects.values_list("run", flat=True))
        if unknown:
            raise Refused(
                "stop",
                said("No host has a run {run} that the database does not know.", run=sorted(unknown)[0][:80]),
            )
        open_jobs = set(Job.every.exclude(state__in=TERMINAL).values_list("pk", flat=True))
        missing = Run.objects.filter(missing_at__isnull=False)
        # All that is written below, in the order of all code: jobs, and then runs.
        snapshot.hold_jobs(ids=open_jobs.union(missing.values_list("job", flat=True)))
        snapshot.lock_runs(ids=list(missing.values_list("pk", flat=True)))
        Stray.objects.filter(run__in=stop).exclude(phase=RunPhase.CLOSED).update(
            stop_wanted_at=now, stop_by=actor[:150]
        )
        begun = list(
            missing.exclude(phase__in=(RunPhase.CREATED, RunPhase.CLOSED)).values_list("pk", flat=True)
        )
        why_lost = f"its host has nothing of it, as {actor} confirmed after a backup was restored"
        lost_hosts.close_as_lost(begun, why_lost, now)
        missing.update(missing_at=None)
        Recovery.objects.filter(confirmed_at=None).update(confirmed_at=now, confirmed_by=actor[:150])
        after = {"stopped": sorted(stop), "taken_as_lost": begun}
        audit.record(actor, "recovery.confirm", "deployment", "recovery", {"why": rows[0].why}, after, now)
        Job.every.filter(pk__in=open_jobs).exclude(state__in=TERMINAL).update(due_at=now)
        hints.schedule()
        hints.hosts(list(Host.objects.values_list("pk", flat=True)))
        announce.hint("hosts")
