"""The invariants of Trainyard, checked from evidence. Each checker yields its violations as text.

I1 a run is started at most once          I2 a GPU has one user at a time      I3 one terminal state, legal edges only
I4 nothing of a terminal job lives        I5 every byte printed is stored      I6 an accepted job exists and ends
I7 what a viewer sees never goes back     I8 when all is over, nothing is held
I9 what a run held is accounted once, from its claim to its release
I10 no process holds more than its bound  I11 a stranger is answered 404, and learns nothing
I12 no secret is found in plain text
"""

from __future__ import annotations

import hashlib

from jobs.rules.lifecycle.states import JOB_MOVES, TERMINAL, JobState, legal
from tests.harness.evidence import lives

UNREACHABLE = ("unreachable", "auth_failed", "blocked")
STATUSES = ("new", "checking", "up", "unusable", *UNREACHABLE)
# Lines of a host's history: a job ended while the host was unreachable; a person declared the host gone.
JOB_ENDED, DECLARED_GONE = "job_ended", "declared_gone"
HISTORY_KINDS = (*STATUSES, JOB_ENDED, DECLARED_GONE)
# What one process of the console may hold, and how many connections it may have to the database (docs/operating.md).
BOUNDS = {"rss_mb": 400, "fds": 400, "threads": 100}
SESSIONS = 24


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
    """I2. A process lives from its start to its last beat, by the host's monotonic clock, within one boot."""
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


def why_untrue(evidence, run, job):
    """Return why the claim that this run's host was unreachable at the end of its job is false; None if it is true.

    A host's history has the order in which things became true, whatever the clocks of the processes that wrote it.
    """
    history = [row for row in evidence.host_histories if row["host"] == run["host"]]
    said = [
        place
        for place, row in enumerate(history)
        if row["kind"] == JOB_ENDED and job and row["at"] == job["ended_at"]
    ]
    if not said:
        return f"the history of {run['host']} has no end of a job at that time"
    before = [row for row in history[: said[0]] if row["kind"] in STATUSES]
    if not before or before[-1]["kind"] not in UNREACHABLE:
        return f"{run['host']} was {before[-1]['kind'] if before else 'new'}"
    if before[-1]["at"] != run["silent_since"]:
        return f"{run['host']} was unreachable since another time ({before[-1]['at']})"
    return None


def declared_gone(evidence, run):
    """Whether a person declared the run's host gone at the time that the run says."""
    said = {"host": run["host"], "kind": DECLARED_GONE, "at": run["declared_lost_at"]}
    return any(said.items() <= row.items() for row in evidence.host_histories)


def nothing_lives_after_the_end(evidence):
    """I4. A run on a host that was unreachable at the end of its job may close later; that claim is verified."""
    terminal = {str(state) for state in TERMINAL}
    over = {job["id"]: job for job in evidence.jobs if job["state"] in terminal}
    dead_runs = {run["id"]: over[run["job_id"]] for run in evidence.runs if run["job_id"] in over}
    for host, found in evidence.processes.items():
        for pid, command, run in found:
            if run in dead_runs:
                yield f"I4: job {dead_runs[run]['id']} is over, but {host} has pid {pid} of {run}: {command}"
    left = {run["id"] for run in evidence.runs if run["silent_since"] is not None}
    excused = left | {run["id"] for run in evidence.runs if declared_gone(evidence, run)}
    for run in evidence.runs:
        job = dead_runs.get(run["id"])
        if run["id"] in left:
            wrong = why_untrue(evidence, run, job)
            if wrong:
                yield f"I4: {run['id']} is said to be left on a host unreachable since {run['silent_since']}: {wrong}"
        elif job and (run["released_at"] is None or run["released_at"] > job["ended_at"]):
            yield f"I4: {run['id']} was not proved over when job {job['id']} ended, and its history does not say so"
    for line in evidence.ledger:
        job = dead_runs.get(line["run"])
        if job and line["run"] not in excused and line["wall"] > job["ended_at"]:
            late = line["wall"] - job["ended_at"]
            yield f"I4: {line['run']} wrote {line['event']!r} {late:.2f} s after job {job['id']} was over"


def every_byte_is_stored(evidence):
    """I5. Compares the replica's own digest of its output with what is stored; gaps must cover missing bytes."""
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
            continue  # it was stopped before it printed anything: there is no log
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
            where = difference(evidence.logs.get(run["id"]), evidence.host_logs.get(run["id"]))
            yield f"I5: the log of {run['id']} is {here} here and {there} on its host{where}"


def difference(here, there):
    """Where two logs begin to differ, with what each of them has there; nothing, where one is not known."""
    if here is None or there is None:
        return ""
    shorter = min(len(here), len(there))
    first = next((place for place in range(shorter) if here[place] != there[place]), shorter)
    around = slice(max(first - 40, 0), first + 40)
    sizes = f"{len(here)} bytes here, {len(there)} there"
    return f": {sizes}, from byte {first} on {here[around]!r} here and {there[around]!r} there"


def every_report_is_stored(evidence):
    """I5, for what programs report: the host's own hash is that of what is stored, and no report is missing."""
    made = {}
    for line in evidence.ledger:
        if line["event"] != "child":
            made[line["run"]] = max(made.get(line["run"], 0), line.get("reports", 0))
    for run in evidence.runs:
        if run["metrics_proof"] == "differs":
            yield f"I5: the metrics of {run['id']} are not those of its host"
        stored = evidence.reported.get(run["id"], 0)
        if run["metrics_proof"] in ("whole", "none") and stored < made.get(run["id"], 0):
            yield f"I5: {run['id']} made {made[run['id']]} reports, and {stored} are stored"


def what_was_accepted_exists(evidence):
    """I6, when all is over: every accepted job exists, and every job is over."""
    terminal = {str(state) for state in TERMINAL}
    for job_id in evidence.accepted:
        if evidence.job(job_id) is None:
            yield f"I6: job {job_id} was accepted, and there is no such job"
    for job in evidence.jobs:
        if job["state"] not in terminal:
            yield f"I6: job {job['id']} is still {job['state']} ({job['reason'] or 'no reason given'})"


def later_states(state):
    """The states that a job may have after this one, at any time."""
    found, left = set(), [JobState(state)]
    while left:
        new = set(JOB_MOVES[left.pop()]) - found
        found |= new
        left += new
    return found


def views_never_go_back(evidence):
    """I7. A version never falls, and a state is followed by itself or by one that can come later."""
    last = {}
    for seen in evidence.sightings:
        who, job = seen["viewer"], seen["job_id"]
        version, state = last.get((who, job), (0, None))
        if seen["version"] is not None and seen["version"] < version:
            yield f"I7: {who} saw job {job} at version {version} and then at {seen['version']}"
        if state not in (None, seen["state"]) and JobState(seen["state"]) not in later_states(state):
            yield f"I7: {who} saw job {job} {state} and then {seen['state']}"
        last[who, job] = (seen["version"] or version, seen["state"])


def nothing_is_held(evidence):
    """I8, when all is over."""
    for run in evidence.runs:
        if run["released_at"] is None:
            yield f"I8: {run['id']} ({run['phase']}) still holds its claims on {run['host']}"
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
            yield f"I9: {run['id']} held its claims {held}, and {rows.get(run['id'])} is accounted"


def sizes_are_bounded(evidence):
    """I10."""
    for process in evidence.sizes:
        for what, bound in BOUNDS.items():
            if process[what] > bound:
                yield f"I10: {process['process']} holds {process[what]:.0f} {what}; {bound} are allowed"
    allowed = SESSIONS * len(evidence.sizes)
    if evidence.sessions > allowed:
        yield f"I10: the database has {evidence.sessions} connections; {allowed} are allowed"


def strangers_learn_nothing(evidence):
    """I11."""
    for answer in evidence.denied:
        if answer["status"] != 404:
            yield f"I11: a stranger was answered {answer['status']} at {answer['address']}"
        if answer["leaked"]:
            yield f"I11: a stranger read {answer['leaked']!r} at {answer['address']}"


def no_secret_is_readable(evidence):
    """I12."""
    for found in evidence.canaries:
        yield f"I12: the {found['secret']} is in {found['place']}"


ALWAYS = (started_once, gpus_not_shared, one_terminal_state, nothing_lives_after_the_end, views_never_go_back)
WHEN_QUIET = (
    *ALWAYS,
    every_byte_is_stored,
    every_report_is_stored,
    what_was_accepted_exists,
    nothing_is_held,
    use_is_accounted,
    sizes_are_bounded,
    strangers_learn_nothing,
    no_secret_is_readable,
)


def violations(evidence, checkers=WHEN_QUIET):
    return [violation for checker in checkers for violation in checker(evidence)]


def check(evidence, checkers=WHEN_QUIET, context=""):
    found = violations(evidence, checkers)
    if found:
        raise AssertionError("\n".join([f"{len(found)} violations {context}".rstrip(), *found[:20]]))
