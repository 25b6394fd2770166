"""A restored backup: hosts know what the database does not. Nothing is started or stopped before a person confirms."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents import recovery
from agents.desk import Arrival
from agents.models import Recovery
from jobs import recovering, schedule, services
from jobs.models import AuditEntry, Job, Run, Stray
from jobs.refusals import Refused
from tests.jobs.conftest import spec
from tests.jobs.paper import PaperRun, settle
from tests.jobs.test_moves import look

LOST = "1795000000000000001-workerpool0-0-a1-r0"


def inventory(host, desk):
    host.tell(desk, [Arrival(run, paper.fact(host.boot_id)) for run, paper in host.runs.items()])


@pytest.fixture
def restored(desk, add_host, submit):
    """Host one runs a job of after the backup, and has forgotten one of before; another job waits."""
    one = add_host("one", cpus=4)
    known, forgotten = submit(spec("known")), submit(spec("forgotten"))
    settle(desk, one)
    del one.runs[f"{forgotten.pk}-workerpool0-0-a1-r0"]
    one.runs[LOST] = PaperRun({"gpus": [], "port": 29_999}, log=b"hello\n")
    one.ledger.append(LOST)
    waiting = submit(spec("waiting"), place=False)
    inventory(one, desk)
    return one, known, forgotten, waiting


def states(*jobs):
    return [Job.objects.get(pk=job.pk).state for job in jobs]


def test_nothing_is_started_or_killed_before_the_admin_confirms(desk, restored):
    one, known, forgotten, waiting = restored
    assert recovery.observing()
    assert Recovery.objects.get().why == f"one has the run {LOST}, of which the database knows nothing."
    before = list(one.ledger)
    services.cancel(known, "alice", timezone.now())
    for _ in range(3):
        look(desk, one)
    assert states(known, forgotten, waiting) == ["RUNNING", "RUNNING", "QUEUED"]
    assert one.ledger == before, "nothing is started"
    assert {paper.phase for paper in one.runs.values()} == {"running"}, "nothing is killed"
    found = recovering.found()
    assert [stray.run for stray in found.strays] == [LOST]
    assert [run.job_id for run in found.missing] == [forgotten.pk]
    recovering.confirm([], "root", timezone.now())
    Job.objects.update(due_at=timezone.now())
    desk._thinker.think([known.pk, forgotten.pk], anew=True)
    look(desk, one)
    desk._thinker.think([known.pk, forgotten.pk], anew=True)
    look(desk, one)
    assert states(known, forgotten, waiting) == ["CANCELLED", "RUNNING", "RUNNING"]
    assert one.runs[LOST].phase == "running", "nobody chose to stop it"
    [first, second] = Run.objects.filter(job=forgotten).order_by("number")
    assert (first.why, first.phase, second.phase) == ("lost", "closed", "running")
    assert "as root confirmed after a backup was restored" in first.message
    assert AuditEntry.objects.get(what="recovery.confirm").after == {
        "stopped": [],
        "taken_as_lost": [first.pk],
    }
    # The same news again is no news.
    inventory(one, desk)
    assert not recovery.observing()


def test_a_stop_that_was_ordered_before_waits_for_the_word_too(desk, add_host, submit):
    one = add_host("one")
    job = submit(spec())
    settle(desk, one)
    run = job.runs.get().pk
    services.cancel(job, "alice", timezone.now())
    one.runs[LOST] = PaperRun({"gpus": [], "port": 29_999})
    inventory(one, desk)
    settle(desk, one)
    assert one.runs[run].phase == "running"
    recovering.confirm([], "root", timezone.now())
    settle(desk, one)
    assert (one.runs[run].phase, one.runs[LOST].phase) == ("closed", "running")


def test_a_stray_is_stopped_by_choice(desk, restored):
    one, *_ = restored
    with pytest.raises(Refused, match="does not know"):
        recovering.confirm(["1795000000000000002-workerpool0-0-a1-r0"], "root", timezone.now())
    assert recovery.observing()
    recovering.confirm([LOST], "root", timezone.now())
    settle(desk, one)
    stray = Stray.objects.get()
    assert (one.runs[LOST].phase, stray.phase, stray.stop_by) == ("closed", "closed", "root")
    with pytest.raises(Refused, match="Nothing waits"):
        recovering.confirm([], "root", timezone.now())


def test_what_no_console_of_ours_would_call_a_run_stops_nobody(desk, add_host, submit):
    one = add_host("one")
    one.tell(desk, [Arrival("somebody-elses", PaperRun({"gpus": [], "port": 1}).fact("boot-1"))])
    assert not recovery.observing() and not Stray.objects.exists()


def test_a_run_of_a_host_that_was_added_again_is_known(desk, add_host, submit):
    one = add_host("one")
    job = submit(spec())
    settle(desk, one)
    again = add_host("again")
    again.runs = one.runs
    inventory(again, desk)
    assert not recovery.observing() and job.runs.get().host == one.row


def test_the_log_of_what_is_known_is_fetched_meanwhile(desk, restored):
    one, known, *_ = restored
    run = known.runs.get()
    one.runs[run.pk].log += b"more\n"
    settle_once = one.turn(desk)
    run.refresh_from_db()
    assert settle_once and run.log_stored == len(one.runs[run.pk].log)
    schedule.schedule_quietly(timezone.now())
