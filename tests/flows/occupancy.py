"""What the page of the occupancy and its CSV tell, and the same read from the rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from datetime import datetime

LANE = re.compile(r'<svg [^>]*aria-label="GPU (\d+): .*?</svg>', re.S)
BAR = re.compile(r"<title>([^<]*)</title></rect>\s*(?:</a>)?")
SHORT = re.compile(r"(\d+) short runs")
RUNS = """
    SELECT jobs_run.job_id, jobs_run.gpu_uuids, jobs_run.created_at, jobs_run.released_at,
        COALESCE(agents_host.machine_id, agents_host.id) AS machine
    FROM jobs_run JOIN agents_host ON agents_host.id = jobs_run.host_id
"""


def told(browser, jobs):
    """Return of each run of these jobs in the CSV: the job, host, number of GPUs, and from when until when."""
    lines = csv.DictReader(browser.get("/hosts/occupancy.csv").splitlines())
    return sorted(
        (
            line["host"],
            int(line["job"]),
            int(line["gpus"]),
            second(line["held_from"]),
            second(line["held_until"]),
        )
        for line in lines
        if line["job"] and int(line["job"]) in jobs
    )


def second(text):
    return int(datetime.fromisoformat(text).timestamp()) if text else None


def held(yard, jobs):
    """Return the same as `told`, from the rows of the runs."""
    names = {row["id"]: row["name"] for row in yard.query("SELECT id, name FROM agents_host")}
    return sorted(
        (
            names[run["machine"]],
            run["job_id"],
            len(run["gpu_uuids"]),
            int(run["created_at"]),
            int(run["released_at"]) if run["released_at"] else None,
        )
        for run in yard.query(RUNS)
        if run["job_id"] in jobs
    )


def bars(browser, host):
    """Return how many runs the lane of each GPU of a host shows. Short ones beside each other share a bar."""
    page = browser.get(f"/hosts/occupancy?host={host}")
    found = Counter()
    for lane in LANE.finditer(page):
        words = [
            title for title in BAR.findall(lane[0]) if "not up" not in title and "closed to" not in title
        ]
        found[int(lane[1])] = sum(int(short[1]) if (short := SHORT.fullmatch(each)) else 1 for each in words)
    return found


def runs_by_gpu(yard, host):
    """Return how many runs held each GPU of a host, from the rows."""
    gpus = yard.query(
        'SELECT uuid, "index", host_id FROM agents_gpu JOIN agents_host ON agents_host.id = agents_gpu.host_id'
        f" WHERE agents_host.name = '{host}'"
    )
    holders = Counter(uuid for run in yard.query(RUNS) for uuid in run["gpu_uuids"])
    return Counter({gpu["index"]: holders[gpu["uuid"]] for gpu in gpus})
