"""Stored secrets of projects and people, and the change of the key that encrypts them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from agents.infra.secrets import SecretUnreadable, encrypt_again, is_under_first_key
from agents.models import Keypair
from console.commands import COMMAND_LINE, CommandRefused, project_named
from console.commands.people import find_user
from console.commands.projects import refusals_reported
from console.models import SecondFactor
from console.runtime import database_setup
from jobs.models import (
    JobSecret,
    NotificationTarget,
    Project,
    RegistryCredential,
    Secret,
    Trial,
    TuningSecret,
)
from jobs.secrets import store
from jobs.secrets.store import Owner

# Every column that is encrypted with the field key.
COLUMNS: tuple[tuple[type[Model], str], ...] = (
    (Keypair, "private_encrypted"),
    (SecondFactor, "sealed"),
    (NotificationTarget, "sealed"),
    (Secret, "sealed"),
    (JobSecret, "sealed"),
    (RegistryCredential, "sealed"),
    (TuningSecret, "sealed"),
    (Trial, "sampler_sealed"),
)
BATCH = 200


def set_secret(args: argparse.Namespace) -> int:
    """The value comes on stdin, so that no process list and no history of a shell has it."""
    database_setup.prepare()
    owner, now = _owner(args), timezone.now()
    if sys.stdin.isatty():
        print("The value, then Ctrl+D:", file=sys.stderr)
    value = sys.stdin.read().removesuffix("\n")
    with refusals_reported(), transaction.atomic():
        _, new = store.put(owner, args.name, value, COMMAND_LINE, now)
    print(f"{'Set' if new else 'Changed'} the secret {args.name} of {_named(owner)}.")
    return 0


def list_secrets(args: argparse.Namespace) -> int:
    """One line for each secret: name, who set it and when, last use; separated by tabs for cut(1)."""
    database_setup.prepare()
    for row in store.of(_owner(args)):
        used = f"used {row.used_at:%Y-%m-%d}" if row.used_at else "never used"
        print("\t".join((row.name, row.changed_by, f"{row.changed_at:%Y-%m-%d}", used)))
    return 0


def remove_secret(args: argparse.Namespace) -> int:
    database_setup.prepare()
    owner, now = _owner(args), timezone.now()
    with transaction.atomic():
        if not store.remove(owner, args.name, COMMAND_LINE, now):
            raise CommandRefused(f"There is no secret {args.name} of {_named(owner)}.")
    print(f"Deleted the secret {args.name} of {_named(owner)}.")
    return 0


def rotate(args: argparse.Namespace) -> int:
    """Encrypt again what an older line of keys/field-key encrypted. May run beside Trainyard, and twice."""
    database_setup.prepare()
    changed, unreadable = 0, []
    for model, column in COLUMNS:
        for pk, data in _encrypted(model, column):
            try:
                # Only if nobody has written another value meanwhile.
                if not is_under_first_key(data):
                    row = model._default_manager.filter(pk=pk, **{column: data})
                    changed += row.update(**{column: encrypt_again(data)})
            except SecretUnreadable:
                unreadable.append(f"{model.__name__} {pk}")
    print(f"Encrypted {changed} secrets with the first line of keys/field-key.")
    if unreadable:
        raise CommandRefused(
            f"{len(unreadable)} cannot be read with any line of keys/field-key: {', '.join(unreadable[:5])}. "
            "Set them again, or put the missing line back."
        )
    return 0


def _encrypted(model: type[Model], column: str) -> Iterator[tuple[object, bytes]]:
    """The key and the data of every row that has any, read in batches."""
    last: object = None
    while True:
        rows = model._default_manager.exclude(**{column: None}).order_by("pk")
        found = list((rows if last is None else rows.filter(pk__gt=last)).values_list("pk", column)[:BATCH])
        if not found:
            return
        for pk, data in found:
            yield pk, bytes(data)
        last = found[-1][0]


def _owner(args: argparse.Namespace) -> Owner:
    return find_user(args.user) if args.user else project_named(args.project)


def _named(owner: Owner) -> str:
    return f"project {owner.name}" if isinstance(owner, Project) else owner.get_username()
