"""Aliases of images: what the hosts of a location use in place of an image that a job names.

The caller has asked whether the person may do it. A job keeps what it was submitted with. Each change is audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.texts import said
from agents.models import Location
from jobs.models import ImageAlias
from jobs.projects import audit
from jobs.rules.spec.image_aliases import is_alias, may_stand_for

FIELD = "images"
MAX_ALIASES = 200


def images(location: Location) -> dict[str, str]:
    """By alias, what it stands for: an image, "host", or "host:PATH" (a Python of the host)."""
    return dict(ImageAlias.objects.filter(location=location).values_list("name", "image"))


def replace(location: Location, asked: Mapping[str, str], actor: str, now: datetime) -> None:
    """Let the location have these aliases and no others."""
    with transaction.atomic():
        _keep(location, _locked(location), asked, actor, now)


def add(location: Location, name: str, image: str, actor: str, now: datetime) -> None:
    """Add an alias, or let one stand for something else."""
    with transaction.atomic():
        before = _locked(location)
        _keep(location, before, {**before, name: image}, actor, now)


def remove(location: Location, name: str, actor: str, now: datetime) -> None:
    with transaction.atomic():
        before = _locked(location)
        if name not in before:
            raise Refused(
                FIELD,
                said("Location {location} has no alias {name}.", location=location.name, name=name[:80]),
            )
        _keep(location, before, {alias: before[alias] for alias in before if alias != name}, actor, now)


def _locked(location: Location) -> dict[str, str]:
    Location.objects.select_for_update().get(pk=location.pk)
    return images(location)


def _keep(
    location: Location, before: Mapping[str, str], asked: Mapping[str, str], actor: str, now: datetime
) -> None:
    wanted = dict(sorted(asked.items()))
    for name, image in wanted.items():
        _check(name, image)
    if len(wanted) > MAX_ALIASES:
        raise Refused(FIELD, said("A location has at most {most} aliases.", most=MAX_ALIASES))
    if wanted == before:
        return
    ImageAlias.objects.filter(location=location).delete()
    ImageAlias.objects.bulk_create(
        ImageAlias(location=location, name=name, image=image) for name, image in wanted.items()
    )
    audit.record(actor, "location.images", "location", location.name, dict(before), wanted, now)


def _check(name: str, image: str) -> None:
    if not is_alias(name):
        raise Refused(
            FIELD,
            said(
                "An alias is the name of an image without its tag, or a prefix with * at its end, such as "
                "us-docker.pkg.dev/vertex-ai/training/*, not {name}.",
                name=name[:80],
            ),
        )
    if not may_stand_for(image):
        raise Refused(
            FIELD,
            said(
                'An alias stands for "host", for a Python of the host such as host:/opt/torch/bin/python3, or for an '
                "image such as ghcr.io/lab/train:1.2, not {image}.",
                image=image[:80],
            ),
        )
