"""The search: each person finds exactly what they may see, with a constant number of queries."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agents.models import Location
from console.presenters import search, site_pages
from jobs.models import Bucket, Job, LocationBinding, Membership, Project
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, a_job, a_pipeline, a_tuning_job


@pytest.fixture
def things(cast, project):
    """One thing of each kind, in the default project and elsewhere, all of which are named alike."""
    ours = a_job(project, cast.bob, name="zebra ours", labels={"team": "nlp"})
    theirs = a_job(cast.elsewhere, cast.charlie, name="zebra theirs", labels={"team": "nlp"})
    for job, named in ((ours, "ours"), (theirs, "theirs")):
        a_tuning_job(job)
        a_pipeline(job, f"zebra-model-{named}")
        Bucket.objects.create(
            name=f"zebra-{named}", project=job.project, created_at=job.created_at, created_by="bob"
        )
    a_host("zebra-1")
    closed = Location.objects.create(name="closed")
    a_host("zebra-2", location=closed)
    LocationBinding.objects.create(location=closed, project=cast.elsewhere)
    Project.objects.filter(pk=project.pk).update(title="The zebra project")
    Project.objects.filter(pk=cast.elsewhere.pk).update(title="The other zebra project")


def titles(found):
    return {group.kind: [hit.title for hit in group.hits] for group in found.groups}


def of_project(*names):
    return {
        "job": [f"zebra {name}" for name in names],
        "study": [f"zebra {name}-study" for name in names],
        "pipeline": [f"zebra {name}-pipeline" for name in names],
        "model": [f"zebra-model-{name}" for name in names],
        "bucket": sorted(f"gs://zebra-{name}" for name in names),
    }


OURS = {**of_project("ours"), "host": ["zebra-1"], "project": ["default"]}
THEIRS = {**of_project("theirs"), "host": ["zebra-1", "zebra-2"], "project": ["elsewhere"]}
ALL = {
    **of_project("theirs", "ours"),
    "host": ["zebra-1", "zebra-2"],
    "project": ["default", "elsewhere"],
}


@pytest.mark.parametrize("kind", ["pipeline", "model", "bucket", "project"])
def test_the_way_to_the_rest_leads_to_what_was_found(cast, things, browser, kind, project, monkeypatch):
    job = Job.objects.get(display_name="zebra ours")
    for number in range(6):
        a_pipeline(a_job(project, cast.bob, name=f"zebra {number}"), f"zebra-more-{number}")
        named = {"created_at": job.created_at, "created_by": "bob"}
        Bucket.objects.create(name=f"zebra-more-{number}", project=project, **named)
        other = Project.objects.create(name=f"zebra-more-{number}", created_at=job.created_at)
        Membership.objects.create(project=other, user=cast.bob, role="viewer")
    few = titles(search.search(cast.bob, "zebra"))[kind]
    [more] = [group.more for group in search.search(cast.bob, "zebra").groups if group.kind == kind]
    page = browser("bob").get(more)
    rest = titles(page.context["found"])
    assert list(rest) == [kind] and rest[kind][:5] == few and len(rest[kind]) == 7
    assert all(title in page.text for title in rest[kind])
    assert "theirs" not in page.text and "There are more." not in page.text
    # The button of a page without scripts stays at this kind.
    assert f'name="kind" value="{kind}"' in page.text
    monkeypatch.setattr(search, "MOST_OF_KIND", 6)
    assert "There are more." in browser("bob").get(more).text
    assert titles(search.search(cast.loner, "zebra", kind=kind)) == {}


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        ("root", ALL),
        ("alice", OURS),
        ("bob", OURS),
        ("bella", OURS),
        ("vera", OURS),
        ("charlie", THEIRS),
        ("loner", {}),
    ],
)
def test_each_person_finds_exactly_what_they_may_see(cast, things, browser, who, seen):
    user = getattr(cast, who)
    assert titles(search.search(user, "zebra")) == seen
    # The page, the palette and REST find the same.
    page = browser(who).get("/search?q=zebra").text
    palette = browser(who).get(
        "/search?q=zebra", headers={"hx-request": "true", "hx-target": "palette-found"}
    )
    rest = Client(headers={"authorization": f"Bearer {token_of(user)}"}).get("/api/v1/search?q=zebra")
    named = {name for names in seen.values() for name in names}
    for name in {name for names in ALL.values() for name in names if "zebra" in name}:
        assert (f">{name}<" in page) == (f">{name}<" in palette.text) == (name in named), name
    assert {result["name"] for result in rest.json()["results"]} == named
    assert "<html" not in palette.text and 'role="option"' in palette.text or not named


def test_people_are_found_by_who_may_see_them(cast):
    assert titles(search.search(cast.root, "bel"))["person"] == ["bella"]
    assert "person" not in titles(search.search(cast.alice, "bel"))


def test_a_job_is_found_by_name_id_label_and_what_contains_its_id(cast, project):
    job = a_job(project, cast.bob, name="bert", labels={"team": "nlp"})
    other = a_job(project, cast.bob, name="resnet")
    texts = [
        "BER",
        str(job.pk),
        "team=nlp",
        f"projects/x/customJobs/{job.pk}",
        f"{job.pk}-workerpool0-0-a1-r0",
    ]
    for text in texts:
        assert titles(search.search(cast.vera, text))["job"] == ["bert"], text
    both = titles(search.search(cast.vera, str(job.pk)[:12]))
    assert both["job"] == ["resnet", "bert"] and other.pk > job.pk
    assert "job" not in titles(search.search(cast.vera, str(job.pk)[:5]))
    study = a_tuning_job(job, display_name="a search")
    a_pipeline(job)
    assert [titles(search.search(cast.vera, str(study.pk)))["study"]] == [["a search"]]
    (pipeline,) = (
        group.hits[0] for group in search.search(cast.vera, "bert").groups if group.kind == "pipeline"
    )
    assert pipeline.url == f"/jobs/{job.pk}/"
    Job.objects.filter(pk=job.pk).update(deleted_at=job.created_at)
    assert "job" not in titles(search.search(cast.vera, "bert"))


def test_five_of_a_kind_and_the_way_to_the_rest(cast, project, browser):
    for number in range(7):
        a_job(project, cast.bob, name=f"bert {number}")
    jobs = search.search(cast.vera, "bert").groups[0]
    assert [hit.title for hit in jobs.hits] == [f"bert {number}" for number in (6, 5, 4, 3, 2)]
    assert jobs.more == "/jobs/?text=bert"
    assert "bert 0" in browser("vera").get(jobs.more).text


@pytest.mark.parametrize("who", ["root", "bob", "loner"])
def test_the_number_of_queries_does_not_depend_on_what_there_is(cast, project, who):
    user = getattr(cast, who)

    def queries():
        with CaptureQueriesContext(connection) as asked:
            search.search(user, "e")
        return len(asked)

    before = queries()
    for number in range(8):
        job = a_job(project, cast.bob, name=f"e {number}")
        a_host(f"e-{number}")
        Project.objects.create(name=f"e-{number}", created_at=cast.root.date_joined)
        a_tuning_job(job, display_name=f"e {number}")
        a_pipeline(job, f"e-{number}")
        Bucket.objects.create(name=f"e-{number}", project=project, created_at=job.created_at, created_by="b")
    assert queries() == before <= 16


def test_pages_are_found_by_other_words_and_only_those_that_open(cast, browser):
    assert titles(search.search(cast.bob, "servers"))["page"] == ["Hosts"]
    assert titles(search.search(cast.root, "who did"))["page"] == ["Audit"]
    assert "page" not in titles(search.search(cast.bob, "who did"))
    for who in ("root", "alice", "bob", "vera", "charlie", "loner"):
        shown = {hit.url for group in search.search(getattr(cast, who), "").groups for hit in group.hits}
        client = browser(who)
        for page in site_pages.PAGES:
            opens = client.get(page.url.partition("#")[0]).status_code == 200
            assert opens == (page.url in shown), (who, page.name)


def test_the_search_in_rest_names_what_is_wrong(cast):
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob)}"})
    for query, field in (("", "q"), ("?q=%20", "q"), ("?q=a&kind=job", "kind")):
        answer = client.get(f"/api/v1/search{query}")
        assert answer.status_code == 400 and field in answer.json()["error"]["message"], query
    assert client.get("/search?q=<script>").text.count("<script>") == 0


def test_acts_are_for_scripts_only(browser):
    palette = {"hx-request": "true", "hx-target": "palette-found"}
    assert 'data-act="theme"' in browser("bob").get("/search?q=night", headers=palette).text
    assert "data-act" not in browser("bob").get("/search?q=night").text
    assert 'id="found"' in browser("bob").get("/search?q=x", headers={"hx-request": "true"}).text
