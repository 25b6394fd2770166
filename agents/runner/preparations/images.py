"""An image that containers of this host can be made of: found, loaded from an archive, or pulled, once."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from typing import Any, Dict, FrozenSet, List

from agents.runner.home import Home
from agents.runner.preparations.apptainer_images import LOCAL, prepare_in_cache
from agents.runner.preparations.archive_names import (
    ArchiveNames,
    give_all_back,
    lock_of_loading,
)
from agents.runner.preparations.image_archives import (
    check_archive,
    prepare_archive_for_apptainer,
    shipped_archive,
)
from agents.runner.preparations.programs_output import run_on_terminal, run_quietly
from agents.runner.preparations.pull_guard import Guard
from agents.runner.preparations.report import CREDENTIALS, HOST, USER, Failed, Report
from agents.runner.preparations.sif import is_sif, prepare_sif
from agents.runner.runtimes.engine_commands import (
    APPTAINER,
    DOCKER,
    describe_image,
    find_engine,
    is_name_of,
    list_ids,
    load_image,
    parse_description,
    pull_image,
    say_size,
    say_storage,
    tag_image,
)
from agents.runner.runtimes.loaded_images import names_of, note_pull, note_use

# A name that no engine takes for an option or a path, and that has no letter which a terminal acts on.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,1000}\Z")
# What an engine says when the image that was asked for is the fault; anything else is a fault of the host or of the
# network, and may be over when it is tried again.
_WRONG_NAME = re.compile(
    "manifest unknown|not found|name unknown|unauthorized|authentication required|no basic auth|denied"
    "|invalid reference|no such image|image not known|did not resolve|no image found in|unsupported manifest"
    "|short-name",
    re.I,
)
_OF_THE_HOST = re.compile(
    "no space left|disk quota|connection refused|timeout|i/o error|server misbehaving", re.I
)


def prepare_image(what: Dict[str, Any], report: Report, home: Home) -> Dict[str, Any]:
    """`what`: `engine`, `image`; `archive` (the SHA-256 of a file that is shipped, also among `blobs`), `credentials`
    ({registry, username, password}), `always` (ask the registry although the image is here), `id` (nothing is asked if
    this one is here). The result: `id`, `digest`."""
    engine, image = str(what["engine"]), str(what["image"])
    program = find_engine(engine)
    if program is None:
        raise Failed(HOST, "%s is not installed on this host" % engine)
    if engine == APPTAINER and is_sif(image):
        return prepare_sif(what, program, report, home, raise_if_failed)
    if not _IMAGE.match(image):
        raise Failed(USER, "%.200r is not the name of an image" % image)
    if engine == APPTAINER:
        prepare = prepare_archive_for_apptainer if what.get("archive") else prepare_in_cache
        return prepare(what, program, report, home, raise_if_failed)
    env = dict(os.environ)
    found = look_up(program, str(what["id"]), env) if what.get("id") else None
    found = found or look_up_by_name(program, image, env, report, home)
    if found is None or (what.get("always") and not image.startswith(LOCAL)):
        found = fetch(what, program, found, env, report, home)
    if found is None:
        raise Failed(USER, "%s says that it has got the image, but does not know it as %s" % (engine, image))
    of_archive = bool(what.get("archive"))
    note_use(
        home, engine, image if of_archive else found["id"], size_of(program, image, env) if of_archive else 0
    )
    return found


def size_of(program: str, image: str, env: Dict[str, str]) -> int:
    """Its bytes, for people; 0 if the engine does not say."""
    words = run_quietly(say_size(program, image), env)[1].strip()
    return int(words) if words.isdigit() else 0


def ids_of(program: str, env: Dict[str, str]) -> FrozenSet[str] | None:
    """Those of all images that the engine has; None if it does not say."""
    status, output, _ = run_quietly(list_ids(program), env)
    return frozenset(line.rpartition(":")[2] for line in output.split()) if status == 0 else None


def fetch(
    what: Dict[str, Any],
    program: str,
    here: Dict[str, str] | None,
    env: Dict[str, str],
    report: Report,
    home: Home,
) -> Dict[str, str] | None:
    """Get the image. Where the registry cannot be asked, the one that is `here` has to do."""
    image = str(what["image"])
    try:
        if what.get("archive"):
            with shipped_archive(what, report, home) as path, lock_of_loading(home):
                names = ArchiveNames(program, env, home, str(what["archive"]))
                try:
                    load(what, program, path, env, report, names)
                finally:
                    give_all_back(home)
        else:
            there = ids_of(program, env)
            pull(str(what["engine"]), program, image, env, report, what.get("credentials"))
            pulled = look_up_by_name(program, image, env, report, home)
            if pulled is not None and there is not None and pulled["id"] not in there:
                # Others may have brought the same one meanwhile: by the name that they gave it, it stays.
                found = names_of(program, pulled["id"])[1] or []
                own = [name for name in found if is_name_of(name, image)]
                note_pull(home, str(what["engine"]), pulled["id"], size_of(program, image, env), own)
            return pulled
    except Failed as failed:
        if here is None:
            raise
        report.message(str(failed))
        return here
    return look_up_by_name(program, image, env, report, home)


def look_up_by_name(
    program: str, image: str, env: Dict[str, str], report: Report, home: Home
) -> Dict[str, str] | None:
    """As `look_up`. While an archive is loaded, a name may mean its image; so it may after a kill, until it is given
    back."""
    with lock_of_loading(
        home, waits=lambda: report.message("waiting while an image is loaded from an archive")
    ):
        give_all_back(home)
        return look_up(program, image, env)


def look_up(program: str, image: str, env: Dict[str, str]) -> Dict[str, str] | None:
    """(id, digest) of an image that is on this host. Raises Failed if the engine does not work."""
    status, output, errors = run_quietly(describe_image(program, image), env)
    if status == 0:
        return parse_description(output)
    if not _WRONG_NAME.search(errors):
        raise Failed(HOST, "%s: %s" % (os.path.basename(program), last_line(errors)))
    return None


def pull(
    engine: str, program: str, image: str, env: Dict[str, str], report: Report, credentials: Any
) -> None:
    report.message("pulling %s" % image)
    place = os.path.join(report.directory, CREDENTIALS)
    shutil.rmtree(place, ignore_errors=True)
    try:
        kept = keep_credentials(engine, place, credentials) if credentials else ""
        guard = Guard(lambda: places_of(engine, program, env))
        status, text = run_on_terminal(pull_image(engine, program, image, kept), env, report, guard)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    raise_if_failed(status, text)


def places_of(engine: str, program: str, env: Dict[str, str]) -> List[str]:
    """The directories whose disks an engine fills: its own, and the home of the login."""
    words = run_quietly(say_storage(engine, program), env)[1].strip()
    return [os.path.expanduser("~"), *([words] if words.startswith("/") else [])]


def keep_credentials(engine: str, place: str, credentials: Dict[str, Any]) -> str:
    """A file that only this login can read, for as long as the pull takes. Engines take them in no other way that other
    processes cannot see."""
    registry, name = str(credentials["registry"]), str(credentials["username"])
    secret = base64.b64encode(("%s:%s" % (name, credentials["password"])).encode()).decode()
    os.mkdir(place, 0o700)
    path = os.path.join(place, "config.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w") as file:
        json.dump({"auths": {registry: {"auth": secret}}}, file)
    return place if engine == DOCKER else path


def load(
    what: Dict[str, Any], program: str, path: str, env: Dict[str, str], report: Report, taken: ArchiveNames
) -> None:
    """Load the archive, and give its image the name that was asked for. `taken` notes its others, to be given back."""
    contents = check_archive(path, str(what["engine"]))
    report.message("loading the image")
    taken.note_before(contents.digests, contents.names())
    guard = Guard(lambda: places_of(str(what["engine"]), program, env))
    status, text = run_on_terminal(load_image(program, path), env, report, guard)
    raise_if_failed(status, text)
    names = re.findall(r"Loaded image(?:\(s\)| ID)?:\s*(\S+)", text)
    if not names:
        raise Failed(USER, "the archive holds no image: %s" % last_line(text))
    found = look_up(program, names[0], env)
    taken.note_loaded(
        found["id"] if found else "", [name for name in names if not name.startswith("sha256:")]
    )
    status, _, errors = run_quietly(tag_image(program, names[0], str(what["image"])), env)
    if status:
        raise Failed(HOST, last_line(errors))


def raise_if_failed(status: int, text: str) -> None:
    if status:
        words = last_line(text) or "it ended with status %d" % status
        of_host = _OF_THE_HOST.search(words) or not _WRONG_NAME.search(words)
        raise Failed(HOST if of_host else USER, words)


def last_line(text: str) -> str:
    """The engine's own words about what went wrong: its last line that is an error, else its last line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    return (errors or lines or [""])[-1][:600]
