"""`trainyard up` and `trainyard migrate`."""

from __future__ import annotations

import argparse

from django.utils import timezone

from console.commands import CommandRefused
from console.runtime import database, up


def start(words: argparse.Namespace) -> int:
    try:
        return up.main(words.only)
    except up.StartRefused as problem:
        raise CommandRefused(str(problem)) from problem


def migrate(words: argparse.Namespace) -> int:
    database.prepare(timezone.now())
    return 0
