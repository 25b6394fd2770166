"""Jobs of 64 and of 1,000 replicas that run, with samples, logs and the recording of a shell. For seed.py."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User

from agents.models import Gpu, Host
from jobs.host_sync import samples
from jobs.models import (
    GpuClaim,
    Job,
    LogPiece,
    Project,
    RecordingPiece,
    RecordingState,
    Replica,
    Run,
    RunSample,
    ShellSession,
    Transition,
)
from jobs.rules.spec import parse
from jobs.scheduling import capacity

# How long the samples of so many replicas reach back. They stand for ten seconds.
HISTORY = {64: timedelta(hours=1)}
SHORT_HISTORY = timedelta(minutes=20)
BEGAN = timedelta(hours=2)
LINES, RECORDED = 50, 2_000
BATCH = 2_000


def fill(
    hosts: Sequence[Host], gpus: dict[int, list[Gpu]], project: Project, owner: User, now: datetime
) -> None:
    """The job of 64 has the last GPU of each of the first hosts; the widest has no GPUs, and a replica on each host."""
    narrow = min(64, len(hosts) // 2)
    _job(hosts[:narrow], [gpus[host.pk][-1:] for host in hosts[:narrow]], project, owner, now)
    _job(hosts, [[] for _ in hosts], project, owner, now)


def _job(
    hosts: Sequence[Host], gpus: Sequence[Sequence[Gpu]], project: Project, owner: User, now: datetime
) -> None:
    asked = _document(len(hosts), gpus[0])
    begun = now - BEGAN
    job = Job.objects.create(
        id=int(now.timestamp() * 1000) * 1_000_000 + len(hosts),
        project=project,
        location_name="default",
        display_name=asked.display_name,
        owner=owner,
        owner_name=owner.username,
        spec=parse.to_document(asked.job_spec),
        replica_count=len(hosts),
        **capacity.columns_of(asked.job_spec, {}),
        state="RUNNING",
        **dict.fromkeys(("created_at", "queued_at", "started_at"), begun),
        updated_at=now,
    )
    names = [(0, 0), *((1, number) for number in range(len(hosts) - 1))]
    replicas = Replica.objects.bulk_create(
        Replica(job=job, name=f"workerpool{pool}-{index}", pool=pool, index=index, state="RUNNING")
        for pool, index in names
    )
    runs = Run.objects.bulk_create(
        _run(job, replica, host, of, number)
        for number, (replica, host, of) in enumerate(zip(replicas, hosts, gpus, strict=True))
    )
    GpuClaim.objects.bulk_create(
        GpuClaim(gpu=gpu, run=run) for run, of in zip(runs, gpus, strict=True) for gpu in of
    )
    _tell(job, replicas, begun)
    _logs(runs)
    _samples(runs, HISTORY.get(len(hosts), SHORT_HISTORY), now)
    Run.objects.filter(job=job).update(sampled_at=now)
    _recording(runs[0], owner, now)


def _document(replicas: int, gpus: Sequence[Gpu]) -> parse.CustomJob:
    machine = {"machineType": "host"}
    if gpus:
        machine |= {"acceleratorType": gpus[0].accelerator_type, "acceleratorCount": len(gpus)}
    else:
        machine = {"machineType": "n1-standard-4"}
    program = {"imageUri": "host", "command": ["python", "train.py"]}
    pools = [
        {"machineSpec": machine, "replicaCount": str(count), "containerSpec": program}
        for count in (1, replicas - 1)
    ]
    document = {
        "displayName": f"wide-{replicas}",
        "jobSpec": {"workerPoolSpecs": pools, "enableWebAccess": True},
    }
    return parse.parse_custom_job(document)


def _run(job: Job, replica: Replica, host: Host, gpus: Sequence[Gpu], number: int) -> Run:
    return Run(
        id=f"{job.pk}-{replica.name}-a1-r0",
        job=job,
        replica=replica,
        attempt=1,
        number=0,
        host=host,
        port=31_000 + job.replica_count % 1_000,
        cpus=4,
        memory_mb=15_000,
        gpu_uuids=[gpu.uuid for gpu in gpus],
        order={"argv": ["python", "train.py"]},
        phase="running",
        **dict.fromkeys(("created_at", "claimed_at", "started_at"), job.started_at),
        log_size=LINES * len(_line(0)),
        log_stored=LINES * len(_line(0)),
    )


def _line(number: int) -> bytes:
    return f"step {number:6} | loss 2.345678 | lr 1.000e-04 | tokens/s 95123\n".encode()


def _tell(job: Job, replicas: Sequence[Replica], at: datetime) -> None:
    """The lines of its history: of the job, and of each replica."""
    moved = [("job", "", "QUEUED"), ("job", "QUEUED", "RUNNING")]
    moved += [(replica.name, "STARTING", "RUNNING") for replica in replicas]
    Transition.objects.bulk_create(
        Transition(
            job=job,
            at=at,
            subject=subject,
            from_state=before,
            to_state=after,
            attempt=1,
            cause="",
            actor="trainyard",
        )
        for subject, before, after in moved
    )


def _logs(runs: Sequence[Run]) -> None:
    size = len(_line(0))
    LogPiece.objects.bulk_create(
        (
            LogPiece(
                run=run,
                start=size * number,
                end=size * (number + 1),
                z=False,
                data=_line(number),
                wall=run.started_at.timestamp() + number,
            )
            for run in runs
            for number in range(LINES)
        ),
        batch_size=BATCH,
    )


def _samples(runs: Sequence[Run], since: timedelta, now: datetime) -> None:
    dice = random.Random(2)
    for back in range(int(since.total_seconds()) // samples.STEP):
        at = now - timedelta(seconds=back * samples.STEP)
        samples.save(
            [
                RunSample(
                    run=run,
                    step=samples.STEP,
                    at=at,
                    cpu=dice.random() * 4,
                    memory_mb=dice.randrange(8_000, 15_000),
                    gpus=[[dice.randrange(60, 100), 60_000] for _ in run.gpu_uuids],
                    disk_free_mb=500_000,
                    gpu_power=[400 for _ in run.gpu_uuids],
                    gpu_temperature=[65 for _ in run.gpu_uuids],
                    net_rx=dice.randrange(10**9),
                    net_tx=dice.randrange(10**9),
                    io_read=0,
                    io_write=dice.randrange(10**8),
                )
                for run in runs
            ]
        )


def _recording(run: Run, owner: User, now: datetime) -> None:
    """Of an hour of a shell."""
    rows = [json.dumps({"version": 2, "width": 100, "height": 30})]
    rows += [json.dumps([number * 1.8, "o", f"line {number}\r\n"]) for number in range(RECORDED)]
    text = "\n".join(rows).encode()
    session = ShellSession.objects.create(
        run=run,
        user=owner,
        user_name=owner.username,
        opened_at=now - timedelta(hours=1),
        closed_at=now,
        recording=f"{run.job.replica_count:032x}",
        recording_state=RecordingState.COMING,
        recording_stored=len(text),
        recording_size=len(text),
    )
    RecordingPiece.objects.create(session=session, start=0, end=len(text), data=zlib.compress(text))
