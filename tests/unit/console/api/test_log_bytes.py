"""Download of the raw bytes of a log: by range, with gaps, while it grows."""

from __future__ import annotations

import json
import os

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from console.api.logs import log_bytes
from console.api.logs.log_bytes import slice_parts, stored_parts
from console.auth import tokens
from console.runtime import database_threads
from jobs.models import Run
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.example_rows import a_host, a_job, a_run


@pytest.fixture
def job(transactional_db, cast, project):
    yield a_job(project, cast.bob, host=a_host())
    database_threads.close()


@pytest.fixture
async def tidy():
    """Close the connection of the thread that runs the views of async tests: the test database must have none open."""
    yield
    await sync_to_async(connections.close_all)()


@pytest.fixture
def fetch(cast, job, tidy):
    token = tokens.create(cast.vera, "test", timezone.now())[1]
    client = AsyncClient()

    async def call(replica="workerpool0-0", method="get", query="", **headers):
        address = f"/api/v1/jobs/{job.pk}/replicas/{replica}/log{query}"
        headers["authorization"] = f"Bearer {token}"
        answer = await getattr(client, method)(address, headers=headers)
        body = b"".join([block async for block in answer]) if answer.streaming else answer.content
        assert int(answer.get("Content-Length", len(body))) == len(body) or method == "head"
        return answer, body

    return call


async def test_every_byte_is_returned_as_it_was_printed(fetch, job):
    run = job.runs.get
    data = os.urandom(600_000) + bytes(range(256)) + b"\r\n\x00\xff"
    row = await sync_to_async(run)()
    for at in range(0, len(data), 100_000):
        await sync_to_async(write)(row, data[at : at + 100_000], z=at % 200_000 == 0)
    answer, body = await fetch()
    assert answer.status_code == 200 and body == data
    assert answer["Trainyard-Run"] == row.pk and answer["Trainyard-Log-Complete"] == "false"
    assert answer["X-Content-Type-Options"] == "nosniff" and "Trainyard-Log-Gaps" not in answer
    await sync_to_async(write)(row, b"more")
    answer, body = await fetch(range=f"bytes={len(data)}-")
    assert (answer.status_code, body) == (206, b"more")
    await sync_to_async(complete)(row)
    answer, body = await fetch(method="head")
    assert (body, answer["Content-Length"], answer["Trainyard-Log-Complete"]) == (
        b"",
        str(len(data) + 4),
        "true",
    )
    assert answer["Trainyard-Log-Digest"].startswith("sha256:")


async def test_range_requests_return_the_bytes_that_were_asked_for(fetch, job):
    row = await job.runs.aget()
    await sync_to_async(write)(row, b"0123456789")
    for header, status, body, told in (
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=9-", 206, b"9", "bytes 9-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=0-", 200, b"0123456789", None),
        ("bytes=-99", 200, b"0123456789", None),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ):
        answer, got = await fetch(range=header)
        assert (header, answer.status_code, answer.get("Content-Range")) == (header, status, told)
        assert body is None or got == body
    for query in ("?run=nothing", "?from=-1", "?to=x", "?at=soon"):
        answer, _ = await fetch(query=query)
        assert answer.status_code in (400, 404)


async def test_gaps_are_reported_and_not_filled(fetch, job):
    row = await job.runs.aget()
    for act, what in ((write, b"before"), (lose, 100), (write, b"after"), (lose, 4), (lose, 6)):
        await sync_to_async(act)(row, what)
    answer, body = await fetch()
    assert body == b"beforeafter" and answer["Trainyard-Log-Stored"] == "121"
    gaps = [(gap["from"], gap["to"]) for gap in json.loads(answer["Trainyard-Log-Gaps"])]
    assert gaps == [(6, 106), (111, 115), (115, 121)]
    answer, body = await fetch(range="bytes=5-7")
    assert (body, answer["Content-Range"]) == (b"eaf", "bytes 5-7/11")
    answer, body = await fetch(query="?from=100&to=109")
    assert body == b"aft" and answer["Trainyard-Log-From"] == "100" and answer["Trainyard-Log-To"] == "109"
    assert len(json.loads(answer["Trainyard-Log-Gaps"])) == 1


async def test_a_log_with_too_many_gaps_is_served_in_parts(fetch, job, monkeypatch):
    monkeypatch.setattr(log_bytes, "MAX_PARTS", 3)
    row = await job.runs.aget()
    for _ in range(5):
        await sync_to_async(write)(row, b"ab")
        await sync_to_async(lose)(row, 1)
    answer, body = await fetch()
    assert (
        body == b"abababab" and answer["Trainyard-Log-To"] == "11" and answer["Trainyard-Log-Stored"] == "15"
    )
    answer, body = await fetch(query="?from=11")
    assert body == b"ab" and answer["Trainyard-Log-To"] == "15"


async def test_the_run_is_the_latest_or_the_one_that_was_asked_for(fetch, job):
    first = await job.runs.select_related("replica").aget()
    await sync_to_async(write)(first, b"first", wall=1_000.0)
    await sync_to_async(write)(first, b" start", wall=2_000.0)
    second = await sync_to_async(a_run)(
        job, first.replica, await sync_to_async(lambda: first.host)(), number=1
    )
    assert (await fetch())[1] == b""
    await sync_to_async(write)(second, b"second")
    assert (await fetch())[1] == b"second"
    assert (await fetch(query=f"?run={first.pk}"))[1] == b"first start"
    answer, body = await fetch(query=f"?run={first.pk}&at=2000.5&limit=4")
    assert (body, answer["Trainyard-Log-From"]) == (b" sta", "5")
    assert (await fetch("workerpool9-0"))[0].status_code == 404
    await Run.objects.all().adelete()
    answer, body = await fetch()
    assert (answer.status_code, body) == (200, b"")


gaps_of = st.lists(st.integers(0, 60), min_size=0, max_size=8, unique=True).map(sorted)


@given(st.integers(0, 60), st.integers(0, 60), gaps_of, st.integers(0, 60), st.integers(0, 60))
def test_the_parts_of_a_range_equal_those_of_a_simple_reference(low, high, edges, first, last):
    high = max(low, high)
    gaps = list(zip(edges[::2], edges[1::2], strict=False))
    kept = [n for n in range(low, high) if not any(start <= n < end for start, end in gaps)]
    parts = stored_parts(low, high, [(start, end) for start, end in gaps if start < high and end > low])
    assert [n for part in parts for n in range(part.start, part.end)] == kept
    chosen = slice_parts(parts, first, last)
    assert [n for part in chosen for n in range(part.start, part.end)] == kept[first : max(first, last)]
