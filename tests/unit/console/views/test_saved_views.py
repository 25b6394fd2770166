"""Saved views of the list of jobs: a person's own and a project's, on the page and in REST."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client
from django.utils import timezone

from agents.infra.refusals import Refused
from console import saved_views
from console.models import SavedView
from console.views.jobs.jobs import MOST_VIEWS
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_job


def keep(user, project=None, name="active ones", query="state=active"):
    return saved_views.save(user, project, name, query, timezone.now())


def names(user):
    return [view.name for view in saved_views.visible(user)]


def test_a_view_is_kept_from_the_list_and_leads_back_to_it(browser, cast, project):
    a_job(project, cast.bob, name="one", labels={"team": "nlp"})
    a_job(project, cast.bob, name="two")
    bob = browser("bob")
    page = bob.get("/jobs/?label=team=nlp&sort=name&after=1700000000000000000").text
    assert "Keep this view" in page and 'name="query" value="label=team%3Dnlp&amp;sort=name"' in page
    answer = bob.post("/jobs/views", {"name": " NLP  only ", "query": "label=team%3Dnlp&sort=name&x=1"})
    assert answer.url == "/jobs/?label=team%3Dnlp&sort=name"
    page = bob.get(answer.url).text
    assert "The view “NLP only” is kept." in page and ">one<" in page and ">two<" not in page
    assert re.search(r'href="/jobs/\?label=team%3Dnlp&amp;sort=name" aria-current="true">\s*NLP only', page)
    assert "Keep this view" not in bob.get("/jobs/").text and "NLP only" in bob.get("/jobs/").text
    view = SavedView.objects.get()
    assert bob.post(f"/jobs/views/{view.pk}/remove").url == "/jobs/views"
    assert not SavedView.objects.exists()


def test_each_person_sees_their_own_views_and_those_of_their_projects(cast, project):
    keep(cast.bob, name="of bob")
    keep(cast.bob, project, name="of the project")
    assert names(cast.bob) == ["of bob", "of the project"]
    assert names(cast.vera) == names(cast.alice) == ["of the project"]
    assert names(cast.charlie) == names(cast.loner) == []


def test_a_view_of_a_project_is_changed_by_its_maker_and_by_admins(cast, project):
    view = keep(cast.bob, project)
    with pytest.raises(PermissionDenied):
        keep(cast.vera, project, name="another")
    with pytest.raises(Refused, match="bob has made"):
        keep(cast.bella, project, query="sort=name")
    with pytest.raises(PermissionDenied):
        saved_views.remove(cast.bella, view.pk)
    with pytest.raises(Http404):
        saved_views.remove(cast.charlie, view.pk)
    assert keep(cast.alice, project, query="sort=name").pk == view.pk
    saved_views.remove(cast.alice, view.pk)
    assert names(cast.bob) == []


def test_the_list_shows_the_first_views_and_their_page_all(browser, cast, project):
    for number in range(MOST_VIEWS):
        keep(cast.bob, project, name=f"a {number:02}")
    keep(cast.bob, name="z of bob")
    above = browser("bob").get("/jobs/").text
    assert above.count('class="chip" href="/jobs/?state=active') == MOST_VIEWS
    assert above.index("z of bob") < above.index("a 00") and f"a {MOST_VIEWS - 1:02}" not in above
    assert f"a {MOST_VIEWS - 1:02}" in browser("bob").get("/jobs/views").text


def test_many_views_have_several_pages_that_keep_the_query(browser, cast, monkeypatch):
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 100)
    for number in range(51):
        keep(cast.bob, name=f"a {number:02}")
    first = browser("bob").get("/jobs/views?sort=name").text
    assert "a 00" in first and "a 50" not in first and 'href="/jobs/views?sort=name&amp;page=2"' in first
    second = browser("bob").get("/jobs/views?sort=name&page=2").text
    assert "a 50" in second and "a 49" not in second and 'href="/jobs/views?sort=name&amp;page=1"' in second


@pytest.mark.parametrize(
    ("name", "query", "words"),
    [
        ("", "state=active", "at most 60"),
        ("a" * 61, "state=active", "at most 60"),
        ("a", "x=1", "whole list"),
    ],
)
def test_what_is_not_kept_says_why_and_keeps_what_was_typed(browser, cast, name, query, words):
    answer = browser("bob").post("/jobs/views", {"name": name, "query": query})
    assert answer.status_code == 200 and words in answer.text and not SavedView.objects.exists()
    assert not name or query == "x=1" or f'value="{name}"' in answer.text


def test_there_is_an_end_to_views(cast, monkeypatch):
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    keep(cast.bob, name="a")
    keep(cast.bob, name="b")
    with pytest.raises(Refused, match="Remove one"):
        keep(cast.bob, name="c")
    keep(cast.bob, name="a", query="sort=name")


def test_views_in_rest(cast, project):
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob)}"})
    body = {"name": "big", "query": "?sort=-gpus&pageSize=3", "project": "default"}
    made = client.post("/api/v1/savedViews", body, content_type="application/json").json()
    assert (made["name"], made["query"], made["project"], made["madeBy"]) == (
        "big",
        "sort=-gpus",
        "default",
        "bob",
    )
    assert client.get("/api/v1/savedViews").json() == {"savedViews": [made]}
    for change, field in (({"query": "x=1"}, "query"), ({"name": ""}, "name"), ({"who": "me"}, "who")):
        answer = client.post("/api/v1/savedViews", {**body, **change}, content_type="application/json")
        assert answer.status_code == 400 and field in answer.text, change
    assert client.delete(f"/api/v1/savedViews/{made['id']}").status_code == 200
    assert client.delete(f"/api/v1/savedViews/{made['id']}").status_code == 404


def test_a_narrow_token_changes_no_views_of_its_owner(cast, project):
    view = keep(cast.bob, name="mine")
    body = {"name": "new", "query": "sort=-gpus"}
    for narrow, sees in (({"scope": "read"}, 200), ({"scope": "submit"}, 200), ({"project": project}, 403)):
        script = Client(headers={"authorization": f"Bearer {token_of(cast.bob, **narrow)}"})
        assert script.get("/api/v1/savedViews").status_code == sees, narrow
        made = script.post("/api/v1/savedViews", body, content_type="application/json")
        assert made.status_code == 403, narrow
        assert script.delete(f"/api/v1/savedViews/{view.pk}").status_code == 403, narrow
    reader = Client(headers={"authorization": f"Bearer {token_of(cast.bob, scope='read')}"})
    shared = keep(cast.bob, project, name="shared")
    assert reader.delete(f"/api/v1/savedViews/{shared.pk}").status_code == 403
    assert [each.name for each in saved_views.visible(cast.bob)] == ["mine", "shared"]
