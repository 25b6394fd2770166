"""`trainyard up` and `trainyard migrate`."""

from __future__ import annotations

import argparse

from console.commands import CommandRefused
from console.runtime import database_setup
from console.runtime.processes import up


def start(args: argparse.Namespace) -> int:
    try:
        return up.main(args.only)
    except up.StartRefused as problem:
        raise CommandRefused(str(problem)) from problem


def migrate(args: argparse.Namespace) -> int:
    database_setup.prepare()
    return 0
