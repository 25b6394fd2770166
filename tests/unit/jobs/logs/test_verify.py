"""A log is verified when its bytes are those of the host. Large logs are verified in steps, each log alone."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.links.control_plane import Fact
from jobs import services
from jobs.logs import reader, verify
from jobs.models import LogGap, LogPiece, Run
from tests.unit.jobs.fake_hosts import digest_of, frame, settle

pytestmark = pytest.mark.django_db


def test_a_log_that_differs_is_shown_and_stays_on_the_host(add_host, submit, control_plane):
    host = add_host()
    submit()
    settle(control_plane, host)
    run = Run.objects.get()
    host.end(control_plane, run.pk, exit_code=0)
    honest = host.runs[run.pk].log
    host.runs[run.pk].log = b"H" + honest[1:]
    settle(control_plane, host)
    Run.objects.update(log_digest_host=digest_of(honest + b"?"))
    verify.verify_logs([run.pk], timezone.now())
    assert reader.status(run).matches is False
    settle(control_plane, host)
    assert run.pk in host.runs and Run.objects.get().forgotten_at is None


def test_a_large_log_is_verified_in_steps(logged, monkeypatch):
    run, give = logged
    monkeypatch.setattr(verify, "BLOCK", 1000)
    data = os.urandom(4500)
    give(frame(0, data))
    give(Fact({"phase": "closed", "log": {"size": 4500, "final": True, "digest": "?"}}))
    monkeypatch.setattr(verify, "SLICE_S", 0)
    for step in range(1, 5):
        verify._verify(Run.objects.get(), time.monotonic() - 1, timezone.now())
        assert len(Run.objects.get().log_proof) == 32 * step
    verify._verify(Run.objects.get(), time.monotonic() - 1, timezone.now())
    digests = b"".join(verify.hashlib.sha256(data[i : i + 1000]).digest() for i in range(0, 4500, 1000))
    assert reader.status(run).digest_here == "blocks8m:" + verify.hashlib.sha256(digests).hexdigest()
    assert Run.objects.get().prove_due_at is None


def test_short_logs_are_verified_together_and_a_broken_one_alone(
    add_host, submit, control_plane, django_assert_max_num_queries, caplog
):
    host = add_host(cpus=16)
    for _ in range(12):
        submit()
    settle(control_plane, host)
    for run in list(host.runs):
        host.end(control_plane, run, exit_code=0)
    settle(control_plane, host)
    runs = verify.due_for_verification(timezone.now())
    LogPiece.objects.filter(run=runs[0]).update(data=b"junk", z=True)
    LogGap.objects.create(run_id=runs[1], start=0, end=1, reason="test")
    # One small statement for each log that is like no other; on PostgreSQL they make one trip.
    with django_assert_max_num_queries(18 + len(runs)):
        verify.verify_logs(runs, timezone.now())
    told = {run.pk: (run.log_digest_here, run.log_digest_host) for run in Run.objects.filter(pk__in=runs)}
    assert told[runs[0]][0] == told[runs[1]][0] == "" and "cannot be verified" in caplog.text
    assert all(here == there != "" for here, there in (told[run] for run in runs[2:]))
    assert verify.due_for_verification(timezone.now()) == []


def test_the_log_of_a_job_that_is_deleted_before_it_was_verified_is_waited_for_no_more(
    add_host, submit, control_plane
):
    host = add_host()
    job = submit()
    settle(control_plane, host)
    run = Run.objects.get()
    host.end(control_plane, run.pk, exit_code=0)
    host.reconcile(control_plane)
    Run.objects.update(prove_due_at=timezone.now(), log_digest_here="", forgotten_at=None)
    job.refresh_from_db()
    services.delete(job, "ada", timezone.now())
    verify.verify_logs(verify.due_for_verification(timezone.now()), timezone.now())
    assert Run.objects.get().prove_due_at is None and reader.status(run).matches is None
    settle(control_plane, host)
    assert run.pk not in host.runs and Run.objects.get().forgotten_at is not None


def test_a_log_that_cannot_be_read_delays_no_other_verification(logged, caplog):
    run, give = logged
    give(frame(0, b"abc"), Fact({"phase": "closed", "log": {"size": 3, "final": True, "digest": "x"}}))
    LogPiece.objects.all().delete()
    now = timezone.now()
    assert verify.due_for_verification(now) == [run.pk]
    verify.verify_logs([run.pk], now)
    assert verify.due_for_verification(now) == [] and "cannot be verified" in caplog.text
    assert verify.due_for_verification(now + timedelta(minutes=1)) == [run.pk]
