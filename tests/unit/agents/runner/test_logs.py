"""Logs: every byte once and in order, whatever the connection does; a bounded disk; exact gaps."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time

import pytest

from agents.runner.files import SPARES, make_spares
from agents.runner.logs import budget as log_budget
from agents.runner.logs.budget import LogBudget
from agents.runner.logs.digest import LogDigest, log_digest
from agents.runner.logs.shipper import LogShipper
from agents.runner.wire import Decoder
from tests.unit.agents.runner.protocol_client import command, wait_for

MIB = 1 << 20


def noisy(size, seed=1):
    """A replica that writes `size` bytes that hardly compress, in odd pieces, and what it writes."""
    data = random.Random(seed).randbytes(size)
    source = (
        f"import os, random\ndata = random.Random({seed}).randbytes({size})\nat = 0\n"
        "while at < len(data):\n at += os.write(1, data[at:at + 77777])\n"
    )
    return command(source), data


def numbers(count):
    """A replica that writes numbered lines, ten bytes each."""
    return command(
        "import os",
        f"for n in range(0, {count}, 500): os.write(1, b''.join(b'%09d\\n' % i for i in range(n, n + 500)))",
    )


def digest_of(data):
    """The digest as on the wire, computed in another way than the runner does."""
    if len(data) <= 8 * MIB:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    parts = [hashlib.sha256(data[at : at + 8 * MIB]).digest() for at in range(0, len(data), 8 * MIB)]
    return "blocks8m:" + hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 8 * MIB, 8 * MIB + 1, 20 * MIB])
def test_a_log_arrives_byte_for_byte_with_its_digest(console, size):
    argv, data = noisy(size)
    console.start("r1", argv)
    assert console.closed("r1")["log"]["size"] == size
    found, digest = console.ended_log("r1")
    assert found == data
    assert digest == digest_of(data)


@pytest.mark.parametrize("inotify", [True, False])
def test_a_line_is_sent_at_once(host, inotify):
    console = host.connect(**({} if inotify else {"TRAINYARD_NO_INOTIFY": "1"}))
    console.hello()
    source = "for n in range(5):\n while not os.path.exists(f'go{n}'): time.sleep(0.005)\n print('line', n)"
    console.start("r1", command("import os, time", source))
    console.running("r1")
    for number in range(5):
        (host.run_dir("r1") / "work" / f"go{number}").touch()
        console.text("r1", f"line {number}\n")
    assert console.closed("r1")["exit_code"] == 0
    # Each line has its own time mark, and the times rise.
    marks = console.marks["r1"]
    assert {offset for offset, _ in marks} >= {0, 7, 14, 21, 28}
    assert marks == sorted(marks)


def test_after_a_cut_connection_the_log_continues_where_it_stopped(console, host):
    argv, data = noisy(30 * MIB)
    console.start("r1", argv)
    log = bytearray()
    rng = random.Random(7)
    while len(log) < len(data) * 0.9:
        target = min(len(data), len(log) + rng.randrange(1, 9 * MIB))
        while len(console.logs.get("r1", b"")) < target:
            console.read(5)
        log = bytearray(console.logs["r1"])
        os.kill(console.process.pid, rng.choice([signal.SIGKILL, signal.SIGTERM]))
        console.process.wait(30)
        console = host.connect()
        console.hello()
        console.logs["r1"] = bytearray(log)
        console.say("pull", run="r1", **{"from": len(log)})
    found, digest = console.ended_log("r1")
    assert found == data
    assert digest == digest_of(data)


def test_the_window_bounds_what_is_in_flight_and_never_stops_a_fact(console):
    console.acks = False
    argv, data = noisy(12 * MIB)
    console.start("r1", argv)
    console.closed("r1")
    wait_for(lambda: console.read(0.01) or len(console.logs["r1"]) >= 8 * MIB, "a full window")
    for number in range(20):
        console.say("ping", id=number)
        console.hear("pong")
    held = len(console.logs["r1"])
    assert held == 8 * MIB
    console.acks = True
    console.say("ack", run="r1", to=held)
    assert console.ended_log("r1")[0] == data


def test_disk_is_freed_behind_what_is_acknowledged(console, host):
    argv, data = noisy(40 * MIB)
    console.start("r1", argv)
    console.closed("r1")
    found, digest = console.ended_log("r1")
    assert found == data and digest == digest_of(data)
    log = host.run_dir("r1") / "log"
    assert log.stat().st_size == len(data)
    wait_for(lambda: console.read(0.01) or log.stat().st_blocks * 512 < 10 * MIB, "holes behind the acks")
    # Bytes that were acknowledged and freed are not sent as zeros if the log is pulled again.
    again = host.connect()
    again.hello()
    again.say("pull", run="r1", **{"from": 0})
    found, digest = again.ended_log("r1")
    [(start, end, reason)] = again.gaps["r1"]
    assert (start, reason) == (0, "shipped")
    assert found[end:] == data[end:] and end < len(data)
    assert digest == digest_of(data)


def test_a_log_over_its_budget_keeps_head_and_tail_and_an_exact_gap(console, host):
    console.start("r1", numbers(2_500_000), pull=False, log_budget_mb=4)
    facts = console.closed("r1")
    log = host.run_dir("r1") / "log"
    assert facts["log"]["size"] == 25_000_000
    wait_for(lambda: log.stat().st_blocks * 512 <= 5 * MIB, "a bounded log")
    console.say("pull", run="r1", **{"from": 0})
    found, digest = console.ended_log("r1")
    [(start, end, reason)] = console.gaps["r1"]
    assert reason == "budget" and digest == ""
    whole = b"".join(b"%09d\n" % n for n in range(2_500_000))
    assert start >= MIB and len(whole) - end >= 2 * MIB
    assert found[:start] == whole[:start] and found[end:] == whole[end:]


def test_a_log_that_is_punched_while_it_is_sent_never_shows_zeros(console, host):
    console.start("r1", numbers(3_000_000), log_budget_mb=2)
    console.closed("r1")
    found, _ = console.ended_log("r1")
    whole = b"".join(b"%09d\n" % n for n in range(3_000_000))
    at = 0
    for start, end, reason in [*console.gaps.get("r1", []), (len(whole), len(whole), "end")]:
        assert found[at:start] == whole[at:start]
        assert reason in ("budget", "end")
        at = end


@pytest.mark.parametrize("can_punch", [True, False])
def test_a_file_system_that_cannot_punch_loses_nothing(tmp_path, monkeypatch, can_punch):
    if not can_punch:
        monkeypatch.setattr(log_budget, "punch_hole", lambda fd, start, length: False)
    (tmp_path / "log").write_bytes(random.Random(1).randbytes(4 * MIB))
    make_spares(str(tmp_path))
    fd = os.open(tmp_path / "log", os.O_RDWR)
    LogBudget(str(tmp_path), fd, budget_mb=1).check()
    os.close(fd)
    holes = json.loads((tmp_path / "log.cut").read_bytes())["holes"]
    assert holes == ([[MIB // 4, 4 * MIB - MIB // 2]] if can_punch else [])
    assert ((tmp_path / "log").stat().st_blocks * 512 < MIB) == can_punch
    assert len(list(tmp_path.glob("spare.*"))) == SPARES


def test_a_hole_punched_during_a_read_is_not_sent_as_text(tmp_path, monkeypatch):
    (tmp_path / "log").write_bytes(b"x" * 300_000)
    tail = LogShipper("r1", str(tmp_path))
    tail.pull(0)
    read = os.pread

    def punched_first(fd, length, at):
        if not (tmp_path / "log.cut").exists():
            (tmp_path / "log.cut").write_text('{"generation": 0, "holes": [[0, 200000]]}')
            return bytes(length)
        return read(fd, length, at)

    monkeypatch.setattr(os, "pread", punched_first)
    decoder = Decoder()
    found = decoder.feed(tail.frame(0.0) + tail.frame(1.0) + tail.frame(2.0))
    tail.close()
    heads = [(message["t"], message["from"], message["to"]) for message, _ in found]
    assert heads == [("gap", 0, 200_000), ("log", 200_000, 265_536)]
    assert found[0][0]["reason"] == "budget"


@pytest.mark.parametrize(
    ("raw", "alone", "link_idle", "size", "packed"),
    [
        (True, True, True, 4 * MIB, 0),
        (True, True, False, 4 * MIB, 1),  # the link is what the log waits for
        (True, True, True, MIB // 2, 1),  # not far behind
        (True, False, True, 4 * MIB, 1),  # other logs have bytes to send
        (False, True, True, 4 * MIB, 1),  # an older console does not pack
    ],
)
def test_only_a_log_that_is_far_behind_goes_unpacked_over_an_idle_link(
    tmp_path, raw, alone, link_idle, size, packed
):
    (tmp_path / "log").write_bytes(b"some words\n" * (size // 11))
    tail = LogShipper("r1", str(tmp_path))
    tail.pull(0, raw=raw)
    [(head, payload)] = Decoder().feed(tail.frame(0.0, alone=alone, link_idle=link_idle))
    tail.close()
    assert head["z"] == packed
    assert (len(payload) < head["to"]) == bool(packed)


def test_a_console_that_takes_unpacked_bytes_gets_the_same_log(console):
    argv, data = noisy(20 * MIB)
    console.start("r1", argv, pull=False)
    console.closed("r1")
    console.say("pull", run="r1", **{"from": 0, "raw": True})
    assert console.ended_log("r1") == (data, digest_of(data))


@pytest.mark.parametrize("hole", [[0, 400_000], [0, 2**53], [250_000, 300_001]])
def test_a_hole_beyond_the_end_of_the_file_is_ignored(tmp_path, hole):
    """Such a hole is of a log that was cut since, or nonsense that the replica wrote: it was reported again and
    again."""
    (tmp_path / "log").write_bytes(b"x" * 300_000)
    (tmp_path / "log.cut").write_text(json.dumps({"generation": 0, "holes": [hole]}))
    tail = LogShipper("r1", str(tmp_path))
    tail.pull(0)
    decoder, found, now = Decoder(), [], 0.0
    while len(found) < 100 and (frame := tail.frame(now)) is not None:
        found += decoder.feed(frame)
        now += 1.0
    tail.close()
    assert {message["t"] for message, _ in found} == {"log"} and found[-1][0]["to"] == 300_000


def test_the_cuts_of_a_log_that_is_cut_repeatedly_are_reported_less_and_less_often(tmp_path):
    (tmp_path / "log").write_bytes(b"x" * 100)
    tail = LogShipper("r1", str(tmp_path))
    tail.pull(0)
    pauses = []
    for turn in range(300):
        now = 1000.0 * turn
        tail.frame(now)
        os.truncate(tmp_path / "log", 50 + turn % 2 * -25)
        assert b'"truncated"' in tail.frame(now)
        pauses.append(tail.not_before - now)
        (tmp_path / "log").write_bytes(b"y" * 100)
    tail.close()
    assert pauses[0] < 0.05 and pauses == sorted(pauses) and pauses[-1] == 5.0


def test_a_program_that_cuts_its_own_log_leaves_a_visible_gap(console, host):
    console.start("r1", command("import os, time", "print('one')",
                                "while not os.path.exists('go'): time.sleep(0.01)",
                                "os.ftruncate(1, 0)", "print('2')", "time.sleep(0.3)", "print('three')"))  # fmt: skip
    console.text("r1", "one\n")
    (host.run_dir("r1") / "work" / "go").touch()
    console.closed("r1")
    found, digest = console.ended_log("r1")
    assert [gap[2] for gap in console.gaps["r1"]] == ["truncated"]
    assert found.replace(b"\0", b"") == b"one\n2\nthree\n" and digest == ""


REFILL = command("import os, sys, time", "os.write(1, b'begin\\n')",
                 "while not os.path.exists('go'): time.sleep(0.01)",
                 "os.ftruncate(1, 0), os.write(1, eval(sys.argv[1]))")  # fmt: skip


@pytest.mark.parametrize("new", ["again", "ok", "again, and more than before"])
@pytest.mark.parametrize("connection", ["kept", "new"])
def test_a_log_that_was_cut_and_filled_again_before_anybody_looked_is_sent_from_its_begin(
    console, host, new, connection
):
    """It may have its old size, and its run may be over: the console is told that there is more than it has."""
    console.start("r1", [*REFILL, repr(f"{new}\n".encode())])
    console.text("r1", "begin\n")
    if connection == "new":
        console.drop()
    else:
        os.kill(console.process.pid, signal.SIGSTOP)
    (host.run_dir("r1") / "work" / "go").touch()
    wait_for(lambda: host.facts("r1")["phase"] == "closed", "the end of the run")
    if connection == "new":
        console = host.connect()
        console.hello()
        console.logs["r1"] = bytearray(b"begin\n")
        console.say("pull", run="r1", **{"from": 6})
    else:
        os.kill(console.process.pid, signal.SIGCONT)
    assert console.closed("r1")["log"]["size"] == 8 + len(new)
    found, digest = console.ended_log("r1")
    assert console.gaps["r1"] == [(6, 7, "truncated")]
    assert found == b"begin\n\0%s\n" % new.encode() and digest == ""


def test_a_log_that_was_deleted_is_a_gap_over_all_of_it(console, host):
    console.start("r1", ["sh", "-c", "echo 12345; rm ../log"], pull=False)
    assert console.closed("r1")["log"]["size"] == 6
    console.say("pull", run="r1", **{"from": 2})
    console.logs["r1"] = bytearray(b"12")
    assert console.ended_log("r1")[1] == ""
    assert console.gaps["r1"] == [(2, 6, "vanished")]


def test_times_of_unwatched_output_come_from_the_keeper(console, host):
    began = time.time()
    console.start("r1", command("import time", "print('one')", "time.sleep(1.3)", "print('two')"), pull=False)
    console.closed("r1")
    console.say("pull", run="r1", **{"from": 0})
    console.ended_log("r1")
    marks = dict(console.marks["r1"])
    assert began - 1 <= marks[0] <= time.time() - 1.0


def test_every_run_is_served_while_one_floods_and_facts_come_first(console):
    console.acks = False
    flood, _ = noisy(64 * MIB)
    console.start("flood", flood, log_budget_mb=500)
    while len(console.logs.get("flood", b"")) < MIB:
        console.read(1)
    console.acks = True
    console.say("ack", run="flood", to=len(console.logs["flood"]))
    for number in range(5):
        console.start(f"r{number}", ["sh", "-c", f"echo {number}"])
    for number in range(5):
        assert console.closed(f"r{number}")["exit_code"] == 0
        assert console.ended_log(f"r{number}")[0] == b"%d\n" % number
    assert len(console.logs["flood"]) < 64 * MIB  # all of this happened while the flood went on


def test_a_new_pull_starts_at_its_own_offset(console):
    console.start("r1", ["sh", "-c", "echo 0123456789; exec sleep 600"])
    console.text("r1", "9\n")
    console.logs["r1"] = bytearray(b"01234")
    console.say("pull", run="r1", **{"from": 5})
    console.text("r1", "0123456789\n")
    console.stop("r1", 0)
    console.closed("r1")
    assert console.logs["r1"] == b"0123456789\n"
    for message in ({"from": -1}, {"from": "0"}, {"from": True}, {}):
        console.say("pull", run="r1", **message)
        assert console.hear("error")["about"] == "pull"


def test_a_log_digest_can_be_continued():
    data = random.Random(3).randbytes(17 * MIB)
    whole = log_digest(data)
    half = LogDigest()
    half.update(data[: 9 * MIB])
    rest = LogDigest(half.blocks)
    rest.update(data[rest.size :])
    assert whole == rest.value() == digest_of(data)
    assert log_digest(b"") == "sha256:" + hashlib.sha256().hexdigest()
