"""GPUs that are kept out of use: somebody else was found on one, so nothing is placed there until it is proved free.

A host says so itself, by refusing a start (`gpu_busy`) or by what it found when a run was over. From then on it looks
at the GPU every few seconds and tells who is there; free is what was free in two looks. A person may have it looked at
again at once, have those who are on it killed, or use it in spite of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from agents.hosts import host_history
from agents.infra.text import clean_text
from agents.infra.untrusted import mapping, whole_number
from agents.models import Gpu, GpuState, Host

TRAINYARD = "trainyard"
MAX_GPUS = 256
MAX_HOLDERS = 16
MAX_PID = 2**31 - 1
MAX_TICKS = 2**53 - 1
MAX_AGE_S = 10 * 365 * 86400
HOW = {"compute": "", "open": ", by its open device", "lock": ", by its lock"}


@dataclass(frozen=True, slots=True)
class WatchedGpus:
    """What a host is to look at: these GPUs, those of `soon` free after one look; and whom to kill on which."""

    gpus: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    evictions: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


def quarantine(host_id: int, busy: Mapping[str, object], why: str, now: datetime) -> bool:
    """Keep these GPUs out of use. The caller's transaction holds the host, and writes the fact that says so."""
    rows = out = Gpu.objects.filter(host_id=host_id, uuid__in=[str(uuid) for uuid in busy][:MAX_GPUS])
    for gpu in rows.order_by("pk"):
        _keep_out(gpu, parse_holders(busy[gpu.uuid], now), why, now)
    return out.exists()


def record_look(host_id: int, token: int, report: Mapping[str, Any], now: datetime) -> bool:
    """What the host saw on the GPUs that it watches. True if one of them may be used again."""
    seen = mapping(report.get("gpus"))
    free = report.get("free")
    proved = {uuid for uuid in free if isinstance(uuid, str)} if isinstance(free, list) else set()
    error = clean_text(report.get("error") or "", 500)
    with transaction.atomic():
        if not _held(host_id, token):
            return False
        rows = Gpu.objects.filter(host_id=host_id, uuid__in=[str(uuid) for uuid in seen][:MAX_GPUS])
        freed = False
        for gpu in rows.exclude(state=GpuState.OK).order_by("pk"):
            holders = parse_holders(seen[gpu.uuid], now)
            if holders or error:
                _keep_out(gpu, holders, error, now)
            elif gpu.uuid in proved:
                _free(gpu, "Proved free.", TRAINYARD, now)
                freed = True
    return freed


def record_eviction(host_id: int, token: int, answer: Mapping[str, Any], now: datetime) -> bool:
    """What became of those who were to be killed. Who was asked for nobody answers nothing: that would be forged."""
    words = answer.get("words")
    text = "; ".join(clean_text(word, 100) for word in words[:MAX_HOLDERS]) if isinstance(words, list) else ""
    with transaction.atomic():
        if not _held(host_id, token):
            return False
        asked = Gpu.objects.filter(host_id=host_id, uuid=clean_text(answer.get("gpu", ""), 80)).exclude(
            evict=[]
        )
        for gpu in asked:
            host_history.record(
                host_id, "gpu_evicted", f"{_name(gpu)}: {text}", gpu.evict_by or TRAINYARD, now
            )
            Gpu.objects.filter(pk=gpu.pk).update(evict=[], evict_by="")
    return True


def watched_gpus(host_id: int) -> WatchedGpus:
    rows = Gpu.objects.filter(host_id=host_id, present=True).exclude(state=GpuState.OK).order_by("pk")
    gpus = list(rows.only("uuid", "state", "evict")[:MAX_GPUS])
    return WatchedGpus(
        tuple(gpu.uuid for gpu in gpus),
        tuple(gpu.uuid for gpu in gpus if gpu.state == GpuState.CLEANING),
        tuple((gpu.uuid, tuple((pid, ticks) for pid, ticks in gpu.evict)) for gpu in gpus if gpu.evict),
    )


# -- what a person may say ---------------------------------------------------------------------------------------------


def mark_unverified(gpus: Iterable[Gpu], why: str, actor: str, now: datetime) -> None:
    """Nobody knows what is on these: out of use until their host has looked once and found nobody."""
    for gpu in gpus:
        rows = Gpu.objects.filter(pk=gpu.pk)
        rows.update(state=GpuState.CLEANING, state_since=now, state_text=clean_text(why, 500))
        host_history.record(gpu.host_id, "gpu_doubted", f"{_name(gpu)}: {why}", actor, now)


def release(gpu: Gpu, actor: str, now: datetime) -> None:
    """Use it, whoever is on it. The next start looks again all the same."""
    _free(gpu, "Put back into use by hand.", actor, now)


def evict(gpu: Gpu, actor: str, now: datetime) -> int:
    """Have those killed who were last seen on it, and nobody who came since. Answers how many that are."""
    named = [[row["pid"], row["ticks"]] for row in gpu.holders if row.get("ticks")]
    if named:
        Gpu.objects.filter(pk=gpu.pk).update(evict=named, evict_by=actor[:150])
        host_history.record(
            gpu.host_id, "gpu_evict", f"{_name(gpu)}: {holders_text(gpu.holders)}", actor, now
        )
    return len(named)


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_holders(found: object, now: datetime) -> list[dict[str, Any]]:
    """Foreign rows, made safe to keep. An age becomes a time, which does not grow old."""
    rows = found[:MAX_HOLDERS] if isinstance(found, list) else []
    return [_holder(row, now) for row in rows if isinstance(row, dict)]


def holders_text(holders: Sequence[Mapping[str, Any]]) -> str:
    """`PID 4711 (python3) of alice since 2026-11-21 14:02 UTC`."""
    return "; ".join(
        f"PID {row['pid']} ({row['name'] or 'not to be seen from there'})"
        + (f" of {row['user']}" if row["user"] else "")
        + (f" since {datetime.fromisoformat(row['since']):%Y-%m-%d %H:%M} UTC" if row["since"] else "")
        + HOW.get(row["how"], "")
        for row in holders
    )


def _holder(row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    age_s = row.get("age_s")
    since = ""
    if isinstance(age_s, int | float) and 0 <= age_s < MAX_AGE_S:
        since = (now - timedelta(seconds=age_s)).isoformat(timespec="seconds")
    return {
        "pid": whole_number(row.get("pid"), 0, MAX_PID) or 0,
        "ticks": whole_number(row.get("ticks"), 0, MAX_TICKS) or 0,
        "user": clean_text(row.get("user", ""), 64),
        "name": clean_text(row.get("name", ""), 64),
        "how": clean_text(row.get("how", ""), 16),
        "since": since,
    }


def _keep_out(gpu: Gpu, holders: list[dict[str, Any]], why: str, now: datetime) -> None:
    why = clean_text(why, 500) or "Not proved free."
    text = f"In use by {holders_text(holders)}." if holders else why[0].upper() + why[1:]
    changes: dict[str, Any] = {"holders": holders, "state_text": text}
    if gpu.state != GpuState.QUARANTINED:
        changes |= {"state": GpuState.QUARANTINED, "state_since": now}
        host_history.record(gpu.host_id, "gpu_quarantined", f"{_name(gpu)}: {text}", TRAINYARD, now)
    Gpu.objects.filter(pk=gpu.pk).update(**changes)


def _free(gpu: Gpu, why: str, actor: str, now: datetime) -> None:
    Gpu.objects.filter(pk=gpu.pk).update(
        state=GpuState.OK, state_since=now, state_text="", holders=[], evict=[], evict_by=""
    )
    host_history.record(gpu.host_id, "gpu_free", f"{_name(gpu)}: {why}", actor, now)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid})"


def _held(host_id: int, token: int) -> bool:
    """The row stays locked: the token cannot change before the transaction is over."""
    rows = Host.every.select_for_update(no_key=True).filter(pk=host_id, lease_token=token)
    return bool(rows.order_by().values_list("pk"))
