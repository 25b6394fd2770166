"""Runs that hosts have and no row explains: what was done after the backup that this database was restored from.

Only a run under our seal is such a one (seals.py). Rows of runs are never deleted, so an old seal proves nothing
about a run that we still know; a copy of it under another name, or on another host, is false. What is not under a true
seal was written by somebody on that host: it is shown to admins, and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from agents.hosts import host_history, recovery, seals
from agents.hosts.seals import SealOwner
from agents.infra.refusals import Refused
from agents.models import Host
from jobs.host_sync import facts
from jobs.models import Proof, Run, Stray
from jobs.projects import audit
from jobs.rules.lifecycle.states import RunPhase
from jobs.wake import hints

OURS = re.compile(r"[0-9]{10,}-workerpool[0-9]-[0-9]+-a[0-9]+-r[0-9]+", re.ASCII)
MAX_STRAYS = 1_000
# Of one host, without a true seal. A program there can make up as many as it likes.
MAX_DOUBTED = 50
TRAINYARD = "trainyard"
WHY = {
    Proof.SEALED: "it is ours, and was lost with a restored backup",
    Proof.UNSEALED: "it carries no seal of ours",
    Proof.FALSE: "its seal is not ours for this run on this host",
}


Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StrayRun:
    told: facts.ReportedFacts
    holds: facts.ReportedHoldings

    @property
    def columns(self) -> dict[str, object]:
        """What may be known better later."""
        return {
            "phase": self.told.phase,
            "cpus": self.holds.cpus,
            "memory_mb": self.holds.memory_mb,
            "gpu_uuids": list(self.holds.gpu_uuids),
            "port": self.holds.port,
        }


def record_strays(host_id: int, told: Mapping[str, Document], now: datetime) -> None:
    """Runs that a host has told about and that are not known as its own."""
    ours = {run: each for run, each in list(told.items())[:MAX_STRAYS] if OURS.fullmatch(run)}
    known = set(Run.objects.filter(pk__in=ours).values_list("pk", flat=True))  # of a host that was removed
    read = {run: (facts.read(each), each) for run, each in ours.items() if run not in known}
    unknown = {
        run: StrayRun(each, facts.reported_holdings(words)) for run, (each, words) in read.items() if each
    }
    if not unknown:
        return
    host = Host.every.get(pk=host_id)
    rows = {row.run: row for row in Stray.objects.filter(host=host, run__in=unknown)}
    doubted = []
    for run, found in unknown.items():
        proof = _proof(SealOwner.of(host), run, found.told.seal)
        if run in rows:
            _learn(rows[run], found, proof)
        elif proof is Proof.SEALED:
            _write(host, run, found, proof, now)
        else:
            doubted.append((run, found, proof))
        if proof is Proof.SEALED and (run not in rows or rows[run].proof != proof):
            recovery.begin(f"{host.name} has the run {run}, of which the database knows nothing.", now)
    if doubted:
        _doubt(host, doubted, now)


def _proof(bearer: SealOwner, run: str, seal: str) -> Proof:
    if seals.is_seal_of_run(bearer, run, seal):
        return Proof.SEALED
    return Proof.FALSE if seal else Proof.UNSEALED


def _write(host: Host, run: str, found: StrayRun, proof: Proof, now: datetime) -> None:
    known = {"started_at": found.told.started_at, "found_at": now, "proof": proof, **found.columns}
    Stray.objects.get_or_create(host=host, run=run, defaults=known)


def _learn(row: Stray, found: StrayRun, proof: Proof) -> None:
    """Told again, or told better: a version before kept nothing of what it holds, nor does a mere claim tell it."""
    changed: dict[str, object] = {}
    if found.told.phase.rank >= RunPhase(row.phase).rank:
        changed |= {name: told for name, told in found.columns.items() if getattr(row, name) != told}
    if proof is Proof.SEALED and row.proof != proof:
        changed |= {"proof": proof}
    if changed:
        Stray.objects.filter(pk=row.pk).update(**changed)


def _doubt(host: Host, doubted: Sequence[tuple[str, StrayRun, Proof]], now: datetime) -> None:
    room = MAX_DOUBTED - Stray.objects.filter(host=host).exclude(proof=Proof.SEALED).count()
    for run, found, proof in doubted[: max(room, 0)]:
        _write(host, run, found, proof, now)
        words = (
            f"It has the run {run}, of which the database knows nothing, and {WHY[proof]}. It is left alone."
        )
        host_history.record(host.pk, "unknown_run", words, TRAINYARD, now)
    if len(doubted) > room:
        words = (
            f"It has more than {MAX_DOUBTED} unknown runs that are not under our seal. No more are listed."
        )
        host_history.record_once_a_day(host.pk, "unknown_runs", words, TRAINYARD, now)


def shown(host: Host) -> QuerySet[Stray]:
    """Those about which an admin may want to do something: not dismissed, and, if they are ours, not over yet."""
    over = Q(proof=Proof.SEALED, phase=RunPhase.CLOSED)
    return Stray.objects.filter(host=host, dismissed_at=None).exclude(over)


def stop(host: Host, run: str, actor: str, now: datetime) -> None:
    """An admin's word: whatever this is, end it there."""
    row = _row(host, run)
    if row.phase == RunPhase.CLOSED:
        raise Refused("run", f"{run} is over.")
    if recovery.in_recovery_mode():
        raise Refused(
            "run", "Nothing is stopped in recovery mode. Choose what is to be stopped as you confirm."
        )
    if row.stop_wanted_at is None:
        Stray.objects.filter(pk=row.pk).update(stop_wanted_at=now, stop_by=actor[:150])
        audit.record(actor, "stray.stop", "host", host.name, None, {"run": run}, now)
    hints.hosts([host.pk])


def dismiss(host: Host, run: str, actor: str, now: datetime) -> None:
    """An admin has seen it, and does not want to see it any more."""
    row = _row(host, run)
    if row.proof == Proof.SEALED:
        raise Refused("run", f"{run} was started by this deployment. Stop it, or let it go on.")
    if row.dismissed_at is None:
        Stray.objects.filter(pk=row.pk).update(dismissed_at=now, dismissed_by=actor[:150])
        audit.record(actor, "stray.dismiss", "host", host.name, None, {"run": run}, now)


ACTS = {"stop": stop, "dismiss": dismiss}


def _row(host: Host, run: str) -> Stray:
    if not run:
        raise Refused(
            "run", "run is required: the id of a run that the host has and the database does not know."
        )
    row = Stray.objects.select_for_update().filter(host=host, run=run[:80]).first()
    if row is None:
        raise Refused("run", f"{host.name} has no run {run[:80]} that the database does not know.")
    return row
