"""What an admin may do with a GPU that is kept out of use: check it again, kill the processes on it, use it anyway.

Each order is a row first; the host's dispatcher carries it out. The caller owns the transaction.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from agents.hosts import gpu_quarantine
from agents.infra.refusals import Refused
from agents.infra.texts import said, said_of
from agents.models import Gpu, GpuState
from jobs.projects import audit
from jobs.wake import hints

ACTS = ("recheck", "evict", "use")


def act(gpu: Gpu, what: str, actor: str, now: datetime) -> str:
    """Do one of ACTS. Returns what follows, as text. The row is locked, because two admins may click at once."""
    row = Gpu.objects.select_for_update(no_key=True).get(pk=gpu.pk)
    if row.state == GpuState.OK:
        raise Refused(
            "gpu", said("GPU {number} is in use already: nobody else was found on it.", number=row.index)
        )
    answer = {"recheck": _recheck, "evict": _evict, "use": _use}[what](row, actor, now)
    subject, before = f"{row.host.name} GPU {row.index} {row.uuid}", f"{row.state}: {row.state_text}"
    audit.record(actor, f"gpu.{what}", "gpu", subject, before, answer, now)
    transaction.on_commit(lambda: hints.watch([row.host_id]))
    return answer


def _recheck(gpu: Gpu, actor: str, now: datetime) -> str:
    gpu_quarantine.mark_unverified([gpu], said("To be looked at again."), actor, now)
    return said(
        "GPU {number} is looked at again. It comes back as soon as nobody else is on it.", number=gpu.index
    )


def _evict(gpu: Gpu, actor: str, now: datetime) -> str:
    count = gpu_quarantine.evict(gpu, actor, now)
    if not count:
        raise Refused(
            "gpu",
            said(
                "Nobody is known to be on GPU {number} who could be killed. Have it looked at again.",
                number=gpu.index,
            ),
        )
    return said_of(
        count,
        "{number} process is being killed. The result is shown below.",
        "{number} processes are being killed. The result is shown below.",
    )


def _use(gpu: Gpu, actor: str, now: datetime) -> str:
    gpu_quarantine.release(gpu, actor, now)
    transaction.on_commit(hints.schedule)
    return said(
        "GPU {number} is in use again. A start looks at it once more, and is refused if somebody is on it.",
        number=gpu.index,
    )
