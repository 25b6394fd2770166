"""Images that runners brought into an engine, from archives of the storage or by a pull: their names there, when they
were used last, and how they are thrown away. Other images of an engine are its admin's and its users': they are never
touched. One that was there before a pull has brought it once more is theirs, too; so is one that has got another name
since. The name of a pull moves on when it is pulled anew: then the other name would be the only one, and go.

A note for each lies beside the deployments, which share the engine of their login; its time is that of the last use. It
says since when the image is here, and how large it is.
The engine refuses to remove an image of which it has a container. A run that comes just too late finds its image gone,
which makes the console ask for it anew.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from typing import Any, Dict, List, Sequence, Tuple

from agents.runner.cache.store import UNUSED_S, UNUSED_SHORT_S, is_short_of_room
from agents.runner.files import read_json, unlink, whole, write_file
from agents.runner.home import Home, is_key
from agents.runner.programs import Program, output_of
from agents.runner.runtimes.engine_commands import (
    describe_image,
    find_engine,
    parse_names,
    remove_image,
    say_storage,
)

# An engine keeps the image of an archive under this name, with the SHA-256 of the archive.
OURS = "localhost/trainyard/archive"
ANSWER_S, REMOVE_S, TIMED_OUT = 20.0, 300.0, 124
# The end of a note of names that an archive may have taken (archive_names.py).
NAMES = ".names"
_NOTE = re.compile(r"([a-z]{1,20})-([0-9a-f]{64})\Z")
_GONE = ("image not known", "no such image")
# What podman and docker say of an image of which there is a container.
_USED = ("in use", "is using", "used by")
# The same of one that was pulled and to which somebody gave a further name.
_NAMED = ("multiple repositories", "more than one tag")
OTHER_NAME = "it has a name that no pull of a job gave it"


def name_of_archive(sha256: str) -> str:
    return "%s:%s" % (OURS, sha256)


def archive_of(image: str) -> str:
    """The SHA-256 of the archive that this image came as; "" for other images."""
    ours, _, sha256 = image.rpartition(":")
    return sha256 if ours == OURS and is_key(sha256) else ""


def place_of_notes(home: Home) -> str:
    """No deployment can have this name."""
    return os.path.join(home.root, "loaded_images")


def note_use(home: Home, engine: str, image: str, size: int = 0) -> None:
    """The engine has this image, and somebody is about to use it. One that was pulled is named by its ID. `size`: its
    bytes, where they are known."""
    if archive_of(image):
        _note(home, engine, archive_of(image), size, False)
    elif is_key(image) and os.path.exists(_path(home, engine, image)):
        _note(home, engine, image, size, True)


def note_pull(home: Home, engine: str, image_id: str, size: int, names: Sequence[str]) -> None:
    """A pull has brought this image, which was not here before. `names`: those that it has now."""
    if is_key(image_id):
        _note(home, engine, image_id, size, True, names)


def names_of(program: str, image: str) -> Tuple[int, List[str] | None]:
    """(status of the engine, the names that it has for this image; None if it does not say them)."""
    status, text = Program(describe_image(program, image), with_stderr=False).answer(ANSWER_S)
    return status, parse_names(text)


def _path(home: Home, engine: str, key: str) -> str:
    return os.path.join(place_of_notes(home), "%s-%s" % (engine, key))


def _note(home: Home, engine: str, key: str, size: int, pulled: bool, names: Sequence[str] = ()) -> None:
    note = read_json(_path(home, engine, key)) or {}
    note = {
        "since": whole(note.get("since")) or int(time.time()),
        "size": size or whole(note.get("size")),
        "pulled": pulled,
        "names": list(names) or note.get("names"),
    }
    with contextlib.suppress(OSError):  # a full disk: it is noted the next time
        os.makedirs(place_of_notes(home), 0o700, exist_ok=True)
        write_file(_path(home, engine, key), json.dumps(note).encode())


def _image_of(path: str, key: str) -> str:
    """What the engine knows the image of this note by."""
    return key if (read_json(path) or {}).get("pulled") is True else name_of_archive(key)


def loaded_images(home: Home) -> List[Tuple[str, str, Any, int, int]]:
    """(engine, SHA-256 of the archive or ID, bytes or None, since, last use) of each."""
    place, found = place_of_notes(home), []
    for used, _, path in _unused(place, math.inf):
        name = _NOTE.match(os.path.basename(path))
        if name is not None:
            note = read_json(path) or {}
            since, size = whole(note.get("since")) or int(used), whole(note.get("size")) or None
            found.append((name.group(1), name.group(2), size, since, int(used)))
    return found


def remove_loaded(home: Home, engine: str, key: str) -> str:
    """Remove this image. Why it stays, for people; "" if it is gone."""
    seen = _look(_path(home, engine, key))
    program = find_engine(engine)
    if not seen[1]:
        return ""
    if program is None:
        return "%s is not on this host now" % engine
    words = _remove(program, _image_of(seen[2], key), seen)
    return "" if words is None else words or "it was used just now"


def has_loaded(home: Home) -> bool:
    return os.path.isdir(place_of_notes(home)) and bool(os.listdir(place_of_notes(home)))


def throw_away(home: Home, now: float) -> List[str]:
    """Remove the images that nothing has used for long, the longest unused first, until there is room. Returns their
    names."""
    place, gone = place_of_notes(home), []
    roots: Dict[str, str] = {}
    for seen in _unused(place, now - UNUSED_SHORT_S):
        is_old, path = seen[0] <= now - UNUSED_S, seen[2]
        note = _NOTE.match(os.path.basename(path))
        if note is None:
            # Of a process that was killed: a draft, or what names were before an archive was loaded.
            if is_old:
                unlink(path)
            continue
        engine, image = note.group(1), _image_of(path, note.group(2))
        program = find_engine(engine)
        if program is None:
            continue  # it may come back, with its images
        if engine not in roots:
            roots[engine] = _root_of(engine, program, place)
        if (is_old or is_short_of_room(roots[engine])) and _remove(program, image, seen) is None:
            gone.append(image)
    return gone


def _remove(program: str, image: str, seen: Tuple[float, int, str]) -> str | None:
    """None if it is gone, else the engine's words. `seen`: the note. One that is another by now is of a use meanwhile:
    it stays, and so does its image if it may."""
    path = seen[2]
    if _look(path) != seen:
        return ""
    if is_key(image) and not _has_no_other_name(program, image, path):
        status, text = 1, OTHER_NAME
    else:
        status, text = output_of(remove_image(program, image), REMOVE_S)
    is_gone = status == 0 or any(words in text.lower() for words in _GONE)
    if _look(path) == seen:
        if is_gone:
            unlink(path)
        elif any(words in text.lower() for words in (*_USED, *_NAMED, OTHER_NAME)):
            with contextlib.suppress(OSError):  # looked at again when as much time has passed
                os.utime(path)
    return None if is_gone else text.strip()[-300:]


def _has_no_other_name(program: str, image: str, path: str) -> bool:
    """Whether an image that was pulled has the names of the pull at most."""
    status, found = names_of(program, image)
    if status not in (0, TIMED_OUT):
        return True  # the image is gone, or the engine does not work: the removal says which
    noted = (read_json(path) or {}).get("names")
    return found is not None and set(found) <= set(noted if isinstance(noted, list) else ())


def _unused(place: str, since: float) -> List[Tuple[float, int, str]]:
    """(time, inode, path) of the notes that are as old, the oldest first."""
    names = os.listdir(place) if os.path.isdir(place) else []
    found = [_look(os.path.join(place, name)) for name in names]
    return sorted(each for each in found if each[1] and each[0] <= since)


def _look(path: str) -> Tuple[float, int, str]:
    try:
        found = os.lstat(path)
    except OSError:
        return 0.0, 0, path
    return found.st_mtime, found.st_ino, path


def _root_of(engine: str, program: str, place: str) -> str:
    """Where the engine has its images: often on another disk than the home. If it does not say it, `place`."""
    status, text = Program(say_storage(engine, program), with_stderr=False).answer(ANSWER_S)
    root = text.strip()
    return root if status == 0 and os.path.isdir(root) else place
