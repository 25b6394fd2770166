"""Measures each page, fragment and REST answer on a large database: server time, queries, bytes. Run by `make scale`.

The queries of a small deployment are counted first: a page of a large one may not make more.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponseBase
from django.test import Client
from django.utils import timezone

from agents.infra import shared_answers
from console.auth import tokens
from console.runtime import memory
from console.runtime.database_setup import prepare
from jobs.models import Job
from tests.bench.figures import percentile
from tests.scale import addresses, first_fragments
from tests.scale.addresses import Asked
from tests.scale.people import ADMIN
from tests.scale.seed import Seeder, Size

MAX_MS, MAX_KB = 100.0, 60.0
# Of the plots of a page, as the browser reads them. A study of 1,000 trials is among the pages.
MAX_SVG_KB = 120.0
SVG = re.compile(rb"<svg\b.*?</svg>", re.DOTALL)
WARM_UP = 2
# A download is measured until it has begun: the head of its table, and the first rows.
ROWS = 2
# The word for it among the addresses.
FIRST_FRAGMENTS = "first-fragments"
# A page that is very slow is asked for less often.
MAX_S = 5.0
NOT_FOR_THEM, NO_GET = (403, 404), 405


@dataclass(frozen=True)
class Wanted:
    """`only`: parts of addresses; none for all. `counts`: a file of how many queries a small deployment needs;
    `counting`: this is the small deployment.
    """

    requests: int
    jobs: int
    hosts: int
    only: Sequence[str]
    people: Sequence[str]
    counts: str
    counting: bool

    def asks_for(self, asked: Asked) -> bool:
        return not self.only or any(part in asked.shown for part in self.only)

    def all(self) -> Iterator[tuple[str, Person, Asked]]:
        """Each request of each person, with a name that is the same in every deployment."""
        for name in self.people:
            person = Person(name)
            for number, asked in enumerate(addresses.requests()):
                if self.asks_for(asked):
                    yield f"{name} {number}", person, asked


@dataclass(frozen=True)
class Measured:
    name: str
    who: str
    times: Sequence[float]
    cpu: Sequence[float]
    queries: int
    before: int | None
    raw_kb: float
    sent_kb: float
    svg_kb: float
    download: bool

    @property
    def faults(self) -> list[str]:
        found = []
        if percentile(self.times, 0.95) > MAX_MS:
            found.append("over the aim")
        if self.sent_kb > MAX_KB and not self.download:
            found.append("too many bytes")
        if self.svg_kb > MAX_SVG_KB:
            found.append("too much SVG")
        if self.before is not None and self.queries > self.before and not self.download:
            found.append(f"{self.before} queries in a small deployment")
        return found

    def line(self) -> str:
        figures = f"{percentile(self.times, 0.5):7.0f} {percentile(self.times, 0.95):7.0f}"
        figures += f" {percentile(self.cpu, 0.5):7.0f} {self.queries:8d}"
        name = self.name if len(self.name) < 72 else self.name[:71] + "…"
        told = "".join(f"  {fault}" for fault in self.faults)
        return f"{name:72} {self.who:6} {figures} {self.raw_kb:9.1f} {self.sent_kb:9.1f} {self.svg_kb:7.1f}{told}"


HEAD = (
    f"{'page':72} {'who':6} {'p50 ms':>7} {'p95 ms':>7} {'cpu ms':>7} {'queries':>8} "
    f"{'KB':>9} {'sent KB':>9} {'SVG KB':>7}"
)


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute, sql, params, many, context):
        self.count += 1
        return execute(sql, params, many, context)


class Person:
    """Somebody with a browser, and a token for addresses that take nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name
        # As browsers ask. Some can do more than gzip, which every browser can.
        self.client = Client(headers={"accept-encoding": "gzip"})
        user = User.objects.get(username=name)
        self.client.force_login(user)
        self.bearer = tokens.create(user, "scale", timezone.now())[1]

    def send(self, asked: Asked) -> HttpResponseBase:
        headers = {"HX-Request": "true"} if asked.fragment else {}
        if asked.path.startswith(("/v1/", "/v2/", "/storage/", "/download/")):
            headers["Authorization"] = f"Bearer {self.bearer}"
        if not asked.fields:
            return self.client.get(asked.path, headers=headers)
        if asked.path.startswith("/api/"):
            body = json.dumps(asked.fields)
            return self.client.post(asked.path, body, content_type="application/json", headers=headers)
        return self.client.post(asked.path, asked.fields, headers=headers)


def measured(person: Person, asked: Asked, requests: int, before: int | None) -> Measured | None:
    """None: nobody is answered there by GET, or not this person."""
    queries = count(person, asked)
    if queries is None:
        return None
    times, cpu, content = [], [], b""
    until = time.monotonic() + MAX_S
    for number in range(requests):
        if number and time.monotonic() > until:
            break
        begun, begun_cpu = time.perf_counter(), time.process_time()
        answer = person.send(asked)
        content = b"".join(islice(answer.streaming_content, ROWS)) if answer.streaming else answer.content
        times.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.process_time() - begun_cpu) * 1000)
        if answer.streaming:
            content += b"".join(answer.streaming_content)
    download = answer.streaming or "attachment" in answer.get("Content-Disposition", "")
    plain = gzip.decompress(content) if answer.get("Content-Encoding") == "gzip" else content
    name = f"{asked.shown}{', its beginning' * answer.streaming}"
    svg = sum(map(len, SVG.findall(plain)))
    sizes = len(plain) / 1000, len(content) / 1000, svg / 1000
    return Measured(name, person.name, times, cpu, queries, before, *sizes, download)


def count(person: Person, asked: Asked) -> int | None:
    """How many queries a request needs if nothing is remembered of an answer to another one. It is also the warm-up."""
    counter = Counter()
    for _ in range(WARM_UP):
        shared_answers.forget_all()
        counter.count = 0
        with connection.execute_wrapper(counter):
            answer = person.send(asked)
            content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        not_for_all = answer.status_code in NOT_FOR_THEM or (asked.fields and answer.status_code != 200)
        if answer.status_code == NO_GET or (not_for_all and person.name != ADMIN):
            return None
        assert answer.status_code == 200, (asked.shown, person.name, answer.status_code, content[:300])
    return counter.count


def main(text: str) -> int:
    """Print a line for each page and person. Returns how many of them miss an aim."""
    wanted = Wanted(**json.loads(text))
    settings.ALLOWED_HOSTS = ["*"]
    prepare()
    if not Job.objects.exists():
        begun = time.perf_counter()
        Seeder(Size(wanted.jobs, wanted.hosts)).fill()
        print(f"{connection.vendor}: filled in {time.perf_counter() - begun:.0f} s", flush=True)
    # As the web process does when it starts.
    memory.forget_start()
    counts = pathlib.Path(wanted.counts)
    if wanted.counting:
        counts.write_text(json.dumps({name: count(person, asked) for name, person, asked in wanted.all()}))
        return 0
    return measure_all(wanted, json.loads(counts.read_text()))


def measure_all(wanted: Wanted, before: Mapping[str, int]) -> int:
    print(f"\n{connection.vendor}\n{HEAD}", flush=True)
    missed = 0
    for name, person, asked in wanted.all():
        found = measured(person, asked, wanted.requests, before.get(name))
        if found:
            missed += bool(found.faults)
            print(found.line(), flush=True)
    if not wanted.only or FIRST_FRAGMENTS in wanted.only:
        missed += first_fragments.show()
    return missed
