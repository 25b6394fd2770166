"""A log that was cut and filled again unseen is known by the last bytes that were sent of it."""

from __future__ import annotations

import json
import os
import zlib

import pytest

from agents.runner.logs import sent_tail
from agents.runner.logs import shipper as log_shipper
from agents.runner.logs.shipper import LogShipper
from agents.runner.wire import Decoder

MIB = 1 << 20


class Shipper:
    """A shipper, and what a console gets of it."""

    def __init__(self, directory, stored=b""):
        self.now, self.stored, self.gaps, self.decoder = 0.0, bytearray(stored), [], Decoder()
        self.renew(directory)

    def renew(self, directory):
        """Another serve goes on."""
        self.shipper = LogShipper("r1", str(directory))
        self.shipper.pull(len(self.stored))

    def send(self):
        while (frame := self.shipper.frame(self.now)) is not None:
            self.now += 10.0
            for message, payload in self.decoder.feed(frame):
                assert message["from"] == len(self.stored)
                if message.get("z"):
                    payload = zlib.decompress(payload)
                if message["t"] == "gap":
                    self.gaps.append((message["from"], message["to"], message["reason"]))
                    payload = b"?" * (message["to"] - message["from"])
                self.stored += payload
                self.shipper.ack(len(self.stored))
        return bytes(self.stored)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def sent(log, data):
    """What an earlier serve has sent."""
    log.write_bytes(data)
    first = Shipper(log.parent)
    assert first.send() == data
    first.shipper.close()
    return data


def test_a_new_serve_sends_what_was_filled_in_again(log):
    sent(log, b"begin\n")
    log.write_bytes(b"again\n")
    assert LogShipper("r1", str(log.parent)).shift() == 7
    second = Shipper(log.parent, b"begin\n")
    assert second.send() == b"begin\n?again\n" and second.gaps == [(6, 7, "truncated")]
    # And a third one goes on behind that.
    log.write_bytes(b"again\nand again\n")
    assert Shipper(log.parent, second.stored).send() == b"begin\n?again\nand again\n"


def test_short_additions_are_known_together_with_what_was_there_before(log):
    """A new serve has only the digest of what was sent before, and a line feed alone would say little."""
    data = sent(log, b"begin")
    log.write_bytes(data + b"\n")
    second = Shipper(log.parent, data)
    assert second.send() == b"begin\n"
    second.shipper.close()
    log.write_bytes(b"again\n")
    assert Shipper(log.parent, b"begin\n").send() == b"begin\n?again\n"


def test_the_note_has_nothing_of_the_log(log):
    """Whoever looks for a secret that was printed looks for it in logs."""
    sent(log, b"the word is hush\n")
    assert b"hush" not in (log.parent / "log.tail").read_bytes()


def test_a_log_that_only_grew_was_not_cut(log):
    data = sent(log, b"x" * 1000)
    log.write_bytes(data + b"y" * 10)
    second = Shipper(log.parent, data)
    assert second.send() == data + b"y" * 10 and not second.gaps


def test_bytes_that_were_sent_and_not_stored_are_sent_again(log):
    data = sent(log, b"0123456789" * 20)
    second = Shipper(log.parent, data[:5])
    assert second.send() == data and not second.gaps


def test_what_a_host_lost_with_its_power_was_not_cut_by_the_program(log, monkeypatch):
    data = sent(log, b"x" * 1000)
    log.write_bytes(b"\0" * 1000)
    monkeypatch.setattr(sent_tail, "_boot", lambda: b"another boot".ljust(36))
    second = Shipper(log.parent, data)
    assert second.send() == data and not second.gaps and second.shipper.shift() == 0


def test_what_the_keeper_punched_out_was_not_cut_by_the_program(log):
    data = sent(log, b"x" * 100_000)
    (log.parent / "log.cut").write_text(json.dumps({"generation": 0, "holes": [[50_000, 150_000]]}))
    log.write_bytes(data[:50_000] + b"\0" * 100_000 + b"y" * 50_000)
    second = Shipper(log.parent, data)
    assert second.send() == data + b"?" * 50_000 + b"y" * 50_000
    assert second.gaps == [(100_000, 150_000, "budget")]


@pytest.mark.parametrize("note", [b"", b"nonsense", b"\xff" * 200])
def test_a_note_that_is_not_whole_counts_for_nothing(log, note):
    data = sent(log, b"x" * 1000)
    (log.parent / "log.tail").write_bytes(note)
    log.write_bytes(b"y" * 1000)
    assert Shipper(log.parent, data).send() == data


def test_an_old_note_is_not_left_on_a_full_disk(log, monkeypatch):
    data = sent(log, b"x" * 1000)
    second = Shipper(log.parent, data)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    log.write_bytes(data + b"y")
    assert second.send() == data + b"y"
    assert not (log.parent / "log.tail").exists()


def overwrite(log, letter, size=MIB + 1):
    """Write over the end of a log, which keeps its size."""
    with open(log, "r+b") as file:
        file.seek(size - 1)
        file.write(letter)


@pytest.fixture
def budget(monkeypatch):
    """A log of 1 MiB may be sent again three times."""
    monkeypatch.setattr(log_shipper, "AGAIN_BYTES", 3 * MIB)


@pytest.mark.parametrize("is_new_serve", [False, True])
def test_a_log_over_which_its_program_writes_is_sent_again_a_few_times_only(log, budget, is_new_serve):
    log.write_bytes(b"x" * (MIB + 1))
    console = Shipper(log.parent)
    for letter in "abcdefgh":
        console.send()
        overwrite(log, letter.encode())
        if is_new_serve:
            console.shipper.close()
            console.renew(log.parent)
    console.send()
    assert [gap[2] for gap in console.gaps] == ["truncated"] * 3 + ["rewritten"]
    assert len(console.stored) == 4 * (MIB + 1) + 4
    with open(log, "ab") as file:
        file.write(b"and this is new\n")
    assert console.send().endswith(b"xc?and this is new\n"), "what is added is sent, whole and once"
    assert len(console.gaps) == 4
    # A short one costs little: each time it is sent.
    log.write_bytes(b"short")
    console.send()
    log.write_bytes(b"other")
    assert console.send().endswith(b"?short?other")


def test_the_gap_is_told_though_the_serve_that_decided_it_was_killed(log, budget, monkeypatch):
    log.write_bytes(b"x" * (MIB + 1))
    console = Shipper(log.parent)
    for letter in "abc":
        console.send()
        overwrite(log, letter.encode())
    stored = console.send()
    overwrite(log, b"d")
    with monkeypatch.context() as killed:
        killed.setattr(LogShipper, "_gap", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            console.send()
    console.shipper.close()
    console.renew(log.parent)
    with open(log, "ab") as file:
        file.write(b"new")
    assert console.send() == stored + b"?new" and console.gaps[-1][2] == "rewritten"


def test_a_log_over_which_is_written_while_it_is_read_has_its_gap_first(log, monkeypatch):
    monkeypatch.setattr(log_shipper, "AGAIN_BYTES", 0)
    log.write_bytes(b"x" * (MIB + 1))
    console = Shipper(log.parent)
    stored = console.send()
    with open(log, "ab") as file:
        file.write(b"0123456789")
    read = os.pread

    def meanwhile(fd, length, start):
        data = read(fd, length, start)
        if start == MIB + 1:
            overwrite(log, b"y")
        return data

    monkeypatch.setattr(os, "pread", meanwhile)
    assert console.send() == stored + b"?0123456789"
    assert [gap[2] for gap in console.gaps] == ["rewritten"]


def test_a_cut_that_is_seen_is_sent_however_much_was_sent_again(log, monkeypatch):
    monkeypatch.setattr(log_shipper, "AGAIN_BYTES", 0)
    log.write_bytes(b"x" * (MIB + 1))
    console = Shipper(log.parent)
    for letter in "ab":
        console.send()
        overwrite(log, letter.encode())
    console.send()
    log.write_bytes(b"y" * MIB)
    assert console.send().endswith(b"?" + b"y" * MIB)
    overwrite(log, b"z", MIB)
    console.send()
    assert [gap[2] for gap in console.gaps] == ["rewritten", "truncated", "rewritten"]
