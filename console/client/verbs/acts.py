"""`cancel`, `delete` and `rerun`."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Callable, Mapping

from ..errors import NOT_UNDERSTOOD, REFUSED, ClientError
from ..session import Session
from ..tables import print_json
from ..text import harmless


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="their numbers")
    parser.add_argument("--json", action="store_true", help="for programs")


def cancel(session: Session) -> int:
    return _to_each(session, "batchCancel", "Cancelled" if len(session.args.jobs) == 1 else "Cancelled jobs")


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    cancel_arguments(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def delete(session: Session) -> int:
    args = session.args
    if not args.yes:
        if not sys.stdin.isatty():
            raise ClientError("Deleting cannot be undone.", "Give --yes if you mean it.", NOT_UNDERSTOOD)
        named = ", ".join(args.jobs)
        if input(f"Delete {named} with its logs? This cannot be undone. [y/N] ").strip().lower() not in (
            "y",
            "yes",
        ):
            print("Nothing is deleted.")
            return REFUSED
    return _to_each(session, "batchDelete", "Deleted")


def _to_each(session: Session, act: str, done: str) -> int:
    ids = [session.job_id(text) for text in session.args.jobs]
    answer = session.api.post(f"/api/v1/jobs:{act}", {"jobs": ids})
    if session.args.json:
        print_json(answer)
    else:
        if answer["done"]:
            print(f"{done}: {', '.join(answer['done'])}")
        for one in answer["refused"]:
            print(f"trainyard: {one['job']}: {harmless(one['message'])}", file=sys.stderr)
    return REFUSED if answer["refused"] else 0


def rerun_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", help="its number; without one, your newest job")
    parser.add_argument("--json", action="store_true", help="for programs")


def rerun(session: Session) -> int:
    job = session.job_id(session.args.job)
    # Sent again after a lost answer, the same copy is answered.
    again = session.api.post(f"/api/v1/jobs/{job}:rerun", {"requestId": f"cli-{uuid.uuid4()}"})
    if session.args.json:
        print_json(again)
    else:
        print(f"Submitted job {again['id']}: {session.console.url}/jobs/{again['id']}/")
    return 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "cancel": cancel_arguments,
    "delete": delete_arguments,
    "rerun": rerun_arguments,
}
