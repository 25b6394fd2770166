"""The project that a person works in: lists begin with it, and their addresses say so."""

from __future__ import annotations

import json

import pytest
from django.contrib import messages
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpResponse

from console.views import fragments
from jobs.models import Membership, Role
from tests.unit.console.views.example_rows import a_job

LISTS = ("/jobs/", "/jobs/queue", "/usage/")


@pytest.fixture
def bob(browser, cast):
    """Bob is in both projects."""
    Membership.objects.create(project=cast.elsewhere, user=cast.bob, role=Role.VIEWER)
    return browser("bob")


def test_lists_begin_with_the_chosen_project_and_their_address_says_so(bob, cast, project):
    a_job(project, cast.bob, name="ours", state="QUEUED")
    a_job(cast.elsewhere, cast.charlie, name="theirs", state="QUEUED")
    assert bob.post("/project", {"project": "elsewhere", "next": "/jobs/?project=default"}).url == "/jobs/"
    for address in LISTS:
        assert bob.get(address).url == f"{address}?project=elsewhere"
        page = bob.get(address, follow=True).text
        assert "Project: elsewhere" in page or address == "/usage/"
    page = bob.get("/jobs/", follow=True).text
    assert "theirs" in page and ">ours<" not in page and 'aria-label="Project: elsewhere"' in page
    # The mark leads to all projects, whatever was chosen, and so do the other links of the list.
    assert 'href="?project="' in page
    for address in ("/jobs/?project=", "/jobs/?state=QUEUED"):
        page = bob.get(address).text
        assert "theirs" in page and ">ours<" in page and "Project: " not in page.partition("<main")[2]
    assert bob.post("/project", {"project": ""}).url == "/jobs/"
    assert bob.get("/jobs/").status_code == 200


def test_other_filters_stay_when_the_project_is_left(bob, cast, project):
    page = bob.get("/jobs/?project=default&state=QUEUED&sort=name").text
    assert 'href="?state=QUEUED&amp;sort=name"' in page and 'href="/jobs/?project="' in page


@pytest.mark.parametrize("name", ["elsewhere", "no-such-project", "<b>"])
def test_nobody_chooses_a_project_that_they_may_not_see(browser, cast, project, name):
    bob = browser("bob")
    assert bob.post("/project", {"project": name}).status_code == 302
    assert "project" not in bob.cookies
    # A cookie that was set by hand, or is left of a project of before.
    bob.cookies["project"] = name
    assert bob.get("/jobs/").status_code == 200
    assert "elsewhere" not in browser("bob").get("/project").text


def test_only_people_with_a_choice_see_it(browser, bob):
    assert 'id="project-switch"' in bob.get("/jobs/").text
    assert 'id="project-switch"' not in browser("vera").get("/jobs/").text


@pytest.mark.parametrize("where", ["https://elsewhere.example/", "//elsewhere.example", ""])
def test_the_switch_leads_to_pages_of_ours_only(bob, where):
    assert bob.post("/project", {"project": "default", "next": where}).url == "/jobs/"


@pytest.mark.parametrize("old", [False, True])
def test_what_a_request_says_comes_with_its_fragment(rf, monkeypatch, db, old):
    """What another request has said waits for the page that it leads to."""
    monkeypatch.setattr(fragments, "render", lambda *_, **__: HttpResponse("part"))
    request = rf.get("/", headers={"hx-request": "true"})
    request.htmx = True
    SessionMiddleware(lambda _: HttpResponse()).process_request(request)
    MessageMiddleware(lambda _: HttpResponse()).process_request(request)
    if not old:
        messages.success(request, "The view “träin” is kept.")
    answer = fragments.page_or_fragment(request, "page", "fragment", {})
    told = json.loads(answer.headers["HX-Trigger"])["toasts"]["all"] if not old else []
    assert told == ([] if old else [{"level": "success", "text": "The view “träin” is kept."}])
    assert answer.headers.get("HX-Trigger", "").isascii() and ("HX-Trigger" in answer.headers) is not old
