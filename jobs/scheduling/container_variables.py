"""Variables that the engine of a pool cannot give to its containers: the submit refuses them, which the host would."""

from __future__ import annotations

from collections.abc import Mapping

from agents.infra.texts import said
from agents.runner.runtimes.client_variables import fits_client
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.json_fields import InvalidDocument, Violation
from jobs.rules.spec.runtime_choice import DOCKER, PODMAN, runtime_of


def check(spec: CustomJobSpec, secrets: Mapping[tuple[int, str], str]) -> None:
    """Raises InvalidDocument, which repeats no value. `spec`: with its aliases and its engine. `secrets`: the values of
    secret variables, by the number of their pool and their name."""
    violations = []
    for number, pool in enumerate(spec.pools):
        if pool is None or runtime_of(pool) not in (PODMAN, DOCKER):
            continue
        variables = {
            **dict(pool.task.env),
            **{name: secrets[of, name] for of, name in secrets if of == number},
        }
        field = f"job_spec.worker_pool_specs[{number}].{pool.task.field}.env"
        unfit = [name for name, value in variables.items() if not fits_client(name, value)]
        violations += [Violation(field, _rule(name)) for name in unfit]
    if violations:
        raise InvalidDocument(tuple(violations))


def _rule(name: str) -> str:
    return said(
        "{name} has a line break. Podman and Docker read this variable themselves, and give it to a container "
        "as one line only. Choose another name, or leave the line breaks out.",
        name=name,
    )
