"""Which replicas their hosts are to look at, and what is kept of what they saw."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.links.control_plane import Arrival, Sample
from jobs.host_sync import intake
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.models import Run
from tests.unit.jobs.conftest import gang, pool_of
from tests.unit.jobs.fake_hosts import settle


def peers_of_all():
    return {run.replica.name: run.order.get("peers") for run in Run.objects.select_related("replica")}


def test_each_trainer_is_told_the_addresses_of_the_others_the_primary_first(add_host, submit):
    add_host(gpus=4, cpus=16)
    submit(gang(pool_of("./run.sh", gpus=1), pool_of("./run.sh", 2, gpus=1), pool_of("./ps.sh", gpus=1)))
    found = peers_of_all()
    primary = found["workerpool1-0"][0]
    assert primary == found["workerpool1-1"][0] and primary not in found["workerpool0-0"]
    assert len(found["workerpool0-0"]) == len(found["workerpool1-0"]) == 2
    assert found["workerpool2-0"] is None


@pytest.mark.parametrize(
    ("command", "gpus", "looked_at"),
    [
        ("python3 train.py", 1, True),
        ("python3 train.py", 0, False),
        ("torchrun train.py", 0, True),
        ("accelerate launch train.py", 0, True),
        ("docker run trainer", 1, False),
        ("srun python3 train.py", 1, False),
    ],
)
def test_only_jobs_that_may_train_together_are_looked_at(add_host, submit, command, gpus, looked_at):
    add_host(gpus=2, cpus=16)
    submit(gang(pool_of(command, gpus=gpus), pool_of(command, gpus=gpus)))
    assert {bool(peers) for peers in peers_of_all().values()} == {looked_at}


def test_a_connection_that_was_seen_once_stays_and_a_change_makes_the_job_due(
    add_host, submit, control_plane
):
    host = add_host(gpus=2, cpus=16)
    job = submit(gang(pool_of("sleep 9", gpus=1), pool_of("sleep 9", gpus=1)))
    settle(control_plane, host)
    run = Run.objects.first()

    def tell(connected):
        sample = Arrival(run.pk, Sample(1.0, 10, connected=connected))
        told = intake.take(host.row.pk, 7, [sample], timezone.now(), UnreadableFrames())
        run.refresh_from_db()
        return run.connected, job.pk in told.jobs

    assert tell(None)[0] is None
    assert tell(False) == (False, True)
    assert tell(False) == (False, False)
    assert tell(True) == (True, True)
    assert tell(False) == (True, False)
