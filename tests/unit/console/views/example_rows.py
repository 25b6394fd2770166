"""Rows for tests of pages: a running job, a host whose checklist is done."""

from __future__ import annotations

import json
import zlib
from datetime import timedelta
from itertools import count

from django.utils import timezone

from agents.hosts.checklist import NEEDED
from agents.models import Gpu, Host, HostEvent, HostStatus, Location
from jobs import services, shells
from jobs.artifacts import artifacts, buckets, objects
from jobs.models import (
    GpuClaim,
    HostOutputs,
    Job,
    JobLabel,
    MachineType,
    ModelVersion,
    OutputFile,
    Proof,
    RecordingPiece,
    RegisteredModel,
    Replica,
    Run,
    ShellSession,
    Stray,
    TrainingPipeline,
    Transition,
    Trial,
    TuningJob,
)
from jobs.projects import job_templates
from jobs.rules.spec import parse
from jobs.rules.spec.pipeline import CUSTOM

numbers = count(1)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKRyEbnQY4yC8Vt2ql3J0kTqgk0gUeR1uvXWgYwT3C7"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPVE5jZq0vTt3JzS2eKX5pXnNqjR7aVjAcx0gTyqyT0W"


def one_line(text):
    """A page's text with single spaces, as a browser shows it."""
    return " ".join(text.split())


def document(name="train", script="echo hi", replicas=1, **changes):
    pool = {"replicaCount": "1", "containerSpec": {"imageUri": "host", "command": ["bash", "-c", script]}}
    pools = [pool] if replicas == 1 else [pool, {**pool, "replicaCount": str(replicas - 1)}]
    return {"displayName": name, "jobSpec": {"workerPoolSpecs": pools, **changes}}


# The facts of a host with an Ethernet and an InfiniBand address.
TWO_NETWORKS = {
    "network": {
        "interfaces": [{"name": "eth0", "address": "10.0.0.7"}, {"name": "ib0", "address": "10.9.0.7"}],
        "ssh": "10.0.0.7",
        "route": "10.0.0.7",
        "name": ["127.0.1.1"],
    }
}


def a_host(name=None, status=HostStatus.UP, gpus=0, **changes):
    known = {
        "name": name or f"gpu-{next(numbers)}",
        "location": Location.objects.get_or_create(name="default")[0],
        "address": "10.0.0.11",
        "user": "train",
        "created_at": timezone.now(),
        "added_by": "root",
        "status": status,
        "status_since": timezone.now(),
        "pinned_key": KEY,
        "cpus": 16,
        "memory_mb": 65536,
        "free_disk_mb": 500_000,
        "checklist": [
            {"name": name, "ok": True, "text": f"{name} is fine", "fix": ""} for name in sorted(NEEDED)
        ],
    }
    host = Host.objects.create(**{**known, **changes})
    for index in range(gpus):
        uuid = f"GPU-{host.pk}-{index}"
        Gpu.objects.create(
            host=host,
            uuid=uuid,
            index=index,
            model="NVIDIA L4",
            memory_mb=24576,
            accelerator_type="NVIDIA_L4",
        )
    HostEvent.objects.create(
        host=host, at=timezone.now(), kind="added", text="train@10.0.0.11:22", actor="root"
    )
    return host


def a_doubted_run(host, proof=Proof.UNSEALED):
    return Stray.objects.create(
        host=host,
        run=f"17950000000000{next(numbers):05}-workerpool0-0-a1-r0",
        phase="running",
        proof=proof,
        found_at=timezone.now(),
    )


def a_machine_type(name="lab-8", **changes):
    known = {
        "cpus": 32,
        "memory_mb": 262_144,
        "accelerator_type": "NVIDIA_L4",
        "accelerator_count": 2,
        "changed_at": timezone.now(),
        "changed_by": "root",
    }
    return MachineType.objects.create(name=name, **{**known, **changes})


def a_template(project, name="template", job=None):
    parsed = parse.parse_custom_job(job or document())
    return job_templates.put(project, name, parsed, "default", "bob", timezone.now())[0]


def a_stored_file(project, bucket, name, data=b"hello"):
    """An object and an artifact of the same bytes. Returns their SHA-256."""
    buckets.create(project, bucket, "bob", timezone.now())
    objects.put_object(project, bucket, name, [data], by="bob")
    return artifacts.add_artifact(project, "archive", "code.tar.gz", [data], "bob").sha256


def a_job(project, owner, state="RUNNING", name="train", replicas=1, host=None, phase="running", **changes):
    """Make a job with one run per replica on the host. Without a host the job waits."""
    now = timezone.now()
    parsed = parse.parse_custom_job(document(name, replicas=replicas, enableWebAccess=True))
    known = {
        "id": 1_700_000_000_000_000_000 + next(numbers),
        "project": project,
        "location_name": "default",
        "display_name": name,
        "owner": owner,
        "owner_name": owner.username,
        "spec": parse.to_document(parsed.job_spec),
        "replica_count": replicas,
        "state": state,
        "created_at": now - timedelta(minutes=5),
        "updated_at": now,
        "queued_at": now,
        "started_at": now - timedelta(minutes=4) if host else None,
    }
    job = Job.objects.create(**{**known, **changes})
    for key, value in job.labels.items():
        JobLabel.objects.create(job=job, project=project, key=key, value=value)
    for replica_name, pool, index, _ in parsed.job_spec.replicas():
        replica = Replica.objects.create(
            job=job, name=replica_name, pool=pool, index=index, state="RUNNING" if host else "WAITING"
        )
        if host:
            a_run(job, replica, host, phase=phase)
    moved(job, "", "QUEUED")
    return job


STUDY = {
    "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
    "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}],
}


def a_tuning_job(job, **changes):
    """A study of one trial, which is this job."""
    now = timezone.now()
    made = TuningJob.objects.create(
        **{
            "id": services.new_id(now),
            "project": job.project,
            "location_name": job.location_name,
            "display_name": f"{job.display_name}-study",
            "owner": job.owner,
            "owner_name": job.owner_name,
            "study": STUDY,
            "trial_spec": job.spec,
            "max_trials": 1,
            "parallel_trials": 1,
            "max_failed_trials": 0,
            "may_prioritize": False,
            "seed": 1,
            "state": "RUNNING",
            "created_at": now,
            "updated_at": now,
            **changes,
        }
    )
    Trial.objects.create(
        tuning_job=made, number=1, state="ACTIVE", job=job, job_state=job.state, parameters={"x": 0.5}
    )
    return made


def a_pipeline(job, model_id=""):
    """The training pipeline of this job, with a version of a model if `model_id` names one."""
    version, now = None, timezone.now()
    if model_id:
        times = {"created_at": now, "updated_at": now}
        model, _ = RegisteredModel.objects.get_or_create(
            project=job.project,
            model_id=model_id,
            deleted_at=None,
            defaults={
                "id": services.new_id(now),
                "location_name": job.location_name,
                "display_name": model_id,
                **times,
            },
        )
        number = model.versions.count() + 1
        version = ModelVersion.objects.create(
            id=services.new_id(now),
            model=model,
            number=number,
            aliases=["default"] if number == 1 else [],
            artifact_uri=f"gs://staging/{model_id}/model",
            job=job,
            **times,
        )
    return TrainingPipeline.objects.create(
        id=services.new_id(now),
        project=job.project,
        location_name=job.location_name,
        display_name=f"{job.display_name}-pipeline",
        owner=job.owner,
        definition=CUSTOM,
        inputs=job.spec,
        upload={"displayName": model_id} if model_id else None,
        job=job,
        version=version,
        created_at=now,
    )


def a_shell(run, owner, key="0123456789abcdef" * 2, **changes):
    """A shell that its host has and keeps."""
    now = timezone.now()
    session = shells.record_kept(run, owner, "10.1.1.1", shells.Kept(key, 1800, ""), now)
    ShellSession.objects.filter(pk=session.pk).update(**{"attached_at": now, **changes})
    session.refresh_from_db()
    return session


def a_recording(session, text="hello\r\n"):
    """What the shell has shown so far, as it was fetched from its host."""
    events = ({"version": 2, "width": 80, "height": 24}, [0.5, "o", text])
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    RecordingPiece.objects.create(session=session, start=0, end=len(data), data=zlib.compress(data))
    ShellSession.objects.filter(pk=session.pk).update(recording_stored=len(data))
    session.refresh_from_db()
    return data


def an_output(job, path, data=b"data"):
    """A file that the job wrote and that is stored, at `bucket/name`."""
    now = timezone.now()
    bucket, _, name = path.partition("/")
    if not buckets.find(job.project, bucket):
        buckets.create(job.project, bucket, "alice", now)
    top = name.rpartition("/")[0]
    rows = HostOutputs.objects.filter(job=job)
    row = rows.first() or HostOutputs.objects.create(
        job=job, host=job.runs.get().host, addresses=[[bucket, top]], created_at=now, filled_at=now
    )
    stored = objects.put_object(job.project, bucket, name, [data])
    OutputFile.objects.create(
        outputs=row,
        path=path,
        size=len(data),
        mtime_ns=0,
        ctime_ns=0,
        inode=1,
        seen_at=now,
        stored_at=now,
        generation=stored.generation,
    )
    return stored


def a_recorded_shell(run, owner, **changes):
    session = a_shell(run, owner, **changes)
    a_recording(session)
    return session


def a_run(job, replica, host, number=0, phase="running", gpus=(), **changes):
    now = timezone.now()
    known = {
        "id": f"{job.pk}-{replica.name}-a{job.attempt}-r{number}",
        "attempt": job.attempt,
        "number": number,
        "created_at": now,
        "cpus": 1,
        # Beside those that the scheduler gives (TRAINYARD_PORTS): it may have placed a run on this host.
        "port": 24_000 + next(numbers),
        "order": {},
        "phase": phase,
        "started_at": now - timedelta(minutes=4),
    }
    run = Run.objects.create(job=job, replica=replica, host=host, **{**known, **changes})
    for gpu in gpus:
        GpuClaim.objects.create(gpu=gpu, run=run)
    return run


def moved(job, before, after, subject="job", cause="submitted", actor="bob", kind="state"):
    return Transition.objects.create(
        job=job,
        kind=kind,
        at=timezone.now(),
        subject=subject,
        from_state=before,
        to_state=after,
        attempt=job.attempt,
        cause=cause,
        actor=actor,
    )
