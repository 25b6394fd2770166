"""The last reading of a run's metrics waits for no timer: its keeper makes it, or a pass begins when the run ends."""

from __future__ import annotations

import json
import time
import types

import pytest

from agents.runner.metrics import collect
from agents.runner.metrics.hypertune_file import held_files, tail_of
from agents.runner.metrics.journal import Journal, committed
from agents.runner.metrics.places import HELD, JOURNAL, SPOOL
from agents.runner.metrics.pull import MAX_PASSES, NOTHING, MetricsPull
from agents.runner.metrics.reports import Report
from agents.runner.wire import Decoder
from tests.unit.agents.runner.protocol_client import command, wait_for

REPORTS = command(
    "import os",
    "with open(os.environ['TRAINYARD_METRICS'], 'a') as file:",
    "    for step in range(int(os.environ['COUNT'])):",
    '        file.write(\'{"step": %d, "loss": %d}\\n\' % (step, -step))',
)


def test_a_keeper_reads_what_little_there_is_before_it_says_that_its_run_is_over(console, host):
    console.start("r1", REPORTS, env={"COUNT": "7"})
    assert console.closed("r1")["metrics"] is True
    # Nobody has asked for them.
    size, is_final, _ = committed(str(host.run_dir("r1")))
    assert is_final and size == len((host.run_dir("r1") / JOURNAL).read_bytes()) > 0
    # The end comes behind the last piece, and nobody has to ask once more.
    console.say("metrics_pull", run="r1", **{"from": 0})
    piece, end = console.hear("metrics"), console.hear("metrics_end")
    steps = [json.loads(line)[2] for line in piece["data"].splitlines()]
    assert steps == list(range(7)) and end["size"] == piece["to"] == size


def test_a_keeper_leaves_much_to_a_pass(console, host, monkeypatch):
    console.start("r1", REPORTS, env={"COUNT": str(collect.LITTLE_BYTES // 10)})
    console.closed("r1")
    assert not committed(str(host.run_dir("r1")))[1]
    console.say("metrics_pull", run="r1", **{"from": 0})
    console.hear("metrics")
    wait_for(lambda: committed(str(host.run_dir("r1")))[1], "the last pass")


@pytest.mark.parametrize("way", ["told", "mlruns", "tensorboard"])
def test_a_keeper_looks_into_no_directory_of_its_program(console, host, tmp_path, way):
    """It may be on a disk that does not answer, and the end of the run does not wait for that."""
    told = {"AIP_TENSORBOARD_LOG_DIR": str(tmp_path)} if way == "told" else {}
    also = "" if way == "told" else command(f"import os; os.mkdir('{way}')")[-1]
    console.start("r1", [*REPORTS[:-1], f"{REPORTS[-1]}\n{also}"], env={"COUNT": "1", **told})
    assert console.closed("r1")["metrics"] is True
    assert not committed(str(host.run_dir("r1")))[1]


HOSTILE = {
    "a-pipe": "os.mkfifo(run + '/metrics.spool')",
    "a-huge-number": "open(run + '/metrics.state', 'w').write('{\"series\": {\"a\": {\"left\":'"
    " '[[\"file\", \"a\", 1, %s, 1.0]]}}}' % ('9' * 400))",
    "no-number": "os.mkdir(run + '/metrics.held'); open(run + '/metrics.held/\\u00b2', 'w')",
}


@pytest.mark.parametrize("way", HOSTILE)
def test_no_file_of_a_program_keeps_its_run_open(console, host, way):
    """Its keeper reads what the program has left in the run's directory."""
    prepare = command(
        "import os",
        "own = os.environ['TRAINYARD_METRICS']",
        "run = os.path.dirname(os.path.dirname(own))",
        "open(own, 'w').write('{\"loss\": 1}\\n')",
        HOSTILE[way],
        "print('prepared')",
    )
    console.start("r1", prepare)
    console.text("r1", "prepared")
    wait_for(lambda: host.facts("r1")["phase"] == "closed", "the end of the run", 5.0)
    assert committed(str(host.run_dir("r1")))[1]
    assert host.facts("r1")["exit_code"] == 0


@pytest.mark.parametrize("harm", ["hangs", "raises"])
def test_a_last_pass_that_hangs_or_raises_keeps_no_run_open(tmp_path, monkeypatch, harm):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "reports.jsonl").write_text('{"loss": 1}\n')

    def collect_(*_args, **_named):
        if harm == "hangs":
            time.sleep(600)
        raise RuntimeError("out of a parser")

    monkeypatch.setattr(collect.Pass, "collect", collect_)
    monkeypatch.setattr(collect, "LAST_PASS_S", 0.2)
    began = time.monotonic()
    assert collect.read_last(str(tmp_path), str(tmp_path), {"claimed_at": 1.0}) is True
    assert time.monotonic() - began < 60


def test_much_that_is_held_is_left_to_a_pass(tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / HELD).mkdir()
    (tmp_path / HELD / "00000001").write_bytes(b"\n" * (collect.LITTLE_BYTES + 1))
    assert collect.read_last(str(tmp_path), str(tmp_path), {"claimed_at": 1.0}) is True
    assert not committed(str(tmp_path))[1]


def test_only_plain_files_are_read_of_the_spool(tmp_path):
    (tmp_path / "file").write_bytes(b"{}\n")
    (tmp_path / SPOOL).symlink_to(tmp_path / "file")
    assert tail_of(str(tmp_path / "file")) == [b"{}"] and tail_of(str(tmp_path / SPOOL)) == []
    (tmp_path / HELD).mkdir()
    for name in ("00000001", "\u00b2", "x"):
        (tmp_path / HELD / name).touch()
    assert list(held_files(str(tmp_path))) == [str(tmp_path / HELD / "00000001")]


class Kept:
    """What a pull keeps of its surroundings: the passes that it has begun, and the frames that it has sent."""

    def __init__(self, directory):
        self.directory = directory
        self.begun, self.frames = [], []
        home = types.SimpleNamespace(base=str(directory))
        self.runs = types.SimpleNamespace(
            by_name={}, known=lambda message: self.runs.by_name[message["run"]], require_home=lambda: home
        )
        self.pull = MetricsPull(self.runs, self, self)

    def run(self, name, phase="running", **facts):
        place = self.directory / name
        place.mkdir(exist_ok=True)
        known = {"phase": phase, "claimed_at": 1.0, "started_at": 1.0, "work": "", "metrics": None, **facts}
        run = types.SimpleNamespace(run=name, directory=str(place), facts=known, closed=phase == "closed")
        self.runs.by_name[name] = run
        self.pull.on_pull({"run": name, "from": 0}, b"")
        return run

    def reported(self, run):
        (place := self.directory / run.run / "metrics").mkdir(exist_ok=True)
        (place / "reports.jsonl").write_text('{"loss": 1}\n')

    def end(self, run, metrics=True):
        run.closed = True
        run.facts.update(phase="closed", metrics=metrics)
        self.pull.ended([run])

    def start(self, kind, act, done, timeout_s):
        self.begun.append((kind.rpartition(" ")[2], act, done))
        return True

    def finish(self, number):
        _, act, done = self.begun[number]
        done(act())

    def bulk(self, data):
        self.frames += [message for message, _ in Decoder().feed(data)]

    def names(self):
        return [name for name, _, _ in self.begun]


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path)


def test_the_last_pass_begins_when_the_run_ends(kept):
    run = kept.run("r")
    kept.reported(run)
    kept.pull.tick(1e9)
    kept.finish(0)
    assert [frame["t"] for frame in kept.frames] == ["metrics"]
    kept.pull.on_pull({"run": "r", "from": kept.frames[0]["to"]}, b"")
    # No tick has come, and the pause after the first pass is not over.
    kept.end(run)
    assert kept.names() == ["r", "r"]
    kept.finish(1)
    assert [frame["t"] for frame in kept.frames] == ["metrics", "metrics_end"]


def test_a_run_that_ends_during_a_pass_gets_its_last_one_behind_that(kept):
    run = kept.run("r")
    kept.reported(run)
    kept.pull.tick(1e9)
    kept.end(run)
    assert kept.names() == ["r"]
    kept.finish(0)
    assert kept.names() == ["r", "r"]


def test_runs_that_end_together_get_their_turn_as_passes_end(kept):
    runs = [kept.run(f"r{number}") for number in range(MAX_PASSES + 2)]
    for run in runs:
        kept.reported(run)
        kept.end(run)
    assert kept.names() == [run.run for run in runs[:MAX_PASSES]]
    kept.finish(0)
    kept.finish(1)
    assert kept.names() == [run.run for run in runs]


def test_a_pass_that_fails_is_not_tried_again_at_once(kept):
    run = kept.run("r")
    kept.reported(run)
    kept.end(run)
    kept.begun[0][2](None)
    kept.pull.ended([run])
    assert kept.names() == ["r"]
    kept.pull.tick(1e9)
    assert kept.names() == ["r", "r"]


def test_a_journal_that_another_pass_holds_is_not_asked_for_at_once(kept):
    run = kept.run("r")
    kept.reported(run)
    holder = Journal(run.directory, 1.0)
    assert holder.lock()
    kept.end(run)
    kept.finish(0)
    kept.pull.ended([run])
    assert kept.names() == ["r"]
    holder.unlock()
    kept.pull.tick(1e9)
    kept.finish(1)
    assert kept.frames[-1]["t"] == "metrics_end"


def test_a_run_that_reports_nothing_costs_no_pass(kept):
    run = kept.run("r")
    kept.pull.tick(0.0)
    kept.end(run, metrics=False)
    assert not kept.begun and kept.pull.asked["r"].stamps == NOTHING


def test_no_end_is_told_before_the_run_is_over(kept):
    """A keeper reads to the end a moment before it closes its run."""
    (place := kept.directory / "r").mkdir()
    journal = Journal(str(place), 1.0)
    journal.add(Report("file", "loss", 1, 2.0, 1.0))
    journal.end()
    journal.commit()
    run = kept.run("r")
    assert [frame["t"] for frame in kept.frames] == ["metrics"]
    kept.pull.on_pull({"run": "r", "from": kept.frames[0]["to"]}, b"")
    kept.end(run)
    assert [frame["t"] for frame in kept.frames] == ["metrics", "metrics_end"] and not kept.begun
