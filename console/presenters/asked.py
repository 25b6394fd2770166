"""What was asked for, as it stands in the job's own document: the part of its page that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from jobs.models import Job


@dataclass(frozen=True, slots=True)
class PoolLine:
    name: str
    count: int
    machine: str
    command: str
    env: tuple[tuple[str, str], ...]


def timeout(job: Job) -> timedelta | None:
    written = str((job.spec.get("scheduling") or {}).get("timeout", ""))
    return timedelta(seconds=float(written[:-1])) if written.endswith("s") else None


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
    if machine.get("machineType"):
        parts.append(str(machine["machineType"]))
    return ", ".join(parts) or "any host"


def _command(argv: list[str]) -> str:
    """A script as it was typed; anything else one argument a line, as JSON, so that spaces show."""
    if len(argv) == 3 and argv[0] in ("bash", "python3") and argv[1] == "-c":
        return f"# {argv[0]}\n{argv[2]}"
    return " ".join(arg if arg.isprintable() and " " not in arg and arg else json.dumps(arg) for arg in argv)
