"""`jobs`, `describe` and `events`: what there is, and what happened."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..session import Session
from ..tables import TONES, painted, print_json, print_pairs, print_table
from ..text import as_json, harmless, size
from ..times import ago, between, local

EVERY_S = 2.0
ALTERNATE, NORMAL, HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[J"
Document = Mapping[str, Any]


def jobs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", nargs="?", default="", help="only jobs with this in their name, owner or label"
    )
    parser.add_argument("--state", default="", help="active, RUNNING, QUEUED, SUCCEEDED, FAILED, ...")
    parser.add_argument("--owner", default="", help="only jobs of this person")
    parser.add_argument("--mine", action="store_true", help="only your own jobs")
    parser.add_argument("--label", default="", metavar="KEY=VALUE", help="only jobs with this label")
    parser.add_argument("--trials", action="store_true", help="also trials of studies that are over")
    parser.add_argument("--sort", default="", help="such as -gpus or name; see the list of jobs on the page")
    parser.add_argument("--limit", type=int, default=30, help="how many jobs (30; 0: all)")
    parser.add_argument("--watch", "-w", action="store_true", help="show the list again every 2 s")
    parser.add_argument("--json", action="store_true", help="for programs")


def jobs(session: Session) -> int:
    args = session.args
    if not (args.watch and sys.stdout.isatty()):
        while True:
            _show_jobs(session)
            if not args.watch:
                return 0
            sys.stdout.flush()
            time.sleep(EVERY_S)
    sys.stdout.write(ALTERNATE)
    try:
        while True:
            sys.stdout.write(HOME)
            _show_jobs(session)
            print(painted("\nCtrl+C ends this.", "muted"), flush=True)
            time.sleep(EVERY_S)
    finally:
        sys.stdout.write(NORMAL)
        sys.stdout.flush()


def _show_jobs(session: Session) -> None:
    args = session.args
    query = {
        "text": args.text,
        "state": args.state if args.state == "active" else args.state.upper().replace("JOB_STATE_", ""),
        "owner": session.user() if args.mine else args.owner,
        "project": session.chosen_project,
        "label": args.label,
        "trials": "" if args.trials else "false",
        "sort": args.sort,
        "pageSize": min(args.limit or 500, 500),
    }
    rows = list(session.pages("/api/v1/jobs", "jobs", query, args.limit))
    if args.json:
        print_json(rows)
        return
    cells = [
        (
            row["id"],
            row["displayName"],
            row["state"],
            row["owner"],
            row["gpus"] or "",
            between(row.get("startTime"), row.get("endTime"), session.api.now),
            ago(row["createTime"], session.api.now),
            row.get("note", ""),
        )
        for row in rows
    ]
    print_table(
        ("id", "name", "state", "owner", "gpus", "ran", "age", "note"), cells, "There are no such jobs."
    )


def describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", help="its number; without one, your newest job")
    parser.add_argument("--json", action="store_true", help="for programs: all that REST tells")


def describe(session: Session) -> int:
    job = session.job(session.job_id(session.args.job))
    if session.args.json:
        print_json(job)
        return 0
    now, custom = session.api.now, job["customJob"]
    state = custom["state"].replace("JOB_STATE_", "")
    error = custom.get("error", {})
    print_pairs(
        [
            ("job", job["id"]),
            ("name", custom["displayName"]),
            ("state", state),
            ("reason", job.get("reason", "")),
            ("error", error.get("message", "")),
            ("project", job["project"]),
            ("owner", job["owner"]),
            ("created", local(custom.get("createTime"))),
            ("started", local(custom.get("startTime"))),
            ("ended", local(custom.get("endTime"))),
            ("ran", between(custom.get("startTime"), custom.get("endTime"), now)),
            ("attempt", job["attempt"] if job["attempt"] > 1 else ""),
            ("priority", job["priority"]),
            ("spot", "yes" if job["spot"] else ""),
            ("labels", ", ".join(f"{key}={value}" for key, value in custom.get("labels", {}).items())),
            ("page", f"{session.console.url}/jobs/{job['id']}/"),
        ]
    )
    for advice in job.get("advice", ()):
        print(painted(harmless(advice["text"]), "warn"))
    print()
    heads = ("replica", "state", "host", "gpus", "restarts", "ran", "exit", "log")
    print_table(heads, [_replica(row, now) for row in job["replicas"]], "No replica has been placed yet.")
    return 0


def _replica(row: Document, now: Any) -> tuple[object, ...]:
    run = row["runs"][-1] if row["runs"] else {}
    return (
        row["name"],
        row["state"],
        run.get("host", ""),
        len(run.get("gpus", ())) or "",
        row["restarts"] or "",
        between(run.get("startTime"), run.get("endTime"), now),
        exit_words(run),
        size(run["logSize"]) if run.get("logSize") else "",
    )


def exit_words(run: Document) -> str:
    """How a run ended."""
    if run.get("outOfMemory"):
        return "out of memory"
    if run.get("exitSignal"):
        return f"signal {run['exitSignal']}"
    return "" if run.get("exitCode") is None else str(run["exitCode"])


def events_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", default="", help="its number; without one, your newest job")
    parser.add_argument("--replica", default="", help="only events of this replica; job: of the job itself")
    parser.add_argument("--kind", default="", help="only events of this kind")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens from now on")
    parser.add_argument("--json", action="store_true", help="for programs: an object a line")


def events(session: Session) -> int:
    args = session.args
    job = session.job_id(args.job)
    query: dict[str, object] = {"replica": args.replica, "kind": args.kind, "pageSize": 1000}
    token = ""
    while True:
        page = session.api.get(f"/api/v1/jobs/{job}/events", {**query, "pageToken": token})
        for event in page["events"]:
            print(as_json(event) if args.json else _event(event))
        token = page.get("nextPageToken", token)
        if len(page["events"]) == 1000:
            continue
        if not args.follow:
            return 0
        sys.stdout.flush()
        time.sleep(EVERY_S)


def _event(event: Document) -> str:
    to = event["to"] or event["kind"]
    cause = "  " + harmless(str(event["cause"])) if event["cause"] else ""
    actor = f"  ({harmless(str(event['actor']))})" if event["actor"] else ""
    subject = harmless(str(event["subject"]))
    return (
        f"{painted(local(event['time']), 'muted')}  {subject}  {painted(to, TONES.get(to, ''))}{cause}{actor}"
    )


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "jobs": jobs_arguments,
    "describe": describe_arguments,
    "events": events_arguments,
}
