"""The stored secrets of projects and of people: set, deleted, listed, and never read back.

The caller has checked the permission and owns the transaction. The audit says who set which name; it has no value.
"""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import Project, Secret
from jobs.projects import audit
from jobs.rules.spec.secret_variables import NAME_RULE, SECRET_NAME, value_problem
from jobs.secrets.sealed import seal, unseal

KIND = "secret"
# Each of them; a person or a project with more has lost sight of them.
MAX_SECRETS = 200

Owner = Project | User


def of(owner: Owner) -> QuerySet[Secret]:
    """The owner's secrets by name, without their values."""
    return _rows(owner).defer("sealed").order_by("name")


def put(owner: Owner, name: str, value: object, actor: str, now: datetime) -> tuple[Secret, bool]:
    """Set a secret. Returns its row, and whether it is new. Raises Refused."""
    if not SECRET_NAME.fullmatch(name):
        raise Refused("name", said("The name of a secret {must}", must=NAME_RULE))
    problem = value_problem(value)
    if problem is not None or not isinstance(value, str):
        raise Refused("value", said("value {problem}", problem=problem))
    rows = _rows(owner).filter(name=name)
    columns = {"sealed": seal(name_of(owner), name, value), "changed_at": now, "changed_by": actor[:150]}
    changed = rows.update(**columns)
    if not changed:
        if _rows(owner).count() >= MAX_SECRETS:
            raise Refused(
                "name",
                said("There are {number} secrets already. Delete one that is not used.", number=MAX_SECRETS),
            )
        try:
            with transaction.atomic():
                Secret.objects.create(**_owned_by(owner), name=name, made_at=now, **columns)
        except IntegrityError:
            # It was made at the same moment. The later value counts.
            changed = rows.update(**columns)
    _audit(owner, "secret.change" if changed else "secret.set", name, actor, now)
    return rows.defer("sealed").get(), not changed


def remove(owner: Owner, name: str, actor: str, now: datetime) -> bool:
    """Delete a secret. Jobs that were submitted with it keep their copies. Returns whether there was one."""
    removed = _rows(owner).filter(name=name).delete()[0] > 0
    if removed:
        _audit(owner, "secret.remove", name, actor, now)
    return removed


def value_of(row: Secret) -> str:
    """The value, for a job that is being submitted. Raises SecretUnreadable."""
    return unseal(_owner_of(row), row.name, row.sealed)


def name_of(owner: Owner) -> str:
    """What is sealed with the value: whose it is."""
    return f"project {owner.pk}" if isinstance(owner, Project) else f"person {owner.pk}"


def _owner_of(row: Secret) -> str:
    return f"project {row.project_id}" if row.project_id is not None else f"person {row.user_id}"


def _rows(owner: Owner) -> QuerySet[Secret]:
    return Secret.objects.filter(**_owned_by(owner))


def _owned_by(owner: Owner) -> dict[str, Owner]:
    return {"project" if isinstance(owner, Project) else "user": owner}


def _audit(owner: Owner, what: str, name: str, actor: str, now: datetime) -> None:
    project = owner if isinstance(owner, Project) else None
    audit.record(actor, what, KIND, name, None, None, now, project)
