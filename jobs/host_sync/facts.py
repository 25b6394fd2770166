"""Read the facts that a host reports about a run, and fill them into the run's row. Only the row object is changed.

A host may be wrong, old or hostile: whatever it reports, nothing here raises, and nothing comes out that the database
cannot store. A value that makes no sense is ignored, as if it had not been reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.infra import untrusted
from jobs.models import Run
from jobs.rules.lifecycle.states import RunPhase

MAX_BYTES = 2**53
MAX_MESSAGE = 4_000
MAX_SURVIVORS = 20
MAX_CPUS, MAX_MEMORY_MB, MAX_GPUS = 100_000.0, 2**31 - 1, 64

# The first reported value is kept: later reports do not change it.
_ONCE = (
    "boot_id",
    "claimed_at",
    "started_at",
    "ended_at",
    "closed_at",
    "seconds",
    "monotonic_started",
    "why",
    "refusal",
    "message",
    "oom",
    "oom_sure",
    "memory_enforced",
    "containment",
)


@dataclass(frozen=True, slots=True)
class ReportedFacts:
    """A parsed fact document. A field that is None or empty was not reported, or its value makes no sense."""

    phase: RunPhase
    boot_id: str
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    closed_at: datetime | None
    seconds: float | None
    monotonic_started: float | None
    exit_code: int | None
    exit_signal: int | None
    why: str
    refusal: str
    message: str
    oom: bool | None
    oom_sure: str
    memory_enforced: bool | None
    containment: str
    survivors: tuple[dict[str, Any], ...]
    log_size: int | None
    log_digest: str
    seal: str


def read_facts(document: Mapping[str, Any]) -> ReportedFacts | None:
    """Parse a fact document; None when it has no valid phase."""
    try:
        phase = RunPhase(untrusted.text(document.get("phase"), 16))
    except ValueError:
        return None
    log = document.get("log")
    log = log if isinstance(log, Mapping) else {}
    oom, enforced = document.get("oom"), document.get("memory_enforced")
    return ReportedFacts(
        phase=phase,
        boot_id=untrusted.text(document.get("boot_id"), 64),
        claimed_at=untrusted.timestamp(document.get("claimed_at")),
        started_at=untrusted.timestamp(document.get("started_at")),
        ended_at=untrusted.timestamp(document.get("ended_at")),
        closed_at=untrusted.timestamp(document.get("closed_at")),
        seconds=untrusted.number(document.get("seconds"), 1e12),
        monotonic_started=untrusted.number(document.get("mono_started"), 1e12),
        exit_code=untrusted.whole_number(document.get("exit_code"), -(2**31), 2**31 - 1),
        exit_signal=untrusted.whole_number(document.get("exit_signal"), 0, 255),
        why=untrusted.text(document.get("why"), 16),
        refusal=untrusted.text(document.get("refusal"), 32),
        message=untrusted.text(document.get("message"), MAX_MESSAGE),
        oom=untrusted.boolean(oom),
        oom_sure=untrusted.text(document.get("oom_sure"), 12),
        memory_enforced=untrusted.boolean(enforced),
        containment=untrusted.text(document.get("containment"), 16),
        survivors=_survivors(document.get("survivors")),
        log_size=untrusted.whole_number(log.get("size"), 0, MAX_BYTES),
        log_digest=untrusted.text(log.get("digest"), 100),
        seal=untrusted.text(document.get("seal"), 100),
    )


@dataclass(frozen=True, slots=True)
class ReportedHoldings:
    """The resources that a run holds on its host, as the host reports them. Used for runs without a row."""

    cpus: float = 0.0
    memory_mb: int = 0
    gpu_uuids: tuple[str, ...] = ()
    port: int | None = None


def reported_holdings(document: Mapping[str, Any]) -> ReportedHoldings:
    gpus = document.get("gpus")
    gpus = gpus[:MAX_GPUS] if isinstance(gpus, list) else ()
    return ReportedHoldings(
        cpus=untrusted.number(document.get("cpus"), MAX_CPUS) or 0.0,
        memory_mb=untrusted.whole_number(document.get("memory_mb"), 0, MAX_MEMORY_MB) or 0,
        gpu_uuids=tuple(filter(None, (untrusted.text(uuid, 80) for uuid in gpus))),
        port=untrusted.whole_number(document.get("port"), 1, 65535),
    )


def fill_facts(run: Run, reported: ReportedFacts, now: datetime) -> set[str]:
    """Fill what is new into the row. Returns the names of the columns that changed.

    The exit is one fact of two numbers, and both None is a fact too ("unknown"): it is taken from the first report
    that the run is over, and never changed after that.
    """
    before = RunPhase(run.phase)
    changed = {name for name in _ONCE if _fill(run, name, getattr(reported, name))}
    if reported.phase.over and not before.over:
        changed |= _set(run, exit_code=reported.exit_code, exit_signal=reported.exit_signal)
        changed |= _set(run, ended_at=run.ended_at or now)
    if reported.phase.rank > before.rank:
        changed |= _set(run, phase=reported.phase)
        if reported.phase is RunPhase.CLOSED:
            changed |= _set(run, closed_at=run.closed_at or now, log_digest_host=reported.log_digest)
    if before is not RunPhase.CLOSED and reported.phase.rank >= before.rank:
        # Survivors and log size may change until the run is closed; the report of its closing is final.
        changed |= _set(run, survivors=list(reported.survivors))
        if reported.log_size is not None:
            changed |= _set(run, log_size=reported.log_size)
    return changed


def _fill(run: Run, name: str, value: Any) -> bool:
    if value in (None, "") or getattr(run, name) not in (None, ""):
        return False
    setattr(run, name, value)
    return True


def _set(run: Run, **values: Any) -> set[str]:
    changed = {name for name, value in values.items() if getattr(run, name) != value}
    for name in changed:
        setattr(run, name, values[name])
    return changed


def _survivors(value: object) -> tuple[dict[str, Any], ...]:
    found = value if isinstance(value, list | tuple) else ()
    return tuple(
        {
            "pid": untrusted.whole_number(each.get("pid"), 0, 2**31 - 1),
            "why": untrusted.text(each.get("why"), 200),
        }
        for each in found[:MAX_SURVIVORS]
        if isinstance(each, Mapping)
    )
