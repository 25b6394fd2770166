"""The `trainyard` command: its verbs that work at any computer are in console/client/, its verbs that work on the data
directory in console/commands/.

This module must be importable before Django is set up, because the arguments can change the environment from which
Django's settings are made. Therefore it is not in console/commands, whose __init__ imports models. It loads Django, and
the commands, only for a verb that needs them.

Exit codes: 0 done; 1 refused, with the reason on stderr; 2 wrong arguments or settings; 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from console.client import main as client


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if client.is_client_verb(words):
        return client.run(words)
    return on_data_directory(words)


def on_data_directory(words: Sequence[str]) -> int:
    args = _load("console.arguments", "parser")().parse_args(words)
    export_options(args)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    misconfigured: type[Exception] = _load("django.core.exceptions", "ImproperlyConfigured")
    try:
        _load("django", "setup")()
        # Commands import models, which is possible only after the set-up.
        command = _load(*f"console.commands.{args.command}".rsplit(".", 1))
    except (misconfigured, OSError) as problem:
        print(f"trainyard: {problem}", file=sys.stderr)
        return 2
    return run(command, args)


def run(command: object, args: argparse.Namespace) -> int:
    assert callable(command)
    refusal: type[Exception] = _load("console.commands", "CommandRefused")
    foreign_database: type[Exception] = _load("console.runtime.database_setup", "ForeignDatabase")
    try:
        return int(command(args) or 0)
    except (refusal, foreign_database) as problem:
        print(f"trainyard: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def export_options(args: argparse.Namespace) -> None:
    """Write options into the environment, which they override.

    This process and its children read only the environment.
    """
    for option in ("data", "port", "bind"):
        if getattr(args, option, None) is not None:
            os.environ[f"TRAINYARD_{option.upper()}"] = str(getattr(args, option))


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    sys.exit(main())
