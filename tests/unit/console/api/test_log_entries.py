"""The logs of jobs through Google's Logging API, as `gcloud ... stream-logs` and a client library read them."""

from __future__ import annotations

import base64
import importlib
import json
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from google.api_core import exceptions
from google.oauth2.credentials import Credentials

from console.api.logs import log_entries
from console.auth import tokens
from jobs.logs import entries, reader
from jobs.logs.search_budget import SearchBudget
from jobs.models import Run
from tests.unit.console.log_rows import complete, lose, write
from tests.unit.console.views.example_rows import a_host, a_job

LIST = "/v2/entries:list"
JSON = {"content_type": "application/json"}
T = 1_700_000_000.0


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """On a busy machine a page may end early, with a token for the rest: two tests are about that, and set it."""
    monkeypatch.setattr(log_entries, "SearchBudget", lambda *asked: SearchBudget(*asked, seconds=60))


@pytest.fixture
def job(cast, project):
    return a_job(project, cast.bob, host=a_host(), replicas=2)


@pytest.fixture
def runs(job):
    return {run.replica.name: run for run in job.runs.select_related("replica")}


def base(job):
    return f'resource.type="ml_job" AND resource.labels.job_id="{job.pk}"'


def asked(client, text, **more):
    body = {"resourceNames": ["projects/default"], "filter": text, **more}
    return client.post(LIST, json.dumps(body), **JSON)


def texts(answer):
    assert answer.status_code == 200, answer.content
    return [entry["textPayload"] for entry in answer.json().get("entries", [])]


def rfc(seconds):
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def test_the_lines_of_all_replicas_come_in_the_order_of_their_times(script, job, runs):
    for second in range(3):
        write(runs["workerpool1-0"], f"worker {second}\n".encode(), wall=T + second + 0.5)
        write(runs["workerpool0-0"], f"chief {second}\n".encode(), wall=T + second)
    answer = asked(script("vera"), base(job))
    assert texts(answer) == ["chief 0", "worker 0", "chief 1", "worker 1", "chief 2", "worker 2"]
    first = answer.json()["entries"][0]
    assert first["resource"] == {
        "type": "ml_job",
        "labels": {"job_id": str(job.pk), "task_name": "workerpool0-0", "project_id": "default"},
    }
    assert (first["timestamp"], first["severity"]) == ("2023-11-14T22:13:20.000000Z", "INFO")
    assert texts(asked(script("vera"), base(job), orderBy="timestamp desc", pageSize=2)) == [
        "worker 2",
        "chief 2",
    ]
    only = base(job) + ' AND resource.labels.task_name="workerpool1-0"'
    assert texts(asked(script("vera"), only)) == ["worker 0", "worker 1", "worker 2"]


def test_a_poll_goes_on_where_the_last_one_ended(script, job, runs):
    """The requests of stream-logs: from the last time on, or after the last id of that time."""
    client, position, got = script("bob"), (rfc(0), ""), []
    for step in range(12):
        if step % 3 == 0:
            # Two lines of the same moment: ids tell them apart.
            write(runs["workerpool0-0"], f"{step} a\n{step} b\n".encode(), wall=T + step)
        stamp, insert_id = position
        lower = f'timestamp>="{stamp}"'
        if insert_id:
            lower = f'((timestamp="{stamp}" AND insertId>"{insert_id}") OR timestamp>"{stamp}")'
        answer = asked(client, f'{base(job)} AND {lower} AND timestamp<"{rfc(T + 100)}"', pageSize=1)
        for entry in answer.json().get("entries", []):
            position = (entry["timestamp"], entry["insertId"])
            got.append(entry["textPayload"])
    assert got == [f"{step} {letter}" for step in (0, 3, 6, 9) for letter in "ab"]


def test_pages_hold_all_entries_once_in_both_orders(script, job, runs, monkeypatch):
    monkeypatch.setattr(log_entries, "MAX_PAGE_BYTES", 100)
    for number in range(60):
        write(runs[f"workerpool{number % 2}-0"], f"line {number:03}\n".encode(), wall=T + number // 7)
    client, whole = script("bob"), {}
    for order in ("timestamp asc", "timestamp desc"):
        token, pages, whole[order] = "", 0, []
        while pages == 0 or token:
            answer = asked(client, base(job), orderBy=order, pageSize=9, pageToken=token)
            whole[order] += texts(answer)
            token, pages = answer.json().get("nextPageToken", ""), pages + 1
        assert pages > 6
    assert sorted(whole["timestamp asc"]) == [f"line {number:03}" for number in range(60)]
    assert whole["timestamp desc"] == whole["timestamp asc"][::-1]


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_a_page_ends_when_its_time_is_over(script, job, runs, monkeypatch, order):
    """Also when it found nothing: the token says where to go on, and the pages together have what is wanted."""
    monkeypatch.setattr(log_entries, "SearchBudget", lambda *asked: SearchBudget(*asked, seconds=0))
    for number in range(8):
        write(runs[f"workerpool{number % 2}-0"], f"line {number}\n".encode(), wall=T + number // 3)
    for text, wanted in (("zzz", []), ("line 5", ["line 5"])):
        token, pages, got = "", 0, []
        while pages == 0 or token:
            answer = asked(
                script("bob"), f'{base(job)} AND textPayload:"{text}"', orderBy=order, pageToken=token
            )
            got += texts(answer)
            token, pages = answer.json().get("nextPageToken", ""), pages + 1
        # A page for each of two logs that is opened, and one for each line.
        assert (got, pages) == (wanted, 2 + 8)


def test_a_line_is_told_when_it_is_whole_and_a_gap_says_why(script, job, runs):
    run = runs["workerpool0-0"]
    write(run, b"50 %\r", wall=T)
    assert texts(asked(script("bob"), base(job))) == []
    write(run, b"100 %\n", wall=T + 60)
    lose(run, 10)
    write(run, b"end", wall=T + 70)
    complete(run)
    answer = asked(script("bob"), base(job))
    assert texts(answer) == ["50 %\r100 %", "10 bytes are missing: the host's log was cut", "end"]
    assert answer.json()["entries"][0]["timestamp"] == "2023-11-14T22:14:20.000000Z"
    assert texts(asked(script("bob"), base(job) + " AND severity>=WARNING")) == [texts(answer)[1]]
    assert texts(asked(script("bob"), base(job) + ' AND textPayload:"END"')) == ["end"]
    assert texts(asked(script("bob"), base(job) + " NOT severity=WARNING")) == ["50 %\r100 %", "end"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"filter": ""}, "filter"),
        ({"filter": 'severity="ERROR"'}, "filter"),
        ({"filter": 'resource.labels.job_id="1" OR resource.labels.job_id="2"'}, "filter"),
        ({"filter": 'resource.labels.job_id="x"'}, "filter"),
        ({"filter": 'resource.labels.job_id="1" AND jsonPayload.a="b"'}, "filter"),
        ({"filter": 'resource.labels.job_id="1" AND timestamp>"soon"'}, "filter"),
        ({"filter": 'resource.labels.job_id="1" AND (severity=INFO'}, "filter"),
        ({"filter": "(" * 2000 + "x"}, "filter"),
        ({"resourceNames": []}, "resourceNames"),
        ({"resourceNames": ["organizations/1"]}, "resourceNames"),
        ({"orderBy": "severity"}, "orderBy"),
        ({"pageSize": -1}, "pageSize"),
        ({"pageToken": "abc"}, "pageToken"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_request_that_cannot_be_answered_names_the_field(script, job, changes, field):
    body = {"resourceNames": ["projects/default"], "filter": base(job), **changes}
    answer = script("bob").post(LIST, json.dumps(body), **JSON)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"]["details"][0]["fieldViolations"][0]["field"] == field


def forged(place, order="timestamp asc"):
    text = f'["{order}", {{"x": {place}}}]'
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


@pytest.mark.parametrize(
    "token",
    [
        *(forged(f'[{at}, 0, ""]') for at in ("Infinity", "NaN", 10**18, -(10**18), "1" + 400 * "0", "true")),
        *(forged(f'[1, {offset}, ""]') for offset in (-1, 2**63, '"x"', "[]")),
        *(forged(place) for place in ("[1, 1]", "1", "null", "[1, 1, 1]", '[1, 1, "", 1]', '["' * 10**5)),
        forged('[1, 1, ""]', "timestamp desc"),
        base64.urlsafe_b64encode(zlib.compress(b" " * 2**24)).decode(),
        base64.urlsafe_b64encode(b'[1, "x", "timestamp asc"]').decode(),
        "=" * 200_000,
    ],
)
def test_a_forged_page_token_is_refused(script, job, runs, token):
    answer = asked(script("bob"), base(job), pageToken=token)
    assert answer.status_code == 400 and "page token" in answer.json()["error"]["message"]


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_a_page_token_with_a_place_far_behind_the_end_ends(script, job, runs, order):
    for run in runs.values():
        write(run, b"one\n", wall=T)
    places = {run.pk: [1, 2**62, ""] for run in runs.values()}
    token = base64.urlsafe_b64encode(zlib.compress(json.dumps([order, places]).encode())).decode()
    assert len(texts(asked(script("bob"), base(job), orderBy=order, pageToken=token))) <= 2


@pytest.fixture
def reading(monkeypatch):
    """Counts the logs that are opened, and the bytes that are read from logs."""
    counted = {"opened": 0, "bytes": 0}

    def counting(honest):
        def opened(*given):
            counted["opened"] += 1
            return honest(*given)

        return opened

    for name in ("after", "before"):
        monkeypatch.setattr(entries, name, counting(getattr(entries, name)))
    honest_read = reader.read

    def read(*given):
        chunk = honest_read(*given)
        counted["bytes"] += len(chunk.data)
        return chunk

    monkeypatch.setattr(reader, "read", read)
    return counted


def pages(client, job, reading, **more):
    """The texts of each page, and how many logs it opened and how many bytes it read."""
    token, found = "", []
    while not found or token:
        before = dict(reading)
        answer = asked(client, base(job), pageToken=token, **more)
        counts = {name: reading[name] - before[name] for name in reading}
        found.append((texts(answer), counts["opened"], counts["bytes"]))
        token = answer.json().get("nextPageToken", "")
    return found


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_a_log_is_opened_when_its_turn_comes(script, cast, project, reading, order):
    """Twenty logs, each printed after the one before: all are opened for the first page, and then two for each."""
    many = a_job(project, cast.bob, host=a_host("many"), replicas=20)
    for number, run in enumerate(many.runs.order_by("replica__pool", "replica__index")):
        for line in range(5):
            write(run, f"{number} {line}\n".encode(), wall=T + 10 * number + line)
    first, *later = pages(script("bob"), many, reading, orderBy=order, pageSize=5)
    assert first[1] == 20 and len(later) == 19
    assert max(opened for _, opened, _ in later) <= 2
    wanted = [f"{number} {line}" for number in range(20) for line in range(5)]
    assert [text for page, *_ in (first, *later) for text in page] == (
        wanted if order == "timestamp asc" else wanted[::-1]
    )


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_the_time_of_a_page_counts_from_the_first_log_on(script, cast, project, reading, monkeypatch, order):
    monkeypatch.setattr(log_entries, "SearchBudget", lambda *asked: SearchBudget(*asked, seconds=0))
    many = a_job(project, cast.bob, host=a_host("many"), replicas=20)
    for run in many.runs.all():
        write(run, b"one\n", wall=T)
    # Each step is a page of its own: twenty logs that are opened, and twenty lines, each of a log opened again.
    found = pages(script("bob"), many, reading, orderBy=order)
    assert max(opened for _, opened, _ in found) == 1 and len(found) == 40
    assert sum(len(page) for page, *_ in found) == 20


@pytest.mark.parametrize("order", ["timestamp asc", "timestamp desc"])
def test_a_log_without_times_is_not_read_again_for_each_page(script, job, runs, reading, order):
    run = runs["workerpool0-0"]
    for number in range(60):
        write(run, f"{number:04} {'x' * 20_000}\n".encode() * 2)
    write(run, b"wanted\n")
    found = pages(script("bob"), job, reading, orderBy=order, pageSize=5)
    assert sum(len(page) for page, *_ in found) == 121
    # A page reads one window, and as much before it as the longest line may have.
    most = entries.WINDOW + 2 * entries.LONGEST
    assert all(count <= 2 * most for *_, count in found), found


def test_what_a_running_job_prints_between_two_pages_is_in_the_next_one(script, job, runs):
    chief, worker = runs["workerpool0-0"], runs["workerpool1-0"]
    write(chief, b"chief 0\n", wall=T)
    write(worker, b"worker 1\nworker 2\n", wall=T + 1)
    answer = asked(script("bob"), base(job), pageSize=2)
    assert texts(answer) == ["chief 0", "worker 1"]
    write(chief, b"chief 3\n", wall=T + 3)
    answer = asked(script("bob"), base(job), pageToken=answer.json()["nextPageToken"])
    assert texts(answer) == ["worker 2", "chief 3"] and "nextPageToken" not in answer.json()


def test_a_stranger_learns_nothing(script, job, runs):
    write(runs["workerpool0-0"], b"secret\n", wall=T)
    assert asked(script("charlie"), base(job)).status_code == 404
    elsewhere = script("charlie").post(
        LIST, json.dumps({"resourceNames": ["projects/elsewhere"], "filter": base(job)}), **JSON
    )
    assert elsewhere.status_code == 404 and asked(script(), base(job)).status_code == 401


def test_runs_that_ended_long_before_are_not_read(script, job, runs, monkeypatch):
    for run in runs.values():
        write(run, b"old\n", wall=T)
        complete(run)
    Run.objects.update(log_complete_at=datetime.fromtimestamp(T, UTC))
    monkeypatch.setattr(entries, "after", lambda *_: pytest.fail("it was read"))
    assert texts(asked(script("bob"), f'{base(job)} AND timestamp>="{rfc(T + 7200)}"')) == []


@pytest.fixture
def logging_client(live_server, cast, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    token = tokens.create(cast.bob, "logging", timezone.now())[1]
    library = importlib.import_module("google.cloud.logging")
    return library.Client(
        project="default",
        credentials=Credentials(token=token),
        client_options={"api_endpoint": live_server.url},
        _use_grpc=False,
    )


def test_the_unmodified_logging_library_reads_the_log_of_a_job(logging_client, job, runs):
    for number in range(7):
        write(runs["workerpool0-0"], f"loss {number}\n".encode(), wall=T + number)
    # Without a time the library asks for the last 24 hours.
    since = f'{base(job)} AND timestamp>="{rfc(T)}"'
    found = list(logging_client.list_entries(filter_=since, order_by="timestamp asc", page_size=3))
    assert [entry.payload for entry in found] == [f"loss {number}" for number in range(7)]
    assert found[0].resource.labels["task_name"] == "workerpool0-0" and found[0].severity == "INFO"
    newest = next(iter(logging_client.list_entries(filter_=since, order_by="timestamp desc", max_results=1)))
    assert newest.payload == "loss 6" and newest.timestamp.timestamp() == T + 6
    with pytest.raises(exceptions.MethodNotImplemented, match="sinks of the Cloud Logging API"):
        list(logging_client.list_sinks())
