"""What the trials of a study have used and will cost, in GPU-hours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import QuerySet

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import Parameter, SelectStatement
from jobs.models import Job, Project, Trial, TuningJob
from jobs.projects import live_use, usage
from jobs.rules.scheduling.resource_requests import encode_request
from jobs.rules.spec.custom_job import CustomJobSpec
from jobs.rules.spec.machine_types import Types, needs
from jobs.rules.tuning.price import Price
from jobs.scheduling import machine_types
from jobs.scheduling.usual_durations import read_usual_durations

# Of so many studies it is remembered what their trials have used, for so long.
STUDIES, KEPT = 30, timedelta(hours=1)
# By the id of a study and how many of its trials are over for good: their GPU-seconds, and whether they hold some now.
_settled: SharedAnswers[tuple[int, int], tuple[float, bool]] = SharedAnswers(KEPT, STUDIES)
_asked_by_last_trial = SelectStatement(
    lambda: (
        Job.every.filter(trial_row__tuning_job=Parameter("study"))
        .order_by("-trial_row__number")
        .values_list("gpu_count", "timeout_s", "resource_request")[:1]
    )
)


def used_hours(tuning_job: TuningJob, now: datetime) -> dict[int, float]:
    """The GPU-hours of each trial that has used some, by its number, up to now."""
    jobs = dict(Trial.objects.filter(tuning_job=tuning_job).values_list("job", "number"))
    hours, _growing = hours_of_jobs(Trial.objects.filter(tuning_job=tuning_job).values("job"), now)
    return {jobs[job]: used for job, used in hours.items()}


def hours_of_jobs(jobs: QuerySet[Any, Any] | Collection[int], now: datetime) -> tuple[dict[int, float], bool]:
    """The GPU-hours of each of these jobs of trials that has used some, and whether one of them still holds GPUs."""
    used, growing = usage.gpu_seconds_of_jobs(jobs, now)
    return {job: seconds / 3600 for job, seconds in used.items() if seconds}, growing


def hours_in_all(
    tuning_job: TuningJob, now: datetime, settled: int = 0, others: Collection[int] = ()
) -> float:
    """The GPU-hours of all trials together, up to now. `settled`: so many never run again, all but `others`, by their
    numbers. What they have used is remembered once none of them holds GPUs any more."""

    def read() -> tuple[float, bool]:
        return live_use.gpu_seconds_of_trials(tuning_job.pk, others, now, others=True)

    seconds = 0.0
    if settled or not others:
        key = (tuning_job.pk, settled)
        seconds, _holds = _settled.get(key, read, keep=lambda found: bool(settled) and not found[1])
    if others:
        seconds += live_use.gpu_seconds_of_trials(tuning_job.pk, others, now)[0]
    return seconds / 3600


def price_of_more(tuning_job: TuningJob, counts: Sequence[int], took: Sequence[float]) -> list[Price]:
    """What so many more trials would cost. As usual is how long those took that have a result (`took`, in seconds);
    without one, how long such jobs of the owner take.

    The last trial tells what each asks for: the machine types of the study may be others by now, or gone."""
    asked = _asked_by_last_trial(study=tuning_job.pk)
    gpus, timeout_s, request = asked[0] if asked else (0, 0.0, "")
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
