"""Downloads of all logs of a job: as files, as lines by time, and a part of them."""

from __future__ import annotations

import asyncio
import gc
import io
import threading
import zipfile

import pytest
from asgiref.sync import async_to_sync

from console.api.logs import log_archive, log_bytes, log_pages
from console.api.logs.merged_logs import MergedLogs
from console.runtime import database_threads
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.example_rows import a_host, a_job, a_run

pytestmark = pytest.mark.django_db(transaction=True)
T = 1_700_000_000


@pytest.fixture
def job(cast, project):
    return a_job(project, cast.bob, host=a_host(name="gpu-a"), replicas=2)


@pytest.fixture
def runs(job):
    return list(job.runs.select_related("replica", "host").order_by("replica__pool"))


def path(job, query=""):
    return f"/api/v1/jobs/{job.pk}/log?{query}"


def body(answer):
    async def collect():
        return b"".join([part async for part in answer.streaming_content])

    assert answer.status_code == 200
    return async_to_sync(collect)()


def files(answer):
    with zipfile.ZipFile(io.BytesIO(body(answer))) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_all_logs_are_files_of_one_archive(script, job, runs):
    big = b"\x00\xff binary \r\n" * 200_000
    write(runs[0], big)
    write(runs[1], b"one\n")
    lose(runs[1], 100)
    write(runs[1], b"two\n")
    a_run(job, runs[1].replica, runs[1].host, number=1)
    folder, vera = f"job-{job.pk}", script("vera")
    told = vera.get(path(job, "as=zip"))
    assert told["Content-Disposition"] == f'attachment; filename="job-{job.pk}-logs.zip"'
    assert files(told) == {f"{folder}/workerpool0-0-a1-r0.log": big, f"{folder}/workerpool1-0-a1-r1.log": b""}
    everything = files(vera.get(path(job, "runs=all&replicas=workerpool1-0")))
    assert everything == {
        f"{folder}/workerpool1-0-a1-r0.log": b"one\ntwo\n",
        f"{folder}/workerpool1-0-a1-r1.log": b"",
        f"{folder}/MISSING.txt": b"workerpool1-0-a1-r0.log: 100 bytes are missing at 4: the host's log was cut\n",
    }


def test_the_lines_of_all_logs_come_by_time_and_only_those_that_are_asked_for(script, job, runs):
    for n, run in enumerate(runs):
        for step in range(3):
            write(run, f"step {step} of {n} é\n".encode(), wall=T + 10 * step + n)
    write(runs[0], b"the end", wall=T + 99)
    complete(runs[0])
    vera = script("vera")

    def lines(query):
        text = body(vera.get(path(job, f"as=text&{query}"))).decode()
        return text.replace(".000000Z", "Z").splitlines()

    at = "2023-11-14T22:13"
    assert lines("") == [
        f"{at}:20Z workerpool0-0 step 0 of 0 é",
        f"{at}:21Z workerpool1-0 step 0 of 1 é",
        f"{at}:30Z workerpool0-0 step 1 of 0 é",
        f"{at}:31Z workerpool1-0 step 1 of 1 é",
        f"{at}:40Z workerpool0-0 step 2 of 0 é",
        f"{at}:41Z workerpool1-0 step 2 of 1 é",
        "2023-11-14T22:14:59Z workerpool0-0 the end",
    ]
    assert lines("q=OF%201&replicas=workerpool1-0") == lines("q=of%201")
    assert [line[-10:-2] for line in lines("q=step%20%5B12%5D%20of%201&regex=1")] == ["p 1 of 1", "p 2 of 1"]
    assert [line[-10:-2] for line in lines(f"after={T + 10}&before={T + 20}")] == [
        "p 1 of 0",
        "p 1 of 1",
        "p 2 of 0",
    ]
    assert lines("q=nothing") == []
    a_run(job, runs[0].replica, runs[0].host, number=1)
    assert lines("runs=all")[-1].endswith("Z workerpool0-0-a1-r0 the end")
    assert lines(f"run={runs[0].pk}")[-1].endswith("Z workerpool0-0 the end")


def test_lines_are_read_backwards_page_by_page(script, job, runs, monkeypatch):
    for n, run in enumerate(runs):
        for step in range(4):
            write(run, f"step {step} of {n}\r\n".encode(), wall=T + 10 * step + n)
    lose(runs[1], 100)
    monkeypatch.setattr(log_pages, "PAGE_SIZE", 3)
    vera, lines, token = script("vera"), [], ""
    for _ in range(20):
        told = vera.get(f"/api/v1/jobs/{job.pk}/log/earlier?until={T + 25}.5&pageToken={token}").json()
        assert len(told["lines"]) <= 3
        lines += told["lines"]
        if not (token := told.get("nextPageToken", "")):
            break
    seen = [(line[2] - T, line[3]) for line in lines if len(line) == 4 and line[2] <= T + 25]
    assert seen == [
        (21, "step 2 of 1"),
        (20, "step 2 of 0"),
        (11, "step 1 of 1"),
        (10, "step 1 of 0"),
        (1, "step 0 of 1"),
        (0, "step 0 of 0"),
    ]
    for wrong in ("", "until=x", "until=1&pageToken=x", "until=1&runs=x"):
        assert vera.get(f"/api/v1/jobs/{job.pk}/log/earlier?{wrong}").status_code == 400
    assert script("charlie").get(f"/api/v1/jobs/{job.pk}/log/earlier?until=1").status_code == 404


def test_lines_are_read_onwards_from_a_time_with_their_controls(script, job, runs, monkeypatch):
    for n, run in enumerate(runs):
        for step in range(4):
            write(run, f"\r0%\rstep {step} of {n}\x1b[A\r\n".encode(), wall=T + 10 * step + n)
    monkeypatch.setattr(log_pages, "PAGE_SIZE", 3)
    vera, lines, token = script("vera"), [], ""
    for _ in range(20):
        told = vera.get(f"/api/v1/jobs/{job.pk}/log/later?since={T + 10}.5&pageToken={token}").json()
        assert len(told["lines"]) <= 3
        lines += told["lines"]
        if not (token := told.get("nextPageToken", "")):
            break
    assert [(line[2] - T, line[3]) for line in lines] == [
        (11, "\rstep 1 of 1\x1b[A"),
        (20, "\rstep 2 of 0\x1b[A"),
        (21, "\rstep 2 of 1\x1b[A"),
        (30, "\rstep 3 of 0\x1b[A"),
        (31, "\rstep 3 of 1\x1b[A"),
    ]
    earlier = vera.get(f"/api/v1/jobs/{job.pk}/log/earlier?until={T}").json()
    assert [line[3] for line in earlier["lines"]] == ["\rstep 0 of 0\x1b[A"]
    for wrong in ("", "since=x", "until=1", f"since=1&pageToken={earlier.get('nextPageToken', 'x')}"):
        assert vera.get(f"/api/v1/jobs/{job.pk}/log/later?{wrong}").status_code == 400
    assert script("charlie").get(f"/api/v1/jobs/{job.pk}/log/later?since=1").status_code == 404


@pytest.mark.parametrize(
    "query", ["as=tar", "runs=old", "as=text&q=", "as=text&q=(&regex=1", "as=text&after=x"]
)
def test_a_wrong_question_is_refused(script, job, query):
    assert script("vera").get(path(job, query)).status_code == 400


@pytest.mark.parametrize(("who", "status"), [("charlie", 404), ("loner", 404), (None, 401)])
def test_strangers_get_nothing(script, job, who, status):
    assert script(who).get(path(job)).status_code == status
    assert script("vera").get(path(job, "replicas=workerpool9-9")).status_code == 404
    assert script("vera").get(path(job, "run=1-workerpool0-0-a1-r0")).status_code == 404


def test_a_person_has_four_downloads_at_a_time_and_nobody_else_has_fewer(script, job, runs):
    vera, bob = script("vera"), script("bob")
    under_way = [
        vera.get(path(job, query)) for query in ("as=zip", "as=text", "as=text&q=a", "as=zip&runs=all")
    ]
    refused = vera.get(path(job, "as=text&q=nowhere"))
    assert (refused.status_code, refused["Retry-After"]) == (429, "5")
    assert refused.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert body(bob.get(path(job, "as=text"))) == b""
    # One client goes before anything was read, one reads to the end, and one answer is lost on the way.
    under_way[0].close()
    assert body(under_way[1]) == b""
    del under_way[2]
    gc.collect()
    again = [vera.get(path(job, "as=zip")) for _ in range(4)]
    assert [one.status_code for one in again] == [200, 200, 200, 429]
    for one in (*under_way, *again[:3]):
        one.close()


def test_lines_of_others_do_not_wait_for_downloads(script, job, runs, monkeypatch):
    """What is downloaded is read in threads of its own: here each read takes until the others have been answered."""
    go_on, reading = threading.Event(), threading.Semaphore(0)

    def read_slowly(*_args):
        reading.release()
        assert go_on.wait(60)
        return b"" if _args and isinstance(_args[0], MergedLogs) else ([], [])

    monkeypatch.setattr(log_archive, "_some_lines", read_slowly)
    monkeypatch.setattr(log_archive, "_stored", read_slowly)
    write(runs[0], b"one\n")
    answers = [
        script(who).get(path(job, query))
        for who in ("vera", "bob")
        for query in ("as=text&q=nowhere", "as=text&q=x&regex=1", "as=zip", "as=zip")
    ]

    async def first_part(answer):
        return await anext(aiter(answer.streaming_content))

    async def ask_beside_them():
        tasks = [asyncio.create_task(first_part(answer)) for answer in answers]
        try:
            for _ in range(database_threads.DOWNLOAD_THREADS):
                assert await asyncio.to_thread(reading.acquire, timeout=60)
            return await asyncio.wait_for(database_threads.in_database_thread(lambda: "line"), 20)
        finally:
            go_on.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    assert async_to_sync(ask_beside_them)() == "line"


def raw(run, query=""):
    return f"/api/v1/jobs/{run.job_id}/replicas/{run.replica.name}/log{query}"


def test_what_a_viewer_reads_of_a_log_does_not_wait_for_downloads(script, runs):
    """The log page reads stored ranges by the address of raw logs: it waits for no person's downloads."""
    write(runs[0], b"one\n")
    free = threading.Event()
    busy = [
        database_threads._downloads.submit(free.wait, 60) for _ in range(database_threads.DOWNLOAD_THREADS)
    ]
    answer = script("vera").get(raw(runs[0]))

    async def first_part():
        return await asyncio.wait_for(anext(aiter(answer.streaming_content)), 20)

    try:
        assert async_to_sync(first_part)() == b"one\n"
    finally:
        free.set()
        for each in busy:
            each.result(30)


def test_a_large_log_is_a_download_and_takes_a_place(script, runs, monkeypatch):
    monkeypatch.setattr(log_bytes, "RANGE_BYTES", 8)
    write(runs[0], b"one two three\n")
    vera = script("vera")
    under_way = [vera.get(raw(runs[0])) for _ in range(4)]
    assert vera.get(raw(runs[0])).status_code == 429
    assert body(vera.get(raw(runs[0], "?limit=8"))) == b"one two "
    for answer in under_way:
        assert body(answer) == b"one two three\n"
    assert vera.get(raw(runs[0])).status_code == 200
