"""A control plane in memory: what the tests want of a host, and what the host reported."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict

from agents.links.control_plane import Accepted, Fact, Forgotten, Frame, Gap, LogEnd, Wanted


def order(*command, **changes):
    return {
        "command": list(command),
        "env": {},
        "gpus": [],
        "port": None,
        "work_key": None,
        "grace_s": 5.0,
        "timeout_s": None,
        "mark": "test",
        "memory_mb": None,
        "log_budget_mb": 64,
        "web_access": True,
        **changes,
    }


class MemoryControlPlane:
    def __init__(self):
        self.lock = threading.RLock()
        self.documents = {}
        # Whether start orders come with the wanted runs, and the runs whose orders were asked for by themselves.
        self.with_orders, self.asked_for = False, []
        self.host_of = {}
        # What runs wait for, what each of that is, what the host reported, and what it was told to end.
        self.held_back, self.preparations, self.prepared, self.given_up = {}, {}, [], []
        self.stopped = set()
        self.facts = {}
        self.history = defaultdict(list)
        self.logs = defaultdict(bytearray)
        self.gaps = defaultdict(list)
        self.ends = {}
        self.forgotten = set()
        self.changes = 0
        self.takes = []
        self.tokens = []
        self.current = True
        self.keep = set()
        self.hint = lambda: None
        self.gate = threading.Event()
        self.gate.set()

    # Called by tests.

    def start(self, run, *command, **changes):
        with self.lock:
            self.documents[run] = order(*command, **changes)

    def start_on(self, host_id, run, *command):
        with self.lock:
            self.host_of[run] = host_id
            self.start(run, *command)

    def hold_back(self, run, name, document):
        with self.lock:
            self.preparations[name.key] = document
            self.held_back[run] = (name,)
            self.start(run, "true")

    def stop(self, run):
        with self.lock:
            self.stopped.add(run)
        self.hint()

    def phases(self, run):
        return [document["phase"] for document in self.history[run]]

    def done(self, run):
        """Closed, its log whole, and forgotten by the host."""
        return run in self.forgotten

    # The methods of ControlPlane.

    def wanted_runs(self, host_id, ordered=()):
        with self.lock:
            return {
                run: self._want(run)
                for run in self.documents
                if run not in self.forgotten and self.host_of.get(run, host_id) == host_id
            }

    def _want(self, run):
        closed = self.facts.get(run, {}).get("phase") == "closed"
        whole = run in self.ends and len(self.logs[run]) >= self.ends[run].size
        return Wanted(
            stop=run in self.stopped,
            grace_s=5.0,
            pull_from=None if whole else len(self.logs[run]),
            forget=closed and whole and run not in self.keep,
            order=self.documents[run] if self.with_orders else None,
            held_back=run in self.held_back and run not in self.stopped,
            prepare=self.held_back.get(run, ()) if run not in self.stopped else (),
        )

    def start_orders(self, runs):
        with self.lock:
            self.asked_for += runs
            return {run: self.documents[run] for run in runs}

    def preparation_orders(self, host_id, names):
        return {name: self.preparations[name.key] for name in names}

    def give_up_preparations(self, host_id, token, names):
        with self.lock:
            self.given_up += names
        return names

    def store_preparations(self, host_id, token, reports):
        with self.lock:
            self.prepared += reports

    def store_reports(self, host_id, token, arrivals):
        self.gate.wait()
        with self.lock:
            if not self.current:
                return Accepted(current=False)
            self.takes.append(len(arrivals))
            self.tokens.append(token)
            acks, pulls = {}, {}
            for arrival in arrivals:
                self._store(arrival.run, arrival.what, acks, pulls)
            return Accepted(acks, pulls)

    def _store(self, run, what, acks, pulls):
        if isinstance(what, Fact):
            self.facts[run] = dict(what.document)
            self.history[run].append(dict(what.document))
        elif isinstance(what, Frame):
            data = zlib.decompress(what.data) if what.z else what.data
            assert len(data) == what.end - what.start
            if what.start == len(self.logs[run]):
                self.logs[run] += data
                acks[run] = what.end
            elif what.start > len(self.logs[run]):
                pulls[run] = len(self.logs[run])
        elif isinstance(what, Gap):
            self.gaps[run].append(what)
        elif isinstance(what, LogEnd):
            self.ends[run] = what
        elif isinstance(what, Forgotten):
            self.forgotten.add(run)

    def host_changed(self, host_id):
        with self.lock:
            self.changes += 1

    def stuck_s(self):
        return 0.0
