"""`/api/v1/jobs/N/shells`: who has a shell where; opened, shared and closed by scripts."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import AuditEntry, ShellSession
from tests.unit.console.views.example_rows import a_host, a_job, a_shell

KEY = "0123456789abcdef" * 2


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host("gpu-7"), replicas=2)


@pytest.fixture
def address(job):
    return f"/api/v1/jobs/{job.pk}/shells"


def run_of(job, replica="workerpool0-0"):
    return job.runs.get(replica__name=replica)


def test_a_shell_that_a_script_opens_has_a_socket_and_a_page(script, job, address):
    answer = script("bob").post(address, {"replica": "workerpool1-0"}, "application/json")
    assert answer.status_code == 201, answer.content
    told = answer.json()
    run = run_of(job, "workerpool1-0")
    session = ShellSession.objects.get()
    assert told.pop("openTime").endswith("Z")
    assert told == {
        "key": session.key,
        "socket": f"ws://testserver/ws/shells/{session.key}?run={run.pk}",
        "page": f"http://testserver/jobs/{job.pk}/shell/{run.pk}?shell={session.key}",
        "replica": "workerpool1-0",
        "run": run.pk,
        "host": "gpu-7",
        "owner": "bob",
        "state": "OPEN",
        "attended": True,
        "shared": False,
        "recorded": True,
        "recordingState": "COMING",
    }
    assert session.attached_at is None, "the first socket makes it"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"replica": "workerpool7-0"}, "replica"),
        ({"replica": 1}, "replica must be a text"),
        ({"run": "x"}, "run is not a field"),
    ],
)
def test_a_wrong_request_names_the_field(script, address, body, words):
    answer = script("bob").post(address, body, "application/json")
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]


def test_no_shell_opens_where_nothing_runs(script, project, cast):
    waiting = a_job(project, cast.bob, state="QUEUED")
    answer = script("bob").post(f"/api/v1/jobs/{waiting.pk}/shells", {}, "application/json")
    assert answer.status_code == 400 and "does not run now" in answer.json()["error"]["message"]


def test_the_key_is_told_to_those_who_may_use_it(script, job, address, cast):
    a_shell(run_of(job), cast.bob)
    for person, knows in (("bob", True), ("alice", True), ("bella", False), ("vera", False)):
        (told,) = script(person).get(address).json()["shells"]
        assert ("key" in told) is knows, person
        assert told["owner"] == "bob" and told["state"] == "OPEN"
    assert script("charlie").get(address).status_code == 404


def test_a_shared_shell_may_be_watched_by_those_who_may_submit(script, job, address, cast):
    a_shell(run_of(job), cast.bob)
    answer = script("bob").patch(f"{address}/{KEY}", {"shared": True}, "application/json")
    assert answer.json()["shared"] is True
    (told,) = script("bella").get(address).json()["shells"]
    assert told["key"] == KEY and told["page"].endswith("&watch")
    assert "key" not in script("vera").get(address).json()["shells"][0]
    entry = AuditEntry.objects.get(what="shell.share")
    assert (entry.actor, entry.after, entry.project) == ("bob", {"shared": True}, job.project)


def test_a_shell_is_closed_by_its_host_and_says_who_wanted_it(script, job, address, cast):
    session = a_shell(run_of(job), cast.bob)
    told = script("alice").delete(f"{address}/{KEY}").json()
    assert told["state"] == "CLOSING" and told["closeReason"] == "Closed by alice."
    again = script("bob").delete(f"{address}/{KEY}").json()
    assert again["closeReason"] == "Closed by alice.", "the first reason stays"
    session.refresh_from_db()
    assert session.close_wanted_at is not None and session.closed_at is None
    assert script("alice").delete(f"{address}/{'0' * 32}").status_code == 404


def test_the_list_has_pages_and_a_constant_number_of_queries(script, job, address, cast):
    def asked():
        with CaptureQueriesContext(
            connection,
        ) as seen:
            client.get(address)
        return len(seen)

    client = script("bob")
    a_shell(run_of(job), cast.bob)
    asked()
    before = asked()
    for number in range(5):
        a_shell(run_of(job), cast.bob, f"{number:032x}")
    assert asked() == before
    first = client.get(f"{address}?pageSize=4").json()
    rest = client.get(f"{address}?pageSize=4&pageToken={first['nextPageToken']}").json()
    keys = [shell["key"] for shell in (*first["shells"], *rest["shells"])]
    assert len(keys) == len(set(keys)) == 6 and "nextPageToken" not in rest
    for wrong in ("state=HALF", "pageToken=x", "pageSize=-1"):
        assert client.get(f"{address}?{wrong}").status_code == 400
