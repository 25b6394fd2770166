"""The load of a host, as the dispatcher stores it: from an older runner, a hostile one, and without a lease."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.links import host_load
from agents.links.arrivals import arrivals
from agents.models import Host, HostLoad, Location

pytestmark = pytest.mark.django_db
REPORT = {
    "t": "load",
    "gpus": {"GPU-1": [37, 400, 71.2, 34], "GPU-2": [None, 7, None, None]},
    "cpu": 3.5,
    "mem_mb": 900,
    "net": [1000, 2000],
    "io": [3, 4],
}


@pytest.fixture
def host():
    return Host.objects.create(
        name="h1",
        location=Location.objects.get_or_create(name="default")[0],
        address="10.0.0.1",
        user="gpu",
        created_at=timezone.now(),
        status_since=timezone.now(),
        lease_token=7,
    )


def test_the_newest_report_replaces_the_one_before(host):
    now = timezone.now()
    host_load.record(host.pk, 7, REPORT, now - timedelta(seconds=30))
    assert host_load.record(host.pk, 7, {**REPORT, "cpu": 4}, now) is False
    row = HostLoad.objects.get()
    assert (row.host_id, row.at, row.cpu, row.memory_mb) == (host.pk, now, 4.0, 900)
    assert row.gpus == {"GPU-1": [37, 400, 71, 34], "GPU-2": [None, 7, None, None]}
    assert (row.net_rx, row.net_tx, row.io_read, row.io_write) == (1000, 2000, 3, 4)


def test_without_the_lease_nothing_is_stored(host):
    host_load.record(host.pk, 6, REPORT, timezone.now())
    assert not HostLoad.objects.exists()


def test_a_further_login_of_a_machine_is_not_asked(host):
    login = Host.objects.create(
        name="h1",
        machine=host,
        location=host.location,
        address="10.0.0.1",
        user="other",
        created_at=timezone.now(),
        status_since=timezone.now(),
        lease_token=7,
    )
    assert host_load.is_wanted(host.pk) and not host_load.is_wanted(login.pk)
    host_load.record(login.pk, 7, REPORT, timezone.now())
    assert not HostLoad.objects.exists()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"t": "load"},
        {"t": "load", "gpus": [], "cpu": "x", "mem_mb": -1, "net": 7, "io": [1]},
        {"t": "load", "gpus": {"GPU-1": [1, 2]}, "cpu": float("nan"), "net": [1e99, "x"], "io": [None, None]},
        {"t": "load", "gpus": {"GPU-\0": "x" * 10_000}, "cpu": True, "mem_mb": 1 << 60},
    ],
)
def test_nonsense_of_a_hostile_runner_becomes_nothing(host, nonsense):
    host_load.record(host.pk, 7, nonsense, timezone.now())
    row = HostLoad.objects.get()
    assert row.gpus == {} and row.cpu is None and row.memory_mb is None
    assert [row.net_rx, row.net_tx, row.io_read, row.io_write] == [None] * 4


def sample(**more):
    message = {
        "t": "sample",
        "run": "r1",
        "at": 1.0,
        "cpu": 1.0,
        "rss_mb": 1,
        "gpus": {"GPU-1": [5, 6]},
        **more,
    }
    [arrival] = arrivals(message, b"")
    return arrival.what


def test_samples_of_older_runners_are_read():
    found = sample()
    assert found.gpus == {"GPU-1": (5, 6)} and found.power == found.temperature == {}
    assert found.network == found.disks == (None, None)


def test_samples_have_power_temperature_and_traffic():
    found = sample(power={"GPU-1": 71.5, "GPU-2": None}, temp={"GPU-1": 34}, net=[1, 2], io=[3, 4])
    assert (found.power, found.temperature) == ({"GPU-1": 72}, {"GPU-1": 34})
    assert (found.network, found.disks) == ((1, 2), (3, 4))


def test_nonsense_in_a_sample_becomes_nothing():
    found = sample(power=["x"], temp={"GPU-1": 1e9}, net={"x": 1}, io=[-1, 2.5])
    assert found.power == found.temperature == {} and found.network == found.disks == (None, None)
