"""Locations: which projects each serves, and which images it uses in place of others."""

from __future__ import annotations

import argparse

from django.db import transaction
from django.utils import timezone

from agents.models import Location
from console.commands import COMMAND_LINE
from console.commands.projects import refusals_reported
from console.runtime import database_setup
from jobs.maintenance import location_bindings, location_images
from jobs.models import LocationBinding


def list_locations(args: argparse.Namespace) -> int:
    database_setup.prepare()
    for row in Location.objects.order_by("name"):
        print(f"{row.name}\t{_served(row.name)}")
    return 0


def bind_location(args: argparse.Namespace) -> int:
    """Let a location serve some projects and no others, or all."""
    database_setup.prepare()
    now = timezone.now()
    with refusals_reported(), transaction.atomic():
        location_bindings.bind(args.name, args.project or [], COMMAND_LINE, now)
    print(f"Location {args.name} serves {_served(args.name)}.")
    return 0


def list_aliases(args: argparse.Namespace) -> int:
    """The images that a location uses in place of those that jobs name."""
    database_setup.prepare()
    with refusals_reported():
        for name, image in location_images.images(location_bindings.find(args.name)).items():
            print(f"{name}\t{image}")
    return 0


def add_alias(args: argparse.Namespace) -> int:
    database_setup.prepare()
    with refusals_reported():
        location = location_bindings.find(args.name)
        location_images.add(location, args.alias, args.image, COMMAND_LINE, timezone.now())
    print(f"In location {args.name}, {args.alias} is {args.image}.")
    return 0


def remove_alias(args: argparse.Namespace) -> int:
    database_setup.prepare()
    with refusals_reported():
        location_images.remove(location_bindings.find(args.name), args.alias, COMMAND_LINE, timezone.now())
    print(f"Location {args.name} has no alias {args.alias} any more.")
    return 0


def _served(location: str) -> str:
    rows = LocationBinding.objects.filter(location__name=location).order_by("project__name")
    return ", ".join(rows.values_list("project__name", flat=True)) or "all projects"
