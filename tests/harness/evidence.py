"""The evidence for the invariants: the replicas' ledgers, the rows of the database, and what is on the hosts."""

from __future__ import annotations

from dataclasses import dataclass, field

HOST_STATE = r"""
import fcntl, glob, json, os
runs, gpus, strays = {}, {}, []
root = os.path.expanduser("~/.trainyard")
for path in glob.glob(root + "/*/runs/*"):
    try:
        with open(path + "/facts.json") as source:
            runs[os.path.basename(path)] = json.load(source).get("phase")
    except (OSError, ValueError):
        runs[os.path.basename(path)] = None
for path in glob.glob(root + "/gpus/*.lock"):
    with open(path, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            gpus[os.path.basename(path)[:-5]] = "held"
for folder, _, names in os.walk(root):
    # A document that is being written (runner/files.py), a runner that is being installed (ssh/install_runner.py). Not
    # what a process is compiling (runner/compiled.py): it may begin at any start, and nobody waits for it.
    strays += [os.path.join(folder, name) for name in names if ".new." in name or name.startswith(".put-")]
print(json.dumps({"runs": runs, "gpu_locks": gpus, "strays": strays}))
"""


@dataclass
class Evidence:
    """Plain rows, so that a test can plant a violation by changing one value."""

    # Lines of tests/programs/replica.py, each with its host's name.
    ledger: list = field(default_factory=list)
    jobs: list = field(default_factory=list)  # dicts: id, state, reason, due_at, ended_at (seconds)
    runs: list = field(default_factory=list)  # dicts: id, job_id, host, phase, released_at, log_size, ...
    transitions: list = field(default_factory=list)  # dicts: job_id, subject, from_state, to_state, in order
    gpu_claims: list = field(default_factory=list)  # dicts: gpu, run_id, released_at
    usage: list = field(default_factory=list)  # dicts: run_id, began_at, ended_at
    reported: dict = field(default_factory=dict)  # run id -> how many reports of metrics are stored
    gaps: list = field(default_factory=list)  # dicts: run_id, start, end, reason
    logs: dict = field(default_factory=dict)  # run id -> stored bytes
    host_logs: dict = field(
        default_factory=dict
    )  # run id -> the bytes on its host, if they are not those stored
    compared: set = field(default_factory=set)  # runs whose logs were compared before and have not changed
    host_histories: list = field(default_factory=list)  # dicts: host, at, kind, of the hosts' history
    accepted: list = field(default_factory=list)  # ids of the jobs that were answered 201
    processes: dict = field(default_factory=dict)  # host name -> [(pid, command)] that carry a run's mark
    hosts: dict = field(default_factory=dict)  # host name -> what HOST_STATE prints
    sightings: list = field(default_factory=list)  # dicts: viewer, job_id, version or None, state; in order
    sizes: list = field(default_factory=list)  # dicts: process, rss_mb, fds, threads
    sessions: int = 0  # connections that the database server has
    denied: list = field(default_factory=list)  # dicts: address, status, leaked; what a stranger was answered
    canaries: list = field(
        default_factory=list
    )  # dicts: secret, place; where a secret was found in plain text

    def run(self, run_id):
        return next((run for run in self.runs if run["id"] == run_id), None)

    def job(self, job_id):
        return next((job for job in self.jobs if job["id"] == job_id), None)


def lives(ledger):
    """Group the lines by process: (host, boot, pid, ticks) -> its lines, in order."""
    found = {}
    for line in ledger:
        found.setdefault((line["host"], line["boot_id"], line["pid"], line["ticks"]), []).append(line)
    return found
