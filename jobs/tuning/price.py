"""What the trials of a study have used and will cost, in GPU-hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from jobs.models import Job, Project, Trial, TuningJob
from jobs.projects import usage
from jobs.rules.scheduling.resource_requests import encode_request
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import Types, needs
from jobs.rules.tuning.price import Price
from jobs.scheduling import machine_types
from jobs.scheduling.usual_durations import read_usual_durations


def used_hours(tuning_job: TuningJob, now: datetime) -> dict[int, float]:
    """The GPU-hours of each trial that has used some, by its number, up to now."""
    jobs = dict(Trial.objects.filter(tuning_job=tuning_job).values_list("job", "number"))
    used = usage.gpu_seconds_of_jobs(Trial.objects.filter(tuning_job=tuning_job).values("job"), now)
    return {jobs[job]: seconds / 3600 for job, seconds in used.items() if seconds}


def hours_in_all(tuning_job: TuningJob, now: datetime) -> float:
    """The GPU-hours of all trials together, up to now."""
    return usage.gpu_seconds_in_all(Trial.objects.filter(tuning_job=tuning_job).values("job"), now) / 3600


def price_of_more(tuning_job: TuningJob, counts: Sequence[int], took: Sequence[float]) -> list[Price]:
    """What so many more trials would cost. As usual is how long those took that have a result (`took`, in seconds);
    without one, how long such jobs of the owner take.

    The last trial tells what each asks for: the machine types of the study may be others by now, or gone."""
    jobs = Job.every.filter(trial_row__tuning_job=tuning_job).order_by("-trial_row__number")
    asked = jobs.values_list("gpu_count", "timeout_s", "resource_request").first()
    gpus, timeout_s, request = asked or (0, 0.0, "")
    usual = median(took) if took else None
    if usual is None:
        usual = read_usual_durations().of((tuning_job.project_id, tuning_job.owner_id, request))
    return [Price(count, gpus, usual, timeout_s) for count in counts]


def price_of_new(
    spec: CustomJobSpec, trials: int, project: Project, owner: int | None, location: str
) -> Price:
    """What the trials of a study would cost that is not submitted yet."""
    types = machine_types.of_location(location)
    usual = read_usual_durations().of((project.pk, owner, encode_request(spec, types)))
    return Price(trials, gpus_of(spec, types), usual, spec.timeout_s)


def gpus_of(spec: CustomJobSpec, types: Types) -> int:
    return sum(needs(pool.machine, types).gpus * pool.replica_count for pool in spec.pools if pool)
