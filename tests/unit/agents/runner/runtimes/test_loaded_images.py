"""Images that came as archives, with an engine of the test's own that keeps them as files."""

from __future__ import annotations

import sys

import pytest

from agents.runner.cache.store import Cache
from agents.runner.home import Home
from agents.runner.runtimes.image_user import python_path_of_image
from agents.runner.runtimes.loaded_images import name_of_archive

SHA = "a" * 64
# Says what the file `says` has, with the status in `status`, and notes what it was asked.
ENGINE = """#!{python}
import os, sys
here = {here!r}
read = lambda name: open(here + "/" + name).read() if os.path.exists(here + "/" + name) else ""
open(here + "/calls", "a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "info": sys.exit(print(read("root")) or 0)
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
