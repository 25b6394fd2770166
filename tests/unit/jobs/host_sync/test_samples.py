"""Samples are stored as they come, become coarser as they age, and show when a run was active."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.infra.clock import Clock
from agents.links.control_plane import Arrival, Sample
from jobs import services
from jobs.host_sync import intake, samples
from jobs.host_sync.apply_reports import UnreadableFrames
from jobs.lifecycle.advance import advance_quietly
from jobs.models import Run, RunSample
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import frame, settle


@pytest.fixture
def scene(add_host, control_plane, submit):
    """A run with two GPUs on a fake host, and a function by which the host reports something at a moment."""
    host = add_host(gpus=2)
    job = submit(spec("sleep 9", gpus=2))
    settle(control_plane, host)
    run = Run.objects.get(job=job)

    def tell(what, at):
        return intake.take(host.row.pk, 7, [Arrival(run.pk, what)], at, UnreadableFrames())

    return run, tell


def sample(cpu=0.0, load=0, memory=100):
    return Sample(cpu, memory, {"GPU-h1-0": (load, 10), "GPU-h1-1": (0, 20), "GPU-stranger": (99, 9)}, 5)


def test_a_sample_is_stored_once_and_only_of_the_runs_own_gpus(scene):
    run, tell = scene
    now = timezone.now()
    tell(sample(cpu=1.5, load=50), now), tell(sample(cpu=1.5, load=50), now)
    [row] = RunSample.objects.filter(run=run)
    assert (row.step, row.cpu, row.memory_mb, row.gpus) == (10, 1.5, 100, [[50, 10], [0, 20]])


def test_power_temperature_and_traffic_are_stored_and_joined(scene):
    run, tell = scene
    now = samples.start_of_step(timezone.now(), 600)
    uuids = ("GPU-h1-0", "GPU-h1-1")
    for back, watts in ((50, 100), (40, 300)):
        more = replace(
            sample(),
            power={uuids[0]: watts, "GPU-stranger": 9},
            temperature={uuids[0]: watts // 4, uuids[1]: 30},
            network=(watts * 10, None),
            disks=(0, 7),
        )
        tell(more, now - timedelta(hours=2, seconds=back))
    tell(sample(), now - timedelta(hours=2, seconds=30))
    columns = ("gpu_power", "gpu_temperature", "net_rx", "net_tx", "io_read", "io_write")
    rows = list(RunSample.objects.filter(run=run).order_by("at").values_list(*columns))
    # The last one came from an older runner.
    assert rows == [
        ([100, None], [25, 30], 1000, None, 0, 7),
        ([300, None], [75, 30], 3000, None, 0, 7),
        (None,) * 6,
    ]
    samples.roll(now)
    assert RunSample.objects.filter(run=run).values_list(*columns).get() == (
        [200, None],
        [75, 30],
        2000,
        None,
        0,
        7,
    )


def test_old_samples_are_averaged_and_none_is_counted_twice(scene):
    run, tell = scene
    now = samples.start_of_step(timezone.now(), 600)
    for back in range(0, 120, 10):
        tell(sample(cpu=back / 10, memory=back), now - timedelta(hours=2, seconds=back))
    tell(sample(cpu=7), now)
    for later in (0, 1):
        samples.roll(now + timedelta(seconds=later))
    rows = RunSample.objects.filter(run=run).order_by("at").values_list("step", "cpu", "memory_mb")
    # 110 to 70 s, 60 to 10 s, and the sample at the full hour: each lies in the minute in which it came.
    assert list(rows) == [(60, 9.0, 110), (60, 3.5, 60), (60, 0.0, 0), (10, 7.0, 100)]
    samples.roll(now + timedelta(days=2))
    rows = RunSample.objects.filter(run=run).order_by("at").values_list("step", "memory_mb")
    assert list(rows) == [(600, 110), (600, 0), (600, 100)]


def test_samples_of_more_runs_than_a_batch_are_all_rolled_in_time(
    add_host, control_plane, submit, monkeypatch
):
    monkeypatch.setattr(samples, "RUNS_AT_ONCE", 1)
    host, now = add_host(), samples.start_of_step(timezone.now(), 600)
    for _ in range(2):
        submit(spec("sleep 9"))
    settle(control_plane, host)
    RunSample.objects.bulk_create(
        RunSample(run=run, step=10, at=now - timedelta(seconds=back), cpu=1.0, gpus=[])
        for run in Run.objects.all()
        for back in range(0, 7200, 10)
    )
    for minute in range(3):
        samples.roll(now + timedelta(minutes=minute))
    old = RunSample.objects.filter(step=10, at__lt=now - timedelta(hours=1))
    assert not old.exists()


def test_a_run_is_inactive_since_its_last_activity(scene):
    run, tell = scene
    start = timezone.now()

    def told(what, seconds):
        answer = tell(what, start + timedelta(seconds=seconds))
        run.refresh_from_db()
        times = [run.sampled_at, run.active_at, run.gpu_active_at]
        return [round((at - start).total_seconds()) for at in times], run.job_id in answer.jobs

    assert told(sample(), 10) == ([10, 10, 10], True)  # what was before is unknown
    assert told(sample(cpu=0.01), 20) == ([20, 10, 10], False)
    assert told(sample(cpu=0.9), 30) == ([30, 30, 10], False)
    assert told(sample(load=3), 40) == ([40, 40, 40], False)
    for seconds in range(50, 120, 10):
        told(sample(), seconds)
    assert told(frame(run.log_stored, b"a word\n"), 121) == ([110, 121, 40], True)  # it resumed
    Run.objects.filter(pk=run.pk).update(log_stored=10_000)  # as fast_append.py does it
    assert told(sample(), 130)[0] == [130, 130, 40]
    assert told(sample(), 140)[0] == [140, 130, 40]
    assert told(sample(), 300) == ([300, 300, 300], True)  # no sample came for three minutes


def test_a_job_that_never_prints_is_looked_at_when_it_counts_as_stalled(scene, settings):
    """Without that, the flag would come with the next look that has another cause, up to ten minutes later."""
    run, tell = scene
    settings.TRAINYARD = replace(settings.TRAINYARD, stall_s=120.0)
    now = timezone.now()
    advance_quietly(sorted(tell(sample(), now).jobs), Clock())
    run.job.refresh_from_db()
    assert run.job.due_at - now == timedelta(seconds=120)


def test_a_deleted_job_leaves_no_samples(scene, control_plane):
    run, tell = scene
    tell(sample(), timezone.now())
    Run.objects.filter(pk=run.pk).update(phase="closed")
    type(run.job).objects.filter(pk=run.job_id).update(state="SUCCEEDED", cancel_requested_at=None)
    services.delete(run.job, "alice", timezone.now())
    assert not RunSample.objects.exists()
