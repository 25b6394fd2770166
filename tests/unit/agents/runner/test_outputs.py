"""Output directories: addresses of cloud storage become directories of the host, and the mode `outputs` sends, takes
and deletes what is in them. Only plain files below them count."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess

import pytest

from agents.runner.home import Home
from agents.runner.outputs.directories import mapped, place, with_directories
from agents.runner.outputs.transfer import walk
from agents.runner.runs.orders import Refused
from agents.runner.wire import OUTPUTS_PREFACE
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER, command

PLACES = {"bkt": "/o/bkt", "my-bucket.x": "/shared/x"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gs://bkt/runs/7", "/o/bkt/runs/7"),
        ("/gcs/bkt/runs/7/", "/o/bkt/runs/7/"),
        ("--out=gs://bkt/x", "--out=/o/bkt/x"),
        ("a:gs://bkt,/gcs/my-bucket.x/y", "a:/o/bkt,/shared/x/y"),
        ("cp '/gcs/bkt/x y' \"gs://bkt\"", "cp '/o/bkt/x y' \"/o/bkt\""),
        ("gs://bkt.", "/o/bkt."),
        ("gs://bkt-other/x", "gs://bkt-other/x"),
        ("gs://other/x", "gs://other/x"),
        ("/data/gcs/bkt/x", "/data/gcs/bkt/x"),
        ("file:///gcs/bkt/x", "file:///gcs/bkt/x"),
        ("/gcsfuse/bkt", "/gcsfuse/bkt"),
        ("/gcs/", "/gcs/"),
        (7, 7),
    ],
)
def test_an_address_becomes_a_directory_and_nothing_else_does(given, expected):
    assert mapped(given, PLACES) == expected


@pytest.mark.parametrize(
    "outputs",
    [
        {"key": "../x", "buckets": {}},
        {"key": "7", "buckets": {"..": ""}},
        {"key": "7", "buckets": {"a..b": ""}},
        {"key": "7", "buckets": {"a/b": ""}},
        {"key": "7", "buckets": {"bucket": "relative"}},
        {"key": "7", "buckets": {"bucket": 1}},
        {"key": "7", "buckets": {f"bucket{number}": "" for number in range(100)}},
        {"buckets": {}},
    ],
)
def test_outputs_that_make_no_sense_are_refused(outputs):
    with pytest.raises(Refused, match="outputs"):
        place(outputs, Home("dep"))


def test_a_missing_shared_directory_refuses_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    order = {"command": ["x"], "outputs": {"key": "7", "buckets": {"bucket": str(tmp_path / "none")}}}
    with pytest.raises(Refused, match="is not there") as refused:
        with_directories(order, Home("dep"))
    assert refused.value.refusal == "storage"
    (tmp_path / "there").mkdir()
    order["outputs"] = {
        "key": "7",
        "buckets": {"bucket": str(tmp_path / "there")},
        "make": ["bucket/a/model", "bucket/../x", "other/y"],
    }
    with_directories(order, Home("dep"))
    assert [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "there").rglob("*"))] == [
        "there/a",
        "there/a/model",
    ]


def test_a_container_has_the_buckets_mounted_where_vertex_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    order = {
        "command": ["train", "--out=gs://bucket/x"],
        "env": {"AIP_MODEL_DIR": "gs://bucket/run/model/", "OTHER": "gs://bucket/y"},
        "runtime": {
            "kind": "podman",
            "image": "i",
            "args": ["/gcs/bucket/z"],
            "mounts": [["/a", "/b", "ro"]],
        },
        "outputs": {"key": "7", "buckets": {"bucket": ""}, "variables": ["AIP_MODEL_DIR"]},
    }
    changed = with_directories(order, Home("dep"))
    here = str(tmp_path / ".trainyard" / "dep" / "outputs" / "7" / "bucket")
    assert changed["command"] == ["train", "--out=/gcs/bucket/x"] and changed["runtime"]["args"] == [
        "/gcs/bucket/z"
    ]
    assert changed["runtime"]["mounts"] == [["/a", "/b", "ro"], [here, "/gcs/bucket", "rw"]]
    assert changed["env"] == {
        "AIP_MODEL_DIR": "/gcs/bucket/run/model/",
        "OTHER": "gs://bucket/y",
        "TRAINYARD_OUTPUTS": "/gcs",
    }
    assert order["runtime"]["mounts"] == [["/a", "/b", "ro"]], "what was ordered is not changed"


def test_a_program_and_its_shells_find_directories(host):
    console = host.connect()
    console.hello()
    program = command(
        "import os, sys",
        "print('arg', sys.argv[1], os.environ['AIP_MODEL_DIR'], os.environ['OTHER'], flush=True)",
        "open(os.environ['AIP_MODEL_DIR'] + 'weights', 'w').write('w')",
        "print('top', os.environ['TRAINYARD_OUTPUTS'], flush=True)",
    )
    outputs = {
        "key": "7",
        "buckets": {"bucket": ""},
        "variables": ["AIP_MODEL_DIR"],
        "make": ["bucket/run/model"],
    }
    env = {"AIP_MODEL_DIR": "gs://bucket/run/model/", "OTHER": "gs://bucket/as/it/is"}
    console.start("r1", [*program, "--to=/gcs/bucket/x"], env=env, outputs=outputs)
    console.closed("r1")
    top = host.home / ".trainyard" / "dep" / "outputs" / "7"
    text = console.text("r1", "top")
    assert f"arg --to={top}/bucket/x {top}/bucket/run/model/ gs://bucket/as/it/is\n" in text
    assert f"top {top}\n" in text and (top / "bucket" / "run" / "model" / "weights").read_text() == "w"


class Talk:
    """One conversation with the mode `outputs`."""

    def __init__(self, host, key="7"):
        self.process = subprocess.Popen(
            [PYTHON, str(RUNNER), "outputs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=host.env
        )
        assert self.process.stdout.readline() == OUTPUTS_PREFACE
        self.greeting = self.ask(deployment="dep", key=key)

    def ask(self, data=b"", **question):
        self.process.stdin.write(json.dumps(question).encode() + b"\n" + data)
        self.process.stdin.flush()
        return self.answer()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def list(self):
        pages = [self.ask(op="list")]
        while not pages[-1].get("end"):
            pages.append(self.answer())
        return [entry for page in pages for entry in page["files"]], pages[-1]["left_out"]

    def read(self, path, start=0, end=1 << 40):
        head = self.ask(op="read", path=path, to=end, **{"from": start})
        if "error" in head:
            return head["error"]
        data = self.process.stdout.read(head["n"])
        tail = self.answer()
        assert tail["sha256"] == hashlib.sha256(data).hexdigest() and tail["state"] == head["state"]
        return data

    def write(self, path, data, sha256=None, **more):
        digest = sha256 or hashlib.sha256(data).hexdigest()
        return self.ask(data, op="write", path=path, size=len(data), sha256=digest, **more)

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def top(host):
    top = host.home / ".trainyard" / "dep" / "outputs" / "7"
    (top / "bucket" / "deep").mkdir(parents=True)
    (host.home / ".trainyard" / "dep" / "trash").mkdir()
    return top


@pytest.fixture
def talk(host, top):
    talk = Talk(host)
    yield talk
    talk.close()


def test_only_plain_files_with_plain_names_are_listed(talk, top):
    (top / "bucket" / "deep" / "weights").write_bytes(b"w" * 7)
    (top / "bucket" / "a\nb").write_text("x")
    (top / "bucket" / "é ü").write_text("x")
    (top.parent / "8").mkdir()
    (top.parent / "8" / "secret").write_text("of another job")
    os.symlink("/etc/passwd", top / "bucket" / "link")
    os.symlink("/etc", top / "bucket" / "links")
    os.symlink(top.parent / "8", top / "bucket" / "other")
    os.mkfifo(top / "bucket" / "pipe")
    with open(os.fsencode(top) + b"/bucket/no-text-\xff", "wb"):
        pass
    files, left_out = talk.list()
    assert sorted((name, size) for name, size, *_ in files) == [("bucket/deep/weights", 7), ("bucket/é ü", 1)]
    assert left_out == {"links": 3, "other": 1, "names": 2}
    for path in ("bucket/link", "bucket/links/passwd", "bucket/other/secret"):
        assert "Links are not followed" in talk.read(path)
    assert "below" in talk.read("bucket/../../8/secret") and "not a file" in talk.read("bucket/pipe")


def test_what_is_there_and_cannot_be_read_is_counted_and_keeps_nothing_open(top, monkeypatch):
    """The tests may run as root, from whom nothing is hidden: the refusals are those of the system's calls."""
    for number in range(20):
        (top / "bucket" / f"closed-{number}").mkdir()
    (top / "bucket" / "open").write_text("x")
    (top / "bucket" / "blind").write_text("x")
    (top / "bucket" / "gone").mkdir()
    opened, asked, errors = os.open, os.stat, {"c": errno.EACCES, "b": errno.EACCES, "g": errno.ENOENT}

    def refusing(call, *names):
        def act(path, *args, **more):
            if path in names or str(path).startswith("closed") and call is opened:
                raise OSError(errors[path[0]], "refused")
            return call(path, *args, **more)

        return act

    monkeypatch.setattr(os, "open", refusing(opened, "gone"))
    monkeypatch.setattr(os, "stat", refusing(asked, "blind"))
    before = len(os.listdir("/proc/self/fd"))
    left_out = {}
    assert [entry[0] for entry in walk(str(top), left_out)] == ["bucket/open"]
    assert left_out == {"unreadable": 21}
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_files_come_in_pages(talk, top):
    for number in range(3000):
        (top / "bucket" / f"part-{number:05}").write_bytes(b"x")
    files, _ = talk.list()
    assert len(files) == 3000 == len({name for name, *_ in files})


def test_a_file_is_read_by_ranges_and_written_whole_or_not_at_all(talk, top):
    data = os.urandom(700_000)
    answer = talk.write("bucket/new/model.bin", data)
    assert answer["ok"] and answer["state"][0] == len(data)
    assert talk.read("bucket/new/model.bin") == data
    assert talk.read("bucket/new/model.bin", 650_000, 650_010) == data[650_000:650_010]
    assert "other bytes" in talk.write("bucket/new/model.bin", b"short", "0" * 64)["error"]
    assert talk.read("bucket/new/model.bin") == data
    assert talk.ask(
        op="have", path="bucket/new/model.bin", size=len(data), sha256=hashlib.sha256(data).hexdigest()
    )["have"]
    assert not talk.ask(op="have", path="bucket/new/none", size=1, sha256="x")["have"]
    assert [name for name, *_ in talk.list()[0]] == ["bucket/new/model.bin"], "no draft is left"


def test_what_would_fill_the_disk_does_not_come(host, top):
    """All at once is asked for first, and each file is looked at again: others write to that disk, too."""
    talk = Talk(host)
    assert talk.ask(op="room", size=1) == {"ok": True}
    assert "the disk of this host is full" in talk.ask(op="room", size=1 << 50)["error"]
    talk.close()
    host.env["TRAINYARD_FLOOR_MB"] = str(1 << 30)
    talk = Talk(host)
    assert "the disk of this host is full" in talk.write("bucket/x", b"data")["error"]
    assert talk.list()[0] == [] and not (top / "bucket" / "x").exists(), "and its bytes are read"
    talk.close()


def test_a_file_that_is_put_there_has_the_time_that_it_is_to_have(talk, top):
    path, there = "bucket/epoch-9.pt", top / "bucket" / "epoch-9.pt"
    answer = talk.write(path, b"nine", mtime_ns=10**18 + 7)
    assert there.stat().st_mtime_ns == 10**18 + 7 == answer["state"][1]
    assert [path, *answer["state"]] in talk.list()[0], "what is listed next is no news"
    same = {"op": "have", "path": path, "size": 4, "sha256": hashlib.sha256(b"nine").hexdigest()}
    answer = talk.ask(mtime_ns=10**18 + 9, **same)
    assert answer["have"] and there.stat().st_mtime_ns == 10**18 + 9 == answer["state"][1]
    talk.ask(mtime_ns=5, **{**same, "sha256": "another"})
    talk.ask(mtime_ns=None, **same)
    assert there.stat().st_mtime_ns == 10**18 + 9


@pytest.mark.parametrize("time", [None, "5", True, 1 << 63, -(1 << 63), [5]])
def test_a_time_that_no_file_can_have_does_not_keep_a_file_away(talk, top, time):
    assert talk.write("bucket/x", b"data", mtime_ns=time)["ok"]
    assert (top / "bucket" / "x").read_bytes() == b"data"


@pytest.mark.parametrize(
    "path",
    ["../8/x", "bucket", "bucket/../x", "bucket//x", "/etc/x", "bucket/a\nb", "bucket/out/x", "bucket/deep"],
)
def test_nothing_is_written_elsewhere(talk, top, path, tmp_path):
    os.symlink(tmp_path, top / "bucket" / "out")
    before = sorted(tmp_path.iterdir())
    assert talk.write(path, b"data")["error"]
    assert sorted(tmp_path.iterdir()) == before
    assert talk.list()[0] == []


def test_all_is_dropped_at_once(talk, top):
    (top / "bucket" / "x").write_text("x")
    assert talk.ask(op="drop") == {"ok": True}
    assert not top.exists() and talk.list()[0] == []


def test_nonsense_ends_the_conversation(host, top):
    talk = Talk(host, key="../..")
    assert "key" in talk.greeting["error"]
    talk.close()
    talk = Talk(host)
    assert talk.ask(op="nothing")["error"]
    talk.close()
