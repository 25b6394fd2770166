"""Recordings of shells: asciicast, without secrets wherever output is cut, bounded, and fetched by offsets."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runner.logs.mask_patterns import MaskPatterns, blank
from agents.runner.shells import recording
from agents.runner.shells.frames import CLOSE, SIZE
from agents.runner.shells.recording import FileRecorder, Masker
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.shell_client import ShellClient, kill_holders, name_of

SECRETS = ["tok-abcabcabd", "abcabc-tok-9", "line one of it\nline two of it"]
RECORD = {"record": {"at": 1_795_000_000.5, "title": "workerpool0-0"}}
HEADER = {"version": 2, "width": 80, "height": 24}


def masked_at_once(data, secrets):
    shown = bytearray(data)
    blank(shown, MaskPatterns(secrets).spans(data))
    return bytes(shown)


def events(path):
    header, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["version"] == 2
    return rest


def output(found):
    return "".join(text for _, kind, text in found if kind == "o")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "shells" / "k.cast"


@given(
    st.lists(
        st.sampled_from([*SECRETS, "tok-abcabc", "abcabc-tok-", "abd", "-9", "plain ", "line two of it", "é"])
    ),
    st.lists(st.integers(0, 200)),
)
def test_a_mask_is_the_same_wherever_output_is_cut(words, cuts):
    data = "".join(words).encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    masker = Masker(SECRETS)
    shown = b"".join(masker.feed(data[low:high]) for low, high in zip(places, places[1:], strict=False))
    shown += masker.feed(b"", last=True)
    assert shown == masked_at_once(data, SECRETS)


def test_a_mask_keeps_back_no_more_than_what_may_be_a_secret():
    masker = Masker(["tok-123456"])
    assert masker.feed(b"$ echo tok-12") == b"$ echo "
    assert masker.feed(b"99\r\n") == b"tok-1299\r\n"


def test_a_recording_is_asciicast(path):
    recorder = FileRecorder(str(path), HEADER, [])
    recorder.append(b"caf\xc3")
    recorder.flush()
    recorder.append(b"\xa9 \xff \x1b[1m\r\n")
    recorder.resize(100, 30)
    recorder.append(b"end")
    recorder.end(256 * 3)
    found = events(path)
    assert output(found) == "café � \x1b[1m\r\nend"
    assert [each[1:] for each in found if each[1] != "o"] == [["r", "100x30"], ["x", "3"]]
    times = [each[0] for each in found]
    assert times == sorted(times) and times[0] >= 0
    end = json.loads((path.parent / "k.cast.end").read_text())
    assert end == {"size": path.stat().st_size, "digest": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_output_is_gathered_and_written_after_a_tenth_of_a_second(path):
    recorder = FileRecorder(str(path), HEADER, [])
    size = path.stat().st_size
    for _ in range(100):
        recorder.append(b"x")
    assert path.stat().st_size == size and recorder.due_at < float("inf")
    recorder.flush()
    assert [each[2] for each in events(path)] == ["x" * 100] and recorder.due_at == float("inf")


def test_a_long_recording_keeps_its_beginning_and_its_end(path, monkeypatch):
    monkeypatch.setattr(recording, "HEAD_BYTES", 20_000)
    monkeypatch.setattr(recording, "TAIL_BYTES", 60_000)
    monkeypatch.setattr(recording, "TAIL_CHARACTERS", 10_000)
    recorder = FileRecorder(str(path), HEADER, ["the-secret-value"])
    numbers = range(20_000)
    for number in numbers:
        recorder.append(b"%d the-secret-value\r\n" % number)
        if number % 10 == 9:
            recorder.flush()
    recorder.end(0)
    found = events(path)
    (left_out,) = [text for _, kind, text in found if kind == "m"]
    text = output(found)
    everything = "".join(f"{number} {'*' * 16}\r\n" for number in numbers)
    missing = int(left_out.split()[0])
    assert len(everything) - len(text) == missing > 0
    head = os.path.commonprefix([everything, text])
    assert (
        len(head) > 5_000
        and everything.endswith(text[len(head) :])
        and text.endswith("19999 ****************\r\n")
    )
    assert path.stat().st_size <= 80_000
    assert path.with_name("k.cast.end").exists()


def test_a_full_disk_stops_the_recording_and_a_free_one_goes_on(path, monkeypatch):
    recorder = FileRecorder(str(path), HEADER, [])
    recorder.append(b"before\r\n")
    recorder.flush()
    write, room = os.write, 7

    def full(fd, data):
        nonlocal room
        if fd != recorder._fd:
            return write(fd, data)
        taken, room = min(room, len(data)), max(0, room - len(data))
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:taken])

    monkeypatch.setattr(os, "write", full)
    for word in (b"one\r\n", b"two\r\n", b"three\r\n"):
        recorder.append(word)
        recorder.flush()
    assert recorder.state == "No space left on device"
    room = 1 << 20
    recorder.append(b"four\r\n")
    recorder.flush()
    assert recorder.state is True
    recorder.end(0)
    assert output(events(path)) == "before\r\none\r\ntwo\r\nthree\r\nfour\r\n"
    assert (
        json.loads(path.with_name("k.cast.end").read_text())["digest"]
        == hashlib.sha256(path.read_bytes()).hexdigest()
    )


def test_a_recording_that_cannot_be_made_harms_nothing(tmp_path):
    (tmp_path / "run").write_text("a file")
    recorder = FileRecorder(str(tmp_path / "run" / "shells" / "k.cast"), HEADER, [])
    recorder.append(b"x")
    recorder.flush()
    recorder.resize(10, 10)
    recorder.end(0)
    assert recorder.state == "Not a directory"


# With a shell on a host


@pytest.fixture
def attach(console, host):
    env = {"TOKEN": "s3cr3t-value-1"}
    console.start("r1", ["sleep", "600"], web_access=True, env=env, secrets=["TOKEN"])
    console.running("r1")
    clients = []

    def attach(**options):
        clients.append(ShellClient(host, **{"settings": RECORD, **options}))
        return clients[-1]

    yield attach
    for client in clients:
        client.drop()
    console.stop("r1")
    console.closed("r1")


def pull(console, key, at=0):
    """(bytes, the end or None) of the recording from an offset: as the console asks, piece by piece."""
    data = b""
    while True:
        console.heard.clear()
        console.say("cast_pull", run="r1", shell=key, **{"from": at + len(data)})
        # The first pong overtakes the piece; the second does not.
        for number in (1, 2):
            console.say("ping", id=number)
            console.hear("pong", lambda m, number=number: m["id"] == number)
        found = [m for m in console.heard if m["t"] in ("cast", "cast_end")]
        if not found or found[0]["t"] == "cast_end":
            return data, found[0] if found else None
        assert found[0]["from"] == at + len(data) and found[0]["to"] == found[0]["from"] + len(
            found[0]["data"]
        )
        data += found[0]["data"]


def test_what_a_shell_showed_is_fetched_by_offsets_and_proved(attach, console, host):
    client = attach()
    assert client.answer["recording"] is True
    key = name_of(host)
    client.type(b"stty -echo; PS1=; echo rea''dy\n")
    client.seen(b"ready\r\n")
    client.type(b"echo $TOKEN; seq 1 20000; echo do''ne\n")
    client.seen(b"done\r\n")
    client.send(SIZE, 90 << 32 | 33)
    first = wait_for(lambda: (found := pull(console, key))[0].count(b"done") and found)
    assert first[1] is None, "the shell goes on"
    client.type(b"exit 4\n")
    client.until(lambda: client.end, "its end")
    rest, end = wait_for(lambda: (found := pull(console, key, len(first[0])))[1] and found)
    whole = first[0] + rest
    assert (end["size"], end["digest"]) == (len(whole), hashlib.sha256(whole).hexdigest())
    found = [json.loads(line) for line in whole.splitlines()]
    assert found[0] == {
        **HEADER, "env": {"TERM": "xterm-256color"}, "timestamp": 1_795_000_000, "title": "workerpool0-0"
    }  # fmt: skip
    text = output(found[1:])
    assert text.encode() == client.screen.replace(b"s3cr3t-value-1", b"*" * 14)
    assert "r" in {kind for _, kind, _ in found[1:]} and found[-1][1:] == ["x", "4"]
    assert b"s3cr3t" not in whole


def test_a_killed_holder_leaves_a_recording_without_an_end(attach, console, host):
    client = attach()
    client.type(b"echo be''fore\n")
    client.seen(b"before")
    key = name_of(host)
    wait_for(lambda: b"before" in pull(console, key)[0])
    kill_holders(host)
    data, end = wait_for(lambda: (found := pull(console, key))[1] and found)
    assert (end["size"], end["digest"]) == (len(data), "")


def test_a_shell_is_recorded_only_when_the_console_asks(attach, console, host):
    client = attach(settings={})
    assert client.answer["recording"] is False
    client.send(CLOSE, 0, b"done")
    client.until(lambda: client.end, "its end")
    data, end = pull(console, name_of(host))
    assert (data, end["size"], end["digest"]) == (b"", 0, "")
    assert not (host.run_dir("r1") / "shells").exists()


@pytest.mark.parametrize(
    "change", [{"shell": "../x"}, {"from": -1}, {"from": "0"}, {"shell": 5}, {"run": "r9"}]
)
def test_a_bad_request_is_refused(console, attach, change):
    console.heard.clear()
    console.say("cast_pull", **{"run": "r1", "shell": "k", "from": 0, **change})
    assert console.hear("error")["about"] == "cast_pull"
