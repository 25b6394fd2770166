"""The map of GPUs shows how busy each one is; an admin selects hosts in it and acts on all of them."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Host, HostLoad, HostStatus
from console.presenters.hosts import gpu_map, host_selection
from jobs.models import AuditEntry, HostMaintenance, Run
from tests.unit.console.views.example_rows import a_host, a_job, a_run, one_line

BULK = "/hosts/bulk"


def a_load(host, *gpus, age_s=5, **more):
    """`gpus`: percent, MiB, W and °C of each."""
    HostLoad.objects.create(
        host=host,
        at=timezone.now() - timedelta(seconds=age_s),
        gpus={gpu.uuid: list(load) for gpu, load in zip(host.gpus.order_by("index"), gpus, strict=False)},
        **more,
    )


def cells(client, query=""):
    return {host.name: host.cells for host in client.get(f"/hosts/gpus{query}").context["map"].hosts}


@pytest.fixture
def busy(project, cast):
    host = a_host(name="gpu-a", gpus=3)
    job = a_job(project, cast.bob, name="train-x")
    a_run(job, job.replicas.get(), host, gpus=[host.gpus.get(index=0)])
    a_load(
        host, (93, 20_000, 640, 71), (0, 4, 70, 34), cpu=3.25, memory_mb=8192, net_rx=1_250_000, net_tx=900
    )
    return host


def test_load_and_memory_are_shown_as_colour_and_in_words(browser, busy):
    page = browser("vera").get("/hosts/gpus")
    first, second, third = cells(browser("vera"))["gpu-a"]
    assert (first.load, first.memory, first.power, first.temperature) == (93, 81, 640, 71)
    assert (
        first.looks == "load-4 memory-8" and second.looks == "load-0 memory-0" and third.looks == "load-none"
    )
    assert first.words.endswith("of default, load 93 %, memory 20 GiB of 24 GiB, 640 W, 71 °C")
    text = one_line(page.text)
    assert "3.2 of 16 CPUs · 8.0 GiB of 64 GiB memory · network 1.25 MB/s in, 900 B/s out" in text
    assert re.search(
        r'class="gpu tone-live state-held load-4 memory-8" href="/jobs/\d+/" title="[^"]*"[^>]*>93 %<', text
    )
    assert 'id="heat-legend"' in text and "bob · default" in text


def test_the_table_says_the_same_without_colours(browser, busy):
    text = one_line(browser("vera").get("/hosts/gpus?view=table").text)
    row = text[text.index('<tbody id="gpus-of-') :].split("</tr>")[0]
    for said in ("Held by a job", "93 %", "20 GiB of 24 GiB", "640 W", "71 °C", ">train-x</a>", ">bob<"):
        assert said in row
    assert 'id="heat-legend"' not in text and "view=table" in text


def test_an_old_load_is_no_load(browser, busy):
    root = User.objects.get(username="root")
    before = gpu_map.stamp(root)
    HostLoad.objects.update(at=timezone.now() - timedelta(seconds=101))
    assert gpu_map.stamp(root) != before
    assert {cell.load for cell in cells(browser("vera"))["gpu-a"]} == {None}


def test_a_new_load_changes_the_page_every_ten_seconds(busy):
    root = User.objects.get(username="root")
    start = timezone.now().replace(second=30, microsecond=0) - timedelta(minutes=1)
    stamps = []
    for seconds in (0, 9, 10):
        HostLoad.objects.update(at=start + timedelta(seconds=seconds))
        stamps.append(gpu_map.stamp(root))
    assert stamps[0] == stamps[1] != stamps[2]


def test_badges_say_what_is_wrong_with_a_host(browser, busy):
    a_host(name="gpu-b", gpus=1, status=HostStatus.UNREACHABLE)
    HostMaintenance.objects.create(
        host=busy, cordoned=True, drain_at=timezone.now(), cordon_message="new disk"
    )
    hosts = {host.name: host for host in browser("vera").get("/hosts/gpus").context["map"].hosts}
    assert [badge.value for badge in hosts["gpu-a"].badges] == ["drained"] and hosts[
        "gpu-a"
    ].note == "new disk"
    assert [badge.value for badge in hosts["gpu-b"].badges] == ["unreachable"]
    Run.objects.update(held=True)
    assert cells(browser("vera"))["gpu-a"][0].state.value == "reserved"


def test_filters_choose_hosts(browser, busy):
    a_host(name="gpu-b", gpus=1, status=HostStatus.UNREACHABLE)
    HostMaintenance.objects.create(host=a_host(name="other", gpus=1), cordoned=True)
    a_host(name="no-gpu")
    vera = browser("vera")
    found = {
        query: list(cells(vera, f"?{query}"))
        for query in ("show=held", "show=free", "show=trouble", "text=GPU")
    }
    assert found == {
        "show=held": ["gpu-a"],
        "show=free": ["gpu-a"],
        "show=trouble": ["gpu-b"],
        "text=GPU": ["gpu-a", "gpu-b"],
    }
    assert list(cells(vera, "?show=closed")) == ["gpu-b", "other"]
    assert "No host matches these filters." in vera.get("/hosts/gpus?text=zz").text
    shown = vera.get("/hosts/gpus?text=gpu&show=held&view=table").context["map"].filters
    assert shown.as_map == "/hosts/gpus?text=gpu&show=held"
    assert len(cells(vera, "?show=nonsense&view=x&type=y&location=\0")) == 3
    assert len(cells(vera, "?location=nowhere")) == 0


def test_the_query_count_is_the_same_for_many_hosts(browser, busy):
    vera = browser("vera")
    vera.get("/hosts/gpus")
    with CaptureQueriesContext(connection) as few:
        vera.get("/hosts/gpus")
    for number in range(24):
        a_load(a_host(name=f"more-{number:02}", gpus=8), *[(number, 100, 50, 40)] * 8)
    with CaptureQueriesContext(connection) as many:
        answer = vera.get("/hosts/gpus")
    assert sum(len(host.cells) for host in answer.context["map"].hosts) == 24 * 8 + 3
    assert len(many) == len(few) < 25


# Select many


def hidden(page, name):
    return [html.unescape(found) for found in re.findall(rf'name="{name}" value="([^"]*)"', page.text)]


def confirm(client, page, **more):
    """Send the form of the page as a browser does."""
    act = re.search(r'name="act"\s+value="(\w+)"', page.text)[1]
    fields = {name: hidden(page, name) for name in ("host", "filters", "confirm")}
    return client.post(BULK, {**fields, "act": act, **more}, follow=True)


def cordoned():
    return sorted(HostMaintenance.objects.filter(cordoned=True).values_list("host__name", flat=True))


@pytest.fixture
def three(db):
    return [a_host(name=f"gpu-{letter}", gpus=1) for letter in "abc"]


def test_admins_have_boxes_and_acts(browser, cast, three):
    text = one_line(browser("root").get("/hosts/gpus").text)
    assert f'name="host" value="{three[0].pk}" form="host-acts"' in text
    for act in ("cordon", "drain", "uncordon", "check"):
        assert f'name="act" value="{act}"' in text
    other = browser("vera").get("/hosts/gpus").text
    assert 'name="host"' not in other and 'name="act"' not in other


def test_selected_hosts_are_cordoned_after_a_look(browser, cast, three):
    root = browser("root")
    page = root.post(
        BULK, {"act": "cordon", "host": [three[0].pk, three[2].pk], "filters": "text=gpu&view=table"}
    )
    assert "Cordon 2 hosts" in one_line(page.text) and cordoned() == []
    after = confirm(root, page, message="new disks")
    assert cordoned() == ["gpu-a", "gpu-c"] and "2 hosts take no new jobs." in after.text
    assert after.redirect_chain == [("/hosts/gpus?text=gpu&view=table", 302)]
    assert set(HostMaintenance.objects.values_list("cordon_message", "cordoned_by")) == {
        ("new disks", "root")
    }
    acts = AuditEntry.objects.filter(what="host.cordon").values_list("actor", "subject")
    assert sorted(acts) == [("root", "gpu-a"), ("root", "gpu-c")]
    confirm(root, root.post(BULK, {"act": "uncordon", "all": "1"}))
    assert cordoned() == []


def test_a_drain_asks_for_a_deadline_that_it_understands(browser, cast, three):
    root = browser("root")
    page = root.post(BULK, {"act": "drain", "host": [host.pk for host in three]})
    refused = confirm(root, page, deadline="soon")
    assert "Drain 3 hosts" in one_line(refused.text) and cordoned() == []
    assert refused.context["form"].errors["deadline"]
    confirm(root, refused, deadline="2h", force="on", message="new disks")
    rows = HostMaintenance.objects.values_list("drain_force", "cordon_message")
    assert list(rows) == [(True, "new disks")] * 3 and len(cordoned()) == 3


def test_a_check_makes_the_hosts_due(browser, cast, three):
    root = browser("root")
    confirm(root, root.post(BULK, {"act": "check", "host": [three[1].pk]}))
    assert list(Host.objects.exclude(due_at=None).values_list("name", flat=True)) == ["gpu-b"]
    assert AuditEntry.objects.filter(what="host.check").values_list("subject", flat=True).get() == "gpu-b"


def test_all_of_the_list_means_all_pages_of_the_filter(browser, cast, three, monkeypatch):
    monkeypatch.setattr(gpu_map, "SIZE", 1)
    a_host(name="other", gpus=1)
    page = browser("root").post(BULK, {"act": "cordon", "all": "1", "filters": "text=gpu&after=gpu-b"})
    assert len(hidden(page, "host")) == 3
    monkeypatch.setattr(host_selection, "MOST", 2)
    page = browser("root").post(BULK, {"act": "cordon", "all": "1", "filters": "text=gpu"})
    assert len(hidden(page, "host")) == 2 and "These are the first 2" in one_line(page.text)


def test_what_makes_no_sense_changes_nothing(browser, cast, three):
    root = browser("root")
    for sent in (
        {"act": "explode", "host": [three[0].pk]},
        {"act": "cordon"},
        {"act": "cordon", "host": ["x", "9" * 30]},
    ):
        assert root.post(BULK, sent).status_code == 302
    page = root.post(BULK, {"act": "cordon", "host": [three[0].pk], "confirm": "2"})
    assert page.status_code == 200 and cordoned() == []


@pytest.mark.parametrize("who", ["vera", "bob", "charlie"])
def test_only_admins_act_on_hosts(browser, cast, three, who):
    answer = browser(who).post(BULK, {"act": "cordon", "host": [three[0].pk], "confirm": "1", "message": ""})
    assert answer.status_code == 403 and cordoned() == []
