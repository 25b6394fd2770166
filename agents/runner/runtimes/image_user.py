"""What an image says of itself: its PYTHONPATH; and its user, and how it comes to own the directories of its run.

An image that is named by its ID, or by the archive that it came as, never changes, and an engine needs about as long
to describe it as to start a container: so what was found is kept in the cache.

The directories belong to the login and are closed to all others. Without root, the engine lets the image's user be
the login: what it writes then belongs to the login, as without a container. A login that is root gives it the
directories.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from agents.runner.cache.store import USERS, Cache
from agents.runner.files import read_json, write_file
from agents.runner.home import is_key
from agents.runner.programs import Program
from agents.runner.runtimes.loaded_images import archive_of

ANSWER_S = 20.0
# How many users a login without root has: the engine maps no higher number.
MAPPED = 65536
_ROOT = (0, 0)
_VARIABLES = "{{range .Config.Env}}{{println .}}{{end}}"


def user_of_image(cache: Cache, program: str, image: str, name: str, directory: str) -> Tuple[int, int]:
    """(user, group) as numbers.

    `name`: that of the run's container. What is made here has the same name: whoever removes the one
    removes the other.
    """
    found = _known(cache, image, "user", _is_user, lambda: _found(program, image, name, directory))
    return (found[0], found[1]) if found else _ROOT


def _is_user(kept: Any) -> bool:
    return isinstance(kept, list) and len(kept) == 2 and all(type(each) is int for each in kept)


def python_path_of_image(cache: Cache, known: Mapping[str, Any]) -> str | None:
    """PYTHONPATH of the image of this container, empty where it sets none. None: the engine did not answer."""
    image = str(known["image"])

    def ask() -> str | None:
        lines = _ask([known["program"], "image", "inspect", "--format", _VARIABLES, image])
        if lines is None:
            return None
        found = (line.partition("=")[2] for line in lines.splitlines() if line.startswith("PYTHONPATH="))
        return next(found, "")

    found: str | None = _known(cache, image, "python_path", lambda kept: isinstance(kept, str), ask)
    return found


def _known(
    cache: Cache, image: str, what: str, is_right: Callable[[Any], bool], ask: Callable[[], Any]
) -> Any:
    """What is kept of this image, or what `ask` finds: None is not kept."""
    key = archive_of(image) or image
    if not is_key(key):
        return ask()
    path = cache.path(USERS, key)
    # Shared: replicas that start together need not wait for each other, and all find the same.
    with cache.locked(USERS, key, shared=True):
        kept = read_json(path) or {}
        found = kept.get(what)
        if not is_right(found):
            found = ask()
            if found is not None:
                with contextlib.suppress(OSError):  # a full disk: it is asked for the next time
                    write_file(path, json.dumps({**kept, what: found}).encode())
    return found


def _found(program: str, image: str, name: str, directory: str) -> Tuple[int, int] | None:
    """What the engine says. Where the image names its user, its own files say which numbers that is. None: the engine
    did not answer."""
    asked = _ask([program, "image", "inspect", "--format", "{{.Config.User}}", image])
    if asked is None:
        return None
    user, _, group = asked.partition(":")
    if user in ("", "0", "root"):
        return _ROOT
    names = _names_of(program, image, name, directory)
    for entry in names["passwd"]:
        if user in (entry[0], entry[2]):
            found = int(entry[2]), int(entry[3])
            break
    else:
        # An engine refuses the name of nobody: it says so when it makes the container.
        found = (int(user), 0) if user.isdigit() else _ROOT
    if group:
        known = [int(entry[2]) for entry in names["group"] if entry[0] == group]
        found = found[0], int(group) if group.isdigit() else known[0] if known else found[1]
    return found


def as_login(user: Tuple[int, int]) -> List[str]:
    """Options by which this user of the image is the login itself. None for root, which is the login already."""
    if user == _ROOT or max(user) >= MAPPED:
        return []
    return ["--userns=keep-id:uid=%d,gid=%d" % user, "--user", "%d:%d" % user]


def give(user: Tuple[int, int], directories: Iterable[str]) -> None:
    """Give what these directories of this host have of root to this user. What another user has stays as it is."""
    if user == _ROOT:
        return
    for top in directories:
        # By descriptors: another replica may put a link in the place of a directory meanwhile.
        for _, below, files, place in os.fwalk(top, follow_symlinks=False):
            for name in (*below, *files):
                _give(name, user, place)
            if os.fstat(place).st_uid == 0:
                os.fchown(place, user[0], user[1])


def _give(name: str, user: Tuple[int, int], place: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # a replica that runs has removed it
        if os.stat(name, dir_fd=place, follow_symlinks=False).st_uid == 0:
            os.chown(name, user[0], user[1], dir_fd=place, follow_symlinks=False)


def _names_of(program: str, image: str, name: str, directory: str) -> Dict[str, List[List[str]]]:
    """The lines of the image's /etc/passwd and /etc/group, by parts. They are read from a container that never runs."""
    _ask([program, "create", "--pull=never", "--network=none", "--name", name, image, "true"])
    try:
        return {kind: _lines(program, name, directory, kind) for kind in ("passwd", "group")}
    finally:
        _ask([program, "rm", "--force", name])


def _lines(program: str, name: str, directory: str, kind: str) -> List[List[str]]:
    path = os.path.join(directory, "image." + kind)
    _ask([program, "cp", "%s:/etc/%s" % (name, kind), path])
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":") for line in file.read(1 << 20).splitlines()]
        os.unlink(path)
    except OSError:  # an image need not have it
        return []
    numbers = 1 if kind == "group" else 2  # a group has one, a user has a group as well
    return [
        each for each in lines if len(each) >= 2 + numbers and all(map(_is_number, each[2 : 2 + numbers]))
    ]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _ask(command: List[str]) -> str | None:
    """The output of an engine, None if it fails: the start of the container says why."""
    status, output = Program(command, with_stderr=False).answer(ANSWER_S)
    return output.strip() if status == 0 else None
