"""The names that an archive gives to its image are taken back: a name of another image is that one's again, and a name
that was nobody's is nobody's. The image has one of ours.

What all names were is noted before an archive is loaded, so that a preparation which is killed loses none: whoever
looks next gives them back, a runner that starts or a preparation of any image. Only names that mean the archive's image
now are believed to be taken. What somebody has named since stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from agents.runner.files import fsync_directory, read_json, take_lock, unlink, write_file
from agents.runner.home import Home
from agents.runner.preparations.report import HOST, Failed
from agents.runner.programs import MAX_OUTPUT, output_of
from agents.runner.runtimes.engine_commands import find_engine, list_images, remove_image, tag_image
from agents.runner.runtimes.loaded_images import NAMES, place_of_notes

# A line of `list_images`. Warnings of the engine stand between them.
_LINE = re.compile(r"(\S+) (?:sha256:)?([0-9a-f]{12,64})\s*\Z")
ANSWER_S = 60.0
_NOTE = re.compile(r"([a-z]{1,20})-([0-9a-f]{64})%s\Z" % re.escape(NAMES))
# A daemon may finish to load after its client was killed: so long, a note that nothing has come of stays.
_MAY_COME_S = 3600
_LOOK_S = 0.2


class ArchiveNames:
    """The names of one archive in one engine. The caller holds the lock of loading."""

    def __init__(self, program: str, env: Dict[str, str], home: Home, archive: str) -> None:
        self.program, self.env = program, env
        self.path = os.path.join(
            place_of_notes(home), "%s-%s%s" % (os.path.basename(program), archive, NAMES)
        )
        # What names were when the archive was loaded, and, where a preparation of it was killed, before that.
        self.now: Dict[str, str] = {}
        self.earlier: Dict[str, str] = {}

    def note_before(self, digests: List[str], claimed: List[str]) -> None:
        """To be called before the archive is loaded: its image has one of these digests as its ID, and claims these
        names. What a preparation has noted that was killed still counts, where its names could not be given back."""
        note, self.now = self._read(), self.names_here()
        self.earlier = note.get("before", self.now)
        before = {
            name: self.earlier.get(name, "") if is_taken(note, name, image) else image
            for name, image in self.now.items()
        }
        self._write({"before": before, "digests": digests, "claimed": claimed})

    def note_loaded(self, image: str, names: List[str]) -> None:
        """The archive is loaded: the ID of its image, and the names that it has taken."""
        before = {name: self.earlier.get(name, "") if of == image else of for name, of in self.now.items()}
        self._write({"before": before, "image": image, "names": names})

    def give_back(self) -> None:
        """The note stays where the engine fails, and where its image may still come: it is looked at again."""
        note, now = self._read(), self.names_here()
        taken = [name for name, image in now.items() if is_taken(note, name, image)]
        statuses = [self._name(name, note.get("before", {}).get(name, "")) for name in taken]
        if not any(statuses) and (taken or "image" in note or self._is_old()):
            unlink(self.path)

    def _name(self, name: str, image: str) -> int:
        command = tag_image(self.program, image, name) if image else remove_image(self.program, name)
        return output_of(command, ANSWER_S, self.env)[0]

    def _is_old(self) -> bool:
        with contextlib.suppress(OSError):
            return abs(time.time() - os.lstat(self.path).st_mtime) > _MAY_COME_S
        return True

    def names_here(self) -> Dict[str, str]:
        """All names of images, each with its ID."""
        status, output = output_of(list_images(self.program), ANSWER_S, self.env)
        if status or len(output) >= MAX_OUTPUT:
            # Not as if nothing had a name: then names would be taken from the images of users.
            raise Failed(HOST, "the images of this host cannot be listed: %s" % output.strip()[-600:])
        found = map(_LINE.match, output.splitlines())
        return {line.group(1): line.group(2) for line in found if line}

    def _read(self) -> Dict[str, Any]:
        """What is noted: `before`, what the names were; of an archive that is loaded `image` and the `names` that it
        has taken; of one that may not be, `digests` and `claimed`."""
        kinds = {"before": dict, "image": str, "names": list, "digests": list, "claimed": list}
        note = read_json(self.path) or {}
        return {key: value for key, value in note.items() if isinstance(value, kinds.get(key, ()))}

    def _write(self, note: Dict[str, Any]) -> None:
        place = os.path.dirname(self.path)
        os.makedirs(place, 0o700, exist_ok=True)
        write_file(self.path, json.dumps(note).encode(), durable=True)
        fsync_directory(place)


def is_taken(note: Dict[str, Any], name: str, image: str) -> bool:
    """Whether the name, which means this image now, is one that the archive of the note has taken."""
    if "image" in note:
        return image == note["image"] and name in note.get("names", [])
    if image not in note.get("digests", []) or image == note.get("before", {}).get(name):
        return False
    return plain_name(name) in {plain_name(str(each)) for each in note.get("claimed", [])}


def plain_name(name: str) -> str:
    """A name without what engines add to it or leave out as they like: the registry of all, and the tag."""
    for start in ("docker.io/", "localhost/", "library/"):
        name = name[len(start) :] if name.startswith(start) else name
    return name if ":" in name.rpartition("/")[2] else "%s:latest" % name


@contextlib.contextmanager
def lock_of_loading(
    home: Home, wait: bool = True, waits: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """One archive is loaded at a time: two may give their images one name. An engine is that of a login, and so is this
    lock. Yields whether it is held. `waits` is called if another one holds it."""
    fd = take_lock(lock_path(home))
    if fd < 0:
        waits()
    while fd < 0 and wait:
        time.sleep(_LOOK_S)
        fd = take_lock(lock_path(home))
    try:
        yield fd >= 0
    finally:
        if fd >= 0:
            os.close(fd)


def lock_path(home: Home) -> str:
    """No deployment can have this name."""
    return os.path.join(home.root, "loading_images.lock")


def left_names(home: Home) -> List[Tuple[str, str]]:
    """(engine, archive) of each note."""
    place = place_of_notes(home)
    found = map(_NOTE.match, os.listdir(place) if os.path.isdir(place) else ())
    return [(note.group(1), note.group(2)) for note in found if note]


def give_left_names_back(home: Home) -> None:
    """Do what preparations that were killed could not do themselves, unless an archive is loaded now, or an image
    looked for: then that preparation does so."""
    if left_names(home):
        with lock_of_loading(home, wait=False) as is_held:
            if is_held:
                give_all_back(home)


def give_all_back(home: Home) -> None:
    """The caller holds the lock of loading."""
    for engine, archive in left_names(home):
        program = find_engine(engine)
        if program is not None:
            with contextlib.suppress(Failed):  # the next one who looks tries again
                ArchiveNames(program, dict(os.environ), home, archive).give_back()
