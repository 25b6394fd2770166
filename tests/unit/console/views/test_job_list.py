"""The search for jobs: labels, order, pages on and back, totals; on the page and in REST."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from console.presenters.jobs import job_filters, job_list, job_totals
from console.presenters.jobs.job_filters import Filters
from jobs.models import Job, JobLabel
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_job, a_tuning_job


def shown(user, **query):
    return job_list.job_list(user, query)


def asked_by(address):
    return dict(parse_qsl(address.partition("?")[2]))


def names(found):
    return [row.name for row in found.rows]


@pytest.fixture
def labelled(project, cast):
    a_job(project, cast.bob, name="one", labels={"team": "nlp", "stage": "train"})
    a_job(project, cast.bob, name="two", labels={"team": "nlp", "stage": ""})
    a_job(project, cast.bella, name="three", labels={"team": "cv"})
    a_job(project, cast.bella, name="four")
    a_job(cast.elsewhere, cast.charlie, name="foreign", labels={"team": "nlp"})


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("team=nlp", ["two", "one"]),
        (" Team=NLP ", ["two", "one"]),
        ("team=nlp stage=train", ["one"]),
        ("team=nlp,stage", ["two", "one"]),
        ("stage=", ["two"]),
        ("team", ["three", "two", "one"]),
        ("team=nl", []),
        ("=nlp", []),
    ],
)
def test_jobs_are_found_by_their_labels(cast, labelled, label, found):
    assert names(shown(cast.vera, label=label)) == found


@pytest.fixture
def trials(project, cast):
    """One job, and a study with a trial that runs and one that is over."""
    a_job(project, cast.bob, name="plain", state="SUCCEEDED")
    labels = {"trainyard-tuning-job": "7"}
    running = a_job(project, cast.bob, name="trial-1", trial="1", labels=labels)
    a_job(project, cast.bob, name="trial-2", trial="2", state="SUCCEEDED", labels=labels)
    return a_tuning_job(running, max_trials=2)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["trial-1", "plain"]),
        ({"sort": "name"}, ["plain", "trial-1"]),
        ({"owner": "bob"}, ["trial-1", "plain"]),
        ({"state": "active"}, ["trial-1"]),
        ({"state": "SUCCEEDED"}, ["plain"]),
        ({"trials": "1"}, ["trial-2", "trial-1", "plain"]),
        ({"trials": "1", "state": "SUCCEEDED"}, ["trial-2", "plain"]),
        ({"text": "trial-2"}, ["trial-2"]),
        ({"label": "trainyard-tuning-job"}, ["trial-2", "trial-1"]),
    ],
)
def test_trials_that_are_over_are_left_out_unless_somebody_asks_for_them(cast, trials, query, found):
    page = shown(cast.vera, **query)
    assert names(page) == found
    assert page.totals.jobs == len(found)
    assert job_totals.of_filters(cast.vera, Filters.of(query), ()).jobs == len(found)


def test_the_list_says_that_trials_are_left_out_and_leads_to_them(cast, trials, browser):
    sees_no_study = shown(cast.charlie)
    assert sees_no_study.trials == ""
    page = browser("vera").get("/jobs/", {"owner": "bob"}).content.decode()
    assert "trial-1" in page and "trial-2" not in page and "Trials that are over are left out" in page
    with_them = shown(cast.vera, owner="bob").trials
    assert asked_by(with_them) == {"owner": "bob", "trials": "1"}
    page = browser("vera").get(with_them).content.decode()
    assert "trial-2" in page and "Trials that are over are listed, too." in page
    assert asked_by(shown(cast.vera, owner="bob", trials="1").trials) == {"owner": "bob"}
    # A search finds them anyway, and the links of its columns and pages keep what was asked for.
    assert shown(cast.vera, text="trial").trials == ""
    assert asked_by(shown(cast.vera, trials="1").sorts["name"].url)["trials"] == "1"


def test_where_only_trials_were_submitted_the_list_says_where_they_are(cast, trials, browser):
    Job.objects.exclude(trial="2").update(deleted_at=timezone.now())
    page = browser("vera").get("/jobs/").content.decode()
    assert "Trials that are over are left out" in page and "/jobs/?trials=1" in page
    assert "No job" not in page
    page = browser("vera").get("/jobs/", {"owner": "nobody"}).content.decode()
    assert "No job fits these filters" in page and "trials=1" in page


def test_scripts_get_all_jobs_unless_they_leave_out_trials(cast, trials):
    vera = Client(headers={"authorization": f"Bearer {token_of(cast.vera)}"})

    def listed(**query):
        answer = vera.get("/api/v1/jobs", query)
        return [job["displayName"] for job in answer.json()["jobs"]]

    assert listed() == listed(trials="true") == ["trial-2", "trial-1", "plain"]
    assert listed(trials="false") == ["trial-1", "plain"]
    refused = vera.get("/api/v1/jobs", {"trials": "no"})
    assert refused.status_code == 400 and "true, false" in refused.json()["error"]["message"]


def test_a_label_is_found_with_the_other_filters(cast, labelled):
    assert names(shown(cast.vera, label="team", owner="bella")) == ["three"]
    assert names(shown(cast.vera, label="team=nlp", text="TW")) == ["two"]
    assert names(shown(cast.charlie, label="team=nlp")) == ["foreign"]


def test_a_label_is_found_by_its_index_and_no_spec_is_read(cast, labelled):
    with CaptureQueriesContext(connection) as asked:
        shown(cast.vera, label="team=nlp")
    searches = [
        query["sql"] for query in asked if "jobs_joblabel" in query["sql"] and "LIMIT" in query["sql"]
    ]
    assert searches and not [query for query in asked if '"spec"' in query["sql"]]
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            for sql in searches:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = " ".join(str(row[3]) for row in cursor.fetchall())
                assert "job_label" in plan and "SCAN jobs_joblabel" not in plan, plan


def some(project, cast, count=11):
    """Jobs of which several have equal names and equal numbers of GPUs."""
    return [a_job(project, cast.bob, name=f"job {n % 3}", gpu_count=n % 4).pk for n in range(count)]


ORDERS = {
    "": lambda job: -job.pk,
    "-created": lambda job: -job.pk,
    "created": lambda job: job.pk,
    "name": lambda job: (job.display_name, job.pk),
    "gpus": lambda job: (job.gpu_count, job.pk),
    "-gpus": lambda job: (-job.gpu_count, -job.pk),
    "nonsense": lambda job: -job.pk,
}


def pages(user, monkeypatch, way, sort):
    """All pages from one end to the other, each by the address that the page before names."""
    monkeypatch.setattr(job_list, "SIZE", 3)
    query, found = {"sort": sort}, []
    while True:
        page = shown(user, **query)
        found.append(page)
        address = getattr(page, way)
        if not address:
            return found
        query = asked_by(address)


@pytest.mark.parametrize("sort", ORDERS)
def test_pages_lead_back_as_they_led_forth(project, cast, monkeypatch, sort):
    some(project, cast)
    forth = pages(cast.vera, monkeypatch, "next", sort)
    ids = [[row.id for row in page.rows] for page in forth]
    assert sum(ids, []) == [job.pk for job in sorted(Job.objects.all(), key=ORDERS[sort])]
    assert [len(page) for page in ids] == [3, 3, 3, 2] and not forth[0].previous and not forth[0].first
    last = dict(parse_qsl(forth[-1].filters.address))
    back = [[row.id for row in forth[-1].rows]]
    page = shown(cast.vera, **last)
    while page.previous:
        page = shown(cast.vera, **asked_by(page.previous))
        back.append([row.id for row in page.rows])
    assert back == ids[::-1] and page.next == forth[0].next


def test_a_page_goes_on_behind_a_job_that_was_deleted_meanwhile(project, cast, monkeypatch):
    ids = some(project, cast)
    monkeypatch.setattr(job_list, "SIZE", 3)
    ordered = [job.pk for job in sorted(Job.objects.all(), key=ORDERS["-gpus"])]
    Job.objects.filter(pk=ordered[2]).update(deleted_at=Job.objects.get(pk=ids[0]).created_at)
    assert [row.id for row in shown(cast.vera, sort="-gpus", after=str(ordered[2])).rows] == ordered[3:6]


def test_a_foreign_job_is_no_place_in_the_list(project, cast):
    mine = some(project, cast, 3)
    foreign = a_job(cast.elsewhere, cast.charlie, name="zzz", gpu_count=1)
    found = shown(cast.vera, sort="gpus", after=str(foreign.pk))
    assert sorted(row.id for row in found.rows) == mine and not found.previous


def test_an_address_of_an_earlier_version_shows_what_it_showed(project, cast):
    ids = some(project, cast, 5)
    assert [row.id for row in shown(cast.vera, before=str(ids[3])).rows] == ids[2::-1]


def test_the_page_before_the_second_is_the_first_whole(project, cast, monkeypatch):
    """Jobs came since: the page that ends before the cursor would have a row or two."""
    ids = some(project, cast, 5)
    monkeypatch.setattr(job_list, "SIZE", 3)
    found = shown(cast.vera, ahead=str(ids[3]))
    assert [row.id for row in found.rows] == ids[:1:-1] and not found.previous and found.next


def states(totals):
    return {each.badge.value: (each.jobs, each.gpus) for each in totals.states}


def a_queue(project, cast):
    for n in range(5):
        a_job(project, cast.bob, name=f"waits {n}", state="QUEUED", gpu_count=8, labels={"team": "nlp"})
    a_job(project, cast.bella, name="runs", gpu_count=4)
    a_job(project, cast.bob, name="over", state="SUCCEEDED", gpu_count=2)
    a_job(cast.elsewhere, cast.charlie, name="foreign", state="QUEUED", gpu_count=64)


@pytest.mark.parametrize("size", [2, 50])
@pytest.mark.parametrize(
    ("query", "jobs", "gpus", "of_states"),
    [
        ({}, 7, 46, {"QUEUED": (5, 40), "RUNNING": (1, 4)}),
        ({"state": "QUEUED"}, 5, 40, {"QUEUED": (5, 40)}),
        ({"owner": "bob"}, 6, 42, {"QUEUED": (5, 40)}),
        ({"text": "waits", "sort": "name"}, 5, 40, {"QUEUED": (5, 40)}),
        ({"label": "team=nlp"}, 5, 40, {"QUEUED": (5, 40)}),
        ({"state": "FAILED"}, 0, 0, {}),
    ],
)
def test_totals_are_those_of_the_filter(project, cast, monkeypatch, size, query, jobs, gpus, of_states):
    a_queue(project, cast)
    monkeypatch.setattr(job_list, "SIZE", size)
    first = shown(cast.vera, **query)
    assert (first.totals.jobs, first.totals.gpus, states(first.totals)) == (jobs, gpus, of_states)
    assert not first.totals.more
    if first.next:
        assert shown(cast.vera, **asked_by(first.next)).totals == first.totals


def test_totals_never_contradict_the_rows_beside_them(project, cast, monkeypatch):
    """The sums of many jobs are kept for a while, but not when a row of the page changed."""
    a_queue(project, cast)
    monkeypatch.setattr(job_list, "SIZE", 2)
    assert states(shown(cast.vera).totals)["QUEUED"] == (5, 40)
    newest = Job.objects.filter(project=project).first()
    Job.objects.filter(pk=newest.pk).update(deleted_at=newest.created_at)
    Job.objects.filter(display_name="runs").update(state="CANCELLING")
    assert states(shown(cast.vera).totals) == {"QUEUED": (5, 40), "CANCELLING": (1, 4)}


def test_many_jobs_that_must_be_looked_at_one_by_one_are_counted_up_to_a_limit(project, cast, monkeypatch):
    a_queue(project, cast)
    monkeypatch.setattr(job_list, "SIZE", 2)
    monkeypatch.setattr(job_totals, "MAX_COUNTED", 4)
    totals = shown(cast.vera, text="waits").totals
    assert (totals.jobs, totals.more) == (4, True)
    assert shown(cast.vera).totals.jobs == 7, "without a text an index counts them all"


def test_people_of_other_projects_get_totals_of_their_own(project, cast, monkeypatch):
    a_queue(project, cast)
    monkeypatch.setattr(job_list, "SIZE", 0)
    assert job_totals.of_filters(cast.vera, Filters(), ()).jobs == 7
    assert job_totals.of_filters(cast.charlie, Filters(), ()).jobs == 1
    assert job_totals.of_filters(cast.root, Filters(), ()).jobs == 8


def test_the_stamp_changes_with_the_labels_and_the_totals(project, cast, monkeypatch):
    a_queue(project, cast)
    monkeypatch.setattr(job_list, "SIZE", 2)
    before = job_list.stamp(cast.vera, {})
    assert job_list.stamp(cast.vera, {}) == before
    newest = Job.objects.filter(project=project).first()
    JobLabel.objects.create(job=newest, project=project, key="new", value="")
    labelled = job_list.stamp(cast.vera, {})
    assert labelled != before
    Job.objects.filter(display_name="waits 0").update(state="RUNNING")
    shared_answers.forget_all()
    assert job_list.stamp(cast.vera, {}) != labelled


@pytest.mark.parametrize("sort", job_filters.SORTS)
def test_the_order_of_a_page_is_read_from_an_index(project, cast, sort):
    some(project, cast)
    with CaptureQueriesContext(connection) as asked:
        job_filters.page(cast.root, Filters(sort=sort), 3)
    [sql] = [query["sql"] for query in asked]
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            plan = " ".join(str(row[3]) for row in cursor.fetchall())
        assert "TEMP B-TREE" not in plan, plan
