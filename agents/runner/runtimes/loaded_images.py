"""Images that were loaded from archives of the storage: their names in an engine, when they were used last, and how
they are thrown away. Other images of an engine are its admin's and its users': they are never touched.

A note for each lies in the cache; its time is that of the last use. The engine refuses to remove an image of which it
has a container. A run that comes just too late finds its image gone, which makes the console ask for it anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from typing import Dict, List, Tuple

from agents.runner.cache.store import UNUSED_S, UNUSED_SHORT_S, is_short_of_room
from agents.runner.files import read_json, unlink, write_file
from agents.runner.home import Home, is_key
from agents.runner.runtimes.engine_commands import find_engine, list_images, remove_image, tag_image

# An engine keeps the image of an archive under this name, with the SHA-256 of the archive.
OURS = "localhost/trainyard/archive"
REMOVE_S = 300.0
_GONE = ("image not known", "no such image")


def name_of_archive(sha256: str) -> str:
    return "%s:%s" % (OURS, sha256)


def archive_of(image: str) -> str:
    """The SHA-256 of the archive that this image came as; "" for other images."""
    ours, _, sha256 = image.rpartition(":")
    return sha256 if ours == OURS and is_key(sha256) else ""


def note_use(home: Home, engine: str, image: str) -> None:
    """The engine has this image, and somebody is about to use it."""
    if image.startswith(OURS + ":"):
        note = json.dumps({"engine": engine, "image": image}).encode()
        with contextlib.suppress(OSError):  # a full disk: it is noted the next time
            os.makedirs(_place(home), 0o700, exist_ok=True)
            write_file(os.path.join(_place(home), "%s-%s" % (engine, image.rpartition(":")[2])), note)


def has_loaded(home: Home) -> bool:
    return os.path.isdir(_place(home)) and bool(os.listdir(_place(home)))


def throw_away(home: Home, now: float) -> List[str]:
    """Remove the images that nothing has used for long, the longest unused first, until there is room. Returns their
    names."""
    place, gone, notes = _place(home), [], []
    for name in os.listdir(place) if os.path.isdir(place) else ():
        with contextlib.suppress(OSError):
            notes.append((os.lstat(os.path.join(place, name)).st_mtime, os.path.join(place, name)))
    for used, path in sorted(notes):
        if used > now - (UNUSED_SHORT_S if is_short_of_room(place) else UNUSED_S):
            continue
        note = read_json(path) or {}
        image, program = str(note.get("image")), find_engine(str(note.get("engine")))
        if not image.startswith(OURS + ":") or program is None:
            unlink(path)
        elif _remove(program, image):
            unlink(path)
            gone.append(image)
        else:
            with contextlib.suppress(OSError):  # it is used: looked at again when as much time has passed
                os.utime(path)
    return gone


def _remove(program: str, image: str) -> bool:
    status, errors = _run(remove_image(program, image))
    return status == 0 or any(words in errors.lower() for words in _GONE)


def names_here(program: str) -> Dict[str, str]:
    """All names of images, each with its ID."""
    _, text = _run(list_images(program))
    found: Dict[str, str] = {}
    for line in text.splitlines():
        name, _, image = line.partition(" ")
        found[name] = image.strip()
    return found


def give_names_back(program: str, names: List[str], before: Dict[str, str]) -> None:
    """An archive has given its own names to its image, which has one of ours now: a name that was another image's is
    that one's again, a new one is nobody's. `before`: what `names_here` was before the archive was loaded."""
    for name in names:
        if name not in before:
            _run(remove_image(program, name))
        else:
            _run(tag_image(program, before[name], name))


def _run(command: List[str]) -> Tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=REMOVE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _place(home: Home) -> str:
    return os.path.join(home.base, "cache", "loaded")
