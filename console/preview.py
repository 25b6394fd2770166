"""What would happen to a job if it were submitted now, and which GPUs there are. Looks only; promises nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from agents.models import Gpu, HostStatus
from jobs import floor
from jobs.models import GpuClaim
from jobs.rules.customjob import CustomJobSpec
from jobs.rules.machines import UnknownMachine
from jobs.rules.placement import Lacking, Placer

SHOWN_HOSTS = 8


@dataclass(frozen=True, slots=True)
class Preview:
    tone: str
    icon: str
    headline: str
    text: str


@dataclass(frozen=True, slots=True)
class GpuOffer:
    accelerator_type: str
    free: int
    total: int


def of(spec: CustomJobSpec, location: str) -> Preview:
    try:
        never = floor.refusal(spec, location)
        asks = floor.asks_of(spec)
    except UnknownMachine as unknown:
        never = str(unknown)
    if never:
        return Preview("bad", "cross", "It can never start here.", never)
    here = floor.look()
    placed = Placer(here.views, floor.ports()).place(asks, here.location(location))
    if isinstance(placed, Lacking):
        return Preview(
            "wait", "hourglass", "It would wait.", placed.text if here.in_service else floor.NO_HOST
        )
    names = sorted({here.hosts[seat.host_id].name for seat in placed})
    more = f" and {len(names) - SHOWN_HOSTS} more" if len(names) > SHOWN_HOSTS else ""
    where = f"{len(placed)} {'replica' if len(placed) == 1 else 'replicas'} on {', '.join(names[:SHOWN_HOSTS])}{more}."
    return Preview("good", "tick", "It could start now.", f"{where} Jobs that wait already go first.")


def gpu_offers() -> list[GpuOffer]:
    """The types that hosts which are up have, and how many of each are free."""
    there = Gpu.objects.filter(present=True, host__retired_at=None, host__status=HostStatus.UP)
    gpus = dict(there.values_list("pk", "accelerator_type"))
    held = set(GpuClaim.objects.filter(released_at=None).values_list("gpu_id", flat=True))
    total = Counter(gpus.values())
    free = Counter(kind for pk, kind in gpus.items() if pk not in held)
    return [GpuOffer(kind, free[kind], total[kind]) for kind in sorted(total)]
