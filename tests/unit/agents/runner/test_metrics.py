"""Metrics that programs report: every way of reporting ends in the run's journal, whoever is killed meanwhile."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import signal
import struct
import sys
import time
from pathlib import Path

import pytest

from agents.runner.metrics import journal, tensorboard
from agents.runner.metrics.collect import Pass, by_record
from agents.runner.metrics.hypertune_file import HypertuneFile
from agents.runner.metrics.journal import Journal, chained, committed
from agents.runner.metrics.places import HELD, JOURNAL
from agents.runner.metrics.reports import Report
from tests.unit.agents.runner.protocol_client import command, wait_for


class Reports:
    """What a console has of a run's metrics: it asks for the next piece whenever it has stored one."""

    def __init__(self, console, run="r1"):
        self.console, self.run = console, run
        self.data = b""
        self.ask()

    def ask(self):
        self.console.say("metrics_pull", run=self.run, **{"from": len(self.data)})

    def to_end(self):
        """All reports of the closed run; the hash of its lines is compared."""
        while True:
            found = (
                self.console.hear("metrics", lambda m: m["run"] == self.run)
                if self.next_is_piece()
                else self.console.hear("metrics_end", lambda m: m["run"] == self.run)
            )
            if found["t"] == "metrics_end":
                chain = ""
                for line in self.data.splitlines(keepends=True):
                    chain = chained(chain, line)
                assert (found["size"], found["digest"]) == (len(self.data), chain)
                return self.found()
            self.take(found)

    def next_is_piece(self):
        while True:
            for message in self.console.heard:
                if message.get("run") == self.run and message["t"] in ("metrics", "metrics_end"):
                    return message["t"] == "metrics"
            self.console.read(0.1)

    def take(self, piece):
        assert piece["from"] == len(self.data)
        self.data += piece["data"]
        self.ask()

    def piece(self):
        self.take(self.console.hear("metrics", lambda m: m["run"] == self.run))
        return self.found()

    def found(self):
        return [json.loads(line) for line in self.data.splitlines()]


def by_step(reports, source="hypertune", name="loss"):
    return {step: value for kind, known, step, value, _ in reports if (kind, known) == (source, name)}


REAL = command(
    "import hypertune, os, sys",
    "report = hypertune.HyperTune().report_hyperparameter_tuning_metric",
    "for step in range(1, int(os.environ['COUNT']) + 1):",
    "    report('loss', 1 / step, step)",
    "print('reported', hypertune.__file__)",
    "import time",
    "while not os.path.exists('go'): time.sleep(0.01)",
)


@pytest.fixture
def library():
    """cloudml-hypertune as Google publishes it (tools/install). It writes its file anew at each report."""
    place = Path(sys.prefix) / "share" / "hypertune"
    assert (place / "hypertune" / "hypertune.py").is_file(), "run make install"
    return str(place)


def go(host, run="r1"):
    (host.run_dir(run) / "work" / "go").touch()


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_thousands_of_reports_in_a_tight_loop_lose_none(console, host, library, count):
    """The library keeps the last hundred in the file: whoever reads too late has lost those before."""
    console.start("r1", REAL, env={"PYTHONPATH": library, "COUNT": str(count)})
    reports = Reports(console)
    assert library in console.text("r1", "__init__.py")
    go(host)
    found = by_step(reports.to_end())
    assert found == {step: 1 / step for step in range(1, count + 1)}


@pytest.mark.parametrize("victim", ["outer", "inner", "both", "serve"])
def test_what_stood_in_the_file_survives_kills(console, host, library, victim):
    console.start("r1", REAL, env={"PYTHONPATH": library, "COUNT": "50"})
    console.text("r1", "reported")
    keepers = host.keepers("r1")
    if victim == "serve":
        os.kill(console.process.pid, signal.SIGKILL)
        console = host.connect()
        console.hello()
    else:
        for pid in keepers if victim == "both" else [keepers[victim == "inner"]]:
            os.kill(pid, signal.SIGKILL)
    go(host)
    assert by_step(Reports(console).to_end()) == {step: 1 / step for step in range(1, 51)}


def test_what_a_killed_keeper_held_is_read_after_the_end(tmp_path):
    """It was killed before it read a file that was closed. Whoever closes the run finds the next file empty."""
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "output.metrics").touch()
    (tmp_path / HELD).mkdir()
    (tmp_path / HELD / "00000001").write_text('{"loss": "0.5", "global_step": "50", "timestamp": 1000.0}\n')
    HypertuneFile(str(tmp_path)).finish()
    Pass(str(tmp_path), "", 0.0).collect(is_over=True, with_directories=False)
    found = [json.loads(line) for line in (tmp_path / JOURNAL).read_bytes().splitlines()]
    assert by_step(found) == {50: 0.5}


def test_hypertune_is_there_where_it_is_not_installed(console, host):
    console.start("r1", REAL, env={"COUNT": "20"})
    assert "/python/hypertune.py" in console.text("r1", ".py")
    go(host)
    assert len(by_step(Reports(console).to_end())) == 20


def test_two_runs_of_one_login_never_meet(console, host, library):
    for run, count in (("r1", "30"), ("r2", "40")):
        console.start(run, REAL, env={"PYTHONPATH": library, "COUNT": count})
    for run, count in (("r1", 30), ("r2", 40)):
        console.text(run, "reported")
        go(host, run)
        assert len(by_step(Reports(console, run).to_end())) == count


def test_without_inotify_the_last_reports_are_known(host, library):
    console = host.connect(TRAINYARD_NO_INOTIFY="1")
    console.hello()
    console.start("r1", REAL, env={"PYTHONPATH": library, "COUNT": "250"})
    console.text("r1", "__init__.py")
    go(host)
    found = by_step(Reports(console).to_end())
    assert set(range(151, 251)) <= found.keys()


def test_a_run_that_reports_nothing_says_so_and_leaves_nothing(console, host):
    console.start("r1", ["true"])
    Reports(console)
    assert console.closed("r1")["metrics"] is False
    wait_for(lambda: not [p for p in host.run_dir("r1").iterdir() if p.name.startswith("metrics")])


APPENDER = command(
    "import os, sys, time",
    "with open(os.environ['TRAINYARD_METRICS'], 'ab') as file:",
    "    file.write(open(os.environ['LINES'], 'rb').read())",
    "    file.flush()",
    "    while not os.path.exists('go'): time.sleep(0.01)",
    '    file.write(b\'{"step": 9, "last": 1}\')',
)
HOSTILE = [
    b'{"step": 1, "loss": 0.5, "flag": true, "text": "0.1", "nested": {"a": 1}}',
    b"{not json",
    b'{"step": 2, "loss": NaN}',
    b'{"step": 3, "loss": "-Infinity"}',
    b'{"step": 4, "loss": 1e999}',
    b'{"epoch": 5, "loss": ' + b"9" * 400 + b"}",
    b'{"step": 6, "<script>alert(1)</script>": 1}',
    b'{"step": 7, "two\\nlines\\u0000and\\u202eturned\\ud800": 1}',
    b'{"step": 1e300, "huge step": 1}',
    b'{"step": 8, "' + b"x" * 5000 + b'": 1}',
    b'{"step": 8, "' + b"y" * 100_000 + b'": 1}',
    b"[1, 2, 3]",
    b'{"' + b"[" * 5000,
    b'{"counted": 1}',
    b'{"counted": 2}',
    b'{"epoch": 0.5, "shares": 1}',
    b'{"epoch": 1.0, "shares": 2}',
    b'{"epoch": 1.5, "shares": 3}',
    b"\xff\xfe\x00",
]


def test_own_lines_are_read_whatever_they_say(console, host, tmp_path):
    (tmp_path / "lines").write_bytes(b"".join(line + b"\n" for line in HOSTILE))
    console.start("r1", APPENDER, env={"LINES": str(tmp_path / "lines")})
    reports = Reports(console)
    reports.piece()
    go(host)
    found = reports.to_end()
    assert by_step(found, "file") == {
        1: 0.5, 2: "NaN", 3: "-Infinity", 4: "Infinity", 5: "Infinity",
    }  # fmt: skip
    names = [name for _, name, *_ in found if name != "loss"]
    assert names == [
        *("<script>alert(1)</script>", "two lines and turned", "huge step", "x" * 199 + "…"),
        *("counted", "counted", "shares", "shares", "shares", "last"),
    ]
    assert by_step(found, "file", "shares") == {0: 1, 1: 2, 2: 3}
    assert by_step(found, "file", "counted") == {0: 1, 1: 2} and by_step(found, "file", "last") == {9: 1}
    assert {kind for kind, *_ in found} == {"file"} and all(at > 1.6e9 for *_, at in found)


# Written by tensorboardX: two values of train/loss, a text, and acc, which is NaN.
EVENTS = base64.b64decode(
    "GAAAAAAAAACjf0siCenqcaUzwdpBGg1icmFpbi5FdmVudDoye+MKYSAAAAAAAAAAKe2pUAmR+nGlM8HaQRABKhMKEQoKdHJh"
    "aW4vbG9zcxUAAAA/e6Tv1SAAAAAAAAAAKe2pUAkfAHKlM8HaQRACKhMKEQoKdHJhaW4vbG9zcxUAAIA+9RrjUjoAAAAAAAAA"
    "EpXq4gm6B3KlM8HaQRABKi0KKwoOdC90ZXh0X3N1bW1hcnlCDwgHEgQSAggBQgVoZWxsb0oICgYKBHRleHTbNQKEGQAAAAAA"
    "AACL8QgoCRkQcqUzwdpBEAMqDAoKCgNhY2MVAADAf++H2qA="
)
WRITER = command(
    "import os, shutil, sys, time",
    "data = bytes.fromhex(os.environ['EVENTS'])",
    "top = os.environ['AIP_TENSORBOARD_LOG_DIR']",
    "os.makedirs(top + '/validation', exist_ok=True)",
    "os.symlink('/etc', top + '/elsewhere')",
    "os.mkfifo(top + '/events.out.tfevents.pipe')",
    "with open(top + '/validation/events.out.tfevents.1.host', 'wb') as file:",
    "    file.write(data[:int(os.environ['TORN'])])",
    "    file.flush()",
    "    print('torn')",
    "    while not os.path.exists('go'): time.sleep(0.01)",
    "    file.write(data[int(os.environ['TORN']):])",
    "os.makedirs('mlruns/0/abc/metrics/val')",
    "open('mlruns/0/abc/metrics/val/acc', 'w').write('%d 0.9 3\\n%d nan 4\\n' % ((time.time() * 1000,) * 2))",
)


@pytest.mark.parametrize("place", ["told", "own"])
@pytest.mark.parametrize("torn", [5, 90, 100, len(EVENTS) - 3])
def test_a_torn_tail_of_tensorboard_is_waited_for(console, host, tmp_path, torn, place):
    """`own`: no directory was given to the job, and its program finds one of its own in the variable."""
    env = {"EVENTS": recent(EVENTS).hex(), "TORN": str(torn)}
    if place == "told":
        env["AIP_TENSORBOARD_LOG_DIR"] = str(tmp_path / "logs")
    console.start("r1", WRITER, env=env)
    reports = Reports(console)
    console.text("r1", "torn")
    if torn > 90:
        assert by_step(reports.piece(), "tensorboard", "validation/train/loss")[1] == 0.5
    go(host)
    found = reports.to_end()
    assert by_step(found, "tensorboard", "validation/train/loss") == {1: 0.5, 2: 0.25}
    assert by_step(found, "tensorboard", "validation/acc") == {3: "NaN"}
    assert by_step(found, "mlflow", "val/acc") == {3: 0.9, 4: "NaN"}
    assert len(found) == 5


def recent(data):
    """The same records, as if they were written now: what is older than the run belongs to another one."""
    found, at = b"", 0
    while at < len(data):
        size, record = tensorboard.next_record(data, at, True)
        at += size
        record = record[:1] + struct.pack("<d", time.time() + 1) + record[9:]
        head = struct.pack("<Q", len(record))
        found += head + struct.pack("<I", tensorboard.masked_crc(head))
        found += record + struct.pack("<I", tensorboard.masked_crc(record))
    return found


def test_records_are_what_tensorboard_wrote():
    """Whole records alone count; one that is damaged is left out, those behind it are read."""
    assert (
        tensorboard.masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
    )
    read = by_record("", 0.0)
    whole, used = read(EVENTS, True)
    assert used == len(EVENTS) and [(each.name, each.step) for each in whole] == [
        ("train/loss", 1), ("train/loss", 2), ("acc", 3),
    ]  # fmt: skip
    for end in range(len(EVENTS)):
        found, used = read(EVENTS[:end], True)
        assert used <= end and found == whole[: len(found)]
    damaged = bytearray(EVENTS)
    damaged[EVENTS.index(b"train/loss")] ^= 1
    assert [each.step for each in read(bytes(damaged), True)[0]] == [2, 3]
    lengths = bytearray(EVENTS)
    lengths[0] ^= 1
    assert read(bytes(lengths), True) == ([], 0)


def test_a_scalar_of_tensorflow_2_is_a_tensor():
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    tensor = b"\x08\x01" + field(4, struct.pack("<f", 0.75))
    plugin = field(9, field(1, field(1, b"scalars")))
    value = field(1, b"epoch_loss") + plugin + field(8, tensor)
    [found] = tensorboard.scalars(b"\x10\x05" + field(5, field(1, value)), "train/")
    assert (found.name, found.step, found.value) == ("train/epoch_loss", 5, 0.75)
    other = field(1, b"a picture") + field(9, field(1, field(1, b"images"))) + field(8, tensor)
    assert tensorboard.scalars(b"\x10\x05" + field(5, field(1, other)), "") == []


def journal_of(directory):
    path = directory / "metrics.journal"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_a_pass_that_is_killed_is_done_again(tmp_path, monkeypatch):
    """It had appended, but not said that it counts: nothing is in the journal twice, and nothing is missing."""
    (tmp_path / "metrics").mkdir()
    own = tmp_path / "metrics" / "reports.jsonl"
    own.write_text('{"step": 1, "a": 1}\n{"step": 2, "a"')
    Pass(str(tmp_path), "", 0).collect(False)
    with own.open("a") as file:
        file.write(': 2}\n{"step": 3, "a": 3}\n')
    with monkeypatch.context() as patch:
        patch.setattr(journal, "write_file", lambda *_: (_ for _ in ()).throw(OSError("killed here")))
        with pytest.raises(OSError, match="killed here"):
            Pass(str(tmp_path), "", 0).collect(False)
    assert len(journal_of(tmp_path)) == 3 and committed(str(tmp_path))[0] < os.path.getsize(
        tmp_path / "metrics.journal"
    )
    Pass(str(tmp_path), "", 0).collect(False)
    Pass(str(tmp_path), "", 0).collect(True)
    assert [step for _, _, step, *_ in journal_of(tmp_path)] == [1, 2, 3]
    size, final, chain = committed(str(tmp_path))
    lines = (tmp_path / "metrics.journal").read_bytes().splitlines(keepends=True)
    assert (size, final) == (sum(map(len, lines)), True)
    assert chain == functools.reduce(chained, lines, "")


def test_a_pass_that_was_made_before_another_one_goes_on_behind_it(tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "reports.jsonl").write_text('{"step": 1, "a": 1}\n')
    first, second = Pass(str(tmp_path), "", 0), Pass(str(tmp_path), "", 0)
    assert second.journal.lock() and first.collect(False)["more"], "it comes again"
    second.journal.unlock()
    second.collect(False)
    sent = journal_of(tmp_path)
    first.journal.now = 1e9
    first.collect(False)
    assert journal_of(tmp_path) == sent, "the console may have it by now"


def test_a_program_that_reports_without_end_fills_no_disk(tmp_path, monkeypatch):
    """The first reports are all kept, then ever fewer; the newest, the lowest and the highest are never lost."""
    monkeypatch.setattr(journal, "FREE_BYTES", 4000)
    book = Journal(str(tmp_path), 1000.0)
    for step in range(100_000):
        value = -7.0 if step == 60_001 else 99.0 if step == 60_003 else 1.0
        book.add(Report("file", "loss", step, value, 1000.0 + step))
        if step % 1000 == 0:
            book.commit()
            book = Journal(str(tmp_path), 1000.0)
    book.end()
    book.commit()
    found = {step: value for _, _, step, value, _ in journal_of(tmp_path)}
    assert [step for step in range(50) if step not in found] == []
    assert found[60_001] == -7.0 and found[60_003] == 99.0 and 99_999 in found
    assert 5_000 < len(found) < 50_000
    late = [step for step in found if step > 50_000]
    assert max(b - a for a, b in itertools.pairwise(sorted(late))) < 50


def test_series_are_bounded(tmp_path):
    book = Journal(str(tmp_path), 1000.0)
    for number in range(2000):
        book.add(Report("file", f"metric {number}", 1, 1.0, 1000.0))
    book.end()
    book.commit()
    assert len(journal_of(tmp_path)) == journal.MAX_SERIES


def test_reports_without_steps_are_counted(tmp_path):
    book = Journal(str(tmp_path), 1000.0)
    for step in (0, 0, 0):  # cloudml-hypertune without global_step
        book.add(Report("hypertune", "a", step, 1.0, 1000.0))
    for step in (0, 10, 20):
        book.add(Report("hypertune", "b", step, 1.0, 1000.0))
    book.commit()
    steps = [(name, step) for _, name, step, *_ in journal_of(tmp_path)]
    assert steps == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 10), ("b", 20)]


def test_a_file_of_the_program_in_place_of_ours_is_read(console, host):
    """It writes a new one and renames it, opens ours to append and holds it open, and removes it."""
    console.start(
        "r1",
        command(
            "import json, os, time",
            "path = os.environ['CLOUD_ML_HP_METRIC_FILE']",
            "def line(step): return json.dumps({'loss': '1', 'global_step': str(step), 'timestamp': step}) + '\\n'",
            "for step in range(1, 200):",
            "    open('new', 'w').write(line(step))",
            "    os.rename('new', path)",
            "    time.sleep(0.001 if step > 1 else 2)",
            "held = open(path, 'a')",
            "held.write(line(1000)); held.flush()",
            "time.sleep(0.2)",
            "held.write(line(1001)); held.flush()",
            "open(path, 'w').write(line(1002))",
            "time.sleep(0.2)",
            "os.unlink(path)",
            "open(path, 'w').write(line(1003))",
        ),
    )
    console.closed("r1")
    found = by_step(Reports(console).to_end())
    assert {1000, 1001, 1002, 1003} <= found.keys() and len(found) > 20


def test_a_program_that_waits_in_open_is_let_go_when_the_keepers_are_killed(console, host, library):
    """A keeper that is suspended holds the lease: the program waits for it, and goes on when it is dead."""
    slow = command(
        "import hypertune, os, time",
        "report = hypertune.HyperTune().report_hyperparameter_tuning_metric",
        "report('loss', 1, 1)",
        "print('first', flush=True)",
        "while not os.path.exists('go'): time.sleep(0.01)",
        "report('loss', 2, 2)",
        "print('second', flush=True)",
        "time.sleep(60)",
    )
    console.start("r1", slow, env={"PYTHONPATH": library})
    console.text("r1", "first")
    inner = host.keepers("r1")[1]
    os.kill(inner, signal.SIGSTOP)
    go(host)
    time.sleep(0.5)
    assert b"second" not in console.logs["r1"]
    os.kill(inner, signal.SIGKILL)
    console.text("r1", "second")
    console.stop("r1", 0)
    assert by_step(Reports(console).to_end()) == {1: 1.0, 2: 2.0}


@pytest.mark.usefixtures("each_runtime")
def test_reports_of_a_program_with_or_without_a_container(console, host):
    console.start(
        "r1",
        command(
            "import json, os",
            "for step in range(1, 301):",
            "    report = {'loss': str(step), 'global_step': str(step), 'timestamp': 1.7e9, 'trial': '0'}",
            "    with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:",
            "        file.write(json.dumps(report) + '\\n')",
            "with open(os.environ['TRAINYARD_METRICS'], 'a') as file: file.write('{\"step\": 1, \"a\": 2}\\n')",
        ),
    )
    found = Reports(console).to_end()
    assert by_step(found) == {step: step for step in range(1, 301)}
    assert by_step(found, "file", "a") == {1: 2}
