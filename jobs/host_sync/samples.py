"""Samples of how busy runs are: store them, make them coarser as they age, and derive when a run was last active.

A sample covers ten seconds for an hour, a minute for a day, and ten minutes after that: a run of a month has about six
thousand rows. CPU, utilisation, power and rates are averaged, memory and temperature keep their peak.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean as mean

from django.db import transaction
from django.db.models import Min

from agents.links.control_plane import Sample
from jobs.models import Job, Run, RunSample
from jobs.rules.lifecycle.utilization import BLIND_AFTER, REFRESH, are_gpus_busy, is_busy, of_all_gpus

STEP = 10
# (step, kept for, becomes)
LEVELS = ((10, timedelta(hours=1), 60), (60, timedelta(days=1), 600))
RUNS_AT_ONCE = 200
RATES = ("net_rx", "net_tx", "io_read", "io_write")
# A run that was inactive for so long and is active again makes its job due, so that its flags are decided anew.
RESUMED_AFTER = timedelta(minutes=1)

Load = tuple[int | None, int | None]


def row_of(run: Run, sample: Sample, now: datetime) -> RunSample:
    return RunSample(
        run=run,
        step=STEP,
        at=now,
        cpu=sample.cpu,
        memory_mb=sample.memory_mb,
        gpus=[list(load) for load in loads_of(run, sample)],
        disk_free_mb=sample.disk_free_mb,
        gpu_power=[sample.power.get(uuid) for uuid in run.gpu_uuids] if sample.power else None,
        gpu_temperature=[sample.temperature.get(uuid) for uuid in run.gpu_uuids]
        if sample.temperature
        else None,
        net_rx=sample.network[0],
        net_tx=sample.network[1],
        io_read=sample.disks[0],
        io_write=sample.disks[1],
    )


def save(rows: Sequence[RunSample]) -> None:
    """Store samples. A batch that comes twice is stored once."""
    for row in rows:
        sum_up(row)
    if rows:
        RunSample.objects.bulk_create(rows, ignore_conflicts=True)


def sum_up(row: RunSample) -> None:
    """Fill the columns that say the use of all GPUs as one."""
    row.gpu_count = len(row.gpus)
    row.gpu_load, row.gpu_memory_mb, row.gpu_watts, row.gpu_celsius = of_all_gpus(
        row.gpus, row.gpu_power, row.gpu_temperature
    )


def loads_of(run: Run, sample: Sample) -> list[Load]:
    return [sample.gpus.get(uuid, (None, None)) for uuid in run.gpu_uuids]


def record_activity(
    run: Run, samples: Sequence[Sample], printed: bool, now: datetime
) -> tuple[set[str], bool]:
    """Record when the run was last active. Returns the changed columns, and whether its job is to be decided about:
    at the first sample, or the first after a gap, because it says from when on the run counts as inactive; and when
    it resumes after inactivity."""
    unseen = run.sampled_at is None or now - run.sampled_at > BLIND_AFTER
    # Most log bytes come by fast_append.py, which does not update activity: compare the offsets.
    printed = printed or (bool(samples) and run.log_stored > run.log_sampled)
    worked = printed or any(is_busy(sample.cpu, loads_of(run, sample)) for sample in samples)
    on_gpus = any(are_gpus_busy(loads_of(run, sample)) for sample in samples)
    resumed = worked and run.active_at is not None and now - run.active_at >= RESUMED_AFTER
    changed = set()
    for name, seen in (
        ("sampled_at", bool(samples)),
        ("active_at", worked or (unseen and bool(samples))),
        ("gpu_active_at", on_gpus or (unseen and bool(samples))),
    ):
        before = getattr(run, name)
        if seen and (before is None or now - before >= REFRESH or (unseen and samples)):
            setattr(run, name, now)
            changed.add(name)
    connected = [sample.connected for sample in samples if sample.connected is not None]
    # A connection that was seen once stays so. The first look, and the first connection, may change the job's flags.
    if connected and not run.connected and run.connected is not (found := any(connected)):
        run.connected = found
        changed.add("connected")
        resumed = True
    if samples and run.log_sampled != run.log_stored:
        run.log_sampled = run.log_stored
        changed.add("log_sampled")
    return changed, resumed or (unseen and bool(samples))


def roll(now: datetime) -> None:
    """Make old samples coarser. Only whole steps are joined, so that no sample is averaged twice."""
    for step, kept, coarser in LEVELS:
        until = start_of_step(now - kept, coarser)
        due = RunSample.objects.filter(step=step, at__lt=until)
        # The runs with the oldest samples come first: otherwise, with very many runs, the last would never come.
        oldest = due.order_by().values("run").annotate(oldest=Min("at")).order_by("oldest", "run")
        for run_id in oldest.values_list("run", flat=True)[:RUNS_AT_ONCE]:
            with transaction.atomic():
                rows = list(due.filter(run=run_id).order_by("at"))
                save(joined(rows, coarser))
                due.filter(run=run_id, pk__in=[row.pk for row in rows]).delete()


def joined(rows: Iterable[RunSample], step: int) -> list[RunSample]:
    steps: dict[datetime, list[RunSample]] = defaultdict(list)
    for row in rows:
        steps[start_of_step(row.at, step)].append(row)
    return [_joined(of, step, at) for at, of in steps.items()]


def _joined(rows: Sequence[RunSample], step: int, at: datetime) -> RunSample:
    gpus = zip(*(row.gpus for row in rows), strict=False)
    disk = [row.disk_free_mb for row in rows if row.disk_free_mb is not None]
    return RunSample(
        run_id=rows[0].run_id,
        step=step,
        at=at,
        cpu=sum(row.cpu for row in rows) / len(rows),
        memory_mb=max((row.memory_mb for row in rows if row.memory_mb is not None), default=None),
        gpus=[_load(of) for of in gpus],
        disk_free_mb=min(disk, default=None),
        gpu_power=_by_gpu([row.gpu_power for row in rows], mean),
        gpu_temperature=_by_gpu([row.gpu_temperature for row in rows], max),
        **{name: _mean([getattr(row, name) for row in rows]) for name in RATES},
    )


def _by_gpu(
    lists: Sequence[list[int | None] | None], summary: Callable[[Sequence[int]], float]
) -> list[int | None] | None:
    """One number for each GPU, of the lists that are there."""
    columns = zip(*(each for each in lists if each), strict=False)
    known = [[value for value in column if value is not None] for column in columns]
    return [round(summary(values)) if values else None for values in known] or None


def _mean(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(mean(known)) if known else None


def _load(loads: Sequence[Sequence[int | None]]) -> list[int | None]:
    percents = [load[0] for load in loads if load[0] is not None]
    memory = [load[1] for load in loads if load[1] is not None]
    return [round(sum(percents) / len(percents)) if percents else None, max(memory, default=None)]


def start_of_step(at: datetime, step: int) -> datetime:
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % step, UTC)


def purge(job: Job) -> None:
    RunSample.objects.filter(run__job=job).delete()
