"""Runs a verb of the client: its arguments, its connection, and its errors in words."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from . import VERSION
from .errors import INTERRUPTED, NOT_UNDERSTOOD, REFUSED, ClientError
from .main import SERVER_VERBS, VERBS, find_server
from .session import Session
from .tables import has_colours, painted
from .text import harmless


def run(words: Sequence[str]) -> int:
    """Run a verb of the client."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if not words or words[0] in ("-h", "--help"):
        print(overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else NOT_UNDERSTOOD
    if words[0] == "--version":
        print(f"trainyard {VERSION}")
        return 0
    try:
        return _run(words)
    except ClientError as problem:
        sys.stdout.flush()
        _complain(problem)
        return problem.code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read has seen enough. What Python would still write at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED


def _run(words: Sequence[str]) -> int:
    verb = words[0]
    module = importlib.import_module(f".verbs.{VERBS[verb][0]}", __package__)
    parser = parser_of(verb, module.ARGUMENTS[verb])
    name = verb.replace("-", "_")
    run_verb: Callable[[Session], int] = getattr(module, name, None) or getattr(module, f"{name}_")
    args, command = split(parser, list(words[1:]))
    args.words = command
    session = Session(args)
    try:
        return run_verb(session)
    finally:
        session.close()


def split(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and the words behind `--`, which belong to a command."""
    place = words.index("--") if "--" in words else len(words)
    return parser.parse_intermixed_args(words[:place]), words[place + 1 :]


def parser_of(verb: str, add_arguments: Callable[[argparse.ArgumentParser], None]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"trainyard {verb}", description=VERBS[verb][1].capitalize() + ".")
    add_arguments(parser)
    shared = parser.add_argument_group("console")
    shared.add_argument("--console", metavar="NAME", help="a console by name or address (TRAINYARD_CONSOLE)")
    shared.add_argument("--project", metavar="NAME", help="the project (TRAINYARD_PROJECT)")
    shared.add_argument(
        "--location", metavar="NAME", help="the location (TRAINYARD_LOCATION; default: default)"
    )
    shared.add_argument(
        "--ca-file", metavar="FILE", help="certificates to trust (REQUESTS_CA_BUNDLE, SSL_CERT_FILE)"
    )
    return parser


def _complain(problem: ClientError) -> None:
    lines = [harmless(line) for line in problem.message.split("\n")]
    print(f"trainyard: {chr(10).join(lines)}", file=sys.stderr)
    if problem.cure:
        cure = harmless(problem.cure)
        print(painted(cure, "muted") if has_colours(sys.stderr) else cure, file=sys.stderr)


def overview() -> str:
    """What `trainyard --help` says."""
    room = max(map(len, VERBS))
    lines = ["usage: trainyard VERB [OPTION...]", "", "Jobs on your own machines. At any computer:"]
    lines += [f"  {verb:{room}}  {what}" for verb, (_, what) in VERBS.items()]
    lines += ["", "On the console's machine: " + ", ".join(sorted(SERVER_VERBS))]
    if find_server() is None:
        lines[-1] += " (not installed here)"
    return "\n".join([*lines, "", "trainyard VERB --help tells more about one."])
