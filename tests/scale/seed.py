"""Fills a database with a large deployment: 100,000 jobs, 1,000 hosts, 8,000 GPUs, 200 people. Same rows each time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from agents.models import Gpu, Host, HostEvent, HostLoad, HostStatus, Location
from jobs.host_sync import location_hours, samples
from jobs.host_sync.gpu_hours import sum_hours
from jobs.models import (
    AuditEntry,
    GpuClaim,
    HostMaintenance,
    Job,
    JobLabel,
    LogPiece,
    Membership,
    Project,
    Replica,
    Run,
    RunSample,
    Stray,
    Transition,
    Usage,
)
from jobs.rules.spec import parse
from jobs.scheduling import capacity
from tests.scale import kept_by_people, stored, wide_jobs
from tests.scale.copied_rows import copied
from tests.scale.people import ADMIN

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PROJECTS, LOCATIONS, GPUS_OF_A_HOST = 20, ("default", "east", "west"), 8
KINDS = (("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB", 81_559), ("NVIDIA L4", "NVIDIA_L4", 23_034))
# Jobs of the past are spread over so many days.
PAST_DAYS = 90
WAITING = 2_000
# Most jobs have the first of these labels; few have the last.
STAGES = ("train", "train", "train", "train", "train", "train", "train", "evaluate", "evaluate", "debug")
BATCH = 2_000


@dataclass(frozen=True)
class Size:
    jobs: int = 100_000
    hosts: int = 1_000
    people: int = 200


class Seeder:
    """Makes the rows of one deployment. The dice have a fixed seed."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.dice = random.Random(1)
        self.now = timezone.now()
        self.serial = 0

    def fill(self) -> None:
        for steps in (
            (self.people, self.hosts),
            (self.running_jobs, self.other_jobs),
            (self.past_samples, self.records),
            (self.wide_jobs, self.kept_by_people, self.stored),
        ):
            with copied(), transaction.atomic(), connection.cursor() as cursor:
                if connection.vendor == "postgresql":
                    # Rows are made for longer than a dispatcher may be idle in a transaction.
                    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                for step in steps:
                    step()
        sum_hours(self.now)
        location_hours.sum_hours(self.now)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")

    def people(self) -> None:
        """user-0 is an admin; everybody else is in two projects, user-1 as submitter of the first."""
        User.objects.bulk_create(
            User(username=f"user-{n}", password="!", is_superuser=n == 0, is_staff=n == 0)
            for n in range(self.size.people)
        )
        Project.objects.bulk_create(
            Project(name=f"team-{n}", created_at=self.now - PAST_DAYS * DAY) for n in range(PROJECTS)
        )
        self.projects = list(Project.objects.filter(name__startswith="team-").order_by("pk"))
        self.users = list(User.objects.filter(username__startswith="user-").order_by("pk"))
        members = [
            Membership(
                project=self.projects[(number + step) % PROJECTS],
                user=user,
                role="admin" if number < PROJECTS and step == 0 and number != 1 else "submitter",
            )
            for number, user in enumerate(self.users)
            for step in (0, 7)
        ]
        Membership.objects.bulk_create(members)

    def hosts(self) -> None:
        """Nine of ten hosts are up; some are cordoned. Eight of ten hosts are in the location `default`."""
        places = [Location.objects.get_or_create(name=name)[0] for name in LOCATIONS]
        Host.objects.bulk_create(self.a_host(number, places) for number in range(self.size.hosts))
        self.all_hosts = list(Host.objects.order_by("pk"))
        Gpu.objects.bulk_create(
            (self.a_gpu(host, index) for host in self.all_hosts for index in range(GPUS_OF_A_HOST)),
            batch_size=BATCH,
        )
        self.gpus: dict[int, list[Gpu]] = {}
        for gpu in Gpu.objects.order_by("host", "index"):
            self.gpus.setdefault(gpu.host_id, []).append(gpu)
        # Of tomorrow, so that they are not too old when pages are measured.
        HostLoad.objects.bulk_create(
            (self.a_load(host) for host in self.all_hosts if host.status == HostStatus.UP), batch_size=BATCH
        )
        HostMaintenance.objects.bulk_create(
            HostMaintenance(
                host=host,
                cordoned=True,
                cordoned_at=self.now - HOUR,
                cordoned_by=ADMIN,
                cordon_message="a new power supply comes on Friday",
            )
            for host in self.all_hosts[::50]
        )
        HostEvent.objects.bulk_create(
            HostEvent(host=host, at=self.now - n * HOUR, kind="checked", text="usable", actor="trainyard")
            for host in self.all_hosts
            for n in range(20)
        )

    def a_load(self, host: Host) -> HostLoad:
        return HostLoad(
            host=host,
            at=self.now + DAY,
            gpus={gpu.uuid: [self.dice.randrange(101), 60_000, 400, 65] for gpu in self.gpus[host.pk]},
            cpu=41.5,
            memory_mb=300_000,
            net_rx=self.dice.randrange(10**9),
            net_tx=self.dice.randrange(10**9),
            io_read=0,
            io_write=self.dice.randrange(10**8),
        )

    def a_host(self, number: int, places: list[Location]) -> Host:
        status = HostStatus.UP if number % 10 else HostStatus.UNREACHABLE
        checks = ("python", "disk", "clock", "gpus", "cgroup", "shm", "limits", "time", "umask", "network")
        return Host(
            name=f"gpu-{number:04}",
            location=places[0 if number % 10 < 8 else 1 + number % 2],
            address=f"10.{number // 256}.{number % 256}.7",
            user="train",
            created_at=self.now - PAST_DAYS * DAY,
            added_by=ADMIN,
            status=status,
            status_since=self.now - self.dice.random() * DAY,
            last_error="" if status == HostStatus.UP else "timed out after 10 s",
            pinned_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKRyEbnQY4yC8Vt2ql3J0kTqgk0gUeR1uvXWgYwT3C7",
            seen_at=self.now,
            cpus=192,
            memory_mb=2_063_000,
            free_disk_mb=self.dice.randrange(100_000, 9_000_000),
            checklist=[{"name": name, "ok": True, "text": f"{name} is fine", "fix": ""} for name in checks],
            facts={"kernel": "6.1.0-40-amd64", "mounts": [["/", "ext4"], ["/data", "nfs4"]]},
        )

    def a_gpu(self, host: Host, index: int) -> Gpu:
        model, kind, memory_mb = KINDS[0 if host.pk % 4 else 1]
        return Gpu(
            host=host,
            uuid=f"GPU-{host.pk:08x}-{index:04x}-4b1d-9a57-3c0e2f6d8b{index:02x}",
            index=index,
            model=model,
            memory_mb=memory_mb,
            accelerator_type=kind,
        )

    # jobs

    def running_jobs(self) -> None:
        """Jobs of one to eight GPUs hold seven of eight GPUs of the hosts."""
        rows = Rows()
        self.running: list[Run] = []
        for host in self.all_hosts:
            gpus, used = self.gpus[host.pk], 0
            while used < len(gpus) - 1:
                count = min(self.dice.choice((1, 1, 2, 4)), len(gpus) - 1 - used)
                job, replica = self.a_job(rows, "RUNNING", self.now - self.dice.random() * 2 * DAY, count)
                run = self.a_run(rows, job, replica, host, gpus[used : used + count])
                self.running.append(run)
                used += count
        rows.write()

    def other_jobs(self) -> None:
        """2,000 jobs wait; the others have ended within the last 90 days."""
        ended = self.size.jobs - len(self.running) - min(WAITING, self.size.jobs // 50)
        rows = Rows()
        for number in range(ended):
            begun = self.now - DAY / 4 - (ended - number) / ended * PAST_DAYS * DAY
            state = self.dice.choice(("SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "CANCELLED"))
            job, replica = self.a_job(rows, state, begun, self.dice.choice((1, 1, 2, 4, 8)))
            host = self.dice.choice(self.all_hosts)
            self.a_run(rows, job, replica, host, self.gpus[host.pk][: self.gpus_of(job)])
            if number % BATCH == 0:
                rows.write()
        for _ in range(min(WAITING, self.size.jobs // 50)):
            self.a_job(rows, "QUEUED", self.now - self.dice.random() * HOUR, 8)
        rows.write()

    def a_job(self, rows: Rows, state: str, begun, gpus: int) -> tuple[Job, Replica]:
        self.serial += 1
        person = self.dice.randrange(self.size.people)
        project = self.projects[(person + self.dice.choice((0, 7))) % PROJECTS]
        over = state in ("SUCCEEDED", "FAILED", "CANCELLED")
        started = None if state == "QUEUED" else begun + MINUTE
        asked = document(f"train-{self.serial % 977}-lr", gpus)
        job = Job(
            id=int(begun.timestamp() * 1000) * 1_000_000 + self.serial,
            project=project,
            location_name="default",
            display_name=asked.display_name,
            owner=self.users[person],
            owner_name=self.users[person].username,
            spec=parse.to_document(asked.job_spec),
            labels={"team": project.name, "stage": STAGES[self.serial % len(STAGES)]},
            replica_count=1,
            **capacity.columns_of(asked.job_spec, {}),
            state=state,
            reason="Waits for 8 × NVIDIA_H100_80GB: 412 of 7,000 are free." if state == "QUEUED" else "",
            error_message="The replica workerpool0-0 exited with a non-zero status of 1."
            if state == "FAILED"
            else "",
            created_at=begun,
            updated_at=begun + 2 * HOUR if over else self.now,
            queued_at=begun,
            started_at=started,
            ended_at=begun + 2 * HOUR if over else None,
        )
        replica_state = {"SUCCEEDED": "FINISHED", "QUEUED": "WAITING", "RUNNING": "RUNNING"}.get(
            state, "FAILED"
        )
        replica = Replica(job=job, name="workerpool0-0", pool=0, index=0, state=replica_state)
        rows.jobs.append(job)
        rows.labels += [
            JobLabel(job=job, project=project, key=key, value=value) for key, value in job.labels.items()
        ]
        rows.replicas.append(replica)
        rows.moved(job, "", "QUEUED", begun)
        if started:
            rows.moved(job, "QUEUED", "RUNNING", started)
        if over:
            rows.moved(job, "RUNNING", state, job.ended_at)
        return job, replica

    def gpus_of(self, job: Job) -> int:
        return job.spec["workerPoolSpecs"][0]["machineSpec"]["acceleratorCount"]

    def a_run(self, rows: Rows, job: Job, replica: Replica, host: Host, gpus: list[Gpu]) -> Run:
        over = job.ended_at
        run = Run(
            id=f"{job.pk}-workerpool0-0-a1-r0",
            job=job,
            replica=replica,
            attempt=1,
            number=0,
            host=host,
            created_at=job.started_at,
            cpus=8 * len(gpus),
            memory_mb=64_000 * len(gpus),
            port=20_000 + self.serial % 10_000,
            gpu_uuids=[gpu.uuid for gpu in gpus],
            order={"argv": ["bash", "-c", "python train.py"]},
            phase="closed" if over else "running",
            claimed_at=job.started_at,
            started_at=job.started_at,
            ended_at=over,
            closed_at=over,
            released_at=over,
            forgotten_at=over,
            exit_code=0 if over else None,
            log_size=4_000,
            log_stored=4_000,
            log_complete_at=over,
        )
        rows.runs.append(run)
        rows.claims += [GpuClaim(gpu=gpu, run=run, released_at=over) for gpu in gpus]
        if over:
            rows.usage.append(
                Usage(
                    run=run,
                    job=job,
                    project=job.project,
                    owner=job.owner,
                    owner_name=job.owner_name,
                    accelerator_type=gpus[0].accelerator_type,
                    gpus=len(gpus),
                    cpus=run.cpus,
                    began_at=job.started_at,
                    ended_at=over,
                    folded=True,
                )
            )
        return run

    # what running jobs and admins leave

    def past_samples(self) -> None:
        """A day of samples of each running run, at the minutes that the page of GPUs reads."""
        hour = self.now.replace(minute=0, second=0, microsecond=0)
        moments = [hour - back * HOUR + minute * MINUTE for back in range(24) for minute in (10, 30, 50)]
        for at in (moment for moment in moments if moment < self.now):
            step = 60 if self.now - at > HOUR else 10
            samples.save(
                [
                    RunSample(
                        run=run,
                        step=step,
                        at=at,
                        cpu=7.5,
                        memory_mb=40_000,
                        gpus=[[self.dice.randrange(60, 100), 60_000] for _ in run.gpu_uuids],
                        disk_free_mb=500_000,
                    )
                    for run in self.running
                    if run.started_at < at
                ]
            )

    def wide_jobs(self) -> None:
        wide_jobs.fill(self.all_hosts, self.gpus, self.projects[1], self.users[1], self.now)

    def kept_by_people(self) -> None:
        asked = parse.to_document(document("from-a-template", 8).job_spec)
        kept = {"displayName": "from-a-template", "jobSpec": asked}
        kept_by_people.fill(self.users, self.projects, kept, self.now)

    def stored(self) -> None:
        stored.fill(self.projects, self.now)

    def records(self) -> None:
        """A log of 50 KB for the newest running job; the audit; runs that a restored backup lost."""
        line = b"step 1000 | loss 2.345678 | lr 1.000e-04 | tokens/s 95123\n"
        newest = self.running[-1]
        LogPiece.objects.bulk_create(
            LogPiece(run=newest, start=n * len(line), end=(n + 1) * len(line), z=False, data=line, wall=1.0)
            for n in range(900)
        )
        Run.objects.filter(pk=newest.pk).update(log_stored=900 * len(line), log_size=900 * len(line))
        AuditEntry.objects.bulk_create(
            AuditEntry(
                at=self.now - n * MINUTE,
                actor=ADMIN,
                what="quota.set",
                subject_kind="project",
                subject=f"team-{n % PROJECTS}",
                project=self.projects[n % PROJECTS],
                before=None,
                after={"limit": n},
            )
            for n in range(20_000)
        )
        Stray.objects.bulk_create(
            Stray(
                host=host,
                run=f"17000000000000{number:05}-workerpool0-0-a1-r0",
                phase="closed",
                proof="sealed",
                found_at=self.now,
            )
            for number, host in enumerate(self.all_hosts)
        )


class Rows:
    """Rows that wait to be written together."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.labels: list[JobLabel] = []
        self.replicas: list[Replica] = []
        self.runs: list[Run] = []
        self.claims: list[GpuClaim] = []
        self.usage: list[Usage] = []
        self.transitions: list[Transition] = []

    def moved(self, job: Job, before: str, after: str, at) -> None:
        cause = "Submitted." if not before else "every replica has a place"
        self.transitions.append(
            Transition(
                job=job,
                at=at,
                subject="job",
                from_state=before,
                to_state=after,
                attempt=1,
                cause=cause,
                actor=job.owner_name,
            )
        )

    def write(self) -> None:
        Job.objects.bulk_create(self.jobs, batch_size=BATCH)
        JobLabel.objects.bulk_create(self.labels, batch_size=BATCH)
        Replica.objects.bulk_create(self.replicas, batch_size=BATCH)
        Run.objects.bulk_create(self.runs, batch_size=BATCH)
        GpuClaim.objects.bulk_create(self.claims, batch_size=BATCH)
        Usage.objects.bulk_create(self.usage, batch_size=BATCH)
        Transition.objects.bulk_create(self.transitions, batch_size=BATCH)
        self.__init__()


_documents: dict[tuple[str, int], object] = {}


def document(name: str, gpus: int):
    key = name, gpus
    if key not in _documents:
        machine = {
            "machineType": "host",
            "acceleratorType": KINDS[0][1],
            "acceleratorCount": gpus,
        }
        command = ["bash", "-c", "exec python train.py --lr 1e-4 --epochs 20"]
        pool = {
            "machineSpec": machine,
            "replicaCount": "1",
            "containerSpec": {"imageUri": "host", "command": command},
        }
        _documents[key] = parse.parse_custom_job(
            {"displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}}
        )
    return _documents[key]
