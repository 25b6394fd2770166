"""A job's history on pages and in the API: filters, attempts, both clocks, and the last lines of a failure."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest
from django.utils import timezone

from console.presenters.jobs import timeline
from console.presenters.jobs.last_lines import tail
from jobs.models import Job, LogPiece, Replica, Run, Transition
from tests.unit.console.log_rows import lose, write
from tests.unit.console.views.example_rows import a_host, a_job, a_run, moved


@pytest.fixture
def story(project, cast):
    job = a_job(project, cast.bob, replicas=2, host=a_host(), attempt=2)
    now = timezone.now()
    known = {"job": job, "at": now, "actor": "trainyard", "attempt": 1}
    rows = [
        {"kind": "quota", "subject": "wait", "to_state": "QUEUED", "cause": "Waits for quota."},
        {
            "kind": "run",
            "subject": "workerpool1-0",
            "to_state": "RUNNING",
            "cause": "Started there.",
            "host_at": now + timedelta(seconds=95),
            "host_offset_s": 95.2,
            "run": f"{job.pk}-workerpool1-0-a1-r0",
        },
        {"kind": "retry", "subject": "job", "from_state": "RUNNING", "to_state": "QUEUED", "cause": "Again."},
        {
            "kind": "flag",
            "subject": "flag",
            "from_state": "STUCK",
            "to_state": "",
            "cause": "Fine.",
            "attempt": 2,
        },
    ]
    for row in rows:
        Transition.objects.create(**{**known, **row})
    return job


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["Fine.", "submitted", "Again.", "Started there.", "Waits for quota."]),
        ("?of=workerpool1-0", ["Started there."]),
        ("?of=job&kind=quota", ["Waits for quota."]),
        ("?kind=nonsense", ["Fine.", "submitted", "Again.", "Started there.", "Waits for quota."]),
        ("?of=workerpool0-0", []),
        ("?attempt=2", ["Fine.", "submitted"]),
        ("?attempt=x", ["Fine.", "submitted", "Again.", "Started there.", "Waits for quota."]),
    ],
)
def test_the_history_is_filtered_and_its_socket_uses_the_same_filter(browser, story, query, shown):
    answer = browser("vera").get(f"/jobs/{story.pk}/events{query}")
    attempts = answer.context["events"].attempts
    assert sorted(line.cause for attempt in attempts for line in attempt.lines) == sorted(shown)
    page = answer.content.decode()
    assert f'ws-connect="/ws/live?at={quote(f"/jobs/{story.pk}/events{query}", safe="")}"' in page
    assert ("its clock is 95 s ahead" in page) is ("Started there." in shown)


def test_what_is_kept_of_the_newest_events_is_read_again_after_each(browser, story, monkeypatch):
    """Also after one that got its number before the newest one, and is seen only now."""
    folded = []
    fold = timeline.fold
    monkeypatch.setattr(timeline, "fold", lambda *asked: folded.append(1) or fold(*asked))
    newest = Transition.objects.filter(job=story).order_by("-pk")[0].pk
    known = {"job": story, "at": timezone.now(), "attempt": 1, "kind": "flag", "subject": "flag"}

    def shown():
        answer = browser("vera").get(f"/jobs/{story.pk}/")
        return sorted(line.cause for attempt in answer.context["story"].attempts for line in attempt.lines)

    before = shown()
    assert shown() == before and len(folded) == 1
    Transition.objects.create(pk=newest + 10, cause="It goes on.", **known)
    assert shown() == sorted([*before, "It goes on."]) and len(folded) == 2
    Transition.objects.create(pk=newest + 5, cause="It was late.", **known)
    assert shown() == sorted([*before, "It goes on.", "It was late."])


def test_the_overview_shows_the_newest_events_of_the_chosen_replica(browser, story):
    def shown(query):
        answer = browser("vera").get(f"/jobs/{story.pk}/{query}")
        return [line.cause for attempt in answer.context["story"].attempts for line in attempt.lines]

    assert shown("") == ["Fine.", "Again.", "Started there.", "Waits for quota.", "submitted"]
    assert shown("?replica=workerpool1-0") == ["Started there."] and shown("?log=workerpool0-0") == []


def test_the_address_of_the_history_leads_to_the_events(browser, story):
    answer = browser("vera").get(f"/jobs/{story.pk}/history?kind=state&before=7")
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{story.pk}/events?kind=state&before=7")


def test_the_api_returns_history_from_a_page_token_on(browser, story):
    ask = browser("vera").get
    first = ask(f"/api/v1/jobs/{story.pk}/events?pageSize=2").json()
    rest = ask(f"/api/v1/jobs/{story.pk}/events?pageToken={first['nextPageToken']}").json()
    rows = [*first["events"], *rest["events"]]
    assert [row["cause"] for row in rows] == [
        *("submitted", "Waits for quota.", "Started there.", "Again.", "Fine.")
    ]
    assert rows[2]["hostClockOffsetSeconds"] == 95.2 and rows[2]["run"].endswith("a1-r0")
    assert rows[1]["subject"] == "job" and rows[1]["kind"] == "quota"
    assert ask(f"/api/v1/jobs/{story.pk}/events?pageToken={rest['nextPageToken']}").json() == {"events": []}
    moved(story, "QUEUED", "PENDING", cause="Placed.")
    news = ask(f"/api/v1/jobs/{story.pk}/events?pageToken={rest['nextPageToken']}&kind=state").json()
    assert [row["cause"] for row in news["events"]] == ["Placed."]
    for of, told in (("job", [*rows[:2], *rows[3:], *news["events"]]), ("workerpool1-0", [rows[2]])):
        assert ask(f"/api/v1/jobs/{story.pk}/events?replica={of}").json()["events"] == told
    for wrong in ("pageSize=-1", "kind=gossip", "pageToken=x"):
        answer = ask(f"/api/v1/jobs/{story.pk}/events?{wrong}")
        assert answer.status_code == 400 and wrong.split("=")[0] in answer.content.decode()
    assert browser("charlie").get(f"/api/v1/jobs/{story.pk}/events").status_code == 404


def test_a_failed_job_shows_the_last_lines_of_the_replica_that_failed_first(browser, project, cast):
    job = a_job(
        project,
        cast.bob,
        state="FAILED",
        replicas=2,
        host=a_host(),
        phase="closed",
        error_message="It failed.",
    )
    Replica.objects.filter(job=job, pool=1).update(state="FAILED")
    run = Run.objects.get(job=job, replica__pool=1)
    printed = (
        b"x" * 9000 + b"\nepoch 1\repoch 2\r\n\x1b[31m<script>alert(1)</script>\x1b[0m\n" + b"KeyError: 'x'\n"
    )
    LogPiece.objects.create(run=run, start=0, end=len(printed), z=False, data=printed)
    Run.objects.filter(pk=run.pk).update(log_stored=len(printed), ended_at=timezone.now())
    page = browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    shown = page[page.index('class="last-lines"') : page.index("</pre>")]
    assert "epoch 2\n&lt;script&gt;alert(1)&lt;/script&gt;\nKeyError: &#x27;x&#x27;" in shown
    assert "epoch 1" not in shown and "\x1b" not in shown and "xxx" not in shown


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"", ""),
        (b"half of a line\nwhole\n", "whole"),
        (b"\x1b]0;title\x07a\x1b[2Kb\n\x1b]8;;http://x\x1b\\link\n", "link"),
        (b"a\n\x1b]0;no end of this title\nKeyError: 'x'\n", "\nKeyError: 'x'"),
        (b"a\n\xe2\x80\xaeevil\n", "evil"),
        (b"a\n" + b"y" * 400, "y" * 300 + "…"),
        (b"\n".join(b"%d" % n for n in range(40)), "\n".join(str(n) for n in range(28, 40))),
    ],
)
def test_last_lines_are_plain_and_bounded(printed, shown):
    assert tail(printed) == shown


def test_the_last_lines_begin_after_a_gap(browser, project, cast):
    job = a_job(project, cast.bob, state="FAILED", host=a_host(), phase="closed", error_message="It failed.")
    Replica.objects.filter(job=job).update(state="FAILED")
    run = job.runs.get()
    for data in (b"long ago\n", None, b"of a line\nOSError: disk\n"):
        lose(run, 100) if data is None else write(run, data)
    # A place that was held for it and given back is no start of it.
    a_run(job, run.replica, run.host, number=1, phase="closed", held=True)
    page = browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    shown = page[page.index('class="last-lines"') : page.index("</pre>")]
    assert "OSError: disk" in shown and "long ago" not in shown and "of a line" not in shown


def test_a_restarted_job_shows_the_cause_above_its_replicas(browser, project, cast):
    job = a_job(project, cast.bob, host=a_host())
    why = "workerpool0-0 was killed by SIGKILL on gpu-a; restart 2 of 5."
    page = browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    assert "Started again" not in page
    moved(job, "RUNNING", "STARTING", "workerpool0-0", why, "trainyard", kind="restart")
    page = browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    assert "Started again" in page and why in page[: page.index('id="job-replicas"')]
    Job.objects.filter(pk=job.pk).update(state="SUCCEEDED")
    assert "Started again" not in browser("vera").get(f"/jobs/{job.pk}/").content.decode()
