"""Accounting counts exactly what runs held, in any order of events, across restarts and months."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from jobs import sweep
from jobs.lifecycle import claims
from jobs.models import Job, MonthlyUse, Run, Usage
from jobs.projects import claim_holders, usage
from jobs.rules.scheduling.usage_months import by_month, month_of
from tests.unit.jobs.conftest import gang, pool_of, spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db
L4 = "NVIDIA_L4"


def held(now):
    """GPU- and CPU-seconds by run, computed from the runs."""
    found = {}
    for run in Run.objects.all():
        seconds = ((run.released_at or now) - run.created_at).total_seconds()
        found[run.pk] = (seconds * len(run.gpu_uuids), seconds * run.cpus)
    return found


def accounted(now):
    rows = [*usage.live(now), *[usage.Holding(*row) for row in Usage.objects.values_list(*usage.OF_USAGE)]]
    assert len({row.run for row in rows}) == len(rows)
    return {row.run: (row.seconds * row.gpus, row.seconds * row.cpus) for row in rows}


def test_a_restart_moves_the_claim_without_a_hole_or_an_overlap(add_host, submit, control_plane):
    host = add_host(gpus=4)
    job = submit(gang(pool_of(gpus=1), pool_of(gpus=2, kind=L4)))
    settle(control_plane, host)
    first = Run.objects.get(replica__name="workerpool1-0")
    host.end(control_plane, first.pk, exit_signal=9)
    settle(control_plane, host)
    second = Run.objects.get(replica__name="workerpool1-0", number=1)
    first.refresh_from_db()
    row = Usage.objects.get()
    assert (row.run_id, row.gpus, row.accelerator_type, row.owner_name) == (first.pk, 2, L4, "alice")
    assert (row.began_at, row.ended_at) == (first.created_at, second.created_at)
    now = timezone.now()
    assert accounted(now) == held(now) and len(usage.live(now)) == 2
    host.end(control_plane, Run.objects.get(replica__name="workerpool0-0").pk, exit_code=0)
    settle(control_plane, host)
    job.refresh_from_db()
    assert job.state == "SUCCEEDED" and not usage.live(timezone.now())
    assert accounted(now) == held(now) and Usage.objects.count() == 3


def test_a_stalled_job_is_counted_until_it_ends(add_host, submit, control_plane):
    """S3-36."""
    host = add_host(gpus=1)
    submit(spec(gpus=1))
    settle(control_plane, host)
    began = timezone.now() - timedelta(hours=30)
    Run.objects.update(created_at=began, started_at=began)
    (row,) = usage.live(timezone.now())
    assert row.seconds * row.gpus == pytest.approx(30 * 3600, abs=60)
    host.end(control_plane, Run.objects.get().pk, exit_signal=15)
    assert (Usage.objects.get().ended_at - began).total_seconds() == pytest.approx(30 * 3600, abs=60)


def test_a_clock_that_was_set_back_counts_nothing_and_nothing_less(add_host, submit, control_plane):
    host = add_host(gpus=1)
    submit(spec(gpus=1))
    settle(control_plane, host)
    began = timezone.now() + timedelta(hours=1)
    Run.objects.update(created_at=began)
    assert [row.seconds for row in usage.live(timezone.now())] == [0.0]


def test_a_run_that_ends_while_usage_is_read_is_read_as_ended(add_host, submit, control_plane, monkeypatch):
    host, now = add_host(gpus=1), timezone.now()
    submit(spec(gpus=1))
    settle(control_plane, host)
    monkeypatch.setattr(
        usage, "live", lambda at, projects=None, read=usage.live: ended_after(read(at, projects))
    )

    def ended_after(rows):
        usage.record([row.run for row in rows], now + timedelta(seconds=5))
        return rows

    [row] = usage._fresh(now + timedelta(seconds=60))
    assert row.ended_at == now + timedelta(seconds=5)


def test_cores_are_counted_by_their_number(add_host, submit, control_plane, project):
    host = add_host(gpus=1, cpus=8)
    submit(spec(gpus=1))
    settle(control_plane, host)
    noon = datetime(2031, 5, 15, 12, tzinfo=UTC)
    Run.objects.update(cpus=3.0, created_at=noon - timedelta(seconds=10))
    [line] = usage.report(month_of(noon), [project.pk], noon)
    assert (line.cpu_seconds, line.gpu_seconds) == (30.0, 10.0)


def test_a_release_is_accounted_once(add_host, submit, control_plane):
    host = add_host(gpus=1)
    submit(spec(gpus=1))
    settle(control_plane, host)
    run = Run.objects.get()
    for _ in range(2):
        claims.release([run.pk], timezone.now())
    assert Usage.objects.count() == 1
    with pytest.raises(IntegrityError), transaction.atomic():
        Usage.objects.create(**Usage.objects.values().get() | {"id": 99})


@pytest.fixture
def rows(add_host, submit):
    """Runs that held 0 to 3 GPUs at various times around the turn of two months."""
    add_host(cpus=64, gpus=24)
    base = datetime(2026, 11, 30, 12, tzinfo=UTC)
    for number in range(12):
        run = Run.objects.get(job=submit(spec(gpus=number % 4)))
        began = base + timedelta(hours=5 * number - 20)
        Run.objects.filter(pk=run.pk).update(created_at=began)
        if number % 5:
            claims.release(
                [run.pk], began + timedelta(hours=7 * number * (40 if number == 11 else 1), minutes=number)
            )
    return base + timedelta(days=90)


def test_months_sum_up_to_what_was_held(rows, monkeypatch, project):
    want = defaultdict(float)
    for run in Run.objects.all():
        for month, seconds in by_month(run.created_at, run.released_at or rows):
            want[month] += seconds * len(run.gpu_uuids)
    assert len(want) >= 4
    monkeypatch.setattr(usage, "FOLD", 3)
    shares = []
    for _ in range(6):
        for month, seconds in want.items():
            now = rows
            report = usage.report(month, [project.pk], now)
            by_job = list(chain(*usage.report_by_job(month, [project.pk], now)))
            assert sum(line.gpu_seconds for line in report) == pytest.approx(seconds)
            assert sum(line.gpu_seconds for line in by_job) == pytest.approx(seconds)
            assert sum(line.cpu_seconds for line in report) == pytest.approx(
                sum(line.cpu_seconds for line in by_job)
            )
        shares.append(usage.shares(now)[project.pk].used_gpu_seconds)
        of_holders = usage.shares(now, claim_holders.read_holders())
        assert of_holders[project.pk].used_gpu_seconds == pytest.approx(shares[-1])
        assert summed(usage.report(month_of(now), [project.pk], now)) == pytest.approx(
            usage.gpu_seconds_this_month([project.pk], now)
        )
        usage.fold(rows)
    assert not Usage.objects.filter(folded=False).exists() and usage.fold(rows) == 0
    assert shares == pytest.approx([shares[0]] * 6) and shares[0] > 0  # folding does not change what is read
    assert {line.accelerator_type for line in report} <= {"", L4} and MonthlyUse.objects.exists()
    assert usage.gpu_seconds_this_month([project.pk], rows)[project.pk, Job.every.first().owner_id] == (
        pytest.approx(want[month_of(rows)])
    )
    # Of one project they are looked up in another way than of several.
    both = usage.gpu_seconds_this_month([project.pk, project.pk + 1], rows)
    assert both == pytest.approx(usage.gpu_seconds_this_month([project.pk], rows))


def summed(report):
    found = defaultdict(float)
    for line in report:
        found[line.project, line.owner] += line.gpu_seconds
    return found


def test_what_the_database_adds_up_counts_nothing_that_lies_ahead(rows, project):
    """After a clock was set back, or of an earlier month."""
    ahead = datetime(2026, 12, 1, tzinfo=UTC)
    Run.objects.filter(released_at=None).update(created_at=ahead)
    Usage.objects.update(began_at=ahead, ended_at=ahead + timedelta(hours=1))
    assert Run.objects.filter(released_at=None).exclude(gpu_uuids=[]).exists() and Usage.objects.exists()
    for now in (ahead - timedelta(minutes=1), ahead):
        assert usage.shares(now)[project.pk].used_gpu_seconds == 0
        assert not any(usage.gpu_seconds_this_month([project.pk], now - timedelta(minutes=1)).values())


@pytest.mark.parametrize("meanwhile", ["fold", "release", "release and fold"])
def test_a_row_that_ends_or_is_folded_while_usage_is_read_is_counted_once(
    rows, project, monkeypatch, meanwhile
):
    now = rows
    month = month_of(Run.objects.filter(released_at=None).order_by("created_at").last().created_at)

    def told():
        report = usage.report(month, [project.pk], now)
        by_job = chain(*usage.report_by_job(month, [project.pk], now))
        return sum(line.gpu_seconds for line in report), sum(line.gpu_seconds for line in by_job)

    before = told()
    assert before[0] > 0
    read, held_by = usage.live, usage.held_by

    def release(run_ids):
        running = Run.objects.filter(released_at=None, pk__in=run_ids).exclude(gpu_uuids=[])
        if "release" in meanwhile and running:
            claims.release([running.order_by("pk").first().pk], now)

    def live(*arguments):
        found = read(*arguments)
        release([held.run for held in found])
        return found

    def held_by_runs(run_ids, now):
        """Of the runs that were live when the report began, one ends before this part is read, and one after."""
        release(run_ids)
        found = held_by(run_ids, now)
        release([held.run for held in found])
        return found

    def unfolded(*arguments):
        found = fresh(*arguments)
        if "fold" in meanwhile:
            usage.fold(now)
        return found

    fresh = usage.unfolded
    monkeypatch.setattr(usage, "live", live)
    monkeypatch.setattr(usage, "held_by", held_by_runs)
    monkeypatch.setattr(usage, "unfolded", unfolded)
    assert told() == pytest.approx(before)
    assert Usage.objects.filter(folded=True).exists() is ("fold" in meanwhile)


def test_a_share_counts_recent_use_and_what_is_held_now(rows, project):
    """Half of the use decays in a week, whether or not it is folded in between."""
    Run.objects.filter(released_at=None).delete()
    before = usage.shares(rows)[project.pk]
    usage.fold(rows)
    after = usage.shares(rows + timedelta(days=7))[project.pk]
    assert before.weight == 1 and after.used_gpu_seconds == pytest.approx(before.used_gpu_seconds / 2)


def test_the_sweep_folds_what_is_new(rows):
    for seconds in (0, 61):
        sweep.sweep(timezone.now() + timedelta(seconds=seconds))
    assert MonthlyUse.objects.exists() and not Usage.objects.filter(folded=False).exists()


def test_what_runs_is_read_in_parts_too(add_host, submit, project, monkeypatch):
    """The first lines of a download do not wait for the thousands of runs behind them."""
    add_host(cpus=64, gpus=24)
    jobs = [submit(spec(gpus=1)) for _ in range(5)]
    monkeypatch.setattr(usage, "ROWS_AT_ONCE", 2)
    now = timezone.now() + timedelta(hours=1)
    parts = list(usage.report_by_job(month_of(now), [project.pk], now))
    newest_first = sorted((each if isinstance(each, int) else each.pk for each in jobs), reverse=True)
    assert [[line.job for line in part] for part in parts] == [newest_first[:3], newest_first[3:]]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_report_by_job_is_the_same_in_parts_of_any_length(rows, project, monkeypatch, at_once):
    divided = 0
    for month in {month for run in Run.objects.all() for month, _ in by_month(run.created_at, rows)}:
        monkeypatch.setattr(usage, "ROWS_AT_ONCE", 10_000)
        (whole,) = usage.report_by_job(month, [project.pk], rows)
        monkeypatch.setattr(usage, "ROWS_AT_ONCE", at_once)
        parts = list(usage.report_by_job(month, [project.pk], rows))
        assert list(chain(*parts)) == whole == sorted(whole, key=lambda line: -line.job)
        jobs = [{line.job for line in part} for part in parts]
        assert sum(map(len, jobs)) == len(set().union(*jobs)), "all lines of a job are in one part"
        divided += len(parts) > 1
    assert divided
