"""What the database itself forbids, whatever code writes."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.utils import DatabaseError
from django.utils import timezone

from agents.models import Gpu, Location
from jobs.models import GpuClaim, Job, Project, Run, Transition
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


@pytest.fixture
def done(add_host, submit, control_plane):
    host = add_host(gpus=2)
    job = submit(spec(gpus=1))
    settle(control_plane, host)
    host.end(control_plane, Run.objects.get().pk, exit_code=3)
    job.refresh_from_db()
    assert job.state == "FAILED"
    return job


def refused(act):
    with pytest.raises(DatabaseError), transaction.atomic():
        act()
    return True


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "RUNNING"},
        {"state": "SUCCEEDED"},
        {"error_message": ""},
        {"error_code": None},
        {"ended_at": None},
        {"attempt": 2},
    ],
)
def test_a_terminal_job_never_changes(done, columns):
    assert refused(lambda: Job.every.filter(pk=done.pk).update(**columns))
    assert refused(lambda: Job.every.filter(pk=done.pk).update(version=99, **columns))
    Job.every.filter(pk=done.pk).update(version=99, deleted_at=timezone.now())


def test_history_never_changes_and_keeps_its_job(done):
    assert refused(lambda: Transition.objects.filter(job=done).update(cause="It never happened."))
    assert refused(lambda: Transition.objects.filter(job=done).delete())
    assert refused(lambda: Transition.objects.all()._raw_delete(using="default"))
    assert refused(done.delete)
    assert Transition.objects.filter(job=done).count() > 3


def test_no_two_runs_hold_the_same_claim(add_host, submit):
    host = add_host(gpus=1)
    submit(spec(gpus=1))
    run = Run.objects.get()
    double = {f.name: getattr(run, f.name) for f in Run._meta.fields} | {"id": "x", "number": 1}
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(**double)
    other = Run.objects.create(**double | {"port": run.port + 1})
    with pytest.raises(IntegrityError), transaction.atomic():
        GpuClaim.objects.create(gpu=Gpu.objects.get(), run=other)
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(**double | {"id": "y", "port": run.port + 2})
    GpuClaim.objects.update(released_at=timezone.now())
    GpuClaim.objects.create(gpu=Gpu.objects.get(), run=other)
    assert Run.objects.filter(host=host.row).count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_flush_empties_history_and_leaves_a_first_day_with_its_guards(done):
    call_command("flush", verbosity=0, interactive=False)
    assert not Job.every.exists() and not Transition.objects.exists()
    assert Project.objects.get().name == Location.objects.get().name == "default"
    project = Project.objects.get()
    now = timezone.now()
    job = Job.objects.create(
        id=1,
        project=project,
        spec={},
        replica_count=1,
        state="FAILED",
        created_at=now,
        updated_at=now,
        queued_at=now,
    )
    assert refused(lambda: Job.objects.update(state="RUNNING"))
    row = {"job": job, "at": now, "to_state": "FAILED", "attempt": 1}
    Transition.objects.create(**row)
    assert refused(lambda: Transition.objects.all()._raw_delete(using="default"))
    assert connection.is_usable()
