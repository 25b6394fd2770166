"""The invariants of Trainyard, checked from evidence. Each checker gives the violations it saw, in words.

I1 a run is started at most once          I2 a GPU has one user at a time      I3 one terminal state, legal edges only
I4 nothing of a terminal job lives        I5 every byte printed is stored      I6 what was accepted exists and moves on
I8 when all is quiet, nothing is held     I9 what a run held is accounted once, from its claim to its release
"""

from __future__ import annotations

import hashlib
import itertools

from jobs.rules.states import TERMINAL, JobState, legal
from tests.harness.ledger import lives

SILENT = ("unreachable", "auth_failed", "blocked")
MOMENT_S = 6.0  # whoever decided may have been stopped past its lease before it could write


def started_once(evidence):
    """I1."""
    starts = {}
    for line in evidence.ledger:
        if line["event"] == "start":
            starts.setdefault(line["run"], []).append(f"{line['host']} pid {line['pid']}")
    for run, where in starts.items():
        if len(where) > 1:
            yield f"I1: run {run} was started {len(where)} times: {', '.join(where)}"
        if evidence.run(run) is None:
            yield f"I1: {where[0]} started run {run!r}, of which the database knows nothing"


def gpus_not_shared(evidence):
    """I2. A life lasts from its start to its last beat; the clock is the host's monotonic one, within one boot."""
    users = {}
    for (host, boot_id, _, _), lines in lives(evidence.ledger).items():
        for gpu in lines[0]["gpus"]:
            span = (lines[0]["mono"], lines[-1]["mono"], lines[0]["run"])
            users.setdefault((host, boot_id, gpu), []).append(span)
    for (host, _, gpu), spans in users.items():
        spans.sort()
        for (_, end, first), (start, _, second) in zip(spans, spans[1:], strict=False):
            if start < end and first != second:
                yield f"I2: {gpu} on {host} was used by {second} while {first} still had it ({end - start:.2f} s)"


def one_terminal_state(evidence):
    """I3."""
    terminal = {str(state) for state in TERMINAL}
    for job in evidence.jobs:
        edges = [
            row for row in evidence.transitions if row["job_id"] == job["id"] and row["subject"] == "job"
        ]
        moves = [
            (row["from_state"], row["to_state"]) for row in edges if row["from_state"] != row["to_state"]
        ]
        ends = [to for _, to in moves if to in terminal]
        if len(ends) > 1:
            yield f"I3: job {job['id']} reached {len(ends)} terminal states: {', '.join(ends)}"
        if moves and moves[-1][1] != job["state"]:
            yield f"I3: job {job['id']} is {job['state']}, but its history ends in {moves[-1][1]}"
        for (_, before), (source, target) in zip(moves, moves[1:], strict=False):
            if before != source:
                yield f"I3: job {job['id']} went to {before} and then from {source} to {target}"
        for source, target in moves:
            if source and not legal(JobState(source), JobState(target)):
                yield f"I3: job {job['id']} went from {source} to {target}, which is not legal"


def silent(evidence, host, when):
    """Did this host not answer then? A decision that is dated a moment later was made from what was true before."""
    rows = [(row["at"], row["kind"]) for row in evidence.silences if row["host"] == host]
    spans = itertools.pairwise([*rows, (float("inf"), "")])
    return any(kind in SILENT and at <= when <= until + MOMENT_S for (at, kind), (until, _) in spans)


def nothing_lives_after_the_end(evidence):
    """I4. A run on a host that does not answer may close later, beside its terminal job."""
    terminal = {str(state) for state in TERMINAL}
    over = {job["id"]: job for job in evidence.jobs if job["state"] in terminal}
    dead_runs = {run["id"]: over[run["job_id"]] for run in evidence.runs if run["job_id"] in over}
    for host, found in evidence.processes.items():
        for pid, command, run in found:
            if run in dead_runs:
                yield f"I4: job {dead_runs[run]['id']} is over, but {host} has pid {pid} of {run}: {command}"
    for line in evidence.ledger:
        job = dead_runs.get(line["run"])
        if job and job["ended_at"] and line["wall"] > job["ended_at"]:
            if silent(evidence, line["host"], job["ended_at"]):
                continue
            late = line["wall"] - job["ended_at"]
            yield f"I4: {line['run']} wrote {line['event']!r} {late:.2f} s after job {job['id']} was over"


def every_byte_is_stored(evidence):
    """I5. The replica's own digest of what it printed, against what is stored; gaps must cover what is missing."""
    last = {}
    for line in evidence.ledger:
        if line["event"] != "child" and line["out"] >= last.get(line["run"], line)["out"]:
            last[line["run"]] = line
    for run_id, line in last.items():
        if run_id in evidence.compared:
            continue
        stored = evidence.logs.get(run_id)
        missing = sum(gap["end"] - gap["start"] for gap in evidence.gaps if gap["run_id"] == run_id)
        if stored is None and not line["out"] and not missing:
            continue  # it was stopped before it printed anything, and an empty log is no log
        if stored is None:
            yield f"I5: {run_id} printed {line['out']} bytes, and there is no log of it"
        elif len(stored) + missing < line["out"]:
            yield f"I5: {run_id} printed {line['out']} bytes; stored are {len(stored)}, and gaps explain {missing}"
        elif not missing and hashlib.sha256(stored[: line["out"]]).hexdigest() != line["sha256"]:
            yield f"I5: the first {line['out']} bytes stored of {run_id} are not those that it printed"
        elif line["event"] == "end" and len(stored) + missing != line["out"]:
            yield f"I5: {run_id} printed {line['out']} bytes in all; stored are {len(stored) + missing}"
    for run in evidence.runs:
        here, there = run["log_digest_here"], run["log_digest_host"]
        if here and there and here != there:
            yield f"I5: the log of {run['id']} is {here} here and {there} on its host"


def what_was_accepted_exists(evidence):
    """I6, after everything is quiet: every job is over."""
    terminal = {str(state) for state in TERMINAL}
    for job_id in evidence.accepted:
        if evidence.job(job_id) is None:
            yield f"I6: job {job_id} was accepted, and there is no such job"
    for job in evidence.jobs:
        if job["state"] not in terminal:
            yield f"I6: job {job['id']} is still {job['state']} ({job['reason'] or 'no reason given'})"


def nothing_is_held(evidence):
    """I8, after everything is quiet."""
    for run in evidence.runs:
        if run["released_at"] is None:
            yield f"I8: {run['id']} ({run['phase']}) still holds its place and port on {run['host']}"
    for claim in evidence.gpu_claims:
        if claim["released_at"] is None:
            yield f"I8: {claim['run_id']} still holds {claim['gpu']}"
    for host, found in evidence.processes.items():
        for pid, command, run in found:
            yield f"I8: {host} still has pid {pid} of {run}: {command}"
    for host, state in evidence.hosts.items():
        for gpu in state["gpu_locks"]:
            yield f"I8: the lock of {gpu} on {host} is held"
        for run, phase in state["runs"].items():
            if phase != "closed":
                yield f"I8: {host} still has {run}, phase {phase}"
        for path in state["strays"]:
            yield f"I8: {host} has the temporary file {path}"


def use_is_accounted(evidence):
    """I9."""
    rows = {}
    for row in evidence.usage:
        rows.setdefault(row["run_id"], []).append((row["began_at"], row["ended_at"]))
    for run in evidence.runs:
        held = (run["created_at"], run["released_at"])
        expected = [] if held[1] is None else [held]
        if rows.get(run["id"], []) != expected:
            yield f"I9: {run['id']} held its place {held}, and {rows.get(run['id'])} is accounted"


ALWAYS = (started_once, gpus_not_shared, one_terminal_state, nothing_lives_after_the_end)
WHEN_QUIET = (*ALWAYS, every_byte_is_stored, what_was_accepted_exists, nothing_is_held, use_is_accounted)


def violations(evidence, checkers=WHEN_QUIET):
    return [violation for checker in checkers for violation in checker(evidence)]


def check(evidence, checkers=WHEN_QUIET, context=""):
    found = violations(evidence, checkers)
    if found:
        raise AssertionError("\n".join([f"{len(found)} violations {context}".rstrip(), *found[:20]]))
