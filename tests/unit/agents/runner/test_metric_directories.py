"""Where TensorBoard and MLflow put files: read where the program may go itself, and nowhere else."""

from __future__ import annotations

import json
import os
import struct
import time

import pytest

from agents.runner.metrics import collect, directories
from agents.runner.metrics.collect import Pass
from agents.runner.metrics.directories import event_files, files_below, open_below
from agents.runner.metrics.places import (
    Place,
    make_places,
    may_use_directories,
    outside,
    sources_of,
    variables,
)
from agents.runner.metrics.tensorboard import masked_crc

LINE = f"{int(time.time() * 1000)} 0.5 1\n"


def put(path, text=LINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(directory):
    path = directory / "metrics.journal"
    return [json.loads(line)[1] for line in path.read_bytes().splitlines()]


@pytest.fixture
def run(tmp_path):
    """The directory of a run; its program may write into `work`. `other` is another tenant's."""
    for name in ("run", "work", "other", "disk"):
        (tmp_path / name).mkdir()
    put(tmp_path / "other" / "mlruns" / "0" / "abc" / "metrics" / "secret")
    return tmp_path


def collected(run, env, runtime):
    make_places(str(run / "run"), env, runtime, str(run / "tmp"))
    Pass(str(run / "run"), str(run / "work"), 0).collect(True)
    return names(run / "run")


CONTAINER = {"kind": "podman", "image": "i"}


@pytest.mark.parametrize("way", ["{other}/mlruns", "{work}/../other/mlruns", "/data/../../other/mlruns"])
def test_a_container_gets_nothing_that_it_cannot_see(run, way):
    env = {"MLFLOW_TRACKING_URI": "file:" + way.format(other=run / "other", work=run / "work")}
    runtime = CONTAINER | {"mounts": [[str(run / "disk"), "/data", "rw"]]}
    assert collected(run, env, runtime) == []
    (run / "run" / "metrics.sources").unlink()
    (run / "run" / "metrics").rmdir()
    if "data" not in way:
        assert collected(run, env, None) == ["secret"], "without a container, the program reads it itself"


@pytest.mark.parametrize("link", ["mlruns", "mlruns/0", "mlruns/0/abc", "mlruns/0/abc/metrics", "above"])
def test_no_link_leads_out_of_the_directory_of_a_container(run, link):
    env = {"MLFLOW_TRACKING_URI": "file:%s" % (run / "work" / "above" / "mlruns")} if link == "above" else {}
    target = run / "other" if link == "above" else run / "other" / link
    (run / "work" / link).parent.mkdir(parents=True, exist_ok=True)
    (run / "work" / link).symlink_to(target)
    assert collected(run, env, CONTAINER) == []


def test_a_directory_that_becomes_a_link_while_it_is_read_leads_nowhere(run, monkeypatch):
    store = run / "work" / "mlruns"
    put(store / "0" / "abc" / "metrics" / "secret")

    def swapped(place, flags):
        if place.below.endswith("secret"):
            os.rename(store / "0", store / "before")
            (store / "0").symlink_to(run / "other" / "mlruns" / "0")
        return open_below(place, flags)

    monkeypatch.setattr(collect, "open_below", swapped)
    assert collected(run, {}, CONTAINER) == []


def test_what_a_container_has_mounted_is_read_where_it_lies_on_the_host(run):
    put(run / "disk" / "logs" / "0" / "abc" / "metrics" / "a")
    put(run / "work" / "mlruns" / "0" / "def" / "metrics" / "b")
    runtime = CONTAINER | {"mounts": [["/nowhere", "/", "ro"], [str(run / "disk"), "/data", "rw"]]}
    found = collected(run, {"MLFLOW_TRACKING_URI": "/data/./logs"}, runtime)
    assert found == ["a", "def/b"]


def test_paths_of_a_container_are_found_by_its_longest_mount():
    mounts = [["/disk", "/data"], ["/fast", "/data/fast/"], ["/whole", "/"]]
    assert outside("/data/x", mounts) == Place("/disk", "x")
    assert outside("//data/fast/../fast/y", mounts) == Place("/fast", "y")
    assert outside("/data", mounts) == Place("/disk", "")
    assert outside("/database", mounts) == Place("/whole", "database")
    assert outside("/database", mounts[:2]) is None


def test_the_directory_for_scratch_is_read_too(run):
    (run / "tmp").mkdir()
    make_places(
        str(run / "run"), {"AIP_TENSORBOARD_LOG_DIR": str(run / "tmp" / "logs")}, CONTAINER, str(run / "tmp")
    )
    assert sources_of(str(run / "run"), str(run / "work")) == {"tensorboard": Place(str(run / "tmp"), "logs")}


@pytest.mark.parametrize("runtime", [None, CONTAINER], ids=["process", "container"])
def test_a_run_that_was_told_no_directory_for_TensorBoard_has_one_in_its_work_directory(run, runtime):
    told = variables(str(run / "run"), str(run / "work"))["AIP_TENSORBOARD_LOG_DIR"]
    record = b"\x09" + struct.pack("<d", time.time()) + b"\x10\x07\x2a\x0b\x0a\x09\x0a\x02ab\x15\0\0\0\x3f"
    size = struct.pack("<Q", len(record))
    crcs = [struct.pack("<I", masked_crc(each)) for each in (size, record)]
    (run / "work" / "tensorboard").mkdir()
    with open(told + "events.out.tfevents.1", "wb") as file:
        file.write(size + crcs[0] + record + crcs[1])
    assert collected(run, {}, runtime) == ["ab"]
    # An order that says something else is what the program was told.
    (run / "run" / "metrics").rmdir()
    (run / "run" / "metrics.journal").unlink()
    (run / "run" / "metrics.state").unlink()
    assert collected(run, {"AIP_TENSORBOARD_LOG_DIR": str(run / "disk")}, None) == []


def reported(run):
    lines = (run / "run" / "metrics.journal").read_bytes().splitlines()
    return {(source, name, step): value for source, name, step, value, _ in map(json.loads, lines)}


@pytest.mark.parametrize("way", ["work", "told"])
@pytest.mark.parametrize("runtime", [None, CONTAINER], ids=["process", "container"])
def test_the_final_values_of_runs_of_wandb_are_read_when_the_program_is_over(run, way, runtime):
    """As wandb 0.2x leaves them offline: its own fields have names with `_`, and values may be anything."""
    place = run / "work" / ("" if way == "work" else "kept") / "wandb"
    of_run = {"loss": 0.25, "val/acc": "NaN", "note": "none", "curve": {"_type": "histogram"}, "_step": 41}
    first = put(
        place / "offline-run-20261129_101010-abcdefgh" / "files" / "wandb-summary.json", json.dumps(of_run)
    )
    os.utime(first, (time.time() - 60,) * 2)
    put(place / "offline-run-20261129_101110-zyxwvuts" / "files" / "wandb-summary.json",
        json.dumps({"loss": 0.5, "_step": 7, "_timestamp": time.time(), "_wandb": {"runtime": 3}}))  # fmt: skip
    put(place / "offline-run-20261129_101110-zyxwvuts" / "files" / "wandb-metadata.json", '{"cpu": 4}')
    put(place / "wandb-summary.json", '{"loss": 99}')  # of no run
    told = {"WANDB_DIR": str(run / "work" / "kept")} if way == "told" else {}
    make_places(str(run / "run"), told, runtime, str(run / "tmp"))
    assert may_use_directories(str(run), str(run / "run"), {"work": str(run / "work")})
    Pass(str(run / "run"), str(run / "work"), 0).collect(False)
    assert reported(run) == {}, "they are not final yet"
    Pass(str(run / "run"), str(run / "work"), 0).collect(True)
    assert reported(run) == {
        ("wandb", "loss", 7): 0.5,
        ("wandb", "abcdefgh/loss", 41): 0.25,
        ("wandb", "abcdefgh/val/acc", 41): "NaN",
    }


def test_a_file_that_is_gone_by_now_stops_nothing(run, monkeypatch):
    for name in "abc":
        put(run / "work" / "mlruns" / "0" / "abc" / "metrics" / name)

    def late(place, flags):
        if place.below.endswith("metrics/b"):
            os.unlink(os.path.join(*place))
        return open_below(place, flags)

    monkeypatch.setattr(collect, "open_below", late)
    assert collected(run, {}, None) == ["a", "c"]


def test_files_of_earlier_runs_take_no_place_of_those_of_this_one(run, monkeypatch):
    """A directory that many runs share: what was written before this one is left out before the limit counts."""
    monkeypatch.setattr(directories, "MAX_FILES", 3)
    now = time.time()
    for number in range(9):
        path = put(run / "disk" / (f"events.out.tfevents.{number}"))
        os.utime(path, (now - 10_000 * (9 - number),) * 2)
    fresh = put(run / "disk" / "events.out.tfevents.0.fresh")
    place = Place(str(run / "disk"), "")
    assert [file.path for file, _ in event_files(place, now)] == [fresh.name]
    assert [file.path[-1] for file, _ in event_files(place, 0.0)] == ["h", "7", "8"]


def test_the_newest_directories_are_looked_into_first(run, monkeypatch):
    monkeypatch.setattr(directories, "MAX_ENTRIES", 12)
    for number in range(10):
        path = put(run / "disk" / str(number) / "x")
        os.utime(path.parent, (1e9 + number,) * 2)
    assert [file.path for file in files_below(Place(str(run / "disk"), ""))] == ["9/x", "8/x"]
