"""`stacks`: where the Python programs of all replicas of a job stand now."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from ..session import Session
from ..tables import print_json
from ..text import harmless


def stacks_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", nargs="?", default="", help="its number; without one, your newest job that runs"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def stacks(session: Session) -> int:
    """Exit code 0 also where some replicas are not seen: the text names them."""
    found = session.api.post(f"/api/v1/jobs/{session.job_id(session.args.job, 'RUNNING')}/stacks", {})
    if session.args.json:
        print_json({name: value for name, value in found.items() if name != "text"})
    else:
        print("\n".join(harmless(line) for line in found["text"].splitlines()))
    return 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"stacks": stacks_arguments}
