"""A process dies at each failpoint of jobs/, again and again, and the job still reaches its one end.

The death is an exception that no code catches: what was not committed is rolled back, as the database does for a
process that is gone. Then another process connects and finds what is due. The flows do the same with SIGKILL.
"""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest
from django.db import transaction
from django.utils import timezone

from agents.infra import failpoints
from agents.links.control_plane import Arrival
from jobs import services, sweep
from jobs.logs import reader
from jobs.models import GpuClaim, Job, Run, Transition
from jobs.rules.lifecycle.states import TERMINAL, JobState, legal
from tests.unit.jobs.conftest import spec

pytestmark = pytest.mark.django_db
# By the process that dies there. The rest of the names are about SSH: tests/flows walks those.
WORKER = (
    "schedule.before",
    "schedule.after",
    "advance.before",
    "advance.after",
    "release.before",
    "release.after",
)
DISPATCHER = ("store.before", "store.after", "log.before", "log.after")
OTHERS = ("submit.before", "submit.after", "roll.written", "roll.after")
DEATHS = 3


class Died(BaseException):
    pass


@pytest.fixture
def dies_at(monkeypatch, tmp_path):
    """dies_at(point): the process dies at this failpoint, three times."""
    fired = []

    def die(pid, signal):
        fired.append(signal)
        if len(fired) < DEATHS:
            (tmp_path / arm.point).write_text("kill")
        raise Died

    def arm(point):
        assert point in failpoints.NAMES
        arm.point = point
        (tmp_path / point).write_text("kill")
        return fired

    monkeypatch.setenv("TRAINYARD_FAILPOINT", f"{tmp_path}/")
    monkeypatch.setattr(failpoints, "os", SimpleNamespace(environ=os.environ, getpid=os.getpid, kill=die))
    return arm


class LifeOfAJob:
    """One round of everything that the processes do for one job, in the order in which they repeat it."""

    def __init__(self, project, user, host, control_plane, cancelled):
        self.project, self.user, self.host, self.control_plane = project, user, host, control_plane
        self.cancelled = cancelled
        self.now = timezone.now()

    def round(self):
        self.now += timedelta(seconds=30)
        with transaction.atomic():
            job = services.submit(
                self.project, self.user, spec(gpus=1), "default", "the same request", self.now
            )
        sweep.sweep(self.now)
        self.host.reconcile(self.control_plane)
        for run, fake_run in list(self.host.runs.items()):
            if fake_run.phase == "running" and fake_run.order is not None:
                fake_run.log += os.urandom(300_000) if len(fake_run.log) < 1000 else b""
                if self.cancelled:
                    services.cancel(job, "alice", self.now)
                else:
                    self.host.end(self.control_plane, run, exit_code=0)

    def connect_anew(self):
        """A new link: the host reports everything that it has again."""
        reports = [Arrival(run, fake_run.fact(self.host.boot_id)) for run, fake_run in self.host.runs.items()]
        while reports:
            try:
                self.host.report(self.control_plane, reports)
                return
            except Died:
                continue

    def run_to_its_end(self):
        """Rounds until the job is over and the host was ordered to forget it."""
        for _ in range(30):
            try:
                self.round()
            except Died:
                self.connect_anew()
            if Run.objects.exclude(forgotten_at=None).exists():
                return
        raise AssertionError(list(Job.objects.values_list("state", "reason")))


@pytest.mark.parametrize(
    ("point", "cancelled"),
    [(point, False) for point in (*OTHERS, *WORKER, *DISPATCHER)]
    + [(point, True) for point in ("cancel.before", *WORKER[2:], *DISPATCHER)],
)
def test_a_job_has_one_life_wherever_processes_die(
    point, cancelled, dies_at, project, alice, add_host, control_plane
):
    fired = dies_at(point)
    host = add_host(gpus=1)
    LifeOfAJob(project, alice, host, control_plane, cancelled).run_to_its_end()
    assert len(fired) == DEATHS or point in NOT_SO_OFTEN and fired
    (job,), (run,) = Job.objects.all(), Run.objects.all()
    assert job.state == ("CANCELLED" if cancelled else "SUCCEEDED")
    assert host.started_runs == [run.pk] and run.released_at
    assert not GpuClaim.objects.filter(released_at=None).exists()
    status = reader.status(run)
    assert status.complete and status.matches and status.size_here == run.log_size > 200_000
    rows = list(Transition.objects.filter(job=job, subject="job"))
    assert sum(row.to_state in TERMINAL for row in rows) == 1
    for before, after in pairwise(rows):
        assert before.to_state == after.from_state
        assert legal(JobState(after.from_state), JobState(after.to_state))


# Passed by once in a job's life: what it stands behind was committed before.
NOT_SO_OFTEN = ("schedule.after", "roll.after", "release.after", "advance.after")
