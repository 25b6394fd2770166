"""A file is put on a host: whole and once, whatever is cut, killed, damaged or full meanwhile. Real sshd."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from paramiko.common import MSG_CHANNEL_WINDOW_ADJUST

from agents.runner.cache import put as runner_put
from agents.runner.cache.put import PutFailed, receive
from agents.runner.cache.store import BLOBS, Cache
from agents.runner.home import Home
from agents.ssh import dial as dialling
from agents.ssh import peer_limits
from agents.ssh import put as put_module
from agents.ssh.dial import DialError
from agents.ssh.packets import PacketReader
from agents.ssh.peer_limits import (
    BYTES_FOR_A_WINDOW,
    HOUSEKEEPING_RATE,
    OWED_BYTES,
    PacketLimits,
    PeerMisbehaved,
)
from agents.ssh.put import Blob, PutRefused, PutStopped, Rate, put_blob
from agents.ssh.targets import Jump
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.conftest import target

FREE = Rate(0)
DATA = random.Random(7).randbytes(3 << 20)  # noqa: S311


class Source:
    """A file on the console: from which offsets it was read, and how much of it in all."""

    def __init__(self, data=DATA, stop_at=None):
        self.data, self.stop_at = data, stop_at
        self.starts, self.sent = [], 0
        self.stopped, self.go_on = threading.Event(), threading.Event()
        self.blob = Blob(hashlib.sha256(data).hexdigest(), len(data))

    def read(self, start):
        self.starts.append(start)
        for at in range(start, len(self.data), 1 << 16):
            if self.stop_at is not None and at >= self.stop_at:
                self.stopped.set()
                assert self.go_on.wait(60)
            self.sent += 1 << 16
            yield self.data[at : at + (1 << 16)]


@pytest.fixture
def deployment():
    return f"t-put-{os.urandom(4).hex()}"


@pytest.fixture
def put(machine, key, deployment):
    def put(source, **changes):
        known = {"rate": FREE, "read": source.read, "blob": source.blob, "deployment": deployment}
        put_blob(target(machine), key, **{**known, **changes})

    return put


@pytest.fixture
def blobs(machine, deployment):
    return Path(machine.home) / ".trainyard" / deployment / "cache" / "blobs"


@pytest.fixture
def putting(machine):
    """Tells which processes take a file on the machine."""
    return lambda: [pid for pid in machine.pids() if is_putting(command_line(pid))]


def is_putting(line):
    """Not the shell that started it."""
    return line.startswith("python3 ") and line.endswith(".pyz put")


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").rstrip()
    except OSError:
        return ""


def in_thread(act):
    """The thread, and a list with the exception that `act` raised."""
    raised = []

    def run():
        try:
            act()
        except (DialError, PutStopped) as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_a_file_is_put_whole_and_only_once(put, blobs):
    source, told = Source(), []
    put(source, progress=told.append)
    assert (blobs / source.blob.sha256).read_bytes() == DATA
    assert told[-1] == len(DATA) and told == sorted(told) and len(told) > 10
    put(source)
    assert source.starts == [0], "the host has it: nothing is read again"
    assert sorted(path.name for path in blobs.iterdir()) == [source.blob.sha256, source.blob.sha256 + ".lock"]


def test_the_windows_of_a_host_that_takes_a_large_file_are_no_flood(put, blobs, monkeypatch):
    """sshd sends one for each piece. After 150 MB the connection was cut for that, and the host began to read anew."""
    monkeypatch.setattr(peer_limits, "HOUSEKEEPING_RATE", (50, 0.1))
    source = Source(DATA * 3)
    put(source)
    assert source.starts == [0] and (blobs / source.blob.sha256).stat().st_size == len(DATA) * 3


def test_a_file_is_put_through_a_jump_host(machines, key, deployment, blobs):
    """A channel of another connection is what the bytes go through."""
    inner, gate = machines
    jump = Jump(gate.user, gate.address, gate.port, gate.host_key_line)
    source = Source()
    put_blob(target(inner, jumps=(jump,)), key, deployment, source.blob, source.read, FREE)
    assert (blobs / source.blob.sha256).read_bytes() == DATA


@pytest.mark.parametrize("limit", ["cipher", "new keys"])
def test_a_file_is_put_whole_with_another_cipher_and_over_new_keys(put, blobs, monkeypatch, limit):
    if limit == "cipher":
        monkeypatch.setattr(dialling, "CIPHERS_FIRST", ("aes128-ctr",))
    else:
        monkeypatch.setattr(PacketReader, "REKEY_BYTES", 1 << 20)
    source = Source()
    put(source)
    assert source.starts == [0] and (blobs / source.blob.sha256).read_bytes() == DATA


def test_windows_are_owed_for_what_was_sent_and_not_for_more():
    limits = PacketLimits(lambda: 0.0)
    for _ in range(300):
        limits.count_sent(BYTES_FOR_A_WINDOW * 10)
        for _ in range(10):
            limits.count_packet(MSG_CHANNEL_WINDOW_ADJUST, False)
    limits.count_sent(1 << 40)
    most = OWED_BYTES // BYTES_FOR_A_WINDOW + HOUSEKEEPING_RATE[0]
    for _ in range(most):
        limits.count_packet(MSG_CHANNEL_WINDOW_ADJUST, False)
    with pytest.raises(PeerMisbehaved):
        limits.count_packet(MSG_CHANNEL_WINDOW_ADJUST, False)


@pytest.mark.parametrize("size", [0, 1, (1 << 18) + 1])
def test_files_of_any_size(put, blobs, size):
    source = Source(DATA[:size])
    put(source)
    assert (blobs / source.blob.sha256).read_bytes() == DATA[:size]


def test_a_cut_connection_goes_on_where_it_ended(put, blobs, putting):
    """The runner on the host is killed in the middle; the next connection sends the rest only."""
    source = Source(stop_at=2 << 20)
    thread, raised = in_thread(lambda: put(source))
    assert source.stopped.wait(60)
    part = blobs / f"{source.blob.sha256}.part"
    wait_for(lambda: part.stat().st_size == 2 << 20, "the first bytes to arrive")
    (pid,) = putting()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not putting(), "the process to be gone")
    source.go_on.set()
    thread.join(60)
    assert isinstance(raised[0], PutRefused) and raised[0].reason == "cut"
    source.stop_at = None
    put(source)
    assert source.starts == [0, 2 << 20]
    assert (blobs / source.blob.sha256).read_bytes() == DATA and not part.exists()


def test_the_host_tells_that_it_reads_what_it_has_before_it_asks_for_the_rest(tmp_path, monkeypatch):
    """Reading many GB takes longer than the console waits for a word."""
    monkeypatch.setenv("HOME", str(tmp_path))
    home = Home("t-put")
    home.make()
    cache = Cache(home)
    part = Path(cache.path(BLOBS, "a" * 64) + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(DATA)
    told = []
    monkeypatch.setattr(runner_put, "TELL_S", 0.0)
    monkeypatch.setattr(runner_put, "tell", lambda **words: told.append(words))
    monkeypatch.setattr(runner_put, "fill", lambda *args: told.append("filled"))
    monkeypatch.setattr(signal, "alarm", lambda seconds: 0)
    with pytest.raises(PutFailed):
        receive(cache, "a" * 64, len(DATA) + 1)
    assert told[0] == {"have": len(DATA)} and told[-2:] == [{"ok": True, "from": len(DATA)}, "filled"]


def test_what_a_cut_connection_left_damaged_is_sent_again(put, blobs):
    source = Source()
    blobs.mkdir(parents=True)
    part = blobs / f"{source.blob.sha256}.part"
    part.write_bytes(b"not these bytes")
    with pytest.raises(PutRefused) as refused:
        put(source)
    assert refused.value.reason == "damaged" and not part.exists()
    put(source)
    assert (blobs / source.blob.sha256).read_bytes() == DATA


def test_other_bytes_than_the_digest_says_are_not_kept(put, blobs):
    source = Source()
    source.data = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(PutRefused, match="not those of"):
        put(source)
    assert [path.name for path in blobs.iterdir()] == [source.blob.sha256 + ".lock"]


def test_of_two_at_once_one_ships_and_both_have_it(put, blobs):
    first, second = Source(stop_at=1 << 20), Source()
    one, of_one = in_thread(lambda: put(first))
    assert first.stopped.wait(60)
    told = []
    other, of_other = in_thread(lambda: put(second, progress=told.append))
    wait_for(lambda: told and told[-1] >= 1 << 19, "the second one to be told how much has arrived")
    assert second.starts == [], "the second one sends nothing"
    first.go_on.set()
    one.join(60)
    other.join(60)
    assert not of_one and not of_other and second.starts == []
    assert (blobs / first.blob.sha256).read_bytes() == DATA and told[-1] == len(DATA)


def test_who_waits_takes_over_from_one_that_was_cut(put, blobs, putting):
    first, second = Source(stop_at=1 << 20), Source()
    one, _ = in_thread(lambda: put(first))
    assert first.stopped.wait(60)
    wait_for(lambda: (blobs / f"{first.blob.sha256}.part").stat().st_size == 1 << 20, "the first bytes")
    (shipping,) = putting()
    told = []
    other, of_other = in_thread(lambda: put(second, progress=told.append))
    wait_for(lambda: told, "the second one to wait")
    os.kill(shipping, signal.SIGKILL)
    other.join(60)
    first.go_on.set()
    one.join(60)
    assert not of_other and second.starts == [1 << 20]
    assert (blobs / first.blob.sha256).read_bytes() == DATA


def test_a_shipping_that_nobody_wants_any_more_ends(put, blobs, putting):
    source = Source()

    def progress(done):
        if done > 1 << 20:
            raise PutStopped

    with pytest.raises(PutStopped):
        put(source, progress=progress)
    wait_for(lambda: not putting(), "the process on the host to end")
    assert not (blobs / source.blob.sha256).exists() and source.sent < len(DATA)


def test_a_full_disk_is_a_clear_reason_before_a_byte_is_sent(put, blobs):
    source = Source()
    with pytest.raises(PutRefused, match="disk of this host is full: a file of 1048576 MB") as refused:
        put(source, blob=Blob(source.blob.sha256, 1 << 40))
    assert refused.value.reason == "disk_full" and source.starts == []


@pytest.mark.parametrize("name", ["../../x", "a" * 63, "A" * 64, ""])
def test_no_other_name_than_a_digest_becomes_a_path(put, machine, name):
    with pytest.raises(PutRefused, match="expected|not in the cache"):
        put(Source(), blob=Blob(name, 5))


@pytest.mark.parametrize("late_s", [0.0, 0.02, 0.09])
def test_who_wakes_up_late_makes_up_for_it_and_who_pauses_saves_nothing_up(monkeypatch, late_s):
    """On a busy machine everybody who sleeps wakes up late: a rate without credit would be another one there."""
    clock = SimpleNamespace(now=100.0)

    def sleep(seconds):
        clock.now += seconds + late_s

    monkeypatch.setattr(put_module, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    rate, block, blocks = Rate(60e6), 1 << 18, 600
    for _ in range(blocks):
        rate.take(block)
    nominal_s = (blocks - 1) * block / 60e6
    assert nominal_s - 0.001 <= clock.now - 100.0 <= nominal_s + 0.1
    clock.now += 10.0
    begun = clock.now
    for _ in range(20):
        rate.take(block)
    assert clock.now - begun >= 19 * block / 60e6 - 0.001


def test_all_that_is_shipped_shares_one_rate():
    rate = Rate(10 << 20)
    began = time.monotonic()
    threads = [threading.Thread(target=lambda: [rate.take(1 << 18) for _ in range(4)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began >= 0.37, "4 MiB at 10 MiB/s, the last block is not waited for"
