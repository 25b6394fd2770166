"""The quarantine of GPUs: nothing is placed on a GPU on which a foreign process was found, until it is seen free.

The host reports such a GPU itself, by refusing a start (`gpu_busy`) or by what it found at the end of a run. From then
on it looks at the GPU every few seconds and reports the processes on it; a GPU is free when two looks found it free. A
person may ask for a new look at once, have the processes killed, or use the GPU in spite of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from agents.hosts import host_history
from agents.infra.text import clean_text
from agents.infra.texts import join, said
from agents.infra.untrusted import mapping, whole_number
from agents.models import Gpu, GpuState, Host

TRAINYARD = "trainyard"
MAX_GPUS = 256
MAX_HOLDERS = 16
MAX_PID = 2**31 - 1
MAX_TICKS = 2**53 - 1
MAX_AGE_S = 10 * 365 * 86400


@dataclass(frozen=True, slots=True)
class WatchedGpus:
    """The GPUs that a host is to watch, and the processes that it is to kill on them.

    A GPU in `soon` is free after one look instead of two.
    """

    gpus: tuple[str, ...] = ()
    soon: tuple[str, ...] = ()
    evictions: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


def quarantine(host_id: int, busy: Mapping[str, object], why: str, now: datetime) -> bool:
    """Put these GPUs into quarantine. The caller's transaction locks the host and stores the fact that reports them."""
    # GPUs belong to the machine, whichever of its logins found them busy.
    of_machine = Q(host_id=host_id) | Q(host__logins=host_id)
    rows = Gpu.objects.filter(of_machine, uuid__in=[str(uuid) for uuid in busy][:MAX_GPUS])
    for gpu in rows.order_by("pk"):
        _quarantine(gpu, parse_holders(busy[gpu.uuid], now), why, now)
    return rows.exists()


def record_look(host_id: int, token: int, report: Mapping[str, Any], now: datetime) -> bool:
    """Record what the host saw on the GPUs that it watches. True if one of them may be used again."""
    seen = mapping(report.get("gpus"))
    free = report.get("free")
    seen_free = {uuid for uuid in free if isinstance(uuid, str)} if isinstance(free, list) else set()
    error = clean_text(report.get("error") or "", 500)
    with transaction.atomic():
        if not _lease_held(host_id, token):
            return False
        rows = Gpu.objects.filter(host_id=host_id, uuid__in=[str(uuid) for uuid in seen][:MAX_GPUS])
        freed = False
        for gpu in rows.exclude(state=GpuState.OK).order_by("pk"):
            holders = parse_holders(seen[gpu.uuid], now)
            if holders or error:
                _quarantine(gpu, holders, error, now)
            elif gpu.uuid in seen_free:
                _free(gpu, "Seen free.", TRAINYARD, now)
                freed = True
    return freed


def record_eviction(host_id: int, token: int, answer: Mapping[str, Any], now: datetime) -> bool:
    """Record what became of the processes that the host was to kill. An answer that nobody asked for is ignored."""
    lines = answer.get("words")
    text = "; ".join(clean_text(line, 100) for line in lines[:MAX_HOLDERS]) if isinstance(lines, list) else ""
    with transaction.atomic():
        if not _lease_held(host_id, token):
            return False
        asked = Gpu.objects.filter(host_id=host_id, uuid=clean_text(answer.get("gpu", ""), 80)).exclude(
            evict=[]
        )
        rows = list(asked)
        for gpu in rows:
            host_history.record(host_id, "gpu_evicted", _about(gpu, text), gpu.evict_by or TRAINYARD, now)
            Gpu.objects.filter(pk=gpu.pk).update(evict=[], evict_by="")
    return bool(rows)


def watched_gpus(host_id: int) -> WatchedGpus:
    rows = Gpu.objects.filter(host_id=host_id, present=True).exclude(state=GpuState.OK).order_by("pk")
    gpus = list(rows.only("uuid", "state", "evict")[:MAX_GPUS])
    return WatchedGpus(
        tuple(gpu.uuid for gpu in gpus),
        tuple(gpu.uuid for gpu in gpus if gpu.state == GpuState.CLEANING),
        tuple((gpu.uuid, tuple((pid, ticks) for pid, ticks in gpu.evict)) for gpu in gpus if gpu.evict),
    )


# -- what a person may ask for -----------------------------------------------------------------------------------------


def mark_unverified(gpus: Iterable[Gpu], why: str, actor: str, now: datetime) -> None:
    """Keep GPUs on which anything may run out of use until their host has looked once and found no process."""
    for gpu in gpus:
        rows = Gpu.objects.filter(pk=gpu.pk)
        rows.update(state=GpuState.CLEANING, state_since=now, state_text=clean_text(why, 500))
        host_history.record(gpu.host_id, "gpu_doubted", _about(gpu, why), actor, now)


def release(gpu: Gpu, actor: str, now: datetime) -> None:
    """Put a GPU back into use, whatever runs on it. The next start looks at it again all the same."""
    _free(gpu, said("Put back into use by hand."), actor, now)


def evict(gpu: Gpu, actor: str, now: datetime) -> int:
    """Ask the host to kill the processes that were last seen on a GPU, and none that came later; returns how many."""
    processes = [[row["pid"], row["ticks"]] for row in gpu.holders if row.get("ticks")]
    if processes:
        Gpu.objects.filter(pk=gpu.pk).update(evict=processes, evict_by=actor[:150])
        host_history.record(gpu.host_id, "gpu_evict", _about(gpu, holders_text(gpu.holders)), actor, now)
    return len(processes)


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_holders(found: object, now: datetime) -> list[dict[str, Any]]:
    """The reported processes, made safe to store. An age becomes a time, which stays true."""
    rows = found[:MAX_HOLDERS] if isinstance(found, list) else []
    return [_holder(row, now) for row in rows if isinstance(row, dict)]


def holders_text(holders: Sequence[Mapping[str, Any]]) -> str:
    """`PID 4711 (python3) of alice since 2026-11-21 14:02 UTC`."""
    return join("; ", [_holder_text(row) for row in holders])


def _holder_text(row: Mapping[str, Any]) -> str:
    name = row["name"] or said("its name is not visible")
    text = said("PID {pid} ({name})", pid=row["pid"], name=name)
    if row["user"]:
        text = said("{process} of {person}", process=text, person=row["user"])
    if row["since"]:
        since = f"{datetime.fromisoformat(row['since']):%Y-%m-%d %H:%M} UTC"
        text = said("{name} since {time}", name=text, time=since)
    if row["how"] == "open":
        return said("{process}, by its open device", process=text)
    return said("{process}, by its lock", process=text) if row["how"] == "lock" else text


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


def _quarantine(gpu: Gpu, holders: list[dict[str, Any]], why: str, now: datetime) -> None:
    why = clean_text(why, 500) or said("Not seen free yet.")
    text = _in_use_or(holders, why)
    changes: dict[str, Any] = {"holders": holders, "state_text": text}
    if gpu.state != GpuState.QUARANTINED:
        changes |= {"state": GpuState.QUARANTINED, "state_since": now}
        host_history.record(gpu.host_id, "gpu_quarantined", _about(gpu, text), TRAINYARD, now)
    Gpu.objects.filter(pk=gpu.pk).update(**changes)


def _in_use_or(holders: list[dict[str, Any]], why: str) -> str:
    if holders:
        return said("In use by {processes}.", processes=holders_text(holders))
    # The host's own words begin with a small letter.
    return why if why[0].isupper() else why[0].upper() + why[1:]


def _about(gpu: Gpu, text: str) -> str:
    return join(": ", [_name(gpu), text])


def _free(gpu: Gpu, why: str, actor: str, now: datetime) -> None:
    Gpu.objects.filter(pk=gpu.pk).update(
        state=GpuState.OK, state_since=now, state_text="", holders=[], evict=[], evict_by=""
    )
    host_history.record(gpu.host_id, "gpu_free", _about(gpu, why), actor, now)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.uuid})"


def _lease_held(host_id: int, token: int) -> bool:
    """Whether the lease has this token. The row stays locked, so the token cannot change in this transaction."""
    rows = Host.every.select_for_update(no_key=True).filter(pk=host_id, lease_token=token)
    return bool(rows.order_by().values_list("pk"))
