"""Shells that are held on the host: they outlive their connections, and no byte is lost or doubled."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from agents.runner.shells.frames import CLOSE, IN, SIZE, frame
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.shell_client import ShellClient, holders, kill_holders, name_of

PLAIN = b"stty -echo; PS1=; echo rea''dy\n"


@pytest.fixture
def attach(console, host):
    """attach(...) → a client of a shell on the run r1."""
    console.start("r1", ["sleep", "600"], web_access=True)
    console.running("r1")
    clients = []

    def attach(**options):
        clients.append(ShellClient(host, **options))
        return clients[-1]

    yield attach
    for client in clients:
        client.drop()
    console.stop("r1")
    console.closed("r1")


@pytest.fixture
def plain(attach):
    """A shell that prints only what it is told to."""
    client = attach()
    client.type(PLAIN)
    client.seen(b"ready\r\n")
    return client


def test_a_shell_survives_its_connection(attach, plain, host):
    plain.type(b"cd /; WORD=kept; echo =$$=\n")
    pid = re.search(rb"=(\d+)=", plain.seen(b"=\r\n"))[1]
    plain.drop()
    again = attach(new=False)
    assert again.answer["at"] == 0 and not again.answer["lost"]
    again.seen(b"=%s=" % pid)
    again.type(b"echo $WORD-$$-$PWD+\n")
    again.seen(b"kept-%s-/+" % pid)
    assert len(holders(host)) == 1


def test_output_goes_on_where_a_terminal_has_got_to(attach, plain):
    plain.type(b"seq 1 300; echo do''ne\n")
    plain.seen(b"done\r\n")
    at, screen = plain.at, plain.screen
    plain.drop()
    third = attach(new=False, client="c2")
    third.type(b"seq 301 600; echo mo''re\n")
    third.seen(b"more\r\n")
    again = attach(new=False, **{"from": at})
    again.seen(b"more\r\n")
    assert up_to_more(screen + again.screen) == up_to_more(third.screen)
    third.until(lambda: len(third.notes[-1].get("viewers", ())) == 2, "the other to be seen")


def up_to_more(screen):
    """A prompt may follow, or not yet."""
    return screen[: screen.index(b"more\r\n")]


def test_a_key_is_typed_once_however_often_it_is_sent(attach, plain):
    plain.type(b"cat\n")
    typed = plain.typed
    plain.until(lambda: plain.took == typed, "the command to be taken")
    lines = b"".join(b"%05d\n" % number for number in range(2000))
    plain.type(lines)
    plain.drop()
    again = attach(new=False)
    assert typed <= again.answer["taken"] <= typed + len(lines)
    # All of it again, in pieces that begin before, at and after what was taken; and some twice.
    for begin in range(0, len(lines), 5000):
        again.type(lines[begin : begin + 5000], at=typed + begin)
        again.type(lines[begin : begin + 2500], at=typed + begin)
    again.until(lambda: again.took == typed + len(lines), "all to be taken")
    again.typed = again.took
    again.type(b"\x04echo en''d\n")
    again.seen(b"end\r\n")
    found = [int(word) for word in again.screen.partition(b"ready")[2].split() if word.isdigit()]
    assert found == list(range(2000))


def test_a_line_that_comes_alone_is_typed_once(attach, plain):
    at = plain.typed
    plain.type(b"echo o''ne\n")
    plain.seen(b"one\r\n")
    for _ in range(3):
        plain.type(b"echo o''ne\n", at=at)
        wait_for(lambda: not plain.waiting(), "the holder to read the line")
    plain.type(b"echo en''d\n")
    assert plain.seen(b"end\r\n").count(b"one\r\n") == 1


def test_frames_in_any_pieces_are_typed_whole(attach, plain):
    """The second piece of a frame looks like a whole frame of keys, but is what was typed."""
    keys = frame(IN, plain.typed, b"other keys")
    plain.type(b"stty raw -echo; echo beg''un; head -c %d | od -An -v -tx1; echo do''ne\n" % len(keys))
    plain.seen(b"begun")
    keys = frame(IN, plain.typed, b"other keys")
    plain.send_bytes(frame(IN, plain.typed, keys)[: -len(keys)])
    wait_for(lambda: not plain.waiting(), "the holder to read the first piece")
    plain.send_bytes(keys)
    screen = plain.seen(b"done")
    assert bytes.fromhex(re.search(rb"begun\s+([0-9a-f\s]+)done", screen)[1].decode()) == keys


def test_typed_bytes_that_are_missing_end_the_connection_and_not_the_shell(attach, plain):
    plain.type(b"rm -rf x\n", at=plain.typed + 7)
    plain.until(lambda: plain.gone or plain.process.poll() is not None, "the connection to end")
    again = attach(new=False)
    again.type(b"echo he''re\n")
    again.seen(b"here")


def test_what_fell_out_of_the_ring_is_said_and_the_modes_are_set(attach, plain):
    plain.type(b"printf '\\033[?1049h\\033[?2004h\\033='; seq 1000000 1500000; echo do''ne\n")
    plain.seen(b"done\r\n")
    assert plain.at == len(plain.screen) > 3 << 20 and not plain.lost
    plain.drop()
    again = attach(new=False, client="c2", **{"from": 10})
    assert again.answer["lost"] and again.answer["at"] > 10
    assert set(re.findall(r"\x1b\[\?(\d+)h", again.answer["modes"])) >= {"1049", "2004"}
    assert "\x1b=" in again.answer["modes"]
    again.seen(b"done\r\n")
    assert len(again.screen) >= 1 << 20, "at least 1 MiB of scrollback"
    assert again.screen[: again.screen.index(b"done\r\n")] in plain.screen
    assert re.match(rb"\d{7}\r\n", again.screen), "it begins at the beginning of a line"


def test_a_watcher_types_nothing_and_holds_up_nobody(attach, plain):
    watcher = attach(new=False, client="c2", viewer={"name": "vera", "types": False})
    watcher.type(b"echo fo''und\n")
    # The watcher reads nothing meanwhile.
    plain.type(b"seq 1000000 1800000; echo do''ne\n")
    plain.seen(b"done\r\n")
    assert b"found" not in plain.screen
    watcher.seen(b"done\r\n")
    assert watcher.lost, "it was told that it has lost output"
    assert plain.screen.endswith(watcher.screen[-1000:])


def test_a_flood_waits_for_the_viewer_who_types(attach, plain):
    plain.type(b"yes trainyard\n")
    wait_for(lambda: plain.step() or len(plain.screen) > 100_000)
    time.sleep(1.0)  # nothing is read meanwhile
    plain.until(lambda: len(plain.screen) > 200_000)
    before = len(plain.screen)
    plain.send(SIZE, 100 << 32 | 30)
    plain.type(b"\x03echo over-$((20+3)); stty size\n")
    plain.seen(b"30 100\r\n")
    assert b"over-23" in plain.screen and len(plain.screen) - before < 2 << 20
    assert plain.lost == []


def test_without_anybody_a_program_goes_on_slowly(attach, plain, host):
    plain.type(b"yes trainyard\n")
    wait_for(lambda: plain.step() or len(plain.screen) > 100_000)
    plain.drop()
    time.sleep(2.0)
    [holder] = holders(host)
    before, began = cpu_s(holder), time.monotonic()
    time.sleep(2.0)
    assert (cpu_s(holder) - before) / (time.monotonic() - began) < 0.3
    again = attach(new=False, **{"from": plain.at})
    assert 1 << 20 < again.answer["end"] - plain.at < 20 << 20, "it printed, but not without end"


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", ["exit", "signal", "closed", "unattended", "its run"])
def test_a_shell_ends_and_says_how(attach, console, host, how):
    client = attach(settings={"keep_s": 2 if how == "unattended" else 1800})
    client.type(PLAIN)
    client.seen(b"ready\r\n")
    if how == "exit":
        client.type(b"echo la''st; exit 7\n")
        client.until(lambda: client.end, "the end")
        assert client.end == {"status": 7, "signal": None, "reason": ""} and b"last" in client.screen
    elif how == "signal":
        client.type(b"kill -SEGV $$\n")
        client.until(lambda: client.end, "the end")
        assert client.end["signal"] == signal.SIGSEGV
    elif how == "closed":
        client.type(b"trap '' HUP TERM; sleep 600\n")
        client.send(CLOSE, 0, b"The right was lost.")
        client.until(lambda: client.end, "the end")
        assert client.end["reason"] == "The right was lost."
    elif how == "unattended":
        client.drop()
        wait_for(lambda: not shells_of(host), "the shell to end")
    else:
        console.stop("r1")
        client.until(lambda: client.end, "the end")
        assert client.end["signal"] == signal.SIGKILL
    # Whoever comes within a minute is told the same.
    late = attach(new=False, client="c3")
    late.until(lambda: late.end, "the end")
    assert late.screen.startswith(client.screen[:20])
    if how == "unattended":
        assert late.end["reason"].startswith("Nobody was there")


def shells_of(host):
    return [pid for pid in host.processes() if program_of(pid) == "bash"]


def program_of(pid):
    """The name of a process, or "" if it has ended since it was found."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_shell_that_is_not_kept_ends_with_its_connection(attach, host):
    client = attach(settings={"keep_s": 0})
    client.until(lambda: client.screen, "a prompt")
    client.drop()
    wait_for(lambda: not holders(host) and not shells_of(host), "the shell and its holder to end")


@pytest.mark.parametrize(
    ("how", "words"), [("killed", "was killed"), ("rebooted", "rebooted"), ("never", "ended")]
)
def test_a_shell_that_is_gone_is_told(attach, plain, host, how, words):
    plain.drop()
    record = host.home / f".trainyard/dep/shells/{name_of(host)}.json"
    assert record.exists()
    if how == "rebooted":
        record.write_text(record.read_text().replace('"boot_id": "', '"boot_id": "x'))
    elif how == "never":
        record.unlink()
    kill_holders(host)
    wait_for(lambda: not holders(host), "the holder to be gone")
    late = attach(new=False)
    assert late.answer["gone"] is True and words in late.answer["error"]
    wait_for(lambda: not shells_of(host), "the shell to end with its terminal")


def test_the_same_shell_is_not_made_twice(attach, plain, host):
    """The answer to the first request was lost on its way."""
    again = attach(client="c2")
    again.type(b"echo sa''me\n")
    plain.seen(b"same")
    assert len(holders(host)) == 1


def test_what_a_shell_is_not_made_of_is_refused(attach, host):
    attach()
    assert "name of a shell" in attach(key="../x").answer["error"]
    assert attach(key="other", new=False).answer["gone"] is True
    assert attach(run="r2", key="k2").answer == {"error": "the run is not running", "gone": False}
