"""`hosts`, `gpus`, `queue`, `quota` and `open`."""

from __future__ import annotations

import argparse
import webbrowser
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..connection import quoted
from ..session import Session
from ..tables import print_json, print_table
from ..times import ago, local

Document = Mapping[str, Any]


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def hosts_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", default="", help="only hosts with this in their name or address")
    parser.add_argument("--status", default="", help="only hosts with this status, such as up")
    _json(parser)


def hosts(session: Session) -> int:
    args = session.args
    query: dict[str, object] = {"text": args.text, "status": args.status, "location": args.location or ""}
    rows = list(session.pages("/api/v1/hosts", "hosts", {**query, "pageSize": 1000}))
    if args.json:
        print_json(rows)
        return 0
    cells = [
        (
            row["name"],
            row["status"],
            "draining" if row["draining"] else "cordoned" if row["cordoned"] else "",
            row["location"],
            _kinds(row["gpus"]),
            row["cpus"],
            f"{row['memoryMb'] / 1024:.0f} GiB" if row["memoryMb"] else "",
            row["runs"],
            row["error"] or row["message"],
        )
        for row in rows
    ]
    heads = ("name", "status", "closed", "location", "gpus", "cpus", "memory", "runs", "note")
    print_table(heads, cells, "There are no such hosts.")
    return 0


def _kinds(gpus: list[Document]) -> str:
    counts = Counter(gpu["acceleratorType"] or gpu["model"] for gpu in gpus)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def gpus_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "host", nargs="?", default="", help="each GPU of this host; without one, the sums of all hosts"
    )
    _json(parser)


def gpus(session: Session) -> int:
    args = session.args
    if args.host:
        rows = session.api.get(f"/api/v1/hosts/{quoted(args.host)}/gpus")["gpus"]
        if args.json:
            print_json(rows)
            return 0
        cells = [
            (row["index"], row["acceleratorType"] or row["model"], _use(row), row["state"], row["stateText"])
            for row in rows
            if row["present"]
        ]
        print_table(("gpu", "type", "use", "state", "note"), cells, f"{args.host} has no GPU.")
        return 0
    sums = [
        line
        for host in session.pages("/api/v1/hosts", "hosts", {"pageSize": 1000})
        for line in _sums(session, host)
    ]
    if args.json:
        print_json(sums)
        return 0
    heads = ("host", "type", "gpus", "held", "free", "out of use")
    print_table(heads, [tuple(line.values()) for line in sums], "No host has a GPU.")
    return 0


def _use(gpu: Document) -> str:
    return "held" if gpu["held"] else "free" if gpu["state"] == "ok" else ""


def _sums(session: Session, host: Document) -> list[dict[str, Any]]:
    """A line for each kind of GPU of a host."""
    if not host["gpus"]:
        return []
    found = session.api.get(f"/api/v1/hosts/{host['id']}/gpus")["gpus"]
    lines = []
    for kind in sorted({gpu["acceleratorType"] or gpu["model"] for gpu in found if gpu["present"]}):
        own = [gpu for gpu in found if gpu["present"] and (gpu["acceleratorType"] or gpu["model"]) == kind]
        held = sum(gpu["held"] for gpu in own)
        is_open = host["status"] == "up" and not host["cordoned"]
        free = sum(not gpu["held"] and gpu["state"] == "ok" for gpu in own) if is_open else 0
        sums = {"gpus": len(own), "held": held, "free": free, "outOfUse": len(own) - held - free}
        lines.append({"host": host["name"], "type": kind, **sums})
    return lines


def queue_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=50, help="how many jobs (50; 0: all)")
    _json(parser)


def queue(session: Session) -> int:
    args = session.args
    rows = list(
        session.pages("/api/v1/queue", "jobs", {"project": args.project or "", "pageSize": 500}, args.limit)
    )
    if args.json:
        print_json(rows)
        return 0
    cells = [
        (
            row.get("place", ""),
            row["id"],
            row["displayName"],
            row["owner"],
            row["wants"],
            row["priority"],
            ago(row["queueTime"], session.api.now),
            local(row.get("expectedStart", {}).get("from")),
            row["reason"],
        )
        for row in rows
    ]
    heads = ("place", "id", "name", "owner", "wants", "priority", "waits", "expected", "for")
    print_table(heads, cells, "No job waits.")
    return 0


def quota_arguments(parser: argparse.ArgumentParser) -> None:
    _json(parser)


def quota(session: Session) -> int:
    found = session.api.get(f"/api/v1/projects/{quoted(session.project)}/quotas")
    if session.args.json:
        print_json(found)
        return 0
    lines = [(kind, row["used"], _limit(row)) for kind, row in found["gpus"].items()]
    names = {
        "running": "running jobs",
        "queued": "waiting jobs",
        "gpuHours": "GPU hours of the month",
        "logGb": "GB of logs",
        "storageGb": "GB of storage",
    }
    lines += [(name, found[key]["used"], _limit(found[key])) for key, name in names.items() if key in found]
    print_table(("what", "used", "limit"), lines)
    return 0


def _limit(row: Document) -> str:
    return "none" if row["limit"] is None else f"{row['limit']:g}"


def open_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="jobs", help="the number of a job, or: jobs, queue, hosts, gpus"
    )
    parser.add_argument("--print", action="store_true", dest="only_print", help="only print the address")


PAGES = {"jobs": "/jobs/", "queue": "/jobs/queue", "hosts": "/hosts/", "gpus": "/hosts/gpus"}


def open_(session: Session) -> int:
    what = session.args.what
    page = session.console.url + (PAGES.get(what) or f"/jobs/{session.job_id(what)}/")
    print(page)
    if not session.args.only_print:
        webbrowser.open(page)
    return 0


ARGUMENTS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "hosts": hosts_arguments,
    "gpus": gpus_arguments,
    "queue": queue_arguments,
    "quota": quota_arguments,
    "open": open_arguments,
}
