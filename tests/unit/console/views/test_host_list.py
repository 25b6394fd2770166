"""The list of hosts: filtered and sorted by every column, paged by a cursor, selected."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Host, HostStatus, Location
from console.presenters.hosts import host_filters, host_list
from console.presenters.hosts.host_filters import SORTED, Filters
from jobs.models import HostMaintenance, Run
from tests.unit.console.views.example_rows import a_host, a_job, a_run

# name → (cpus, memory GiB, disk GiB, location, status)
HOSTS = {
    "a": (8, 64, 900, "lab-a", HostStatus.UP),
    "b": (32, 16, None, "lab-b", HostStatus.UNREACHABLE),
    "c": (8, 128, 20, "lab-a", HostStatus.UP),
    "d": (16, 128, 300, "lab-b", HostStatus.UNUSABLE),
}


@pytest.fixture
def hosts(project, cast):
    """On c runs a job with two GPUs, on a one without."""
    found = {}
    for name, (cpus, memory, disk, location, status) in HOSTS.items():
        found[name] = a_host(
            name,
            status,
            gpus=3,
            cpus=cpus,
            memory_mb=memory * 1024,
            free_disk_mb=None if disk is None else disk * 1024,
            location=Location.objects.get_or_create(name=location)[0],
        )
    job = a_job(project, cast.bob, replicas=2)
    first, second = job.replicas.order_by("pool")
    gpus = list(found["c"].gpus.order_by("index")[:2])
    a_run(job, first, found["c"], gpus=gpus, gpu_uuids=[gpu.uuid for gpu in gpus])
    a_run(job, second, found["a"], gpus=[], gpu_uuids=[])
    found["d"].gpus.update(accelerator_type="NVIDIA_H100_80GB")
    return found


def names(browser, query=""):
    return [row.name for row in browser("vera").get(f"/hosts/?{query}").context["list"].rows]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", "abcd"),
        ("-name", "dcba"),
        ("cpus", "acdb"),
        ("-cpus", "bdac"),
        ("memory", "bacd"),
        ("-memory", "cdab"),
        ("disk", "bcda"),
        ("-disk", "adcb"),
        ("location", "acbd"),
        ("-location", "bdac"),
        ("-runs", "acbd"),
        ("-gpus", "cabd"),
        ("status", "acbd"),
        ("nonsense", "abcd"),
    ],
)
def test_each_column_sorts_and_equal_hosts_stay_by_name(browser, hosts, sort, order):
    assert names(browser, f"sort={sort}") == list(order)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("cpus=16", "bd"),
        ("memory=65", "cd"),
        ("disk=300", "ad"),
        ("use=busy", "ac"),
        ("use=idle", "bd"),
        ("type=NVIDIA_H100_80GB", "d"),
        ("location=lab-a&status=up&disk=100", "a"),
        ("text=B", "b"),
        ("cpus=x&memory=-1&use=no&type=", "abcd"),
        ("disk=99999999999999999999", "abcd"),
    ],
)
def test_each_column_filters_and_a_value_that_makes_no_sense_does_not(browser, hosts, query, left):
    assert names(browser, query) == list(left)


@pytest.mark.parametrize("sort", sorted(host_filters.SORTS))
def test_pages_of_every_order_have_each_host_once(cast, hosts, monkeypatch, sort):
    monkeypatch.setattr(host_list, "SIZE", 1)
    whole = host_filters.page_of(host_filters.found(cast.vera, Filters()), Filters(sort=sort), 99)[0]
    query, seen = {"sort": sort}, []
    for _ in HOSTS:
        page = host_list.host_list(cast.vera, query)
        seen += [row.id for row in page.rows]
        query = {"sort": sort, "after": dict(_query(page.next)).get("after", "")}
    assert seen == whole and not page.next and page.first


def _query(address):
    from urllib.parse import parse_qsl

    return parse_qsl(address.partition("?")[2])


def test_a_wrong_cursor_shows_the_first_page(browser, hosts):
    for after in ("x", "9.9.9", "99999999999999999999.a"):
        assert browser("vera").get(f"/hosts/?sort=-cpus&after={after}").status_code == 200
    assert names(browser, "sort=-cpus&after=x") == list("bdac")


def test_heads_of_columns_keep_the_filters_and_turn_the_order(browser, hosts):
    page = browser("vera").get("/hosts/?sort=-cpus&location=lab-b")
    sorts = page.context["list"].sorts
    assert sorts["cpus"].aria == "descending" and set(sorts) == set(SORTED)
    assert sorts["cpus"].url == "/hosts/?location=lab-b&sort=cpus"
    assert sorts["name"].url == "/hosts/?location=lab-b" and not sorts["name"].aria
    assert 'aria-sort="descending"' in page.content.decode()


def test_the_list_of_a_thousand_hosts_takes_the_same_queries(cast, hosts):
    def count(sort):
        with CaptureQueriesContext(connection) as made:
            host_list.host_list(cast.root, {"sort": sort})
            host_list.stamp(cast.root, {"sort": sort})
        return len(made)

    few = {sort: count(sort) for sort in SORTED}
    place, now = Location.objects.get(name="lab-a"), timezone.now()
    Host.objects.bulk_create(
        Host(
            name=f"node-{number:04}",
            location=place,
            address="x",
            user="gpu",
            created_at=now,
            status_since=now,
        )
        for number in range(1000)
    )
    assert {sort: count(sort) for sort in SORTED} == few and max(few.values()) <= 22


def test_the_stamp_changes_with_the_order_of_the_page(cast, hosts):
    query = {"sort": "-runs"}
    before = host_list.stamp(cast.root, query)
    Run.objects.filter(host=hosts["a"]).update(released_at=timezone.now())
    assert host_list.stamp(cast.root, query) != before


def test_hosts_are_selected_in_the_list_and_cordoned_together(browser, hosts):
    root = browser("root")
    page = root.get("/hosts/?sort=-cpus").content.decode()
    assert page.count('form="host-acts"') == 4 and 'name="list" value="hosts"' in page
    assert 'form="host-acts"' not in browser("vera").get("/hosts/").content.decode()
    chosen = {"list": "hosts", "filters": "location=lab-a&sort=-cpus", "all": "1", "act": "cordon"}
    asked = root.post("/hosts/bulk", chosen)
    assert [host.name for host in asked.context["hosts"]] == ["a", "c"] and asked.context["of_list"]
    done = root.post("/hosts/bulk", {**chosen, "confirm": "2", "message": "moving"})
    assert done["Location"] == "/hosts/?location=lab-a&sort=-cpus"
    assert set(HostMaintenance.objects.filter(cordoned=True).values_list("host__name", flat=True)) == {
        "a",
        "c",
    }
