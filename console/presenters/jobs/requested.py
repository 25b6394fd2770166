"""What the job's document requests: the part of its page that never changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _

from agents.infra.text import visible
from console.forms.fields import duration_text
from console.presenters import brought, words
from console.presenters.brought import Brought
from jobs.lifecycle import snapshot
from jobs.models import Job
from jobs.rules.lifecycle.retry import MAX_RETRIES
from jobs.rules.scheduling.order import PRIORITIES
from jobs.rules.spec.advice import WARNING, Advice
from jobs.rules.spec.cluster_variables import cluster_environment
from jobs.rules.spec.custom_job import DAY_S
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.scheduling import output_directories
from jobs.tuning import silent_trials

STRATEGIES = {
    "SPOT": gettext_noop("SPOT: makes room for other jobs"),
    "FLEX_START": gettext_noop("flex start: fails after its longest wait"),
}


@dataclass(frozen=True, slots=True)
class Specification:
    """`document`: the CustomJob as it was submitted, as JSON."""

    resource: str
    facts: tuple[tuple[str, str], ...]
    pools: tuple[PoolLine, ...]
    advice: tuple[Advice, ...]
    document: str


@dataclass(frozen=True, slots=True)
class PoolLine:
    """`brings`: what the pool runs in, and what is put beside it. `given`: the names of the variables that each of its
    replicas finds besides its own."""

    name: str
    count: int
    machine: str
    command: str
    brings: tuple[Brought, ...]
    env: tuple[tuple[str, str], ...]
    given: tuple[str, ...]


def spec(job: Job) -> Specification:
    return Specification(
        resource=f"projects/{job.project.name}/locations/{job.location_name}/customJobs/{job.pk}",
        facts=tuple(facts(job)),
        pools=tuple(pools(job)),
        advice=output_directories.advice_of(job),
        document=document(job),
    )


def advice_of(job: Job) -> tuple[Advice, ...]:
    """Of its document, and of a trial that reports nothing that its study looks for."""
    silent = silent_trials.of_job(job, timezone.now())
    of_trial = [Advice(WARNING, silent)] if silent else []
    return (*of_trial, *output_directories.advice_of(job))


def document(job: Job) -> str:
    """The CustomJob as it was submitted. It never has the value of a secret variable."""
    found = {"displayName": job.display_name, "jobSpec": job.spec}
    if job.labels:
        found["labels"] = job.labels
    return visible(json.dumps(found, indent=2, ensure_ascii=False))


def facts(job: Job) -> Iterable[tuple[str, str]]:
    """Yield the settings of the job as a whole, including defaults."""
    scheduling = job.spec.get("scheduling") or {}
    word = next((word for word, worth in PRIORITIES.items() if worth == job.priority), "normal")
    retries = _("at most {number} times").format(number=MAX_RETRIES)
    # A job without retries never restarts all replicas when one restarts.
    all_restart = scheduling.get("restartJobOnWorkerRestart") and not scheduling.get("disableRetries")
    yield _("Location"), job.location_name
    yield _("Time limit"), _span(scheduling.get("timeout")) or _("none")
    yield _("Priority"), words.word(word)
    special = STRATEGIES.get(scheduling.get("strategy", ""))
    yield _("Strategy"), gettext(special) if special else _("standard: no other job can stop it")
    yield _("Longest wait for capacity"), _longest_wait(scheduling)
    yield _("The whole job is run again"), _("never") if scheduling.get("disableRetries") else retries
    yield (
        _("When one replica restarts"),
        _("all replicas restart") if all_restart else _("only that one restarts"),
    )
    yield _("Shells"), _("allowed") if job.spec.get("enableWebAccess") else _("not allowed")
    if output := (job.spec.get("baseOutputDirectory") or {}).get("outputUriPrefix"):
        yield _("Output directory"), str(output)
    if kept := output_directories.kept_by(job):
        yield _("Kept without effect"), "; ".join(f"{name}: {value}" for name, value in kept)


def _longest_wait(scheduling: Mapping[str, Any]) -> str:
    flexible = scheduling.get("strategy") == "FLEX_START"
    written = scheduling.get("maxWaitDuration") or (f"{DAY_S}s" if flexible else "")
    return _span(written) or _("as long as it takes")


def _span(written: str | None) -> str:
    """Reword a duration such as `5400s`. Zero means no limit, as at Vertex: return an empty text."""
    seconds = float(written.removesuffix("s")) if written else 0.0
    return duration_text(seconds) if seconds else ""


def pools(job: Job) -> Iterable[PoolLine]:
    given, brings = _given(job), brought.of_job(job)
    for number, pool in enumerate(job.spec.get("workerPoolSpecs", [])):
        if not pool:
            continue
        task = pool.get("pythonPackageSpec") or pool.get("containerSpec", {})
        yield PoolLine(
            name=f"workerpool{number}",
            count=int(pool.get("replicaCount", 1)),
            machine=_machine(pool.get("machineSpec", {})),
            command=shown_command(_argv(task)),
            brings=brings[number],
            env=tuple((pair["name"], shown_value(pair)) for pair in task.get("env", [])),
            given=given.get(number, ()),
        )


def _argv(task: Mapping[str, Any]) -> list[str]:
    module = task.get("pythonModule")
    command = ["python3", "-m", module] if module else task.get("command", [])
    return [*command, *task.get("args", [])]


def _given(job: Job) -> Mapping[int, tuple[str, ...]]:
    """The names of the variables that the replicas of each pool get from Trainyard, with those that win over them."""
    try:
        spec = snapshot.spec_of(job)
    except InvalidDocument:
        return {}  # this version cannot read the document, and starts nothing of it
    replicas = list(spec.replicas())
    # Which names there are does not depend on addresses.
    addresses = {name: "host:1" for name, *_rest in replicas}
    found = {}
    for name, number, index, pool in replicas:
        if index == 0:
            variables = cluster_environment(
                spec,
                job_id=str(job.pk),
                project=job.project.name,
                location=job.location_name,
                replica=name,
                addresses=addresses,
                host_name="host",
                gpus=pool.machine.accelerator_count,
                trial=job.trial,
            )
            found[number] = tuple(sorted(variables.keys() - dict(pool.task.env).keys()))
    return found


def shown_value(pair: Mapping[str, Any]) -> str:
    """Return what is shown as the value of a variable. The document never has the value of a secret one."""
    if source := pair.get("valueFrom"):
        return _("(secret {name})").format(name="/".join(filter(None, (source.get("of"), source["secret"]))))
    return _("(secret)") if pair.get("secret") else visible(str(pair.get("value", "")))


def _machine(machine: Mapping[str, object]) -> str:
    parts = []
    if machine.get("acceleratorCount"):
        parts.append(f"{machine['acceleratorCount']} × {machine.get('acceleratorType')}")
    kind = str(machine.get("machineType", ""))
    if kind:
        parts.append(_("any host") if kind == "host" else kind)
    return _(" on ").join(parts) or _("any host")


def shown_command(argv: list[str]) -> str:
    """Return a script as it was typed. In another command, arguments with spaces are quoted as JSON."""
    if len(argv) == 3 and argv[0] in ("bash", "python3") and argv[1] == "-c":
        return f"# {argv[0]}\n{visible(argv[2])}"
    return " ".join(arg if arg.isprintable() and " " not in arg and arg else json.dumps(arg) for arg in argv)
