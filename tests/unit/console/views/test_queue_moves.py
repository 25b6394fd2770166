"""Jobs moved on the page of the queue: who may, what is asked before, and what is noticed in between."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from agents.infra import shared_answers
from agents.infra.refusals import Conflict
from agents.models import Location
from jobs import services
from jobs.models import AuditEntry, Job, LocationBinding, QueuePin
from jobs.scheduling import queue_view, reorder
from tests.unit.console.views.example_rows import a_host, a_job, document

MOVE = "/jobs/queue/move"


@pytest.fixture
def queue(project, cast):
    a_host(gpus=4)
    made = [
        services.submit(project, cast.bob, document(name), "", None, timezone.now())
        for name in ("first", "second", "third")
    ]
    a_job(cast.elsewhere, cast.charlie, state="QUEUED", name="foreign", resource_request='[[0,1,1,0,"",0]]')
    return [job.pk for job in made]


def order(client):
    shared_answers.forget_all()
    page = client.get("/jobs/queue").content.decode()
    return re.findall(r'id="queue-(\d+)"', page)


def text(answer):
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def confirm(client, answer):
    """Send the form of the preview."""
    page = answer.content.decode()
    form = page[page.index('name="stamp"') - 200 :]
    fields = re.findall(r'name="(stamp|query|within|before|job)" value="([^"]*)"', form)
    data = {"act": re.search(r'name="act" value="(\w+)"', form)[1]}
    for name, value in fields:
        data.setdefault(name, []).append(value) if name == "job" else data.update({name: value})
    return client.post(MOVE, data, follow=True)


def test_a_move_is_shown_confirmed_done_and_undone(browser, queue):
    root = browser("root")
    asked = root.post(MOVE, {"job": queue[2], "act": "top"})
    assert "Nothing is moved yet" in text(asked) and not QueuePin.objects.exists()
    done = confirm(root, asked)
    assert "1 job is moved." in text(done) and "moved here by root" in text(done)
    assert order(root)[0] == str(queue[2]) and AuditEntry.objects.get(what="queue.reorder").actor == "root"
    assert "root placed" not in Job.objects.get(pk=queue[0]).reason, "the next pass writes it"
    back = confirm(root, root.post(MOVE, {"one": f"automatic-{queue[2]}"}))
    assert "back in the automatic order" in text(back) and not QueuePin.objects.exists()


def test_buttons_of_a_row_and_places(browser, queue):
    root = browser("root")
    before = order(root)
    confirm(root, root.post(MOVE, {"one": f"down-{before[0]}"}))
    assert order(root)[:2] == [before[1], before[0]]
    confirm(root, root.post(MOVE, {"act": "before", "job": before[3], "place": "2"}))
    assert order(root)[:3] == [before[1], before[3], before[0]]


def test_an_admin_of_a_project_moves_within_it_and_does_not_see_the_others(browser, queue):
    alice = browser("alice")
    asked = alice.post(MOVE, {"job": queue[2], "act": "top"})
    assert "jobs of other projects keep their turns" in text(asked) and "foreign" not in text(asked)
    confirm(alice, asked)
    assert order(alice) == [str(queue[n]) for n in (2, 0, 1)]
    assert not QueuePin.objects.get(job=queue[2]).whole


def test_a_job_that_its_location_does_not_serve_has_no_place_and_is_not_moved(browser, queue, project):
    here, foreign = Location.objects.get(name="default"), Job.objects.get(display_name="foreign")
    LocationBinding.objects.create(location=here, project=project)
    assert foreign.pk < min(queue), "it would be the first: it is the oldest"
    root = browser("root")
    assert order(root) == [str(pk) for pk in (*queue, foreign.pk)]
    found = {row.id: row for row in root.get("/jobs/queue").context["queue"].rows}
    assert (found[foreign.pk].place, found[foreign.pk].movable, found[queue[0]].place) == (None, False, 1)
    asked = root.post(MOVE, {"one": f"down-{queue[0]}"})
    assert [(row.place, row.new_place) for row in asked.context["preview"].moved] == [(1, 2)]
    assert "1 job is moved." in text(confirm(root, asked))


@pytest.mark.parametrize(
    ("person", "status"), [("bob", 403), ("vera", 403), ("charlie", 404), ("loner", 404)]
)
def test_others_may_not(browser, queue, person, status):
    client = browser(person)
    assert client.post(MOVE, {"job": queue[2], "act": "top"}).status_code == status
    page = client.get("/jobs/queue").content.decode()
    assert (MOVE in page) == (person == "charlie"), "Charlie moves the jobs of his own project"
    assert f'value="top-{queue[2]}"' not in page


def test_a_queue_that_changed_in_between_is_shown_again(browser, queue):
    root = browser("root")
    asked = root.post(MOVE, {"act": "before", "job": queue[2], "before": queue[1]})
    other = confirm(root, root.post(MOVE, {"job": queue[1], "act": "top"}))
    assert "1 job is moved." in text(other)
    shared_answers.forget_all()
    again = confirm(root, asked)
    assert "The queue has changed since you looked" in text(again) and "Nothing is moved yet" in text(again)
    assert not QueuePin.objects.filter(job=queue[2]).exists()


def test_a_job_that_starts_while_a_changed_queue_is_shown_again_is_a_refusal(browser, queue, monkeypatch):
    def starts_meanwhile(*given):
        Job.objects.filter(pk=queue[2]).update(state="PENDING")
        queue_view.forget_recent()
        raise Conflict("stamp", reorder.CHANGED)

    root = browser("root")
    asked = root.post(MOVE, {"job": queue[2], "act": "top"})
    monkeypatch.setattr(reorder, "move", starts_meanwhile)
    answer = confirm(root, asked)
    assert answer.redirect_chain == [("/jobs/queue", 302)]
    assert "does not wait for a place any more" in text(answer)


@pytest.mark.parametrize("named", ["place", "before"])
def test_a_place_before_a_job_of_others_is_refused_with_a_sentence(browser, queue, named):
    foreign = str(Job.objects.get(display_name="foreign").pk)
    place = str(order(browser("root")).index(foreign) + 1)
    sent = {"act": "before", "job": queue[2], named: {"place": place, "before": foreign}[named]}
    answer = browser("alice").post(MOVE, sent, follow=True)
    assert answer.redirect_chain == [("/jobs/queue", 302)]
    assert "it is not among those that they pass" in text(answer) and "foreign" not in text(answer)
    missing = browser("alice").post(MOVE, {**sent, named: "", "before": "7"}, follow=True)
    assert "it is not among those that they pass" in text(missing), "the same as of a job that does not exist"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"act": "top"}, "Select 1 to 200 jobs"),
        ({"act": "sideways", "job": 1}, "Choose where to move"),
        ({"act": "before", "job": 1}, "Say before which place"),
        ({"act": "before", "job": 1, "place": "9999"}, "Say before which place"),
    ],
)
def test_what_is_not_understood_is_said(browser, queue, sent, words):
    sent = {**sent, "job": queue[0]} if "job" in sent else sent
    assert words in text(browser("root").post(MOVE, sent, follow=True))


def test_a_move_needs_its_token(browser, queue):
    client = Client(enforce_csrf_checks=True)
    client.cookies = browser("root").cookies
    assert client.post(MOVE, {"job": queue[2], "act": "top"}).status_code == 403
