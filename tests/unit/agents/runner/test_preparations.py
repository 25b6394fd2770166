"""Preparations on a host: a process of its own, which outlives serve, and an engine that is asked for an image once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from agents.runner.preparations.programs_output import Bars
from agents.runner.wire import encode
from tests.unit.agents.runner.protocol_client import wait_for

# An engine that keeps its images as files, draws bars, and does as its image's name says.
ENGINE = """#!{python}
import os, sys, time
here = os.environ["ENGINE"]
words = sys.argv[1:]
with open(here + "/calls", "a") as calls: calls.write(" ".join(words) + "\\n")
image = words[-1]
path = here + "/image." + image.replace("/", "_")
if words[:2] == ["image", "inspect"]:
    if not os.path.exists(path): sys.exit("Error: inspecting object: %s: image not known" % image)
    print('[{{"Id": "sha256:0123", "Digest": "sha256:4567", "RepoDigests": []}}]')
elif words[0] == "pull":
    if "--authfile" in words:
        file = words[words.index("--authfile") + 1]
        with open(here + "/auth", "w") as out: out.write("%o " % os.stat(file).st_mode + open(file).read())
    assert sys.stdout.isatty(), "engines draw bars on terminals only"
    print("Trying to pull %s..." % image)
    for done in (1, 2, 3):
        bar = "Copying blob 0123456789ab [=>---] %.1fMiB / 4.0MiB | 8.0 MiB/s" % done
        print("\\x1b[1A\\x1b[J" + bar, end="\\r", flush=True)
        time.sleep(0.3)
    if "wrong" in image: sys.exit("Error: initializing source docker://%s: manifest unknown" % image)
    if "full" in image: sys.exit("Error: writing blob: write /x: no space left on device")
    while "slow" in image and not os.path.exists(here + "/go"): time.sleep(0.05)
    open(path, "w").close()
    print("Copying blob 0123456789ab done")
"""


@pytest.fixture
def engine(host, tmp_path):
    """A podman of this test on the host's PATH."""
    programs, place = tmp_path / "bin", tmp_path / "engine"
    programs.mkdir(exist_ok=True)
    place.mkdir()
    program = programs / "podman"
    program.write_text(ENGINE.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    host.env["PATH"] = f"{programs}:{os.environ['PATH']}"
    host.env["ENGINE"] = str(place)
    return place


@pytest.fixture
def console(host, engine):
    console = host.connect()
    console.hello()
    return console


def prepare(console, image, key="k1", asked=1, **what):
    document = json.dumps({"engine": "podman", "image": image, **what}).encode()
    say(console, "prepare", document, kind="image", key=key, asked=asked)


def say(console, verb, payload=b"", **fields):
    console.write(encode({"t": verb, **fields}, payload))


def hear(console, state, key="k1"):
    return console.hear("prepared", lambda m: m["key"] == key and m["state"] == state)


def calls(engine, verb):
    path = engine / "calls"
    return [line for line in path.read_text().splitlines() if verb in line] if path.exists() else []


def worker(host):
    """The process that prepares."""
    found = []
    for pid in host.processes():
        found += [pid] if b"prepare" in words_of(pid) else []
    return found


def test_an_image_is_pulled_once_with_progress(console, engine):
    prepare(console, "example.org/a:1")
    seen = console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    assert (seen["done"], seen["total"], seen["unit"]) in {(n << 20, 4 << 20, "bytes") for n in (1, 2, 3, 4)}
    ready = hear(console, "READY")
    assert ready["result"] == {"id": "0123", "digest": "sha256:4567"}
    assert "Trying to pull example.org/a:1" in ready["tail"] and "MiB" not in ready["tail"]
    prepare(console, "example.org/a:1", asked=2)
    hear(console, "READY")
    assert len(calls(engine, "pull")) == 1


def test_a_tag_is_asked_for_anew_and_what_is_here_does_where_nobody_answers(console, engine):
    prepare(console, "example.org/a:1")
    hear(console, "READY")
    prepare(console, "example.org/a:1", key="k2", always=True)
    hear(console, "READY", key="k2")
    assert len(calls(engine, "pull")) == 2
    (engine / "image.example.org_full:1").touch()
    prepare(console, "example.org/full:1", key="k3", always=True)
    assert hear(console, "READY", key="k3")["result"] == {"id": "0123", "digest": "sha256:4567"}


def test_an_image_that_is_here_by_its_id_is_not_asked_for(console, engine):
    (engine / "image.0123").touch()
    prepare(console, "example.org/a@sha256:" + 64 * "0", id="0123")
    hear(console, "READY")
    (engine / "image.localhost_a:1").touch()
    prepare(console, "localhost/a:1", key="k2", always=True)
    hear(console, "READY", key="k2")
    assert not calls(engine, "pull")


@pytest.mark.parametrize(
    "image, fault, words",
    [
        ("example.org/wrong:1", "user", "manifest unknown"),
        ("example.org/full:1", "host", "no space left"),
        ("-v/etc:/etc", "user", "is not the name of an image"),
        ("a b", "user", "is not the name of an image"),
    ],
)
def test_a_failure_says_who_is_to_blame_in_the_words_of_the_engine(console, engine, image, fault, words):
    prepare(console, image)
    failed = hear(console, "FAILED")
    assert failed["fault"] == fault and words in failed["message"]


def test_a_failure_is_tried_again_only_when_it_is_asked_for_anew(console, engine):
    prepare(console, "example.org/wrong:1")
    hear(console, "FAILED")
    prepare(console, "example.org/wrong:1")
    hear(console, "FAILED")
    assert len(calls(engine, "pull")) == 1
    prepare(console, "example.org/wrong:1", asked=2)
    # The end of the first asking may be told once more: who asks takes it for old.
    console.hear("prepared", lambda told: (told["state"], told["asked"]) == ("FAILED", 2))
    assert len(calls(engine, "pull")) == 2


def test_it_outlives_serve_and_the_next_serve_finds_it(console, host, engine):
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    console.process.kill()
    console.process.wait()
    again = host.connect()
    again.hello(epoch=2)
    hear(again, "WORKING")
    (engine / "go").touch()
    hear(again, "READY")
    assert len(calls(engine, "pull")) == 1


def test_one_that_was_killed_is_lost_and_begins_again(console, host, engine):
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    (pid,) = worker(host)
    os.kill(pid, signal.SIGKILL)
    assert hear(console, "LOST")["asked"] == 1
    (engine / "go").touch()
    prepare(console, "example.org/slow:1", asked=2)
    hear(console, "READY")


def test_the_engine_ends_with_a_preparation_that_is_killed(console, host, engine):
    """What it does would go on beside the next one that does the same."""
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    assert leftovers(host)
    os.kill(worker(host)[0], signal.SIGKILL)
    hear(console, "LOST")
    wait_for(lambda: not leftovers(host), "the end of the pull", 10)


def test_a_preparation_and_its_engine_give_way_to_what_runs(console, host, engine):
    """Training, its log and its shells come first, whatever is unpacked or built."""
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in (*worker(host), *leftovers(host)):
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(own + 10, 19), words_of(pid)
    assert worker(host) and leftovers(host)
    (engine / "go").touch()
    hear(console, "READY")


def test_one_that_was_killed_while_no_serve_was_there_is_lost(console, host, engine):
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    console.drop()
    (pid,) = worker(host)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not worker(host), "its end")
    again = host.connect()
    again.hello(epoch=2)
    hear(again, "LOST")


def test_one_that_cannot_even_begin_fails_in_words(console, host, engine):
    """A full disk, or no process more: the directory of the preparation cannot be made."""
    place = Path(host.home) / ".trainyard" / "dep" / "preparations"
    (place / "image-k1").write_text("in the way")
    prepare(console, "example.org/a:1")
    failed = hear(console, "FAILED")
    assert (failed["fault"], failed["asked"]) == ("host", 1) and "exists" in failed["message"]
    (place / "image-k1").unlink()
    prepare(console, "example.org/a:1", asked=2)
    hear(console, "READY")


def test_nobody_needs_it_any_more(console, host, engine):
    prepare(console, "example.org/slow:1")
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    say(console, "unprepare", kind="image", key="k1")
    hear(console, "LOST")
    wait_for(lambda: not worker(host) and not leftovers(host), "no process of the pull")


@pytest.mark.parametrize("end", ["unprepare", "kill"])
def test_credentials_of_a_pull_that_was_ended_are_removed(console, host, engine, end):
    prepare(
        console,
        "example.org/slow:1",
        credentials={"registry": "example.org", "username": "ada", "password": "correct horse"},
    )
    console.hear("prepared", lambda m: m["state"] == "WORKING" and m["done"])
    assert list(host.home.rglob("credentials"))
    if end == "kill":
        os.kill(worker(host)[0], signal.SIGKILL)
    else:
        say(console, "unprepare", kind="image", key="k1")
    hear(console, "LOST")
    wait_for(lambda: not worker(host) and not list(host.home.rglob("credentials")), "no credentials")


def leftovers(host):
    return [pid for pid in host.processes() if any(b"podman" in word for word in words_of(pid))]


def words_of(pid):
    with contextlib.suppress(OSError):  # it has just ended
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def test_credentials_are_in_no_command_and_stay_on_no_disk(console, host, engine):
    prepare(
        console,
        "example.org/a:1",
        credentials={"registry": "example.org", "username": "ada", "password": "correct horse"},
    )
    hear(console, "READY")
    mode, _, text = (engine / "auth").read_text().partition(" ")
    assert mode == "100600" and json.loads(text) == {
        "auths": {"example.org": {"auth": "YWRhOmNvcnJlY3QgaG9yc2U="}}
    }
    assert "horse" not in (engine / "calls").read_text()
    left = [path for path in host.home.rglob("*") if path.is_file() and b"Y29ycmVjdC" in path.read_bytes()]
    assert not left and not list(host.home.rglob("credentials"))


def test_a_host_without_the_engine_says_so(console, host, engine):
    prepare(console, "example.org/a:1", engine="enroot")
    assert hear(console, "FAILED")["message"] == "enroot is not installed on this host"


def test_a_kind_that_this_runner_does_not_know_is_no_crash(console, engine):
    say(console, "prepare", b"{}", kind="cake", key="k1", asked=1)
    failed = console.hear("prepared", lambda m: m["state"] == "FAILED")
    assert "cannot prepare 'cake'" in failed["message"]


@pytest.mark.parametrize(
    "name", [{"kind": "../x", "key": "k"}, {"kind": "image", "key": "../k"}, {"kind": "image"}]
)
def test_a_name_that_is_no_name_is_refused(console, engine, name):
    say(console, "prepare", b"{}", asked=1, **name)
    console.hear("error", lambda m: m["about"] == "prepare")


def test_bars_of_apptainer_which_names_no_part_are_read():
    bars = Bars()
    assert bars.read("12.5MiB / 50.0MiB [===>      ] 25 % 8.0 MiB/s 4s") and bars.read(
        "1.0MiB / 2.0MiB [=> ] 50 %"
    )
    assert bars.read("25.0MiB / 50.0MiB [=====>    ] 50 % 8.0 MiB/s 3s")
    assert not bars.read("INFO:    Extracting OCI image...")
    assert bars.sums() == (26 << 20, 52 << 20)


def test_bars_of_podman_and_docker_are_read():
    bars = Bars()
    for line in (
        "Copying blob 0123456789ab [==>---] 12.5MiB / 50.0MiB | 8.0 MiB/s",
        "fedcba987654: Downloading [=>   ]  1.5MB/3MB",
        "Copying blob 0123456789ab done",
    ):
        assert bars.read(line)
    assert not bars.read("Getting image source signatures")
    assert bars.sums() == ((50 << 20) + 1_500_000, (50 << 20) + 3_000_000)
