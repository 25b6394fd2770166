"""Runs that hosts have and no row explains: what was done after the backup that this database was restored from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from agents import recovery
from agents.models import Host
from jobs import facts
from jobs.models import Run, Stray
from jobs.rules.states import RunPhase

OURS = re.compile(r"[0-9]{10,}-workerpool[0-9]-[0-9]+-a[0-9]+-r[0-9]+", re.ASCII)
MOST_STRAYS = 1_000


def meet(host_id: int, told: Mapping[str, facts.Told], now: datetime) -> None:
    """Runs that a host has told about and that are not known as its own."""
    ours = {run: each for run, each in list(told.items())[:MOST_STRAYS] if OURS.fullmatch(run)}
    known = set(Run.objects.filter(pk__in=ours).values_list("pk", flat=True))  # of a host that was removed
    for run, each in ours.items():
        if run in known:
            continue
        row, new = Stray.objects.get_or_create(
            host_id=host_id,
            run=run,
            defaults={"phase": each.phase, "started_at": each.started_at, "found_at": now},
        )
        if not new and each.phase.rank > RunPhase(row.phase).rank:
            Stray.objects.filter(pk=row.pk).update(phase=each.phase)
        if new:
            name = Host.every.values_list("name", flat=True).get(pk=host_id)
            recovery.begin(f"{name} has the run {run}, of which the database knows nothing.", now)
