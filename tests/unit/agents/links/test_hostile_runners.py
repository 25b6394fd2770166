"""A job may replace the runner of its login. Whatever it then sends, its host is disconnected, and the others go on."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from pathlib import Path

import pytest

from agents.links import link
from agents.models import Host, HostEvent, HostStatus
from agents.ssh import install_runner
from tests.harness.wait_and_processes import wait_for
from tests.programs import hostile_runner
from tests.unit.agents.conftest import ready, row

pytestmark = pytest.mark.django_db(transaction=True)

# How long a link may take to find out, with all that is under its limits; and how long another host's run may take.
FOUND_OUT_S, OTHERS_S = 60.0, 10.0
MEMORY_MB = 150
SLOW = {"half a frame": "MESSAGE_S", "no inventory": "INVENTORY_S"}


@pytest.fixture
def hostile(machines):
    """hostile(flood) → the second machine, whose runner was replaced."""
    machine = machines[1]
    directory = machine.path(f"{machine.home}/.trainyard/bin")

    def replace(flood):
        directory.mkdir(parents=True, exist_ok=True)
        program = Path(hostile_runner.__file__).read_bytes()
        (directory / f"{install_runner.shipped_sha()}.pyz").write_bytes(program)
        machine.write(f"{machine.home}/.flood", flood)
        return machine

    yield replace
    shutil.rmtree(directory)


def status(host):
    return Host.objects.get(pk=host.pk).status


def resident_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.mark.parametrize("flood", [*hostile_runner.FLOODS, *hostile_runner.REPEATED])
def test_a_flood_ends_the_link_with_its_reason_and_other_hosts_go_on(
    hostile, machines, machine, key, control_plane, start_fleet, monkeypatch, flood
):
    if flood in SLOW:
        monkeypatch.setattr(link, SLOW[flood], 3.0)
    honest = row(machine)
    fleet = start_fleet(key, control_plane)
    ready(fleet)
    grown_from = resident_mb()
    bad = row(hostile(flood))
    fleet.poke([bad.pk])
    # Some floods are found out before anybody can look at the link.
    wait_for(
        lambda: (
            (bad.pk in fleet._hosts and fleet._hosts[bad.pk]._link) or status(bad) == HostStatus.MISBEHAVING
        ),
        "the hostile host to be dialled",
    )
    began, run = time.monotonic(), f"r-{secrets.token_hex(4)}"
    control_plane.start_on(honest.pk, run, "echo", "done")
    fleet.poke([honest.pk])
    wait_for(lambda: control_plane.done(run), "a run of the other host")
    assert time.monotonic() - began < OTHERS_S
    wait_for(lambda: status(bad) == HostStatus.MISBEHAVING, "the host to be disconnected", FOUND_OUT_S)
    assert resident_mb() - grown_from < MEMORY_MB
    [line] = HostEvent.objects.filter(host=bad, kind="misbehaving")
    assert "broke the protocol" in line.text or flood == "no inventory"
    assert line.text == Host.objects.get(pk=bad.pk).last_error
    logins = machines[1].sshd_log().count("publickey")
    assert logins
    time.sleep(2.0)
    assert machines[1].sshd_log().count("publickey") == logins, "it is left alone for a minute"


def test_news_that_comes_without_end_holds_no_worker_thread(machine, key, control_plane, start_fleet):
    """Each piece of news brings the next: a worker thread takes what was there when its turn began."""
    host = row(machine)
    fleet = start_fleet(key, control_plane, worker_threads=1)
    ready(fleet)
    [thread] = fleet._hosts.values()
    over = threading.Event()

    def news():
        if not over.is_set():
            thread._status_updates.append(news)
        return False

    thread._status_updates.append(news)
    try:
        run = f"r-{secrets.token_hex(4)}"
        control_plane.start(run, "echo", "done")
        fleet.poke([host.pk])
        wait_for(lambda: control_plane.done(run), "a run, beside the news", timeout=30)
    finally:
        over.set()
