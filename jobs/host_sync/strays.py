"""Strays: runs that a host has and the database does not know.

A stray with our seal (seals.py) was started after the backup that this database was restored from. Rows of runs are
never deleted, so an old seal proves nothing about a run that we still know; a copy of a seal under another name, or on
another host, is false. A run without a valid seal was written by somebody on that host: admins see it, and it changes
nothing.
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
from agents.infra.texts import said
from agents.models import Host
from jobs.host_sync import facts
from jobs.host_sync.facts import ReportedFacts, ReportedHoldings
from jobs.models import Proof, Run, Stray
from jobs.projects import audit
from jobs.rules.lifecycle.states import RunPhase
from jobs.wake import hints

RUN_ID = re.compile(r"[0-9]{10,}-workerpool[0-9]-[0-9]+-a[0-9]+-r[0-9]+", re.ASCII)
MAX_STRAYS = 1_000
# Runs of one host without a valid seal. A program there can invent as many as it likes.
MAX_UNSEALED = 50
TRAINYARD = "trainyard"
WHY = {
    Proof.SEALED: said("it is ours, and was lost with a restored backup"),
    Proof.UNSEALED: said("it carries no seal of ours"),
    Proof.FALSE: said("its seal is not ours for this run on this host"),
}


Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StrayRun:
    facts: ReportedFacts
    holdings: ReportedHoldings

    @property
    def columns(self) -> dict[str, object]:
        """The columns that a later report may change."""
        return {
            "phase": self.facts.phase,
            "cpus": self.holdings.cpus,
            "memory_mb": self.holdings.memory_mb,
            "gpu_uuids": list(self.holdings.gpu_uuids),
            "port": self.holdings.port,
        }


def record_strays(host_id: int, documents: Mapping[str, Document], now: datetime) -> None:
    """Record runs that a host reported and that the database does not know as runs of that host."""
    reported = {run: each for run, each in list(documents.items())[:MAX_STRAYS] if RUN_ID.fullmatch(run)}
    # Known runs of a host that was removed are no strays.
    known = set(Run.objects.filter(pk__in=reported).values_list("pk", flat=True))
    read = {run: (facts.read_facts(each), each) for run, each in reported.items() if run not in known}
    unknown = {
        run: StrayRun(each, facts.reported_holdings(document))
        for run, (each, document) in read.items()
        if each
    }
    if not unknown:
        return
    host = Host.every.get(pk=host_id)
    rows = {row.run: row for row in Stray.objects.filter(host=host, run__in=unknown)}
    unsealed = []
    for run, found in unknown.items():
        proof = _check_seal(SealOwner.of(host), run, found.facts.seal)
        # First of all: after a crash between the two, the row would say that this was done.
        if proof is Proof.SEALED and (run not in rows or rows[run].proof != proof):
            why = said(
                "{host} has the run {run}, of which the database knows nothing.", host=host.name, run=run
            )
            recovery.begin(why, now)
        if run in rows:
            _update(rows[run], found, proof)
        elif proof is Proof.SEALED:
            _write(host, run, found, proof, now)
        else:
            unsealed.append((run, found, proof))
    if unsealed:
        _record_unsealed(host, unsealed, now)


def _check_seal(bearer: SealOwner, run: str, seal: str) -> Proof:
    if seals.is_seal_of_run(bearer, run, seal):
        return Proof.SEALED
    return Proof.FALSE if seal else Proof.UNSEALED


def _write(host: Host, run: str, found: StrayRun, proof: Proof, now: datetime) -> None:
    known = {"started_at": found.facts.started_at, "found_at": now, "proof": proof, **found.columns}
    Stray.objects.get_or_create(host=host, run=run, defaults=known)


def _update(row: Stray, found: StrayRun, proof: Proof) -> None:
    """Update the row of a stray (a run that the database does not know) from a later report.

    A later report may know more: a host that has only claimed the run does not report yet which GPUs it holds.
    """
    changed: dict[str, object] = {}
    if found.facts.phase.rank >= RunPhase(row.phase).rank:
        changed |= {name: value for name, value in found.columns.items() if getattr(row, name) != value}
    if proof is Proof.SEALED and row.proof != proof:
        changed |= {"proof": proof}
    if changed:
        Stray.objects.filter(pk=row.pk).update(**changed)


def _record_unsealed(host: Host, unsealed: Sequence[tuple[str, StrayRun, Proof]], now: datetime) -> None:
    room = MAX_UNSEALED - Stray.objects.filter(host=host).exclude(proof=Proof.SEALED).count()
    for run, found, proof in unsealed[: max(room, 0)]:
        _write(host, run, found, proof, now)
        message = said(
            "It has the run {run}, of which the database knows nothing, and {why}. It is left alone.",
            run=run,
            why=WHY[proof],
        )
        host_history.record(host.pk, "unknown_run", message, TRAINYARD, now)
    if len(unsealed) > room:
        message = said(
            "It has more than {most} unknown runs that are not under our seal. No more are listed.",
            most=MAX_UNSEALED,
        )
        host_history.record_once_a_day(host.pk, "unknown_runs", message, TRAINYARD, now)


def shown(host: Host) -> QuerySet[Stray]:
    """The strays that an admin may want to act on: not dismissed and, with our seal, not over yet."""
    over = Q(proof=Proof.SEALED, phase=RunPhase.CLOSED)
    return Stray.objects.filter(host=host, dismissed_at=None).exclude(over)


def stop(host: Host, run: str, actor: str, now: datetime) -> None:
    """End this run on its host, whatever it is, because an admin wants it."""
    row = _row(host, run)
    if row.phase == RunPhase.CLOSED:
        raise Refused("run", said("{run} is over.", run=run))
    if recovery.in_recovery_mode():
        raise Refused(
            "run", said("Nothing is stopped in recovery mode. Choose what is to be stopped when you confirm.")
        )
    if row.stop_wanted_at is None:
        Stray.objects.filter(pk=row.pk).update(stop_wanted_at=now, stop_by=actor[:150])
        audit.record(actor, "stray.stop", "host", host.name, None, {"run": run}, now)
    hints.hosts([host.pk])


def dismiss(host: Host, run: str, actor: str, now: datetime) -> None:
    """Hide a stray that an admin has seen."""
    row = _row(host, run)
    if row.proof == Proof.SEALED:
        raise Refused("run", said("{run} was started by this deployment. Stop it, or let it go on.", run=run))
    if row.dismissed_at is None:
        Stray.objects.filter(pk=row.pk).update(dismissed_at=now, dismissed_by=actor[:150])
        audit.record(actor, "stray.dismiss", "host", host.name, None, {"run": run}, now)


ACTS = {"stop": stop, "dismiss": dismiss}


def _row(host: Host, run: str) -> Stray:
    if not run:
        raise Refused(
            "run", said("run is required: the id of a run that the host has and the database does not know.")
        )
    row = Stray.objects.select_for_update().filter(host=host, run=run[:80]).first()
    if row is None:
        raise Refused(
            "run",
            said("{host} has no run {run} that the database does not know.", host=host.name, run=run[:80]),
        )
    return row
