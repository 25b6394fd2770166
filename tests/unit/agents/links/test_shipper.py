"""Files are shipped to several hosts at once, each once, and again after whatever failed. Real sshds."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from pathlib import Path

import pytest

from agents.links import pace
from agents.links import shipper as shipping
from agents.links.shipper import Shipment, Shipper
from agents.ssh.put import Blob, Rate
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.conftest import target

DATA = random.Random(3).randbytes(2 << 20)  # noqa: S311
SHA = hashlib.sha256(DATA).hexdigest()


class Reads:
    """The console's copy of a file. `hold` makes it stop in the middle."""

    def __init__(self, data=DATA):
        self.data, self.starts = data, []
        self.hold, self.reached, self.go_on = False, threading.Event(), threading.Event()

    def __call__(self, start):
        self.starts.append(start)
        middle = max(start, len(self.data) // 2)
        yield self.data[start:middle]
        if self.hold:
            self.reached.set()
            self.go_on.wait(60)
        yield self.data[middle:]


@pytest.fixture
def deployment():
    return f"t-ship-{os.urandom(4).hex()}"


@pytest.fixture
def start(key_text, deployment):
    started = []

    def start(**changes):
        made = Shipper(lambda: key_text, deployment, Rate(0), **changes)
        made.start()
        started.append(made)
        return made

    yield start
    for each in started:
        each.stop()


def shipment(machine, read, number=1, data=DATA, **changes):
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
    return Shipment(number, target(machine, **changes), blob, read)


def place(machine, deployment, sha=SHA):
    return Path(machine.home) / ".trainyard" / deployment / "cache" / "blobs" / sha


def test_hosts_get_their_files_and_what_was_asked_twice_is_shipped_once(start, machines, deployment):
    arrived, reads = [], Reads()
    other = DATA[: 1 << 20]
    shipper = start(shipped=arrived.append)
    wanted = [shipment(machine, reads, number) for number, machine in enumerate(machines)]
    wanted.append(shipment(machines[0], Reads(other), 0, other))
    shipper.want(wanted)
    shipper.want(wanted)
    wait_for(lambda: not shipper.under_way(), "all to be shipped")
    assert all(place(machine, deployment).read_bytes() == DATA for machine in machines)
    assert place(machines[0], deployment, wanted[2].blob.sha256).read_bytes() == other
    wait_for(lambda: len(arrived) == 3, "to be told of all")
    assert reads.starts == [0, 0], "once for each host"


def test_what_is_not_wanted_any_more_is_given_up_and_goes_on_later(start, machine, deployment):
    reads = Reads()
    reads.hold = True
    shipper = start()
    shipper.want([shipment(machine, reads)])
    part = half_arrived(reads, machine, deployment)
    shipper.want([])
    reads.go_on.set()
    wait_for(lambda: part.exists() and not is_locked(part), "the host to end the shipping")
    assert not place(machine, deployment).exists()
    reads.hold = False
    shipper.want([shipment(machine, reads)])
    wait_for(lambda: place(machine, deployment).exists(), "the file")
    assert reads.starts[1] >= len(DATA) // 2 and place(machine, deployment).read_bytes() == DATA


def half_arrived(reads, machine, deployment):
    """Wait until the first half is on the host. Returns its file there."""
    part = Path(f"{place(machine, deployment)}.part")
    assert reads.reached.wait(60)
    wait_for(lambda: part.exists() and part.stat().st_size == len(DATA) // 2, "the first half")
    return part


def is_locked(part):
    """Whether a process still takes the file."""
    with open("/proc/locks") as file:
        return f":{os.stat(str(part).replace('.part', '.lock')).st_ino} " in file.read()


def test_a_stopped_shipper_is_replaced_by_another_process(start, machine, deployment):
    """As when a dispatcher is killed: the next one sends what is missing."""
    reads = Reads()
    reads.hold = True
    first = start()
    first.want([shipment(machine, reads)])
    half_arrived(reads, machine, deployment)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    reads.go_on.set()
    stopping.join()
    again = Reads()
    second = start()
    second.want([shipment(machine, again)])
    wait_for(lambda: place(machine, deployment).exists(), "the file")
    assert len(again.starts) == 1 and again.starts[0] >= len(DATA) // 2


def test_a_host_that_is_away_delays_nobody_and_is_tried_again(start, machines, deployment, monkeypatch):
    monkeypatch.setattr(shipping, "MAX_WAIT_S", 0.2)
    failures = []
    shipper = start(failed=lambda shipment, error: failures.append((shipment.host_id, str(error))), threads=2)
    away = shipment(machines[0], Reads(), 3, address="127.77.0.9", port=9)
    shipper.want([away, *[shipment(machine, Reads(), number) for number, machine in enumerate(machines)]])
    for machine in machines:
        wait_for(place(machine, deployment).exists, "the file of a host that answers")
    wait_for(lambda: len(failures) >= 2, "the absent host to be tried again")
    assert {host for host, _ in failures} == {3} and "does not answer" in failures[0][1]
    # Its address was mended meanwhile.
    shipper.want([shipment(machines[0], Reads(DATA[:99]), 3, DATA[:99])])
    wait_for(place(machines[0], deployment, hashlib.sha256(DATA[:99]).hexdigest()).exists, "its file")


def test_a_shipping_asks_how_long_small_frames_to_its_host_take(machine, start, monkeypatch):
    monkeypatch.setattr(pace, "LOOK_S", 0.0)
    asked = []
    shipped = threading.Event()
    shipper = start(delay=asked.append, shipped=lambda done: shipped.set())
    shipper.want([shipment(machine, Reads())])
    assert shipped.wait(60)
    assert set(asked) == {1}
