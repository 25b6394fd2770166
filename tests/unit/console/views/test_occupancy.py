"""The occupancy of GPUs: lanes are what runs held; names are for those who may see the job; pages stay small."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from agents.infra import shared_answers
from agents.models import HostEvent, Location
from console.presenters.hosts.occupancy_lanes import Held, _path, _times
from console.presenters.hosts.occupancy_window import Window
from jobs.host_sync import location_hours
from jobs.models import HostMaintenance, LocationBinding, Usage
from tests.unit.console.views.example_rows import a_host, a_job, a_run
from tests.unit.jobs.rules.views import examples

PAGE, HOUR = "/hosts/occupancy", timedelta(hours=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def now(monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOON)
    return NOON


@pytest.fixture
def cluster(project, cast, now):
    """Two of four GPUs were held for six hours by Bob, one is held for an hour by a job of another project."""
    long_ago = now - timedelta(days=90)
    host = a_host(name="gpu-a", gpus=4, status_since=long_ago)
    a_host(name="gpu-b", gpus=2, status_since=long_ago)
    a_host(name="without-gpus", status_since=long_ago)
    gpus = list(host.gpus.order_by("index"))
    over = a_job(project, cast.bob, name="bert", state="SUCCEEDED")
    hold(over, host, gpus[:2], now - 12 * HOUR, now - 6 * HOUR)
    hold(a_job(cast.elsewhere, cast.charlie, name="secret-x"), host, gpus[2:3], now - HOUR, None)
    return host, over


def hold(job, host, gpus, since, until):
    uuids = [gpu.uuid for gpu in gpus]
    run = a_run(job, job.replicas.get(), host, gpus=() if until else gpus, gpu_uuids=uuids)
    type(run).objects.filter(pk=run.pk).update(created_at=since, started_at=since, released_at=until)
    if until:
        Usage.objects.create(
            run=run,
            job=job,
            project=job.project,
            owner_name=job.owner_name,
            gpus=len(uuids),
            cpus=1,
            began_at=since,
            ended_at=until,
        )


def shown(client, **query):
    return client.get(PAGE, query).context["occupancy"]


def test_a_host_is_a_lane_with_how_much_of_it_was_held(browser, cluster):
    found = shown(browser("root"))
    assert [(lane.name, lane.percent) for lane in found.lanes] == [
        ("gpu-a", round(100 * 13 / 96)),
        ("gpu-b", 0),
    ]
    assert found.lanes[0].path.startswith("M0 10H5") and found.lanes[1].path == ""


def test_a_gpu_is_a_lane_with_a_bar_for_each_job_that_leads_to_it(browser, cluster):
    _, over = cluster
    found = shown(browser("root"), host="gpu-a")
    bars = [[(bar.x, bar.width, bar.url) for bar in lane.bars] for lane in found.lanes]
    assert bars[0] == bars[1] == [(500, 250, f"/jobs/{over.pk}/")]
    assert bars[2][0][0] == 958 and bars[3] == []
    assert "bert · bob · 2026-11-20 00:00 – 2026-11-20 06:00 UTC" in found.lanes[0].bars[0].words


@pytest.mark.parametrize(
    "query", [{}, {"host": "gpu-a"}, {"host": "gpu-a", "view": "table"}, {"view": "table"}]
)
def test_names_are_for_those_who_may_see_the_job(browser, cluster, query):
    page = browser("vera").get(PAGE, query).content.decode()
    assert "secret-x" not in page and "charlie" not in page
    assert "host" not in query or ("bert" in page and "a job of a project that is not yours" in page)
    told = b"".join(browser("vera").get(f"{PAGE}.csv", query).streaming_content).decode()
    assert "secret-x" not in told and "charlie" not in told and "bert" in told


def test_the_csv_has_every_run(browser, cluster):
    _, over = cluster
    text = b"".join(browser("root").get(f"{PAGE}.csv").streaming_content).decode()
    rows = list(csv.DictReader(text.splitlines()))
    assert rows[0] == {
        "host": "gpu-a",
        "gpus": "2",
        "job": str(over.pk),
        "name": "bert",
        "project": "default",
        "user": "bob",
        "held_from": "2026-11-20T00:00:00Z",
        "held_until": "2026-11-20T06:00:00Z",
    }
    assert len(rows) == 2 and rows[1]["held_until"] == ""


def test_the_csv_of_the_page_of_one_host_has_that_host_alone(browser, cluster, project, cast, now):
    other = a_host(name="gpu-a0", gpus=1)
    hold(a_job(project, cast.bob, name="other"), other, list(other.gpus.all()), now - HOUR, None)

    def told(**query):
        link = shown(browser("root"), **query).csv
        rows = csv.DictReader(b"".join(browser("root").get(link).streaming_content).decode().splitlines())
        return {row["host"] for row in rows}

    assert told(host="gpu-a") == {"gpu-a"}
    assert told(host="gpu-") == {"gpu-a", "gpu-a0"}, "of a part of a name, all that the page shows"


def test_what_a_login_held_stays_after_it_was_taken_out_of_service(browser, cluster, project, cast, now):
    host, _ = cluster
    login = a_host(name=host.name, user="train-x", machine=host)
    gpus = list(host.gpus.filter(index=3))
    hold(
        a_job(project, cast.bob, name="by-login", state="SUCCEEDED"), login, gpus, now - 2 * HOUR, now - HOUR
    )
    before = shown(browser("root"), host="gpu-a").lanes[3].percent
    type(login).objects.filter(pk=login.pk).update(retired_at=now)
    assert shown(browser("root"), host="gpu-a").lanes[3].percent == before == round(100 / 24)


def test_filters_and_time_are_in_the_address(browser, cluster):
    root = browser("root")
    assert [lane.name for lane in shown(root, host="b").lanes] == ["gpu-b"]
    assert shown(root, location="nowhere").lanes == ()
    assert shown(root, project="elsewhere").lanes[0].percent == round(100 / 96)
    assert shown(browser("vera"), project="elsewhere").filters.project == ""
    month = shown(root, span="month", at="2026-11-01", host="gpu-a")
    assert month.window.start == datetime(2026, 11, 1, tzinfo=UTC) and month.later == ""
    assert "span=month" in month.earlier and "at=2026-10-02" in month.earlier and "host=gpu-a" in month.csv
    for wrong in ("2026-13-01", "x", "0001-01-01", "9999-12-31", "2027-01-01"):
        assert shown(root, at=wrong).window.first == ""


def test_a_host_that_was_closed_or_silent_says_when(browser, cluster, now):
    host, _ = cluster
    for hours, kind in ((10, "cordoned"), (8, "uncordoned"), (5, "unreachable"), (4, "checking"), (4, "up")):
        HostEvent.objects.create(host=host, at=now - hours * HOUR, kind=kind, text="", actor="root")
    other = type(host).objects.get(name="gpu-b")
    HostMaintenance.objects.create(host=other, cordoned=True, cordoned_at=now - 2 * HOUR)
    first, second = shown(browser("root")).lanes
    assert [(each.kind, each.x, each.width) for each in first.shades] == [
        ("closed", 583, 84),
        ("silent", 792, 41),
    ]
    assert [(each.kind, each.until) for each in second.shades] == [("closed", None)]


def test_jobs_too_short_to_be_seen_are_one_bar(browser, cluster, project, cast, now):
    host, _ = cluster
    gpu = host.gpus.get(index=3)
    for number in range(40):
        since = now - 3 * HOUR + number * timedelta(seconds=20)
        hold(a_job(project, cast.bob, name="tiny"), host, [gpu], since, since + timedelta(seconds=10))
    bars = shown(browser("root"), host="gpu-a").lanes[3].bars
    assert len(bars) < 12 and sum(bar.url == "" for bar in bars) >= 1
    assert any("short runs" in bar.words for bar in bars)


def test_the_number_of_queries_does_not_grow(browser, cluster, project, cast, now):
    root, counts = browser("root"), []
    for more in (0, 10):
        for number in range(more):
            host = a_host(name=f"gpu-c{number}", gpus=2)
            hold(a_job(project, cast.bob, name="more"), host, list(host.gpus.all()), now - HOUR, None)
        for query in ({}, {"host": "gpu-a"}, {"view": "table"}):
            shared_answers.forget_all()
            with CaptureQueriesContext(connection) as asked:
                root.get(PAGE, query)
            counts.append(len(asked))
    assert counts[:3] == counts[3:]


def test_each_location_and_all_of_them_have_a_lane(browser, cluster, project, cast, now):
    east = Location.objects.create(name="east")
    host = a_host(name="gpu-e", gpus=2, location=east, status_since=now - timedelta(days=90))
    hold(a_job(project, cast.bob, name="long"), host, list(host.gpus.all()), now - 25 * HOUR, None)
    root = browser("root")
    assert shown(root).sums == (), "no hour is summed yet"
    location_hours.sum_hours(now + timedelta(minutes=5))
    shared_answers.forget_all()
    lanes = shown(root).sums
    held = 12 + 1, 2 * 24
    assert [(lane.name, lane.words) for lane in lanes] == [
        ("All hosts", f"{round(100 * sum(held) / (8 * 24))} % of 8 GPUs held"),
        ("default", f"{round(100 * held[0] / (6 * 24))} % of 6 GPUs held"),
        ("east", "100 % of 2 GPUs held"),
    ]
    assert lanes[2].path == "M0 10H0V0H1000V10Z" and "location=east" in lanes[2].url
    assert [lane.name for lane in shown(root, location="east").sums] == ["east"]
    for narrowed in ({"host": "gpu-a"}, {"project": "default"}, {"after": "gpu-a"}):
        assert shown(root, **narrowed).sums == ()
    month = shown(root, span="month").sums[2]
    assert month.percent == round(100 * 25 / (24 * 30)) and month.path == "M0 10H955V9H966V0H1000V10Z"
    table = root.get(PAGE, {"view": "table"}).content.decode()
    assert "All hosts" in table and "100 % of 2 GPUs held" in table


def test_a_location_of_others_is_not_in_the_sums(browser, cluster, cast, now):
    closed = Location.objects.create(name="closed")
    a_host(name="gpu-x", gpus=2, location=closed)
    LocationBinding.objects.create(location=closed, project=cast.elsewhere)
    location_hours.sum_hours(now)
    assert [lane.name for lane in shown(browser("root")).sums] == ["All hosts", "closed", "default"]
    assert [(lane.name, lane.words[-16:]) for lane in shown(browser("vera")).sums] == [
        ("default", "% of 6 GPUs held")
    ]
    assert "closed" not in browser("vera").get(PAGE).content.decode().split("</select>")[0]


def test_many_hosts_come_in_pages(browser, cluster):
    for number in range(30):
        a_host(name=f"gpu-c{number:02}", gpus=1)
    root = browser("root")
    first = shown(root)
    assert len(first.lanes) == 25 and first.next
    second = root.get(first.next).context["occupancy"]
    assert [lane.name for lane in second.lanes] == [f"gpu-c{number:02}" for number in range(23, 30)]


@pytest.mark.parametrize(("person", "status"), [("vera", 200), ("loner", 404)])
@pytest.mark.parametrize("page", [PAGE, f"{PAGE}.csv"])
def test_people_without_a_project_see_no_hosts(browser, cluster, person, status, page):
    assert browser(person).get(page).status_code == status


# -- geometry --

spans = st.lists(
    st.tuples(st.integers(-2_000, 1_500), st.integers(1, 1_500), st.integers(1, 3), st.booleans()), max_size=8
)


@examples(100)
@given(spans)
def test_lanes_are_the_claims(drawn):
    """The area of a lane, and its percentage, are those of the claims, minute by minute."""
    window = Window.of("day", "", NOON)
    held = [
        Held(1, ("u",) * gpus, n, "", "", "", window.start + timedelta(minutes=since), None,
             None if open_ else window.start + timedelta(minutes=since + lasts))
        for n, (since, lasts, gpus, open_) in enumerate(drawn)
    ]  # fmt: skip
    minutes = [window.start + timedelta(minutes=n, seconds=30) for n in range(24 * 60 - 1)]
    slow = sum(
        len(each.uuids) * (each.since <= minute and (each.until is None or minute < each.until))
        for each in held
        for minute in minutes
    ) / len(minutes)
    share = sum(len(each.uuids) * window.share(each.since, each.until) for each in held)
    assert share == pytest.approx(slow, abs=0.02 * (1 + sum(len(each.uuids) for each in held)))
    path = _path(held, 8, window)
    assert (path == "") == (slow * 10 / 8 < 0.0001) or slow < 1


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=8), st.booleans())
def test_times_alternate_and_lie_in_the_window(changes, now):
    window = Window.of("day", "", NOON)
    moments = sorted((window.start + timedelta(minutes=at), is_true) for at, is_true in changes)
    found = list(_times(moments, now, window.start - HOUR, window))
    ends = [end for _, end in found[:-1]]
    assert None not in ends and all(since >= window.start for since, _ in found)
    assert all(end <= after for end, (after, _) in zip(ends, found[1:], strict=True))
