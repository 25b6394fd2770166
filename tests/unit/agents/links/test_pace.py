"""The pace of shipping, on a simulated network: small frames do not wait, and the network is used."""

from __future__ import annotations

import pytest

from agents.links import pace
from agents.links.pace import LEAST_BYTES_S, TARGET_S, WINDOW_S, Pace
from agents.ssh import put
from agents.ssh.put import Rate

BLOCK = 256 << 10
# The buffers on the way: the sender waits when they are full.
BUFFERS = 3 << 20


class Network:
    """A bottleneck of so many bytes a second, before which the bytes queue; and its clock."""

    def __init__(self, bytes_s, way_s=0.002):
        self.bytes_s, self.way_s, self.now, self.queue = bytes_s, way_s, 100.0, 0.0
        self.waits = []

    def sleep(self, seconds):
        self.now += seconds
        self.queue = max(0.0, self.queue - seconds * self.bytes_s)

    def send(self, size):
        self.queue += size
        if self.queue > BUFFERS:
            self.sleep((self.queue - BUFFERS) / self.bytes_s)
        self.sleep(1e-5)

    def delay(self):
        self.waits.append(self.queue / self.bytes_s)
        return self.way_s + self.waits[-1]

    def ship(self, rate, seconds):
        """The bytes a second that arrive."""
        until, sent = self.now + seconds, 0
        while self.now < until:
            rate.take(BLOCK)
            self.send(BLOCK)
            sent += BLOCK
        return sent / seconds


@pytest.fixture
def network(monkeypatch):
    def made(*arguments):
        found = Network(*arguments)
        for module in (pace, put):
            monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
        monkeypatch.setattr(put.time, "sleep", found.sleep)
        return found

    return made


@pytest.mark.parametrize("bytes_s", [5e6, 20e6, 100e6, 1e9])
def test_small_frames_do_not_wait_and_the_network_is_used(network, bytes_s):
    line = network(bytes_s)
    rate = Pace(Rate(0), line.delay)
    line.ship(rate, 20)
    line.waits.clear()
    arrived = line.ship(rate, 60)
    waits = sorted(line.waits)
    assert waits[len(waits) // 2] <= TARGET_S + BLOCK / bytes_s
    assert waits[len(waits) * 19 // 20] <= 2 * (TARGET_S + BLOCK / bytes_s)
    assert arrived >= min(0.6 * bytes_s, 200e6)


def test_without_a_pace_small_frames_wait_behind_all_that_the_buffers_take(network):
    line = network(20e6)
    for _ in range(100):
        line.ship(Rate(0), 0.2)
        line.delay()
    assert sorted(line.waits)[50] > 0.1


def test_a_host_that_has_become_slow_for_other_reasons_gets_its_files(network):
    line = network(100e6)
    rate = Pace(Rate(0), line.delay)
    line.ship(rate, 20)
    line.way_s = 0.5
    assert line.ship(rate, WINDOW_S / 2) >= LEAST_BYTES_S
    line.ship(rate, 2 * WINDOW_S)
    assert line.ship(rate, 20) >= 50e6, "the way is known to be long by now"


def test_the_rate_of_all_hosts_together_is_kept(network):
    line = network(1e9)
    assert line.ship(Pace(Rate(10e6), line.delay), 20) == pytest.approx(10e6, rel=0.05)


def test_without_a_link_nothing_is_known_and_the_pace_stays(network):
    line = network(1e9)
    assert line.ship(Pace(Rate(0), lambda: None), 20) == pytest.approx(LEAST_BYTES_S, rel=0.05)
