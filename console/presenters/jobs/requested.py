"""What was asked for, as it stands in the job's own document: the part of its page that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.forms.fields import duration_text
from jobs.models import Job
from jobs.rules.lifecycle.retry import MAX_RETRIES
from jobs.rules.scheduling.order import PRIORITIES
from jobs.rules.spec.custom_job import DAY_S

STRATEGIES = {
    "SPOT": "SPOT: makes room for others",
    "FLEX_START": "flex start: gives up after its longest wait",
}


@dataclass(frozen=True, slots=True)
class PoolLine:
    name: str
    count: int
    machine: str
    command: str
    env: tuple[tuple[str, str], ...]


def facts(job: Job) -> Iterable[tuple[str, str]]:
    """What holds for the job as a whole, defaults included."""
    scheduling = job.spec.get("scheduling") or {}
    word = next((word for word, worth in PRIORITIES.items() if worth == job.priority), "normal")
    retries = "never" if scheduling.get("disableRetries") else f"at most {MAX_RETRIES} times"
    # Without retries a restart of one never restarts all.
    all_restart = scheduling.get("restartJobOnWorkerRestart") and not scheduling.get("disableRetries")
    yield "Location", job.location_name
    yield "Time limit", _span(scheduling.get("timeout")) or "none"
    yield "Priority", word
    yield "Strategy", STRATEGIES.get(scheduling.get("strategy", ""), "standard: nobody may stop it")
    yield "Longest wait for room", _longest_wait(scheduling)
    yield "The whole job is run again", retries
    yield "When one replica restarts", "all restart" if all_restart else "it alone does"
    yield "Shells", "allowed" if job.spec.get("enableWebAccess") else "not allowed"
    if output := (job.spec.get("baseOutputDirectory") or {}).get("outputUriPrefix"):
        yield "Output directory", str(output)


def _longest_wait(scheduling: Mapping[str, Any]) -> str:
    flexible = scheduling.get("strategy") == "FLEX_START"
    written = scheduling.get("maxWaitDuration") or (f"{DAY_S}s" if flexible else "")
    return _span(written) or "as long as it takes"


def _span(written: str | None) -> str:
    """`5400s`; zero is Vertex's word for no end."""
    seconds = float(written.removesuffix("s")) if written else 0.0
    return duration_text(seconds) if seconds else ""


def pools(job: Job) -> Iterable[PoolLine]:
    for number, pool in enumerate(job.spec.get("workerPoolSpecs", [])):
        if not pool:
            continue
        container = pool.get("containerSpec", {})
        argv = [*container.get("command", []), *container.get("args", [])]
        yield PoolLine(
            name=f"workerpool{number}",
            count=int(pool.get("replicaCount", 1)),
            machine=_machine(pool.get("machineSpec", {})),
            command=_command(argv),
            env=tuple((pair["name"], pair.get("value", "")) for pair in container.get("env", [])),
        )


def _machine(machine: Mapping[str, object]) -> str:
    parts = []
    if machine.get("acceleratorCount"):
        parts.append(f"{machine['acceleratorCount']} × {machine.get('acceleratorType')}")
    kind = str(machine.get("machineType", ""))
    if kind:
        parts.append("any host" if kind == "host" else kind)
    return " on ".join(parts) or "any host"


def _command(argv: list[str]) -> str:
    """A script as it was typed; anything else one argument a line, as JSON, so that spaces show."""
    if len(argv) == 3 and argv[0] in ("bash", "python3") and argv[1] == "-c":
        return f"# {argv[0]}\n{argv[2]}"
    return " ".join(arg if arg.isprintable() and " " not in arg and arg else json.dumps(arg) for arg in argv)
