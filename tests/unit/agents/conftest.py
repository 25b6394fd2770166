"""A real sshd on a loopback port, our key, and the host's row."""

from __future__ import annotations

import secrets

import paramiko
import pytest
from django.utils import timezone

from agents.hosts.checklist import NEEDED
from agents.links import fleet as fleets
from agents.models import Host, HostStatus, Location
from agents.ssh.targets import Target
from tests.harness.hosts import Fleet as Machines
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.memory_control_plane import MemoryControlPlane


@pytest.fixture(scope="module")
def machines():
    """Two machines for the tests of one file. Each test leaves them as it found them."""
    with Machines(2, tier="ports") as found:
        yield found


@pytest.fixture
def machine(machines):
    return machines[0]


@pytest.fixture
def own_machine():
    """A machine for one test, which may cut it off, reset it and give it other keys."""
    with Machines(1, tier="ports") as found:
        yield found[0]


@pytest.fixture
def key(machines):
    return key_of(machines)


@pytest.fixture
def key_text(machines):
    """The same key as OpenSSH writes it."""
    return machines.key.read_text()


def key_of(machines):
    return paramiko.Ed25519Key.from_private_key_file(str(machines.key))


def target(machine, **changes):
    known = {
        "name": machine.name,
        "address": machine.address,
        "port": machine.port,
        "user": machine.user,
        "pinned_key": machine.host_key_line,
    }
    return Target(**{**known, **changes})


def row(machine, **changes):
    """The machine as a host that has passed its checks."""
    known = {
        "name": machine.name,
        "location": Location.objects.get_or_create(name="default")[0],
        "address": machine.address,
        "port": machine.port,
        "user": machine.user,
        "pinned_key": machine.host_key_line,
        "created_at": timezone.now(),
        "status": HostStatus.UP,
        "status_since": timezone.now(),
        "checklist": [{"name": name, "ok": True, "text": "", "fix": ""} for name in sorted(NEEDED)],
    }
    return Host.objects.create(**{**known, **changes})


def settings(**changes):
    known = {
        "deployment": f"t-{secrets.token_hex(4)}",
        "lease_s": 15.0,
        "tick_s": 0.2,
        "dead_s": 9.0,
        "worker_threads": 2,
    }
    return fleets.FleetSettings(**{**known, **changes})


@pytest.fixture
def start_fleet():
    """start_fleet(key, control_plane, name=, **settings) → a running Fleet, stopped at the end."""
    started = []

    def start(key, control_plane, name="one", **changes):
        fleet = fleets.Fleet(control_plane, name, settings(**changes), lambda: key)
        fleet.start()
        started.append(fleet)
        return fleet

    yield start
    for fleet in started:
        fleet.stop()


@pytest.fixture
def control_plane():
    control_plane = MemoryControlPlane()
    yield control_plane
    control_plane.gate.set()


def ready(fleet, count=1):
    wait_for(lambda: len(fleet.ready()) >= count, f"{count} links to be ready")
