"""Images that came as archives, with an engine of the test's own that keeps them as files."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from agents.runner.cache.store import UNUSED_S, UNUSED_SHORT_S, Cache
from agents.runner.home import Home
from agents.runner.preparations import images
from agents.runner.runtimes import loaded_images
from agents.runner.runtimes.engine_commands import is_name_of
from agents.runner.runtimes.image_user import python_path_of_image
from agents.runner.runtimes.loaded_images import (
    has_loaded,
    name_of_archive,
    note_pull,
    note_use,
    place_of_notes,
    remove_loaded,
    throw_away,
)

SHA = "a" * 64
# Says what the file `says` has, with the status in `status`, and notes what it was asked.
ENGINE = """#!{python}
import os, sys
here = {here!r}
read = lambda name: open(here + "/" + name).read() if os.path.exists(here + "/" + name) else ""
open(here + "/calls", "a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "info": sys.exit(print(read("root")) or 0)
if sys.argv[1:4] == ["image", "inspect", "--"] and os.path.exists(here + "/names"): sys.exit(print(read("names")) or 0)
if os.path.exists(here + "/act"): exec(read("act"))
print(read("says"))
sys.exit(int(read("status") or 0))
"""


class Engine:
    def __init__(self, place):
        self.place, self.program = place, str(place / "podman")
        (place / "podman").write_text(ENGINE.format(python=sys.executable, here=str(place)))
        (place / "podman").chmod(0o755)

    def says(self, text, status=0):
        (self.place / "says").write_text(text)
        (self.place / "status").write_text(str(status))

    def names(self, *names):
        (self.place / "names").write_text(json.dumps([{"RepoTags": names}]))

    def calls(self):
        calls = self.place / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "engine").mkdir()
    found = Engine(tmp_path / "engine")
    monkeypatch.setenv("PATH", str(tmp_path / "engine"))
    return found


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Home("dep")
    found.make()
    return found


def test_an_engine_is_asked_once_what_the_image_of_an_archive_has(engine, home):
    """For every run of it: its name has the SHA-256 of its bytes."""
    engine.says("PATH=/bin\nPYTHONPATH=/opt/lib")
    known = {"program": engine.program, "image": name_of_archive(SHA)}
    assert [python_path_of_image(Cache(home), known) for _ in range(2)] == ["/opt/lib"] * 2
    assert len(engine.calls()) == 1
    # Another's tag may mean another image tomorrow.
    tag = {"program": engine.program, "image": f"localhost/lab/archive:{SHA}"}
    assert [python_path_of_image(Cache(home), tag) for _ in range(2)] == ["/opt/lib"] * 2
    assert len(engine.calls()) == 3


OLD, RECENT = UNUSED_S + 60, UNUSED_SHORT_S + 60
IN_USE = "Error: image used by 0123: image is in use by a container: consider listing external containers"


@pytest.fixture
def note(home):
    """Of an image that was used so many seconds ago."""

    def make(age, sha=SHA, engine="podman"):
        note_use(home, engine, name_of_archive(sha))
        path = os.path.join(place_of_notes(home), f"{engine}-{sha}")
        os.utime(path, (time.time() - age,) * 2)
        return path

    return make


def sweep(home):
    return throw_away(home, time.time())


def is_fresh(path):
    return os.stat(path).st_mtime > time.time() - 60


def removals(engine):
    return [call.split()[-1] for call in engine.calls() if call.startswith("image rm ")]


PULLED, LATEST = "c" * 64, "registry.example/lab/app:latest"


@pytest.fixture
def pulled(home, engine):
    """The note of an image that was pulled, and not used for long."""
    note_pull(home, "podman", PULLED, 5, [LATEST])
    engine.names(LATEST)
    path = os.path.join(place_of_notes(home), f"podman-{PULLED}")
    os.utime(path, (time.time() - OLD,) * 2)
    return path


def test_an_image_that_was_pulled_is_thrown_away_by_its_id(home, engine, pulled):
    note_use(home, "podman", PULLED)
    assert sweep(home) == [] and is_fresh(pulled), "a run has used it just now"
    assert [line[:3] for line in loaded_images.loaded_images(home)] == [("podman", PULLED, 5)]
    os.utime(pulled, (time.time() - OLD,) * 2)
    assert sweep(home) == removals(engine) == [PULLED] and not os.path.exists(pulled)


@pytest.mark.parametrize(
    "says", ["conflict: image is referenced in multiple repositories", "with more than one tag"]
)
def test_an_image_that_was_pulled_and_got_a_further_name_stays(home, engine, pulled, says):
    engine.says(says, 1)
    assert sweep(home) == [] and is_fresh(pulled), "it is not asked for again and again"
    assert remove_loaded(home, "podman", PULLED) == says


def test_an_image_whose_only_name_is_another_ones_stays(home, engine, pulled):
    """A person has named it, and the name of the pull has moved on: the engine would take the only name left."""
    engine.names("mine:v1")
    assert sweep(home) == [] and removals(engine) == [] and is_fresh(pulled)
    assert remove_loaded(home, "podman", PULLED) == loaded_images.OTHER_NAME
    engine.names()
    assert remove_loaded(home, "podman", PULLED) == "" and removals(engine) == [PULLED]


def test_an_image_that_somebody_brought_during_the_pull_stays_by_its_own_name(home, engine, monkeypatch):
    """An admin loads the same one by hand meanwhile: by its ID, it is new to us, too."""
    monkeypatch.setattr(images, "ids_of", lambda *_: frozenset())
    monkeypatch.setattr(images, "pull", lambda *_: engine.names("mine:v1", LATEST))
    monkeypatch.setattr(images, "look_up_by_name", lambda *_: {"id": PULLED, "digest": ""})
    images.fetch({"engine": "podman", "image": LATEST}, engine.program, None, {}, None, home)
    path = os.path.join(place_of_notes(home), f"podman-{PULLED}")
    os.utime(path, (time.time() - OLD,) * 2)
    engine.names("mine:v1")
    assert sweep(home) == [] and removals(engine) == []
    os.utime(path, (time.time() - OLD,) * 2)
    engine.names(LATEST)
    assert sweep(home) == [PULLED]


@pytest.mark.parametrize(("found", "asked", "same"), [
    ("registry.example/lab/app:1", "registry.example/lab/app:1", True),
    ("registry.example:5000/app:latest", "registry.example:5000/app", True),
    ("docker.io/library/busybox:latest", "busybox", True), ("docker.io/lab/app:1", "lab/app:1", True),
    ("busybox:1", "docker.io/library/busybox:1", True), ("lab/app:1", "docker.io/lab/app:1", True),
    ("localhost/busybox:latest", "busybox", False), ("app:2", "app:1", False), ("mine/app:1", "app:1", False),
    ("app:latest", "app@sha256:" + "a" * 64, False),
])  # fmt: skip
def test_a_name_is_known_as_engines_write_it(found, asked, same):
    assert is_name_of(found, asked) is same


def test_an_image_whose_names_the_engine_does_not_say_stays(home, engine, pulled):
    (engine.place / "names").write_text("not JSON")
    assert sweep(home) == [] and removals(engine) == []


def test_an_image_that_somebody_has_removed_is_forgotten(home, engine, pulled):
    (engine.place / "names").unlink()
    engine.says("Error: no such image", 1)
    assert remove_loaded(home, "podman", PULLED) == "" and not os.path.exists(pulled)


def test_the_images_of_others_are_not_thrown_away(home, engine, note):
    note(OLD), note(60, "b" * 64)
    note_use(home, "podman", "localhost/lab/train:7")
    note_use(home, "podman", "d" * 64)
    note_use(home, "podman", "localhost/trainyard/archive:latest")
    assert has_loaded(home)
    assert sweep(home) == removals(engine) == [name_of_archive(SHA)]
    assert os.listdir(place_of_notes(home)) == [f"podman-{'b' * 64}"]


@pytest.mark.parametrize(("says", "is_fresh_then"), [(IN_USE, True), ("Cannot connect to the daemon", False)])
def test_an_image_waits_as_long_again_only_where_the_engine_says_that_it_is_used(
    home, engine, note, says, is_fresh_then
):
    path = note(OLD)
    engine.says(says, 1)
    assert sweep(home) == []
    assert is_fresh(path) is is_fresh_then
    engine.says("")
    os.utime(path, (time.time() - OLD,) * 2)
    assert sweep(home) == [name_of_archive(SHA)] and not os.path.exists(path)


def test_an_engine_that_is_not_there_for_a_moment_keeps_its_notes(home, engine, note, monkeypatch):
    path = note(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(loaded_images, "find_engine", lambda name: None)
        assert sweep(home) == []
    assert os.path.exists(path)
    assert sweep(home) == [name_of_archive(SHA)]


def test_an_image_that_is_used_while_others_are_removed_stays(home, engine, note):
    note(OLD + 60)
    path = note(OLD, "b" * 64)
    # The first removal takes long: a run comes meanwhile.
    (engine.place / "act").write_text(f"os.utime({path!r})")
    assert sweep(home) == removals(engine) == [name_of_archive(SHA)]
    assert is_fresh(path)


def test_a_use_that_is_noted_while_the_image_is_removed_stays_noted(home, engine, note):
    path = note(OLD)
    (engine.place / "act").write_text(f"open({path!r} + '.new', 'w'); os.rename({path!r} + '.new', {path!r})")
    sweep(home)
    assert removals(engine) and is_fresh(path)


def test_deployments_of_one_login_see_each_others_uses(home, engine, note):
    """Their engine is one, and so is the image of an archive."""
    path = note(OLD)
    other = Home("other")
    note_use(other, "podman", name_of_archive(SHA))
    assert sweep(home) == removals(engine) == [] and is_fresh(path)


def test_a_draft_of_a_note_is_no_note_and_goes_when_it_is_old(home, engine, note):
    path = note(60)
    for age in (RECENT, OLD):
        draft = f"{path}.new.{age}"
        open(draft, "w").close()
        os.utime(draft, (time.time() - age,) * 2)
    assert sweep(home) == removals(engine) == []
    assert sorted(os.listdir(place_of_notes(home))) == sorted(
        map(os.path.basename, (path, f"{path}.new.{RECENT}"))
    )


@pytest.mark.parametrize("answers", [True, False])
def test_the_disk_that_is_short_is_that_of_the_engine(home, engine, note, monkeypatch, answers):
    """Where the engine does not say where its images are, it is that of the home."""
    root = engine.place / "graph"
    root.mkdir()
    if answers:
        (engine.place / "root").write_text(str(root))
    short = [str(root)]
    monkeypatch.setattr(loaded_images, "is_short_of_room", lambda path: path in short)
    note(RECENT)
    assert sweep(home) == ([name_of_archive(SHA)] if answers else [])
    note(RECENT)
    short[:] = [place_of_notes(home)]
    assert sweep(home) == ([] if answers else [name_of_archive(SHA)])


def test_an_engine_is_asked_for_its_disk_only_if_something_may_go(home, engine, note, monkeypatch):
    monkeypatch.setattr(loaded_images, "is_short_of_room", lambda path: False)
    note(60)
    assert sweep(home) == engine.calls() == []
    note(RECENT, "b" * 64), note(RECENT, "c" * 64)
    assert sweep(home) == []
    assert [call.split()[0] for call in engine.calls()] == ["info"]
