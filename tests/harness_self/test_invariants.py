"""Each invariant catches a violation that is planted for it, and accepts good evidence."""

from __future__ import annotations

import copy
import hashlib
import re

import pytest

from tests.harness.evidence import Evidence
from tests.harness.invariants import WHEN_QUIET, check, violations
from tests.harness.product.logs import StoredLogs

OUTPUT = b"line 0\nline 1\n"
EARLY, LATE = "77-workerpool0-0-a1-r0", "78-workerpool0-0-a1-r0"


def line(event, run, mono, pid, out=0, **changes):
    digest = hashlib.sha256(OUTPUT[:out]).hexdigest()
    known = {
        "host": "gpu00",
        "boot_id": "b",
        "ticks": 5,
        "gpus": ["GPU-1"],
        "wall": 1000 + mono,
        "sha256": digest,
    }
    return {**known, "event": event, "run": run, "mono": mono, "pid": pid, "out": out, **changes}


def seen(viewer, version, state):
    return {"viewer": viewer, "job_id": 77, "version": version, "state": state}


def good():
    """Evidence of two jobs, one after the other on the same GPU, both done."""
    evidence = Evidence()
    for job, run, begin, pid in ((77, EARLY, 0, 10), (78, LATE, 20, 11)):
        evidence.ledger += [
            line("start", run, begin, pid),
            line("beat", run, begin + 5, pid, 7),
            line("end", run, begin + 9, pid, 14),
        ]
        evidence.jobs.append(
            {"id": job, "state": "SUCCEEDED", "reason": "", "due_at": None, "ended_at": 1010 + begin}
        )
        held = {
            "host": "gpu00",
            "phase": "closed",
            "created_at": 0,
            "released_at": 1,
            "silent_since": None,
            "declared_lost_at": None,
            "log_digest_here": "sha256:a",
            "log_digest_host": "sha256:a",
            "metrics_proof": "whole",
        }
        evidence.runs.append({"id": run, "job_id": job, **held})
        states = ("", "QUEUED", "PENDING", "RUNNING", "SUCCEEDED")
        for source, target in zip(states, states[1:], strict=False):
            row = {"job_id": job, "subject": "job", "from_state": source, "to_state": target}
            evidence.transitions.append(row)
        evidence.usage.append({"run_id": run, "began_at": 0, "ended_at": 1})
        evidence.gpu_claims.append({"gpu": "GPU-1", "run_id": run, "released_at": 1})
        evidence.logs[run] = OUTPUT
        evidence.accepted.append(job)
    evidence.hosts["gpu00"] = {"runs": {EARLY: "closed"}, "gpu_locks": {}, "strays": []}
    evidence.sightings = [
        seen("script", 1, "QUEUED"),
        seen("page", None, "PENDING"),
        seen("script", 1, "QUEUED"),
        seen("script", 4, "SUCCEEDED"),
        seen("page", None, "SUCCEEDED"),
    ]
    evidence.sizes = [{"process": "web 12", "rss_mb": 120, "fds": 40, "threads": 20}]
    evidence.sessions = 20
    evidence.denied = [{"address": "/jobs/77/", "status": 404, "leaked": ""}]
    return evidence


def second_start(evidence):
    evidence.ledger.append(line("start", EARLY, 40, 99))


def start_of_nothing(evidence):
    evidence.ledger.append(line("start", "79-workerpool0-0-a1-r0", 60, 12))


def shared_gpu(evidence):
    for entry in evidence.ledger[3:]:
        entry["mono"] -= 15


def second_end(evidence):
    row = {"job_id": 77, "subject": "job", "from_state": "SUCCEEDED", "to_state": "FAILED"}
    evidence.transitions.append(row)
    evidence.jobs[0]["state"] = "FAILED"


def illegal_edge(evidence):
    evidence.transitions[3]["from_state"] = "CANCELLING"
    evidence.transitions[2]["to_state"] = "CANCELLING"


def torn_history(evidence):
    del evidence.transitions[1]


def state_without_history(evidence):
    del evidence.transitions[3]


def living_process(evidence):
    evidence.processes["gpu00"] = [(12, "sleep 1000", EARLY)]


def late_beat(evidence):
    evidence.ledger.append(line("beat", EARLY, 11, 10, 14))


def lost_byte(evidence):
    evidence.logs[EARLY] = OUTPUT[:-1]


def wrong_byte(evidence):
    evidence.logs[EARLY] = OUTPUT.replace(b"1", b"2")


def doubled_bytes(evidence):
    evidence.logs[EARLY] = OUTPUT + b"line 1\n"


def other_digest(evidence):
    evidence.runs[0]["log_digest_here"] = "sha256:b"


def other_reports(evidence):
    evidence.runs[0]["metrics_proof"] = "differs"


def lost_report(evidence):
    evidence.ledger[-1]["reports"] = 7
    evidence.reported = {evidence.ledger[-1]["run"]: 6}


def no_log(evidence):
    del evidence.logs[EARLY]


def vanished_job(evidence):
    evidence.accepted.append(80)


def stuck_job(evidence):
    evidence.jobs[1]["state"] = "RUNNING"
    del evidence.transitions[7]


def held_port(evidence):
    evidence.runs[0]["released_at"] = None


def held_gpu(evidence):
    evidence.gpu_claims[0]["released_at"] = None


def held_lock(evidence):
    evidence.hosts["gpu00"]["gpu_locks"]["GPU-1"] = "held"


def open_run(evidence):
    evidence.hosts["gpu00"]["runs"][EARLY] = "running"


def stray_file(evidence):
    evidence.hosts["gpu00"]["strays"].append("/home/gpu/.trainyard/x/runs/1/facts.json.new.12")


def free_ride(evidence):
    del evidence.usage[0]


def counted_twice(evidence):
    evidence.usage.append(evidence.usage[0])


def counted_short(evidence):
    evidence.usage[0]["ended_at"] = 0.5


def older_version(evidence):
    evidence.sightings.append(seen("script", 3, "SUCCEEDED"))


def older_state(evidence):
    evidence.sightings.append(seen("page", None, "RUNNING"))


def older_state_between(evidence):
    evidence.sightings.insert(2, seen("page", None, "QUEUED"))
    evidence.sightings[1]["state"] = "CANCELLING"


def too_large(evidence):
    evidence.sizes[0]["rss_mb"] = 401


def too_many_descriptors(evidence):
    evidence.sizes[0]["fds"] = 401


def too_many_threads(evidence):
    evidence.sizes[0]["threads"] = 101


def too_many_sessions(evidence):
    evidence.sessions = 81


def let_in(evidence):
    evidence.denied[0]["status"] = 200


def told_that_it_exists(evidence):
    evidence.denied[0]["status"] = 403


def told_a_name(evidence):
    evidence.denied[0]["leaked"] = "77"


def readable_token(evidence):
    evidence.canaries.append({"secret": "token", "place": "output.log"})


PLANTED = {
    "I1": (second_start, start_of_nothing),
    "I2": (shared_gpu,),
    "I3": (second_end, illegal_edge, torn_history, state_without_history),
    "I4": (living_process, late_beat),
    "I5": (lost_byte, wrong_byte, doubled_bytes, other_digest, other_reports, lost_report, no_log),
    "I6": (vanished_job, stuck_job),
    "I7": (older_version, older_state, older_state_between),
    "I8": (held_port, held_gpu, held_lock, open_run, stray_file, living_process),
    "I9": (free_ride, counted_twice, counted_short, held_port),
    "I10": (too_large, too_many_descriptors, too_many_threads, too_many_sessions),
    "I11": (let_in, told_that_it_exists, told_a_name),
    "I12": (readable_token,),
}
CASES = [
    pytest.param(name, plant, id=f"{name}-{plant.__name__}")
    for name, plants in PLANTED.items()
    for plant in plants
]


def test_good_evidence_is_accepted():
    assert violations(good()) == []


def test_every_invariant_is_planted():
    assert {re.match(r"I\d+", checker.__doc__)[0] for checker in WHEN_QUIET} == set(PLANTED)


@pytest.mark.parametrize(("name", "plant"), CASES)
def test_a_planted_violation_is_caught(name, plant):
    evidence = copy.deepcopy(good())
    plant(evidence)
    with pytest.raises(AssertionError, match=rf"{name}:"):
        check(evidence)


def left_beside(evidence):
    """Let the first job end while the host of its run is unreachable; the run goes on for a while and is stopped."""
    late_beat(evidence)
    evidence.runs[0].update(silent_since=1004, released_at=1012)
    evidence.usage[0]["ended_at"] = 1012
    told = ((0, "up"), (1001, "unreachable"), (1004, "auth_failed"), (1010, "job_ended"), (1007, "up"))
    evidence.host_histories = [{"host": "gpu00", "at": at, "kind": kind} for at, kind in told]
    evidence.host_histories.insert(3, {"host": "gpu01", "at": 1005, "kind": "up"})
    return evidence


def test_a_log_that_differs_is_shown_where_it_does():
    evidence = good()
    other_digest(evidence)
    evidence.host_logs[EARLY] = OUTPUT[:3] + b"?" + OUTPUT[4:] + b"more"
    [found] = violations(evidence)
    sizes = f": {len(OUTPUT)} bytes here, {len(OUTPUT) + 4} there, from byte 3 on "
    assert sizes in found and repr(OUTPUT[:43]) in found and repr(evidence.host_logs[EARLY][:43]) in found


def test_a_run_on_a_host_that_was_unreachable_at_the_end_may_close_later():
    """The order of the history counts, not its times: the writer of "up" may have read the clock long before."""
    assert violations(left_beside(good())) == []


def unclaimed(evidence):
    evidence.runs[0]["silent_since"] = None


def unclaimed_without_output(evidence):
    unclaimed(evidence)
    evidence.ledger.pop()


def claimed_of_another_time(evidence):
    evidence.runs[0]["silent_since"] = 1001


def not_in_the_history(evidence):
    del evidence.host_histories[4]


def in_the_history_at_another_time(evidence):
    evidence.host_histories[4]["at"] = 1009


def in_the_history_of_another_host(evidence):
    evidence.host_histories[4]["host"] = "gpu01"


def answered_before(evidence):
    evidence.host_histories.insert(4, evidence.host_histories.pop())


def never_unreachable(evidence):
    del evidence.host_histories[1:3]


def job_goes_on(evidence):
    evidence.jobs[0]["state"] = "RUNNING"


FALSE_CLAIMS = {
    unclaimed: "after job 77 was over",
    unclaimed_without_output: "its history does not say so",
    claimed_of_another_time: "unreachable since another time (1004)",
    not_in_the_history: "no end of a job at that time",
    in_the_history_at_another_time: "no end of a job at that time",
    in_the_history_of_another_host: "the history of gpu00 has no end",
    answered_before: "gpu00 was up",
    never_unreachable: "gpu00 was up",
    job_goes_on: "no end of a job at that time",
}


@pytest.mark.parametrize(
    ("plant", "text"), FALSE_CLAIMS.items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_a_false_claim_about_an_unreachable_host_is_caught(plant, text):
    evidence = left_beside(good())
    plant(evidence)
    assert [found for found in violations(evidence) if found.startswith("I4") and text in found]


@pytest.mark.parametrize(("gone_at", "caught"), [(1009, False), (1008, True), (None, True)])
def test_a_run_on_a_host_that_was_declared_gone_may_live_on(gone_at, caught):
    evidence = good()
    late_beat(evidence)
    evidence.runs[0]["declared_lost_at"] = gone_at
    evidence.host_histories = [{"host": "gpu00", "at": 1009, "kind": "declared_gone"}]
    assert [text[:2] for text in violations(evidence)] == (["I4"] if caught else [])


def test_a_replica_that_printed_nothing_has_no_log():
    evidence = good()
    evidence.ledger = [row | {"out": 0} for row in evidence.ledger if row["event"] != "end"]
    evidence.logs.clear()
    assert violations(evidence) == []


def test_a_gap_explains_missing_bytes_and_no_more():
    evidence = good()
    evidence.logs[EARLY] = OUTPUT[:4]
    evidence.gaps.append({"run_id": EARLY, "start": 4, "end": 14, "reason": "over the budget"})
    assert violations(evidence) == []
    evidence.gaps[0]["end"] = 13
    assert [text[:2] for text in violations(evidence)] == ["I5"]


class FakeProduct:
    """A product with one log of one run, which counts how often the log is read."""

    def __init__(self):
        self.row = {"id": EARLY, "job_id": 77, "replica": "workerpool0-0", "pieces": 2, "segments": 0}
        self.asked = 0
        self.client = self

    def query(self, statement):
        return [dict(self.row)]

    def log(self, *_, **__):
        self.asked += 1
        return OUTPUT


def test_a_log_is_compared_once_and_again_when_it_was_stored_otherwise():
    product = FakeProduct()
    logs = StoredLogs(product)
    assert logs.read() == ({EARLY: OUTPUT}, set())
    assert logs.read() == ({EARLY: OUTPUT}, set()), "nobody said that it was right"
    logs.mark_compared()
    assert logs.read() == ({}, {EARLY}) and product.asked == 2
    product.row.update(pieces=0, segments=1)
    assert logs.read() == ({EARLY: OUTPUT}, set())
