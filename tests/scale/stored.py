"""What projects store, and what their training pipelines left: objects, artifacts, models. For seed.py."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter

from jobs.models import (
    Artifact,
    Blob,
    Bucket,
    Job,
    ModelVersion,
    Project,
    RegisteredModel,
    StoredObject,
    TrainingPipeline,
    Trial,
    TuningJob,
)
from jobs.rules.spec.pipeline import CUSTOM

OBJECTS, ARTIFACTS, MODELS, VERSIONS = 2_000, 60, 60, 3
PIPELINES = 2_000
# Of each project, and of each of these.
TUNING_JOBS, TRIALS = 10, 50
# What one study of each project has; a small deployment has not so many jobs.
GREAT_STUDY = 1_000
PARAMETERS, KINDS = 10, ("adam", "sgd", "lion", "adafactor")
BATCH = 2_000


def fill(projects: Sequence[Project], now: datetime) -> None:
    for project in projects:
        blobs = _blobs(project, now)
        _objects(project, blobs, now)
        _artifacts(project, blobs, now)
        _models(project, now)
    _pipelines(now)
    _tuning_jobs(now)


def _blobs(project: Project, now: datetime) -> list[Blob]:
    digests = [hashlib.sha256(f"{project.name} {n}".encode()).hexdigest() for n in range(ARTIFACTS)]
    return Blob.objects.bulk_create(
        Blob(
            project=project,
            sha256=digest,
            size=1 << 20,
            crc32c="AAAAAA==",
            key=f"{project.pk}/{digest}",
            touched_at=now,
        )
        for digest in digests
    )


def _objects(project: Project, blobs: Sequence[Blob], now: datetime) -> None:
    """Checkpoints of runs below one another, as a program writes them."""
    when = {"created_at": now, "created_by": "user-0"}
    bucket = Bucket.objects.create(name=f"runs-of-{project.name}", project=project, **when)
    names = ["own-1"] + [f"run-{n // 20}/checkpoints/step-{n % 20}.pt" for n in range(OBJECTS)]
    StoredObject.objects.bulk_create(
        (
            StoredObject(
                bucket=bucket,
                name=name,
                path=name.encode(),
                generation=number + 1,
                blob=blobs[number % len(blobs)],
                updated_at=now,
                **when,
            )
            for number, name in enumerate(names)
        ),
        batch_size=BATCH,
    )


def _artifacts(project: Project, blobs: Sequence[Blob], now: datetime) -> None:
    Artifact.objects.bulk_create(
        Artifact(
            project=project,
            sha256=blob.sha256,
            blob=blob,
            kind="archive",
            name=f"code-{number}.tar.gz",
            created_at=now,
            created_by="user-0",
        )
        for number, blob in enumerate(blobs)
    )


def _models(project: Project, now: datetime) -> None:
    jobs = Job.objects.filter(project=project).order_by("pk").values_list("pk", flat=True)[:MODELS]
    when = {"created_at": now, "updated_at": now}
    models = RegisteredModel.objects.bulk_create(
        RegisteredModel(
            id=project.pk * 1_000_000 + number,
            project=project,
            model_id=f"model-{number}",
            location_name="default",
            display_name=f"classifier {number}",
            **when,
        )
        for number in range(len(jobs))
    )
    ModelVersion.objects.bulk_create(
        ModelVersion(
            id=model.pk * 1_000 + number,
            model=model,
            number=number,
            aliases=["default"] if number == VERSIONS else [],
            artifact_uri=f"gs://runs-of-{project.name}/run-{number}/model",
            job_id=job,
            **when,
        )
        for model, job in zip(models, jobs, strict=True)
        for number in range(1, VERSIONS + 1)
    )


def _pipelines(now: datetime) -> None:
    """Of every tenth job, up to so many."""
    jobs = Job.objects.order_by("pk").values_list("pk", "project_id", "owner_id")
    TrainingPipeline.objects.bulk_create(
        (
            TrainingPipeline(
                id=pk,
                project_id=project,
                owner_id=owner,
                location_name="default",
                display_name=f"pipeline of {pk}",
                definition=CUSTOM,
                inputs={},
                job_id=pk,
                created_at=now,
            )
            for pk, project, owner in list(jobs[: PIPELINES * 10])[::10]
        ),
        batch_size=BATCH,
    )


def _tuning_jobs(now: datetime) -> None:
    """Each of their trials is a job of the same project. The first study of each is a great one; where it has few jobs,
    a second study gets the half of them: two studies are compared."""
    rows = Job.objects.order_by("project", "pk").values_list("project_id", "pk", "owner_id")
    for project, of_project in groupby(rows.iterator(), itemgetter(0)):
        jobs = list(islice(of_project, GREAT_STUDY + TUNING_JOBS * TRIALS))
        rest, sizes = iter(jobs), (min(GREAT_STUDY, (len(jobs) + 1) // 2), *[TRIALS] * TUNING_JOBS)
        studies = [study for study in (list(islice(rest, size)) for size in sizes) if study]
        TuningJob.objects.bulk_create(
            _tuning_job(project, study[0][1], study[0][2], len(study), now) for study in studies
        )
        Trial.objects.bulk_create(
            (
                _trial(study[0][1], number, pk, now)
                for study in studies
                for number, (_, pk, _) in enumerate(study, 1)
            ),
            batch_size=BATCH,
        )


def _tuning_job(project: int, pk: int, owner: int, trials: int, now: datetime) -> TuningJob:
    return TuningJob(
        id=pk,
        project_id=project,
        owner_id=owner,
        location_name="default",
        display_name=f"study of {pk}",
        study={
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [
                *(
                    {"parameterId": f"x{number}", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}
                    for number in range(PARAMETERS - 2)
                ),
                {
                    "parameterId": "rate",
                    "doubleValueSpec": {"minValue": 1e-5, "maxValue": 1.0},
                    "scaleType": "UNIT_LOG_SCALE",
                },
                {"parameterId": "kind", "categoricalValueSpec": {"values": list(KINDS)}},
            ],
        },
        trial_spec={},
        max_trials=trials,
        parallel_trials=trials,
        max_failed_trials=0,
        may_prioritize=False,
        seed=1,
        state="SUCCEEDED",
        created_at=now,
        updated_at=now,
        ended_at=now,
    )


def _trial(tuning_job: int, number: int, job: int, now: datetime) -> Trial:
    drawn = random.Random(number)
    point: dict[str, object] = {f"x{each}": drawn.random() for each in range(PARAMETERS - 2)}
    return Trial(
        tuning_job_id=tuning_job,
        number=number,
        state="SUCCEEDED",
        job_id=job,
        job_state="SUCCEEDED",
        parameters=point | {"rate": 10 ** -drawn.uniform(0, 5), "kind": drawn.choice(KINDS)},
        shadow={"convex_automated_stopping_spec": 0.5} if number % 3 == 0 else {},
        why={"value": 0.5, "low": 0.4, "high": 0.6, "chance": 0.2},
        final={"step": 1, "elapsed": 1.0, "metrics": {"loss": drawn.random()}},
        started_at=now,
        ended_at=now,
    )
