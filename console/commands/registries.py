"""Credentials of image registries, of projects and for locations."""

from __future__ import annotations

import argparse
import getpass
import sys

from django.utils import timezone

from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.commands.projects import refusals_reported
from console.runtime import database_setup
from jobs.maintenance import location_bindings
from jobs.models import Project
from jobs.secrets import image_registries
from jobs.secrets.image_registries import Owner


def set_registry(args: argparse.Namespace) -> int:
    """The password comes on stdin, so that no process list and no history of a shell has it."""
    database_setup.prepare()
    with refusals_reported():
        owner = _owner(args)
        password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
        now = timezone.now()
        row, new = image_registries.put(owner, args.registry, args.user, password, COMMAND_LINE, now)
    print(f"{'Set' if new else 'Changed'} the credential of registry {row.registry} for {_named(owner)}.")
    return 0


def list_registries(args: argparse.Namespace) -> int:
    """One line for each registry: its name, who set its credential, and when; separated by tabs for cut(1)."""
    database_setup.prepare()
    with refusals_reported():
        for row in image_registries.of(_owner(args)):
            print("\t".join((row.registry, row.changed_by, f"{row.changed_at:%Y-%m-%d}")))
    return 0


def remove_registry(args: argparse.Namespace) -> int:
    database_setup.prepare()
    with refusals_reported():
        owner = _owner(args)
        if not image_registries.remove(owner, args.registry, COMMAND_LINE, timezone.now()):
            raise CommandRefused(f"There is no credential of registry {args.registry} for {_named(owner)}.")
    print(f"Deleted the credential of registry {args.registry} for {_named(owner)}.")
    return 0


def _owner(args: argparse.Namespace) -> Owner:
    return location_bindings.find(args.location) if args.location else project_named(args.project)


def _named(owner: Owner) -> str:
    return f"{'project' if isinstance(owner, Project) else 'location'} {owner.name}"
