"""`logs`: the lines of all replicas of a job, in the order of their times."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from ..errors import NOT_UNDERSTOOD, ClientError
from ..log_stream import Line, LogStream
from ..session import Session
from ..tables import has_colours
from ..text import RESET, as_json, harmless
from ..times import since

# Colours of replicas by their number, readable on dark and light.
RANKS = ("36", "33", "32", "35", "34", "31", "96", "93", "92", "95", "94", "91")


def logs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", help="its number; without one, your newest job")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    parser.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one, such as workerpool0-0; repeat it",
    )
    parser.add_argument(
        "--since", default="", metavar="TIME", help="only from then on: 10m, 2h, 2026-11-23T15:00:00Z"
    )
    parser.add_argument("--grep", default="", metavar="PATTERN", help="only lines in which this is found")
    parser.add_argument("-i", "--ignore-case", action="store_true", help="for --grep")
    parser.add_argument("-t", "--timestamps", action="store_true", help="begin each line with its time")
    parser.add_argument("--plain", action="store_true", help="the lines alone, without the names of replicas")
    parser.add_argument("--json", action="store_true", help="for programs: an object a line")


def logs(session: Session) -> int:
    args = session.args
    job = session.job_id(args.job)
    replicas = ",".join(args.replica)
    begin = 0.0
    if args.since:
        session.api.get(f"/api/v1/jobs/{job}")  # tells the console's clock too
        begin = since(args.since, session.api.now).timestamp()
    pattern = _pattern(args.grep, args.ignore_case)
    show = _printer(session, len(args.replica) == 1)
    stream = LogStream(session.api, job, replicas, args.follow, begin, _say)
    for line in stream.lines():
        if pattern is None or line.note or pattern.search(line.text):
            show(line)
    return 0


def _say(text: str) -> None:
    """About the connection. Lines go to stdout, this does not."""
    sys.stdout.flush()
    print(f"trainyard: {text}", file=sys.stderr)


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except re.error as problem:
        raise ClientError(f"--grep {text!r} is no pattern: {problem}", "", NOT_UNDERSTOOD) from None


def _printer(session: Session, is_one: bool) -> Callable[[Line], None]:
    args = session.args
    colours = has_colours()

    def show(line: Line) -> None:
        if args.json:
            print(as_json(_document(line)), flush=True)
            return
        text = harmless(line.text, colours)
        if line.note:
            text = f"[{text}]"
        head = "" if args.plain or is_one else f"{line.replica} "
        if args.timestamps:
            head = (
                f"{datetime.fromtimestamp(line.at, timezone.utc).isoformat(timespec='milliseconds')} {head}"
            )
        if colours and head:
            head = f"\x1b[{RANKS[_rank(line.replica) % len(RANKS)]}m{head}{RESET}"
        print(head + text, flush=True)

    return show


def _rank(replica: str) -> int:
    """A number of a replica that is the same in each call: its place in its pool, and the pool."""
    pool, _, index = replica.rpartition("-")
    return int(re.sub(r"\D", "", index) or 0) + int(re.sub(r"\D", "", pool) or 0)


def _document(line: Line) -> dict[str, object]:
    at = (
        datetime.fromtimestamp(line.at, timezone.utc)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    place = {"replica": line.replica, "attempt": line.attempt, "start": line.start, "host": line.host}
    return {"time": at, **place, **({"missing": line.text} if line.note else {"text": line.text})}


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {"logs": logs_arguments}
