"""The secrets of a job: found at submit, copied for its runs and retries, added to orders when those are sent.

A copy means that a retry next week runs with what was submitted, and that deleting a stored secret strands no job.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from agents.infra.secrets import SecretUnreadable
from agents.infra.texts import join, said
from jobs.models import Job, JobSecret, Project, Secret
from jobs.rules.list_text import list_text
from jobs.rules.spec.custom_job import CustomJob
from jobs.rules.spec.json_fields import InvalidDocument, Violation
from jobs.rules.spec.secret_variables import GIT_CREDENTIAL, PERSON, PROJECT, AskedSecret
from jobs.rules.spec.tasks import MAX_STRING_BYTES, MAX_STRINGS_BYTES
from jobs.secrets import store
from jobs.secrets.sealed import seal, unseal

log = logging.getLogger(__name__)

MAX_NAMED = 8
REDUCTION_SECRET = "TRAINYARD_REDUCTION_SECRET"
_REDUCTION = "trainyard reduction 1"

# The value of each secret variable, by the number of its pool and its name.
Values = Mapping[tuple[int, str], str]


def found(asked: CustomJob, project: Project, user: User, now: datetime) -> Values:
    """The values of the job's secret variables. Raises InvalidDocument if one is missing, unknown or too large."""
    if not asked.asked_secrets:
        return {}
    finder = _Finder(project, user)
    values = {(each.pool, each.variable.name): finder.value(each) for each in asked.asked_secrets}
    finder.violations += _too_large(asked, values)
    if finder.violations:
        raise InvalidDocument(tuple(finder.violations))
    Secret.objects.filter(pk__in=finder.used).update(used_at=now)
    return values


def check(asked: CustomJob, project: Project, user: User) -> Values:
    """The same, and notes no use: nothing is submitted yet."""
    if not asked.asked_secrets:
        return {}
    finder = _Finder(project, user)
    values = {(each.pool, each.variable.name): finder.value(each) for each in asked.asked_secrets}
    violations = (*finder.violations, *_too_large(asked, values))
    if violations:
        raise InvalidDocument(violations)
    return values


def keep(job: Job, values: Values) -> None:
    """Store the copies of a new job."""
    if values:
        JobSecret.objects.bulk_create(
            JobSecret(job=job, pool=pool, name=name, sealed=seal(_owner(job.pk, pool), name, value))
            for (pool, name), value in values.items()
        )


def are_the_same(job: Job, asked: CustomJob) -> bool:
    """Whether the values that came with this document are those that the job was made with, as far as it has them."""
    kept = _values([job.pk])[job.pk]
    return all(
        hmac.compare_digest(kept[key].encode(), each.value.encode())
        for each in asked.asked_secrets
        if each.value and (key := (each.pool, each.variable.name)) in kept
    )


def lacks_values(order: Mapping[str, Any]) -> bool:
    """Whether something is added to this order when it is sent."""
    return bool(order.get("secrets") or order.get("reduction"))


def with_values(orders: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The start orders as they are sent: with the values of secret variables, which the rows of the orders lack.

    An order whose values cannot be read is left out, because its program must not start without them.
    """
    complete = {
        run: {**order, "env": {**order["env"], REDUCTION_SECRET: _reduction_secret(job_of(run))}}
        if order.get("reduction")
        else order
        for run, order in orders.items()
    }
    named = [run for run, order in orders.items() if order.get("secrets")]
    if not named:
        return complete
    values = _values({job_of(run) for run in named})
    for run in named:
        order, kept = complete[run], values[job_of(run)]
        secrets = {name: kept.get((pool_of(run), name)) for name in order["secrets"]}
        if None in secrets.values():
            log.error("Run %s is not started: the value of one of its secrets cannot be read.", run)
            del complete[run]
        else:
            complete[run] = {**order, "env": {**order["env"], **secrets}}
    return complete


def values_of(job_id: int) -> list[str]:
    """The values of the job's secrets, as long as they are kept."""
    return list(_values([job_id])[job_id].values())


def value_of(job_id: int, pool: int, name: str) -> str:
    """One value, as long as it is kept; else empty."""
    return _values([job_id])[job_id].get((pool, name), "")


def forget(job_ids: Sequence[int]) -> None:
    """Delete the values of these jobs. What remains says that there were secrets, and how they were named."""
    JobSecret.objects.filter(job__in=job_ids).exclude(sealed=None).update(sealed=None)


def job_of(run: str) -> int:
    """The job of a run, from its id (lifecycle/claims.py:run_id)."""
    return int(run.partition("-")[0])


def pool_of(run: str) -> int:
    return int(run.split("-")[1].removeprefix("workerpool"))


def _reduction_secret(job_id: int) -> str:
    """What the trainers and reducers of a job know, and nobody else. It is derived and kept nowhere. The oldest key
    makes
    it: a new key is added while runs of the job go on."""
    key = settings.FIELD_KEYS[-1]
    text = json.dumps([_REDUCTION, settings.DEPLOYMENT, job_id])
    return hmac.digest(key.encode() if isinstance(key, str) else key, text.encode(), hashlib.sha256).hex()


class _Finder:
    """Looks up the values of a document, and collects what is wrong with it."""

    def __init__(self, project: Project, user: User) -> None:
        self._project, self._user = project, user
        self._rows = {
            **{(PROJECT, row.name): row for row in Secret.objects.filter(project=project)},
            **{(PERSON, row.name): row for row in Secret.objects.filter(user=user)},
        }
        self.used: set[int] = set()
        self.violations: list[Violation] = []

    def value(self, asked: AskedSecret) -> str:
        """The value, or an empty text and a violation."""
        if not asked.variable.secret:
            if not asked.value:
                name = asked.variable.name
                self._complain(
                    asked,
                    "value",
                    said(
                        "is required: the value of {name} is secret, so it is not kept in documents. Give it again, or "
                        "store it and refer to it: {reference}.",
                        name=name,
                        reference=f'"valueFrom": {{"secret": "{name[:100]}"}}',
                    ),
                )
            return asked.value
        row = self._stored(asked)
        if row is None:
            self._complain(asked, "value_from.secret", self._unknown(asked))
            return ""
        self.used.add(row.pk)
        try:
            return store.value_of(row)
        except SecretUnreadable:
            unreadable = said("{name} cannot be read any more. Set it again.", name=row.name)
            self._complain(asked, "value_from.secret", unreadable)
            return ""

    def _stored(self, asked: AskedSecret) -> Secret | None:
        owners = (asked.variable.of,) if asked.variable.of else (PERSON, PROJECT)
        return next((row for of in owners if (row := self._rows.get((of, asked.variable.secret)))), None)

    def _unknown(self, asked: AskedSecret) -> str:
        name, of = asked.variable.secret, asked.variable.of
        project = self._project.name
        if of == PERSON:
            missing = said("There is no secret {name} of yours.", name=name)
        elif of == PROJECT:
            missing = said("There is no secret {name} of project {project}.", name=name, project=project)
        else:
            missing = said(
                "There is no secret {name} of yours or of project {project}.", name=name, project=project
            )
        known = sorted({known for owner, known in self._rows if of in ("", owner)})
        there = (
            said("There are {names}.", names=list_text(known, MAX_NAMED))
            if known
            else said("There is none yet.")
        )
        path = "/api/v1/secrets" if of == PERSON else f"/api/v1/projects/{project}/secrets"
        return join(" ", [missing, there, said("Set it with PUT {address}.", address=f"{path}/{name}")])

    def _complain(self, asked: AskedSecret, field: str, description: str) -> None:
        if asked.variable.name == GIT_CREDENTIAL:
            field = "credential_secret"
        self.violations.append(Violation(f"{asked.path}.{field}", description))


def _too_large(asked: CustomJob, values: Values) -> list[Violation]:
    """What execve on the host would refuse."""
    sizes: dict[int, int] = defaultdict(int)
    wrong = []
    for each in asked.asked_secrets:
        size = len(f"{each.variable.name}={values[each.pool, each.variable.name]}".encode())
        sizes[each.pool] += size
        if size > MAX_STRING_BYTES:
            much = said("has {number} bytes; Linux takes at most {most}.", number=size, most=MAX_STRING_BYTES)
            wrong.append(Violation(each.path, much))
    for number, size in sizes.items():
        pool = asked.job_spec.pools[number]
        if pool is None:
            continue
        total = size + pool.task.strings_bytes
        if total > MAX_STRINGS_BYTES:
            task = f"{pool.task.field}.{pool.task.strings_field}"
            where = f"job_spec.worker_pool_specs[{number}].{task}"
            text = said(
                "command, args, env and secrets have {number} bytes together; at most {most} are possible.",
                number=total,
                most=MAX_STRINGS_BYTES,
            )
            wrong.append(Violation(where, text))
    return wrong


def _values(jobs: set[int] | list[int]) -> dict[int, dict[tuple[int, str], str]]:
    """The values that are kept, by job. Those that cannot be read are left out."""
    kept: dict[int, dict[tuple[int, str], str]] = defaultdict(dict)
    rows = JobSecret.objects.filter(job__in=jobs).exclude(sealed=None)
    for row in rows.order_by():
        try:
            kept[row.job_id][row.pool, row.name] = _value(row)
        except SecretUnreadable as problem:
            log.error("The secret %s of job %s cannot be read. %s", row.name, row.job_id, problem)
    return kept


def _value(row: JobSecret) -> str:
    assert row.sealed is not None
    return unseal(_owner(row.job_id, row.pool), row.name, row.sealed)


def _owner(job: int, pool: int) -> str:
    return f"job {job} pool {pool}"
