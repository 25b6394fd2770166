"""What `make scale` asks for: each page and each REST address of the product's own tables, and views of them by query.

An address that is not asked for has its reason in LEFT_OUT, so that a new one is measured or named here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.contrib.auth.models import User
from django.utils import timezone

from agents.models import Gpu, Host
from console.models import SavedView
from jobs.models import (
    Artifact,
    Job,
    JobTemplate,
    NotificationTarget,
    Run,
    ShellSession,
    TrainingPipeline,
    TuningJob,
)
from tests.harness import addresses

# The name of a page, or the end of a REST address → why it is not asked for. Those that take no GET are found by their
# answer.
LEFT_OUT = {
    "home": "leads to the jobs",
    "setup": "is open until there is an admin",
    "login": "leads to the jobs where somebody has logged in",
    "login-code": "is a step of a login",
    "oidc-callback": "asks a login server",
    "invited": "needs a link that is good once",
    "confirm-notifications": "needs a link that is good once",
    "unsubscribe": "needs a link from an e-mail",
    "client-wheel": "needs a link from the page of the command line",
    "job-history": "leads to the events",
    "new-shell": "leads to the page of a shell",
    "job-files": "asks a host over SSH",
    "job-file": "asks a host over SSH",
    "/files": "asks a host over SSH",
    "/files/content": "asks a host over SSH",
    "job-output": "is there once a job wrote files",
    "job-output-image": "is there once a job wrote files",
    "artifact-file": "sends a file",
    "object-file": "sends a file",
    "/content": "sends a file",
    "/download/storage/v1/b/runs-of-team-1/o/own-1": "sends a file",
    "/log": "sends whole logs: `make bench PARTS=giant`",
    ":check": "takes no GET",
    "/operations/{job}": "is there once a job was deleted",
    "compare-jobs": "leads to the jobs without its query, which is asked for",
    "compare-studies": "leads to the studies without its query, which is asked for",
}
# What a REST address cannot do without: its end → a query.
NEEDED = {
    "/log/lines": "?line=1",
    "/log/earlier": "?until=2000000000",
    "/log/later": "?since=0",
    "/log/search": "?q=nothing",
    "/storage/v1/b": "?project=team-1",
    "/v1/search": "?q=train-12",
}


@dataclass(frozen=True)
class Asked:
    """A request. `fields`: of a form or of JSON, which is sent. `fragment`: as htmx asks for it."""

    path: str
    fragment: bool = False
    fields: dict[str, object] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return f"{'fragment ' * self.fragment}{'POST ' * bool(self.fields)}{self.path}"


@dataclass(frozen=True)
class Seeded:
    """Rows that examples are taken from: jobs with one replica and a log, with 64 and with 1,000 replicas."""

    job: int
    wide: int
    widest: int
    host: Host

    @classmethod
    def read(cls) -> Seeded:
        running = (
            Run.objects.filter(phase="running").order_by("-log_stored", "pk").values_list("job", flat=True)
        )
        wide = Job.objects.filter(replica_count__gt=1).order_by("replica_count").values_list("pk", flat=True)
        return cls(running[0], wide[0], wide[1], Host.objects.order_by("pk")[5])


def requests() -> list[Asked]:
    """All requests, each once."""
    seeded = Seeded.read()
    values = examples(seeded)
    pages = {name: path for name, path in addresses.pages(values).items() if name not in LEFT_OUT}
    ends = tuple(end.format(job=seeded.wide) for end in LEFT_OUT)
    rest = [path + needed(path) for path in addresses.rest(values) if not path.endswith(ends)]
    asked = [
        *(Asked(path) for path in pages.values()),
        *(Asked(path, fragment=True) for path in pages.values()),
        *(Asked(path) for path in (*of_jobs(seeded), *of_others(seeded))),
        *(Asked(path) for path in rest),
        *forms(seeded),
    ]
    return list({each.shown: each for each in asked}.values())


def needed(path: str) -> str:
    return next((query for end, query in NEEDED.items() if path.endswith(end)), "")


def examples(seeded: Seeded) -> dict[str, object]:
    """The values of the parameters of addresses."""
    shell = ShellSession.objects.exclude(recording="").order_by("pk")[0]
    gpu = Gpu.objects.filter(host=seeded.host)[0]
    artifact = Artifact.objects.filter(project__name="team-1")[0]
    tuning = TuningJob.objects.filter(project__name="team-1").order_by("-max_trials", "pk")[0]
    pipeline = TrainingPipeline.objects.filter(project__name="team-1")[0]
    return {
        **{
            "job_id": seeded.wide,
            "run_id": shell.run_id,
            "key": shell.recording,
            "replica": shell.run.replica.name,
        },
        **{"host_id": seeded.host.pk, "host": seeded.host.name, "gpu_id": gpu.pk, "uuid": gpu.uuid},
        **{"project": "team-1", "location": "default", "user": "user-2", "topic": "jobs"},
        **{"user_id": User.objects.get(username="user-2").pk, "template_id": JobTemplate.objects.all()[0].pk},
        **{"target_id": NotificationTarget.objects.all()[0].pk, "view_id": SavedView.objects.all()[0].pk},
        **{"target": NotificationTarget.objects.all()[0].pk, "session_id": "0" * 16, "session": "0" * 16},
        **{
            "bucket": "runs-of-team-1",
            "sha256": artifact.sha256,
            "model_id": "model-0",
            "model": "model-0",
            "number": 1,
            "how": "copyTo",
            "to": "ours",
            "new_name": "copy",
        },
        **{"pipeline_id": pipeline.pk, "tuning_id": tuning.pk, "operation": seeded.wide, "whole": "own-1"},
        **{"ticket": "no-ticket", "registry": "ghcr.io"},
        **{"kind": "blobs", "digest": "a" * 64},
        **dict.fromkeys(("token", "token_id", "passkey_id", "stray_id", "type_id"), 1),
        **{"what": "recheck", "act": "batchCancel", "verb": "check", "name": "own-1"},
    }


def of_jobs(seeded: Seeded) -> list[str]:
    """Lists of jobs by their queries; one job, and what grows with its replicas."""
    middle = Job.objects.order_by("-pk").values_list("pk", flat=True)[Job.objects.count() // 2]
    others = Job.objects.filter(project__name="team-1").order_by("-pk").values_list("pk", flat=True)[:5]
    compared = "&".join(f"job={pk}" for pk in others)
    studies = TuningJob.objects.filter(project__name="team-1").values_list("pk", flat=True)[:5]
    job, wide, widest = seeded.job, seeded.wide, seeded.widest
    tabs = ("", "metrics", "events", "spec", "shells/", "log", "replicas", "log/workerpool0-0")
    return [
        *(f"/jobs/?{query}" for query in LISTS),
        f"/jobs/?sort=-gpus&after={middle}",
        f"/jobs/compare?{compared}",
        "/studies/compare?" + "&".join(f"study={pk}" for pk in studies),
        f"/jobs/{wide}/diff?with={job}",
        *(f"/jobs/{pk}/{tab}" for pk in (job, widest) for tab in tabs),
        *(f"/jobs/{pk}/metrics?bands=1&span=all" for pk in (job, wide, widest)),
        f"/jobs/{wide}/?replica=workerpool1-7",
        f"/jobs/{widest}/?text=77",
        f"/jobs/{job}/clone",
        f"/jobs/{wide}/spec?as=json",
        f"/jobs/new?template={_template()}",
        "/jobs/new?as=json",
        "/search?q=train-12",
        "/search?q=there-is-no-such-thing",
        "/search?q=team%3Dteam-3",
        "/api/v1/search?q=gpu-01",
        "/api/v1/jobs?label=stage%3Dtrain&sort=name",
        "/v1/projects/team-1/locations/default/customJobs",
        '/v1/projects/team-1/locations/default/customJobs?filter=display_name="nothing"',
        *(
            f"/api/v1/jobs/{pk}{tab}"
            for pk in (job, widest)
            for tab in ("", "/events", "/metrics", "/reports", "/samples")
        ),
        f"/api/v1/jobs/{wide}/metrics?format=csv",
        *(f"/api/v1/jobs/{pk}/log/search?q=nothing+like+this" for pk in (job, wide)),
    ]


LISTS = (
    "state=active",
    "state=FAILED",
    "owner=user-7",
    "project=team-3",
    "text=train-12",
    "text=there-is-no-such-job",
    "label=team%3Dteam-3",
    "label=stage%3Dtrain",
    "label=stage%3Dno-such-stage",
    "sort=-gpus",
    "sort=name&project=team-3",
)


def _template() -> int:
    return JobTemplate.objects.filter(project__name="team-1")[0].pk


def of_others(seeded: Seeded) -> list[str]:
    day = f"{timezone.now():%Y-%m-%d}"
    return [
        "/jobs/queue?project=team-1",
        "/hosts/?sort=-gpus&status=up",
        "/hosts/gpus?type=NVIDIA_L4",
        "/hosts/gpus?view=table&show=held",
        "/hosts/occupancy?span=month",
        "/hosts/occupancy?span=week&view=table",
        "/hosts/occupancy?span=month&location=default&project=team-1",
        f"/hosts/occupancy?span=month&host={seeded.host.name}",
        "/hosts/occupancy.csv?span=month",
        "/audit/?subject=nothing-like-this",
        f"/audit/?kind=quota&from={day}&to={day}",
        "/audit/export?format=csv",
        "/audit/export?format=jsonl",
        "/api/v1/audit?format=csv",
        f"/api/v1/usage?month={day[:7]}",
        "/api/v1/queue?pageSize=1000",
        "/admin/people/?text=user-1",
    ]


def forms(seeded: Seeded) -> list[Asked]:
    """What is sent and changes nothing: previews."""
    waiting = Job.objects.filter(state="QUEUED").order_by("pk").values_list("pk", flat=True)
    line = f"{seeded.host.address} {seeded.host.pinned_key}"
    form = {"mode": "form", "project": "team-1", "location": "default", "display_name": "train"}
    command = {"pool0-kind": "bash", "pool0-program": "python3 train.py", "pool0-replica_count": "4"}
    gpus = {"pool0-accelerator_type": "NVIDIA_H100_80GB", "pool0-accelerator_count": "8"}
    return [
        Asked("/jobs/queue/move", fields={"one": f"top-{waiting[0]}"}),
        Asked("/api/v1/queue:preview", fields={"jobs": [str(waiting[0])], "to": "top"}),
        Asked("/jobs/new/summary", fragment=True, fields={**form, **command, **gpus}),
        Asked("/hosts/keys/compare", fields={"keys": line}),
    ]
