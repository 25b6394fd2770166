"""Measures each page and each REST list on a large database: server time, queries, bytes. Run by `make scale`."""

from __future__ import annotations

import gzip
import time
from dataclasses import dataclass
from itertools import islice

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponseBase
from django.test import Client
from django.utils import timezone

from agents.models import Host
from console.auth import tokens
from console.runtime import memory
from console.runtime.database_setup import prepare
from jobs.models import Job, Run
from tests.bench.figures import percentile
from tests.scale import first_fragments
from tests.scale.seed import ADMIN, MEMBER, Seeder, Size

MAX_MS, MAX_KB = 100.0, 60.0
WARM_UP = 2
# A download is measured until it has begun: the head of its table, and the first rows.
ROWS = 2
# The word for it among the addresses.
FIRST_FRAGMENTS = "first-fragments"
# A page that is very slow is asked for less often.
MAX_S = 10.0


@dataclass(frozen=True)
class Measured:
    path: str
    who: str
    p50: float
    p95: float
    cpu: float
    queries: int
    raw_kb: float
    sent_kb: float
    download: bool

    @property
    def holds(self) -> bool:
        return self.p95 <= MAX_MS and (self.sent_kb <= MAX_KB or self.download)

    def line(self) -> str:
        figures = f"{self.p50:7.0f} {self.p95:7.0f} {self.cpu:7.0f} {self.queries:8d}"
        told = "" if self.holds else "  over the aim"
        return f"{self.path:58} {self.who:6} {figures} {self.raw_kb:9.1f} {self.sent_kb:9.1f}{told}"


HEAD = (
    f"{'page':58} {'who':6} {'p50 ms':>7} {'p95 ms':>7} {'cpu ms':>7} {'queries':>8} {'KB':>9} {'sent KB':>9}"
)


def addresses() -> list[str]:
    """All pages and REST lists that grow with the deployment."""
    running = Run.objects.filter(phase="running").order_by("-log_stored").values_list("job", flat=True)
    middle = Job.objects.order_by("-pk").values_list("pk", flat=True)[Job.objects.count() // 2]
    host = Host.objects.order_by("pk").values_list("pk", flat=True)[5]
    job = running[0]
    month = f"{timezone.now():%Y-%m}"
    return [
        "/jobs/",
        "/jobs/?state=active",
        "/jobs/?state=FAILED",
        "/jobs/?owner=user-7",
        "/jobs/?project=team-3",
        "/jobs/?text=train-12",
        "/jobs/?text=there-is-no-such-job",
        "/jobs/?label=team%3Dteam-3",
        "/jobs/?label=stage%3Dtrain",
        "/jobs/?label=stage%3Dno-such-stage",
        "/jobs/?sort=-gpus",
        "/jobs/?sort=name&project=team-3",
        f"/jobs/?sort=-gpus&after={middle}",
        "/jobs/queue",
        "/search?q=train-12",
        "/search?q=there-is-no-such-thing",
        "/search?q=team%3Dteam-3",
        "/api/v1/search?q=gpu-01",
        f"/jobs/{job}/",
        f"/jobs/{job}/metrics",
        f"/jobs/{job}/shells/",
        f"/jobs/{job}/spec",
        f"/jobs/{job}/events",
        f"/jobs/{job}/log",
        f"/jobs/{job}/log/workerpool0-0",
        f"/jobs/{job}/clone",
        "/jobs/new",
        "/hosts/",
        "/hosts/gpus",
        "/hosts/gpus?type=NVIDIA_L4",
        "/hosts/gpus?view=table&show=held",
        "/hosts/occupancy",
        "/hosts/occupancy?span=month",
        "/hosts/occupancy?span=month&location=default&project=team-1",
        f"/hosts/occupancy?span=month&host={Host.objects.get(pk=host).name}",
        f"/hosts/{host}/",
        f"/hosts/{host}/maintenance",
        "/hosts/add",
        "/machines/",
        "/projects/",
        "/projects/team-1/",
        "/usage/",
        "/usage/report.csv",
        "/admin/people/",
        "/admin/quotas/",
        "/audit/",
        "/audit/?subject=nothing-like-this",
        "/recovery/",
        "/account",
        "/v1/projects/team-1/locations/default/customJobs",
        '/v1/projects/team-1/locations/default/customJobs?filter=display_name="nothing"',
        "/api/v1/jobs?label=stage%3Dtrain&sort=name",
        "/api/v1/queue",
        f"/api/v1/jobs/{job}",
        f"/api/v1/jobs/{job}/events",
        f"/api/v1/jobs/{job}/metrics",
        f"/api/v1/jobs/{job}/log/search?q=nothing+like+this",
        "/api/v1/hosts",
        "/api/v1/hosts/gpu-0001/gpus",
        "/api/v1/machineTypes",
        "/api/v1/projects",
        "/api/v1/people",
        f"/api/v1/usage?month={month}",
        "/api/v1/audit",
        "/api/v1/recovery",
    ]


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute, sql, params, many, context):
        self.count += 1
        return execute(sql, params, many, context)


def logged_in(name: str) -> Client:
    # As browsers ask. Some can do more than gzip, which every browser can.
    client = Client(headers={"accept-encoding": "gzip"})
    client.force_login(User.objects.get(username=name))
    return client


def measured(client: Client, who: str, path: str, requests: int) -> Measured | None:
    times, cpu, counter, content = [], [], Counter(), b""
    until = time.monotonic() + MAX_S
    for number in range(WARM_UP + requests):
        if number > WARM_UP and time.monotonic() > until:
            break
        counter.count = 0
        begun, begun_cpu = time.perf_counter(), time.process_time()
        with connection.execute_wrapper(counter):
            answer = client.get(path, **token(client, path))
            content = b"".join(islice(answer.streaming_content, ROWS)) if answer.streaming else answer.content
            took = (time.perf_counter() - begun) * 1000
            if answer.streaming:
                content += b"".join(answer.streaming_content)
        if answer.status_code in (403, 404):
            return None
        assert answer.status_code == 200, (path, answer.status_code, content[:300])
        if number >= WARM_UP:
            times.append(took)
            cpu.append((time.process_time() - begun_cpu) * 1000)
    if answer.streaming:
        path += ", its beginning"
    return Measured(
        path if len(path) < 58 else path[:57] + "…",
        who,
        percentile(times, 0.5),
        percentile(times, 0.95),
        percentile(cpu, 0.5),
        counter.count,
        len(plain(answer, content)) / 1000,
        len(content) / 1000,
        answer.streaming,
    )


def plain(answer: HttpResponseBase, content: bytes) -> bytes:
    """The content as it was before the server compressed it."""
    return gzip.decompress(content) if answer.get("Content-Encoding") == "gzip" else content


def token(client: Client, path: str) -> dict[str, str]:
    """REST below /v1/ takes tokens only."""
    if not path.startswith("/v1/"):
        return {}
    if not hasattr(client, "bearer"):
        user = User.objects.get(pk=client.session["_auth_user_id"])
        client.bearer = tokens.create(user, "scale", timezone.now())[1]
    return {"HTTP_AUTHORIZATION": f"Bearer {client.bearer}"}


def main(requests: int, jobs: int, hosts: int, only: list[str]) -> int:
    """Print a line for each page and person. Returns how many of them miss the aim."""
    settings.ALLOWED_HOSTS = ["*"]
    prepare()
    if not Job.objects.exists():
        begun = time.perf_counter()
        Seeder(Size(jobs, hosts)).fill()
        print(f"{connection.vendor}: filled in {time.perf_counter() - begun:.0f} s", flush=True)
    print(f"\n{connection.vendor}\n{HEAD}", flush=True)
    # As the web process does when it starts.
    memory.forget_start()
    missed = 0
    for who in (ADMIN, MEMBER):
        client = logged_in(who)
        for path in addresses():
            found = None if only and path not in only else measured(client, who, path, requests)
            if found:
                missed += not found.holds
                print(found.line(), flush=True)
    if not only or only == [FIRST_FRAGMENTS]:
        missed += first_fragments.show()
    return missed
