"""Names that archives take, with an engine of the test's own that keeps them in a file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time

import pytest

from agents.runner.home import Home
from agents.runner.preparations import archive_names, images
from agents.runner.preparations.archive_contents import read_contents
from agents.runner.preparations.archive_names import (
    ArchiveNames,
    give_all_back,
    give_left_names_back,
    left_names,
    lock_of_loading,
    plain_name,
)
from tests.unit.agents.runner.test_image_archives import archive

ENGINE = """#!{python}
import json, os, sys
here, words = {here!r}, sys.argv[1:]
names = json.load(open(here + "/names"))
if os.path.exists(here + "/fails"): sys.exit("Error: no")
if words[:2] == ["image", "ls"]:
    print("WARN[0000] a line that is no image")
    for name, image in names.items(): print(name, "sha256:" + image)
elif words[:2] == ["image", "inspect"]:
    print(json.dumps([{{"Id": "sha256:" + names[words[-1]]}}]))
elif words[0] == "pull": print("pulled")
elif words[0] == "tag": names[words[2]] = words[1]
else: del names[words[2]]
json.dump(names, open(here + "/names", "w"))
"""
SHA = "5" * 64
USERS, THEIRS, OTHER = "a" * 64, "b" * 64, "c" * 64
OWN, NEW = "localhost/lab/train:7", "localhost/lab/new:1"


class Engine:
    def __init__(self, place):
        self.place, self.program = place, str(place / "podman")
        (place / "podman").write_text(ENGINE.format(python=sys.executable, here=str(place)))
        (place / "podman").chmod(0o755)
        self.call(OWN, USERS)

    def call(self, *pairs):
        """Give names: to name, image, name, image."""
        path = self.place / "names"
        names = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**names, **dict(zip(pairs[::2], pairs[1::2], strict=True))}))

    @property
    def names(self):
        return json.loads((self.place / "names").read_text())

    def fails(self, does=True):
        (self.place / "fails").touch() if does else (self.place / "fails").unlink()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    (tmp_path / "engine").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "engine"))
    return Engine(tmp_path / "engine")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Home("dep")
    found.make()
    return found


def begin(engine, home):
    """As a preparation does that is killed before it knows what it has loaded."""
    names = ArchiveNames(engine.program, dict(os.environ), home, SHA)
    names.note_before([THEIRS], ["lab/train:7", "lab/new:1"])
    engine.call(OWN, THEIRS, NEW, THEIRS)
    return names


def test_names_come_back_though_nobody_noted_what_was_loaded(engine, home):
    begin(engine, home)
    give_left_names_back(home)
    assert engine.names == {OWN: USERS} and not left_names(home)


def test_only_names_that_the_archive_claims_and_that_mean_its_image_are_taken_back(engine, home):
    begin(engine, home)
    engine.call(OWN, OTHER, "localhost/lab/mine:1", THEIRS)
    give_left_names_back(home)
    assert engine.names == {OWN: OTHER, "localhost/lab/mine:1": THEIRS}


def test_a_name_that_the_image_had_before_stays(engine, home):
    engine.call(OWN, THEIRS)
    begin(engine, home)
    give_left_names_back(home)
    assert engine.names == {OWN: THEIRS}


def test_nothing_is_given_back_while_an_archive_is_loaded_by_any_deployment(engine, home):
    begin(engine, home)
    with lock_of_loading(Home("other")) as is_held:
        assert is_held
        give_left_names_back(home)
        assert engine.names[OWN] == THEIRS
    give_left_names_back(home)
    assert engine.names == {OWN: USERS}


@pytest.mark.parametrize("always", [False, True])
def test_a_name_is_looked_up_when_no_archive_has_it(engine, home, monkeypatch, always):
    """A preparation of another image waits while one is loaded: its job would get the image of the archive. So it is
    before the image is pulled, and after."""
    said, waits, found = [], threading.Event(), []

    class Said:
        directory = str(engine.place)

        def message(self, text):
            said.append(text)
            waits.set() if text.startswith("waiting") else None

    def prepare():
        what = {"engine": "podman", "image": OWN, "always": always}
        found.append(images.prepare_image(what, Said(), home))

    def pull(*_):
        loaded(), threading.Thread(target=over).start()

    with contextlib.ExitStack() as held:
        names = []

        def loaded():
            held.enter_context(lock_of_loading(home))
            names.append(begin(engine, home))

        def over():
            waits.wait(60)
            names[0].note_loaded(THEIRS, [OWN, NEW])
            give_all_back(home)
            held.close()

        monkeypatch.setattr(images, "pull", pull)
        monkeypatch.setattr(images, "LOCAL", "none")
        if not always:
            pull()
        prepare()
        assert [each["id"] for each in found] == [USERS]
    assert said == ["waiting while an image is loaded from an archive"]


def test_an_engine_that_fails_is_asked_again(engine, home):
    begin(engine, home)
    engine.fails()
    give_left_names_back(home)
    assert left_names(home) == [("podman", SHA)]
    engine.fails(False)
    give_left_names_back(home)
    assert engine.names == {OWN: USERS}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_second_kill_loses_no_name(engine, home, is_known):
    """Also where the ID of the image is in no file of the archive: then it is known when it is loaded."""
    begin(engine, home)
    again = ArchiveNames(engine.program, dict(os.environ), home, SHA)
    again.note_before([THEIRS] if is_known else [], ["lab/train:7", "lab/new:1"])
    if not is_known:
        again.note_loaded(THEIRS, [OWN, NEW])
    give_left_names_back(home)
    assert engine.names == {OWN: USERS}


def test_a_note_of_what_may_still_come_stays_for_a_while(engine, home, monkeypatch):
    """Docker's daemon may go on for a moment after its client was killed."""
    names = begin(engine, home)
    engine.call(OWN, USERS, NEW, OTHER)
    give_left_names_back(home)
    assert left_names(home)
    os.utime(names.path, (time.time() - archive_names._MAY_COME_S - 60,) * 2)
    give_left_names_back(home)
    assert not left_names(home) and engine.names == {OWN: USERS, NEW: OTHER}


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("lab/train:7", "lab/train:7"),
        ("docker.io/library/alpine", "alpine:latest"),
        ("localhost/lab/train:7", "lab/train:7"),
        ("registry:5000/train", "registry:5000/train:latest"),
    ],
)
def test_engines_write_one_name_in_many_ways(name, plain):
    assert plain_name(name) == plain


def test_the_small_files_of_an_archive_are_known_by_their_digests(tmp_path):
    """A large one is a layer, which no engine calls an image by."""
    config, layer = b'{"config": {}}', b"0" * ((1 << 20) + 1)
    files = [("manifest.json", [{"Config": "c.json", "RepoTags": ["lab/train:7"]}]), ("c.json", config)]
    contents = read_contents(archive(tmp_path / "x", *files, ("layer.tar", layer)))
    digests = [hashlib.sha256(data).hexdigest() for data in (config, json.dumps(files[0][1]).encode())]
    assert contents.digests == sorted(digests) and contents.names() == ["lab/train:7"]
