"""Jobs that are selected in the list: what will be done is shown and confirmed with its number, and then done."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from console.presenters import live
from console.presenters.jobs import selection
from jobs import services
from jobs.models import Job, JobLabel
from tests.unit.console.views.example_rows import a_host, document, one_line

BULK = "/jobs/bulk"


@pytest.fixture
def submit(project, cast):
    a_host()

    def submit_as(user, name="train", project=project, **more):
        return services.submit(project, user, {**document(name), **more}, "", None, timezone.now())

    return submit_as


def hidden(page, name):
    return re.findall(rf'name="{name}" value="([^"]*)"', page.text)


def ask(client, act, *jobs, **more):
    return client.post(BULK, {"act": act, "job": [job.pk for job in jobs], **more})


def confirm(client, page, **more):
    """Send the form of the page as a browser does."""
    fields = {name: hidden(page, name) for name in ("job", "filters", "request_id", "confirm")}
    act = re.search(r'name="act"\s+value="(\w+)"', page.text)[1]
    return client.post(BULK, {**fields, "act": act, **more}, follow=True)


def states():
    return dict(Job.objects.values_list("display_name", "state"))


def test_the_list_has_a_box_for_each_job_and_the_acts(browser, cast, submit):
    job = submit(cast.bob)
    page = browser("bob").get("/jobs/?state=QUEUED")
    assert f'name="job" value="{job.pk}" form="bulk"' in one_line(page.text)
    assert hidden(page, "filters") == ["state=QUEUED"]
    for act in selection.VERBS:
        assert f'name="act" value="{act}"' in page.text


def test_only_jobs_that_the_person_may_cancel_are_cancelled(browser, cast, submit):
    mine, other = submit(cast.bob, "mine"), submit(cast.bella, "other")
    foreign = submit(cast.charlie, "foreign", cast.elsewhere)
    bob = browser("bob")
    page = ask(bob, "cancel", mine, other, foreign)
    assert "mine" in page.text and "Left out: 1 job that you may not change." in one_line(page.text)
    assert "foreign" not in page.text and hidden(page, "job") == [str(mine.pk)]
    assert set(states().values()) == {"QUEUED"}, "nothing is done before it is confirmed"
    assert "1 job is cancelled." in confirm(bob, page).text
    assert states() == {"mine": "CANCELLED", "other": "QUEUED", "foreign": "QUEUED"}


def test_the_number_is_confirmed(browser, cast, submit):
    """A job ended while the person read the page: they are asked again, with the number that is true now."""
    jobs = [submit(cast.bob, f"job-{n}") for n in range(3)]
    bob = browser("bob")
    page = ask(bob, "cancel", *jobs)
    assert hidden(page, "confirm") == ["3"]
    services.cancel(jobs[0], "bob", timezone.now())
    again = confirm(bob, page)
    assert hidden(again, "confirm") == ["2"] and "Left out: 1 job that is over already." in one_line(
        again.text
    )
    assert list(states().values()).count("CANCELLED") == 1
    confirm(bob, again)
    assert set(states().values()) == {"CANCELLED"}


def test_all_jobs_of_a_filter_are_selected_whatever_page_is_shown(browser, cast, submit, monkeypatch):
    for n in range(3):
        submit(cast.bob, f"bert-{n}")
    submit(cast.bob, "other")
    alice = browser("alice")
    page = alice.post(BULK, {"act": "cancel", "all": "1", "filters": "text=bert&after=17"})
    assert len(hidden(page, "job")) == 3
    monkeypatch.setattr(selection, "MOST", 2)
    page = alice.post(BULK, {"act": "cancel", "all": "1", "filters": "text=bert"})
    assert len(hidden(page, "job")) == 2 and "These are the first 2" in page.text
    answer = confirm(alice, page)
    assert "2 jobs are cancelled." in answer.text and answer.redirect_chain[-1][0] == "/jobs/?text=bert"


def test_jobs_are_deleted_and_labelled(browser, cast, submit):
    over, waits = submit(cast.bob, "over"), submit(cast.bob, "waits")
    services.cancel(over, "bob", timezone.now())
    bob = browser("bob")
    page = ask(bob, "label", over, waits)
    missing = confirm(bob, page)
    assert "Say which labels to give or to take away." in missing.text and not JobLabel.objects.exists()
    assert "2 jobs are labelled." in confirm(bob, missing, labels="team=nlp, best").text
    assert set(JobLabel.objects.values_list("key", "value")) == {("team", "nlp"), ("best", "")}
    refused = confirm(bob, ask(bob, "label", waits), labels="Team=x")
    assert "Not done for 1: waits: A key must be" in refused.text
    page = ask(bob, "delete", over, waits)
    assert "Left out: 1 job that is not over yet." in one_line(page.text)
    assert "1 job and its logs are deleted." in confirm(bob, page).text and list(states()) == ["waits"]


def test_copies_are_submitted_once(browser, cast, submit):
    job = submit(cast.bella, "train", labels={"team": "nlp"})
    bob = browser("bob")
    page = ask(bob, "clone", job)
    for _ in range(2):
        assert "1 copy is submitted." in confirm(bob, page).text
    copy = Job.objects.exclude(pk=job.pk).get()
    assert (copy.owner_name, copy.display_name, copy.labels) == ("bob", "train", {"team": "nlp"})


def test_nothing_selected_and_unknown_acts(browser, cast, submit):
    bob = browser("bob")
    answer = bob.post(BULK, {"act": "cancel", "filters": "owner=bob"}, follow=True)
    assert "Select the jobs first" in answer.text and answer.redirect_chain[-1][0] == "/jobs/?owner=bob"
    assert "Choose what to do" in bob.post(BULK, {"act": "explode", "job": "1"}, follow=True).text
    assert bob.get(BULK).status_code == 405
    page = browser("vera").post(BULK, {"act": "cancel", "job": submit(cast.bob).pk})
    assert "It is possible for none of the selected jobs." in page.text


def test_the_address_to_go_back_to_is_one_of_ours(browser, cast, submit):
    page = ask(browser("bob"), "cancel", submit(cast.bob), filters="//evil.example?text=x&next=javascript:1")
    assert hidden(page, "filters") == [""] and 'href="/jobs/"' in page.text and "evil" not in page.text


def test_the_page_of_the_queue(browser, project, cast, submit):
    first, second = submit(cast.bob, "first"), submit(cast.bella, "second")
    Job.objects.filter(pk=second.pk).update(priority=100, reason="Needs 8 GPUs; 3 are free.")
    submit(cast.charlie, "foreign", cast.elsewhere)
    Job.objects.filter(pk=first.pk).update(earliest_start_at=timezone.now())
    page = browser("vera").get("/jobs/queue")
    text = one_line(page.text)
    assert [row.name for row in page.context["queue"].rows] == ["second", "first"]
    for words in (
        "2 jobs wait",
        "3 in the whole queue",
        "Needs 8 GPUs; 3 are free.",
        "high priority",
        "1 × 1 CPU",
    ):
        assert words in text, words
    assert "foreign" not in text
    part = browser("vera").get("/jobs/queue", headers={"HX-Request": "true"}).text
    assert "<html" not in part and "second" in part
    assert live.queue_live(cast.vera, {}) in page.text
    stamp = live.queue_stamp(cast.vera, {})
    assert live.queue_stamp(cast.vera, {}) == stamp
    Job.objects.filter(pk=first.pk).update(reason="Waits for its turn.")
    assert live.queue_stamp(cast.vera, {}) != stamp
    assert "No job waits." in browser("loner").get("/jobs/queue").text
