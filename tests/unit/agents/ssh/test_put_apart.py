"""A large file is put by a process of its own, which gives way, and which dies with whoever started it. Real sshd."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from agents.ssh import put_apart
from agents.ssh.put import Blob, PutRefused, PutStopped, Rate
from tests.harness.wait_and_processes import children_of, command_of, pids, wait_for
from tests.unit.agents.conftest import target
from tests.unit.agents.ssh.test_put import DATA, Source


@pytest.fixture
def put(machine, key_text, monkeypatch):
    monkeypatch.setattr(put_apart, "SMALL_BYTES", 1 << 20)
    deployment = f"t-apart-{os.urandom(4).hex()}"

    def put(source, **changes):
        known = {"blob": source.blob, "read": source.read, "rate": Rate(0)}
        put_apart.put(target(machine), key_text, deployment, **{**known, **changes})

    return put


def children():
    """The processes that this one has started to put a file."""
    return [pid for pid in children_of(os.getpid()) if "put_apart" in command_of(pid)]


def on_the_host():
    """What takes the file there, without the shell that started it. Other tests may put files on this machine too."""
    runners = [pid for pid in pids() if re.search(r"\.trainyard/bin/\S+ put\b", command_of(pid))]
    return [pid for pid in runners if os.getpriority(os.PRIO_PROCESS, pid)]


def connections(programs):
    """sshd's process of the connection of each of them."""
    found = []
    for pid in programs:
        while pid > 1 and not name_of(pid).startswith("sshd"):
            pid = parent_of(pid)
        found.append(pid)
    return found


def name_of(pid):
    return Path(f"/proc/{pid}/comm").read_text()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_large_file_is_put_whole_and_once_by_a_process_that_gives_way(put):
    source, told = Source(stop_at=2 << 20), []
    thread = threading.Thread(target=put, args=(source,), kwargs={"progress": told.append})
    thread.start()
    assert source.stopped.wait(60)
    wait_for(children, "the process")
    for found in (children(), on_the_host(), connections(on_the_host())):
        assert found
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in found} == {put_apart.NICE}
    source.go_on.set()
    thread.join(60)
    assert told[-1] == len(DATA) and told == sorted(told)
    assert not children()
    put(source)
    assert source.starts == [0], "the host has it: nothing is read again"


def test_what_the_host_says_of_a_damaged_file_is_told(put):
    source = Source()
    with pytest.raises(PutRefused) as refused:
        put(source, blob=Blob("0" * 64, len(DATA)))
    assert refused.value.reason == "damaged"


def test_a_file_that_is_not_wanted_any_more_leaves_no_process(put):
    def progress(done):
        if done > 1 << 20:
            raise PutStopped

    with pytest.raises(PutStopped):
        put(Source(), progress=progress)
    assert not children()


def test_a_process_that_was_killed_is_a_connection_that_was_cut(put):
    source = Source(stop_at=2 << 20)

    def kill():
        source.stopped.wait(60)
        os.kill(children()[0], 9)
        source.go_on.set()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(PutRefused) as refused:
        put(source)
    killer.join()
    assert refused.value.reason == "cut"
    put(source)
    assert source.starts[1] > 0, "it goes on where it ended"
