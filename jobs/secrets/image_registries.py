"""Credentials of image registries: set and deleted by projects and for locations, and never read back.

Hosts get one for each pull that needs it, and keep none. The caller has checked the permission.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from agents.infra.refusals import Refused
from agents.infra.secrets import SecretUnreadable
from agents.infra.texts import said
from agents.models import Location
from jobs.models import Project, RegistryCredential
from jobs.projects import audit
from jobs.rules.spec.image_registries import REGISTRY_RULE, is_registry
from jobs.secrets.sealed import seal, unseal

log = logging.getLogger(__name__)

MAX_REGISTRIES = 50
# Tokens that clouds give out as passwords have a few thousand bytes.
MAX_USERNAME, MAX_PASSWORD = 200, 16_384

Owner = Project | Location


def of(owner: Owner) -> QuerySet[RegistryCredential]:
    """The registries for which there is one, without them."""
    return _rows(owner).defer("sealed").order_by("registry")


def put(
    owner: Owner, registry: str, username: object, password: object, actor: str, now: datetime
) -> tuple[RegistryCredential, bool]:
    """Set a credential. Returns its row, and whether it is new. Raises Refused."""
    registry = registry.strip().lower()
    if not is_registry(registry):
        raise Refused("registry", said("registry {must}", must=REGISTRY_RULE))
    document = {"username": _text("username", username, MAX_USERNAME)}
    document["password"] = _text("password", password, MAX_PASSWORD)
    if ":" in document["username"]:
        raise Refused(
            "username", said("username must have no colon: registries read what follows as the password.")
        )
    sealed = seal(_name_of(owner), registry, json.dumps(document))
    with transaction.atomic():
        _lock(owner)
        if not _rows(owner).filter(registry=registry).exists() and _rows(owner).count() >= MAX_REGISTRIES:
            most = said(
                "There are {number} registries already. Delete one that is not used.", number=MAX_REGISTRIES
            )
            raise Refused("registry", most)
        row, new = _rows(owner).update_or_create(
            **_owned_by(owner),
            registry=registry,
            defaults={"sealed": sealed, "changed_at": now, "changed_by": actor[:150]},
        )
        _audit(owner, "registry.set" if new else "registry.change", registry, actor, now)
    return row, new


def remove(owner: Owner, registry: str, actor: str, now: datetime) -> bool:
    """Delete a credential. Returns whether there was one."""
    with transaction.atomic():
        removed = _rows(owner).filter(registry=registry.strip().lower()).delete()[0] > 0
        if removed:
            _audit(owner, "registry.remove", registry, actor, now)
    return removed


def credentials(project: Project, location: str, registry: str) -> Mapping[str, str]:
    """What a host is told for a pull of this project's job: the project's own, or else the location's; or nothing.

    `location`: the name of one that exists, as that of a host does.
    """
    rows = RegistryCredential.objects.filter(registry=registry)
    found = rows.filter(project=project).first() or rows.filter(location__name=location).first()
    if found is None:
        return {}
    try:
        kept = json.loads(unseal(_owner_of(found), found.registry, found.sealed))
    except SecretUnreadable as problem:
        log.error("The credential of registry %s cannot be read. %s", found.registry, problem)
        return {}
    return {"registry": found.registry, "username": str(kept["username"]), "password": str(kept["password"])}


def _text(name: str, value: object, most: int) -> str:
    """A line of text. What a terminal or a header acts on is in no password that a registry could have given out."""
    if isinstance(value, str) and (found := value.strip()) and len(found) <= most and found.isprintable():
        return found
    raise Refused(name, said("{name} must be a line of 1 to {most} characters.", name=name, most=most))


def _lock(owner: Owner) -> None:
    list(type(owner)._default_manager.select_for_update(no_key=True).filter(pk=owner.pk).values_list("pk"))


def _rows(owner: Owner) -> QuerySet[RegistryCredential]:
    return RegistryCredential.objects.filter(**_owned_by(owner))


def _owned_by(owner: Owner) -> dict[str, Any]:
    return {"project" if isinstance(owner, Project) else "location": owner}


def _name_of(owner: Owner) -> str:
    """What is sealed with the value: whose it is."""
    return f"registry of {'project' if isinstance(owner, Project) else 'location'} {owner.pk}"


def _owner_of(row: RegistryCredential) -> str:
    of_project = f"registry of project {row.project_id}"
    return of_project if row.project_id is not None else f"registry of location {row.location_id}"


def _audit(owner: Owner, what: str, registry: str, actor: str, now: datetime) -> None:
    """Of a location's the audit says which location; of a project's, which project."""
    project = owner if isinstance(owner, Project) else None
    subject = registry if project else f"{owner.name}: {registry}"
    audit.record(actor, what, "registry", subject, None, None, now, project)
