"""The pages of a job's shells: the list, and what a colleague may open. Without scripts, forms do it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs import shells
from jobs.models import AuditEntry, Run, ShellSession
from tests.unit.console.views.example_rows import a_host, a_job, a_shell, one_line

KEY = "0123456789abcdef" * 2


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host("gpu-7"), replicas=3)


@pytest.fixture
def run(job):
    return job.runs.get(replica__name="workerpool0-0")


def page(browser, person, job):
    answer = browser(person).get(f"/jobs/{job.pk}/shells/")
    return one_line(answer.content.decode())


def test_the_list_says_who_has_a_shell_where(browser, cast, job, run):
    a_shell(run, cast.bob)
    over = a_shell(run, cast.alice, "f" * 32)
    shells.record_closed(over, "Nobody was there for 30 minutes.", timezone.now())
    html = page(browser, "bob", job)
    assert "Open shells" in html and "Shells that are over" in html
    assert "Nobody was there for 30 minutes." in html and "gpu-7" in html
    assert f'href="/jobs/{job.pk}/shell/{run.pk}?shell={KEY}"' in html
    assert html.count("<option>workerpool") == 3
    assert 'name="shared"' in html and f"/shells/{KEY}/close" in html


def test_a_colleague_sees_who_has_a_shell_and_no_way_in(browser, cast, job, run):
    a_shell(run, cast.bob)
    html = page(browser, "bella", job)
    assert "bob" in html and KEY not in html and "<option>" not in html
    assert "by whoever submitted the job" in html


def test_the_host_is_dialled_while_the_page_of_a_shell_loads(browser, cast, job, run, prepared):
    address = f"/jobs/{job.pk}/shell/{run.pk}?shell={KEY}"
    assert browser("bella").get(address).status_code == 403 and prepared == []
    assert browser("bob").head(address).status_code == 200 and prepared == []
    assert browser("bob").get(address).status_code == 200 and prepared == [("gpu-7", True)]
    a_shell(run, cast.bob)
    assert browser("bob").get(address).status_code == 200 and prepared[1:] == [("gpu-7", False)]
    Run.objects.filter(pk=run.pk).update(phase="closed")
    assert browser("bob").get(address).status_code == 200 and len(prepared) == 2


@pytest.mark.parametrize(
    ("state", "words"),
    [("QUEUED", "as soon as one does"), ("SUCCEEDED", "The job is over, so no shell can be opened.")],
)
def test_the_page_says_why_no_shell_can_be_opened(browser, project, cast, state, words):
    assert words in page(browser, "bob", a_job(project, cast.bob, state=state))


def test_the_form_opens_a_shell_in_the_replica_that_it_names(browser, job):
    answer = browser("bob").get(f"/jobs/{job.pk}/shells/new?replica=workerpool1-1")
    run = job.runs.get(replica__name="workerpool1-1")
    assert answer.status_code == 302 and answer["Location"] == f"/jobs/{job.pk}/shell/{run.pk}"
    Run.objects.filter(pk=run.pk).update(phase="closed")
    answer = browser("bob").get(f"/jobs/{job.pk}/shells/new?replica=workerpool1-1", follow=True)
    assert "workerpool1-1 does not run now" in answer.content.decode()


def test_a_shell_is_closed_and_shared_by_forms(browser, cast, job, run):
    session = a_shell(run, cast.bob)
    browser("bob").post(f"/jobs/{job.pk}/shells/{KEY}/share", {"shared": "1"})
    session.refresh_from_db()
    assert session.shared and "Stop sharing" in page(browser, "bob", job)
    browser("bob").post(f"/jobs/{job.pk}/shells/{KEY}/share", {"shared": "0"})
    browser("bob").post(f"/jobs/{job.pk}/shells/{KEY}/close")
    session.refresh_from_db()
    assert not session.shared and session.close_reason == "Closed by bob."
    assert "is being closed: Closed by bob." in page(browser, "bella", job)


def test_a_colleague_opens_the_page_of_a_shared_shell_only(browser, cast, job, run):
    a_shell(run, cast.bob)
    address = f"/jobs/{job.pk}/shell/{run.pk}?shell={KEY}&watch"
    assert browser("bella").get(address).status_code == 403
    ShellSession.objects.update(shared=True)
    html = browser("bella").get(address).content.decode()
    assert 'data-types="no"' in html and "New tab" not in html
    assert browser("vera").get(address).status_code == 403, "a viewer only sees"
    assert browser("charlie").get(address).status_code == 404
    assert browser("bella").get(address.replace(KEY, "f" * 32)).status_code == 403
    shells.record_closed(ShellSession.objects.get(), "over", timezone.now())
    assert browser("bella").get(address).status_code == 403


def test_opening_and_closing_are_in_the_audit(browser, cast, job, run):
    session = a_shell(run, cast.bob)
    shells.want_close(session, "Closed by alice.", timezone.now())
    shells.record_closed(session, "The shell has ended.", timezone.now())
    shells.record_closed(session, "once more", timezone.now())
    found = AuditEntry.objects.order_by("pk").values_list("actor", "what", "subject", "after")
    subject = f"{job.pk}/workerpool0-0"
    assert list(found) == [
        ("bob", "shell.open", subject, {"host": "gpu-7", "address": "10.1.1.1", "recorded": True}),
        ("bob", "shell.close", subject, {"reason": "Closed by alice."}),
    ]
    html = browser("root").get("/audit/?what=shell.open").content.decode()
    assert "Shell opened" in html


def test_the_page_asks_the_same_number_of_questions_for_more_shells(browser, cast, job, run):
    client = browser("bob")

    def asked():
        with CaptureQueriesContext(connection) as seen:
            client.get(f"/jobs/{job.pk}/shells/")
        return len(seen)

    a_shell(run, cast.bob)
    asked()
    before = asked()
    for number in range(4):
        a_shell(run, cast.bob, f"{number:032x}")
    assert asked() == before
