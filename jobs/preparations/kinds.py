"""All kinds of preparations."""

from __future__ import annotations

from jobs.models import Run
from jobs.preparations.cache_entries import EnvironmentKind, TreeKind
from jobs.preparations.images import ImageKind
from jobs.preparations.need import Kind, Need
from jobs.preparations.reducer_python import NumpyKind
from jobs.rules.spec.custom_job import CustomJobSpec, Pool

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (ImageKind(), TreeKind(), EnvironmentKind(), NumpyKind())
}


def needs_of(run: Run, spec: CustomJobSpec, pool: Pool) -> tuple[Need, ...]:
    return tuple(need for kind in KINDS.values() for need in kind.needs(run, spec, pool))
