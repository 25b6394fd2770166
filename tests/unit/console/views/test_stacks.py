"""The stacks of a job, as a page and by REST: folded, the odd one first, and with the reason where nothing is seen."""

from __future__ import annotations

import base64
import re
import threading

import pytest

from agents.ssh import keys, stacks
from agents.ssh.dial import Unreachable
from agents.ssh.stacks import ProcessStacks, RunStacks, Thread
from console.presenters.shells import stack_groups
from jobs import stacks as taking
from jobs.models import AuditEntry
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, a_job, one_line

REDUCE = Thread("MainThread", "idle", ("all_reduce (distributed.py:7)", "<module> (train.py:9)"))
LOADER = Thread("Thread-12 (loader)", "active", ("loads <b>& (data.py:3)",))


def seen(*processes, **more):
    about = {"error": "", "in_container": False, "left_out": 0, "ptrace_scope": 0, **more}
    return RunStacks(processes=tuple(processes), **about)


def process(*threads, problem=""):
    return ProcessStacks(7, "python3 train.py --rank=<1>", threads, 0, problem)


@pytest.fixture
def told(monkeypatch):
    """What hosts tell, by run; else that all stands in `all_reduce`. Returns a dictionary to be filled."""
    told = {}

    def look(target, key, deployment, runs, until, room):
        told["room"] = room
        found = {run: told.get(run, seen(process(REDUCE))) for run in runs}
        for each in found.values():
            if isinstance(each, Exception):
                raise each
        return found

    monkeypatch.setattr(keys, "private_key", lambda: None)
    monkeypatch.setattr(stacks, "look", look)
    return told


@pytest.fixture
def job(project, cast):
    job = a_job(project, cast.bob, host=a_host(), replicas=5)
    job.spec = {**job.spec, "enableWebAccess": True}
    job.save()
    return job


def run_of(job, number):
    """The run of one of workerpool0-0, workerpool1-0, …, workerpool1-3."""
    return job.runs.order_by("replica__pool", "replica__index")[number]


def headings(html):
    return re.findall(r'<h2 id="stack-\d+" class="mono">(.*?)</h2>', html)


def test_equal_stacks_are_folded_and_the_odd_one_comes_first(browser, job, told):
    odd = Thread("MainThread", "active", ("save (checkpoint.py:31)", "<module> (train.py:12)"))
    told[run_of(job, 3).pk] = seen(process(odd, LOADER))
    html = browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode()
    assert headings(html) == ["workerpool1-2", "workerpool0-0, workerpool1-0…1, workerpool1-3"]
    assert "×4" in html and "save (checkpoint.py:31)" in html
    assert "loads &lt;b&gt;&amp; (data.py:3)" in html and "--rank=&lt;1&gt;" in html


def test_what_differs_by_chance_is_no_other_stack(job, told):
    """The state of a thread at that moment, the numbers in its name, and how many equal ones there are."""
    again = Thread("Thread-9 (loader)", "idle", LOADER.frames)
    taken = taking.Taken(
        None, {"a-0": seen(process(REDUCE, LOADER)), "a-1": seen(process(again, again, REDUCE))}
    )
    (group,) = stack_groups.folded(job.pk, taken).groups
    assert group.replicas == ("a-0", "a-1") and group.processes == 2
    taken = taking.Taken(None, {"a-0": seen(process(again, again, REDUCE))})
    (group,) = stack_groups.folded(job.pk, taken).groups
    assert [(line.name, line.count) for line in group.threads] == [
        ("MainThread", 1),
        ("Thread-9 (loader)", 2),
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Unreachable("nothing answers"), "Nothing is seen: nothing answers"),
        (seen(error="the run is not running"), "Nothing is seen: the run is not running"),
        (seen(), "Nothing is seen: no Python program runs in it"),
        (seen(process(problem="slow")), "Nothing is seen: py-spy did not answer in time"),
        (seen(process(problem="odd words")), "Nothing is seen: odd words"),
        (seen(process(REDUCE), process(problem="slow")), "Not all is seen: py-spy did not answer in time"),
        (seen(process(REDUCE), left_out=2), "Not all is seen: 2 more processes are not shown"),
        (seen(process(problem="denied"), ptrace_scope=1), "sysctl -w kernel.yama.ptrace_scope=0"),
        (
            seen(process(problem="denied"), in_container=True),
            "the programs in its container belong to another user",
        ),
        (seen(process(problem="denied")), "its programs belong to another user"),
    ],
)
def test_a_replica_of_which_not_all_is_seen_is_named_with_the_reason(browser, job, told, found, words):
    for index in range(5):
        told[run_of(job, index).pk] = seen(process(REDUCE))
    told[run_of(job, 2).pk] = found
    if isinstance(found, Exception):
        job.runs.exclude(pk=run_of(job, 2).pk).update(host=a_host("gpu-8"))
    html = one_line(browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode())
    assert words in html and '<dt class="mono">workerpool1-1</dt>' in html


def test_a_replica_that_does_not_run_is_named(browser, job, told):
    job.runs.filter(pk=run_of(job, 4).pk).update(phase="CLOSED")
    html = one_line(browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode())
    assert "4 of 5 replicas are seen" in html
    assert '<dt class="mono">workerpool1-3</dt> <dd> Nothing is seen: it is not running' in html


def test_the_page_asks_no_host_before_somebody_asks_for_it(browser, job, told, monkeypatch):
    monkeypatch.setattr(stacks, "look", None)
    html = browser("bob").get(f"/jobs/{job.pk}/stacks").content.decode()
    assert "Take stacks" in html and not AuditEntry.objects.filter(what="stacks.take").exists()


def test_the_text_can_be_downloaded_and_is_what_the_page_shows(browser, job, told):
    html = browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode()
    (data,) = re.findall(r'href="data:text/plain;charset=utf-8;base64,([^"]+)" download=', html)
    text = base64.b64decode(data).decode()
    assert "×5 in 5: workerpool0-0, workerpool1-0…3\nCommand: python3 train.py --rank=<1>\n" in text
    assert 'Thread (idle): "MainThread"\n    all_reduce (distributed.py:7)\n    <module>' in text


def test_all_replicas_share_the_room_of_a_job(job, told, monkeypatch):
    """Else 1,000 replicas that stand in different places are 64 MB, and several times that in memory."""
    monkeypatch.setattr(taking, "JOB_BYTES", 100_000)
    taking.take(job, "bob", "1", job.created_at)
    assert told["room"] == 20_000


def test_the_page_has_as_many_stacks_as_a_browser_shows(browser, job, told, monkeypatch):
    """The rarest. The command line and REST have all."""
    for index in range(5):
        stands = Thread("MainThread", "idle", (f"step_{min(index, 3)} (a.py:{min(index, 3)})",))
        told[run_of(job, index).pk] = seen(process(stands))
    monkeypatch.setattr(stack_groups, "PAGE_GROUPS", 3)
    html = one_line(browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode())
    assert headings(html) == ["workerpool0-0", "workerpool1-0", "workerpool1-1"]
    assert "1 more is not shown" in html and "5 of 5 replicas are seen" in html and "step_3" not in html
    (data,) = re.findall(r"base64,([^\"]+)", html)
    assert "1 more is not shown" in base64.b64decode(data).decode()
    monkeypatch.setattr(stack_groups, "PAGE_GROUPS", 200)
    monkeypatch.setattr(stack_groups, "PAGE_TEXT", 100)
    html = one_line(browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode())
    assert len(headings(html)) == 2 and "2 more are not shown" in html


def test_the_page_has_as_many_reasons_as_a_browser_shows(browser, job, told, monkeypatch):
    monkeypatch.setattr(stack_groups, "PAGE_GROUPS", 3)
    for index in range(5):
        told[run_of(job, index).pk] = seen(process(problem=f"reason {index}"))
    html = one_line(browser("bob").post(f"/jobs/{job.pk}/stacks").content.decode())
    assert html.count("Nothing is seen: reason") == 3 and "2 more are not shown" in html


def test_reasons_are_in_the_language_of_the_page_and_in_english_for_programs(client, cast, job, told):
    for index, found in enumerate(
        (
            seen(error=stacks.REASONS["no_shells"]),
            seen(process(problem="slow")),
            seen(process(REDUCE), left_out=2),
        )
    ):
        told[run_of(job, index).pk] = found
    client.force_login(cast.bob)
    client.cookies["language"] = "pt-br"
    html = one_line(client.post(f"/jobs/{job.pk}/stacks").content.decode())
    (data,) = re.findall(r"base64,([^\"]+)", html)
    text = base64.b64decode(data).decode()
    for english in (
        "its run does not allow shells",
        "py-spy did not answer in time",
        "2 more processes are not shown",
    ):
        assert english in text and english not in html


def test_the_audit_has_who_took_them(browser, job, told):
    browser("alice").post(f"/jobs/{job.pk}/stacks")
    entry = AuditEntry.objects.get(what="stacks.take")
    assert (entry.actor, entry.subject, entry.project) == ("alice", str(job.pk), job.project)
    assert entry.after == {"replicas": 5, "hosts": 1}


def test_each_person_takes_one_at_a_time(browser, cast, job, told):
    with taking.places.place(str(cast.bob.pk)):
        answer = browser("bob").post(f"/jobs/{job.pk}/stacks")
        assert answer.status_code == 503 and "Stacks are being taken already" in answer.content.decode()
        assert browser("alice").post(f"/jobs/{job.pk}/stacks").status_code == 200
    assert browser("bob").post(f"/jobs/{job.pk}/stacks").status_code == 200
    assert taking.places.total() == 0


def test_hosts_that_answer_too_late_hold_up_no_others(job, told, monkeypatch):
    """All hosts are asked at once. What is late is named, and what is there is shown."""
    released = threading.Event()
    slow = run_of(job, 1)
    slow.host = a_host("gpu-8")
    slow.save()

    def look(target, key, deployment, runs, until, room):
        if slow.pk in runs:
            released.wait(30)
        return {run: seen(process(REDUCE)) for run in runs}

    monkeypatch.setattr(stacks, "look", look)
    monkeypatch.setattr(taking, "WITHIN_S", 0.3)
    try:
        taken = taking.take(job, "bob", "1", job.created_at)
    finally:
        released.set()
    assert taken.replicas["workerpool1-0"] == "its host did not answer in time"
    assert [isinstance(found, RunStacks) for found in taken.replicas.values()].count(True) == 4


def test_without_web_access_there_are_none(browser, job, told):
    job.spec = {**job.spec, "enableWebAccess": False}
    job.save()
    answer = browser("bob").post(f"/jobs/{job.pk}/stacks")
    assert answer.status_code == 409 and "without enableWebAccess" in answer.content.decode()
    assert "Take stacks" not in browser("bob").get(f"/jobs/{job.pk}/stacks").content.decode()


def test_rest_tells_the_same(client, cast, job, told):
    token = {"HTTP_AUTHORIZATION": f"Bearer {token_of(cast.bob)}"}
    told[run_of(job, 0).pk] = seen(process(problem="slow"))
    found = client.post(f"/api/v1/jobs/{job.pk}/stacks", **token).json()
    (stack,) = found["stacks"]
    assert stack["replicas"] == [f"workerpool1-{index}" for index in range(4)] and stack["processes"] == 4
    assert stack["threads"] == [
        {"name": "MainThread", "state": "idle", "count": 1, "frames": list(REDUCE.frames)}
    ]
    unseen = {"replicas": ["workerpool0-0"], "reason": "py-spy did not answer in time", "partly": False}
    assert found["unseen"] == [unseen] and "all_reduce (distributed.py:7)" in found["text"]
    with taking.places.place(str(cast.bob.pk)):
        assert client.post(f"/api/v1/jobs/{job.pk}/stacks", **token).status_code == 503


def test_whoever_may_open_a_shell_finds_the_way(browser, job):
    for page in (f"/jobs/{job.pk}/", f"/jobs/{job.pk}/shells/"):
        assert f'href="/jobs/{job.pk}/stacks"' in browser("bob").get(page).content.decode()
    assert f"/jobs/{job.pk}/stacks" not in browser("vera").get(f"/jobs/{job.pk}/").content.decode()
