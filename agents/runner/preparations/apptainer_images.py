"""An image for Apptainer: fetched and unpacked by it into the cache, with what its makers have said of it.

Apptainer's own cache of layers is thrown away afterwards: what is unpacked is not kept twice. So the registry is asked
what a name is before anything is fetched again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
from typing import Any, Callable, Dict, Tuple

from agents.runner.cache.images import ROOT, find_image, key_of, read_note, root_of, write_note
from agents.runner.cache.store import IMAGES, Cache
from agents.runner.files import delete_tree, read_json, unlink, write_file
from agents.runner.home import Home, is_key
from agents.runner.preparations.archive_contents import read_contents
from agents.runner.preparations.programs_output import run_on_terminal
from agents.runner.preparations.pull_guard import Guard
from agents.runner.preparations.registry import digest_of
from agents.runner.preparations.report import HOST, USER, Failed, Report
from agents.runner.runtimes.apptainer_options import DESCRIPTION

# How an engine names what was made on its host: there is no registry to ask.
LOCAL = "localhost/"
# A path that a shell takes for one word, or for several, and for nothing else.
_NO_SHELLS = re.compile(r"[\w/.,:=%@+~ -]*")
Check = Callable[[int, str], None]


def prepare_in_cache(
    what: Dict[str, Any], program: str, report: Report, home: Home, raise_if_failed: Check
) -> Dict[str, str]:
    """The same as `prepare_image`. `raise_if_failed` reads an exit status, and the words of the engine."""
    cache, image = Cache(home), str(what["image"])
    if what.get("id") and find_image(cache, str(what["id"])):
        return described(cache, str(what["id"]))
    with cache.locked(IMAGES, key_of(image)):
        here = find_image(cache, image)
        if here and (not what.get("always") or image.startswith(LOCAL)):
            return described(cache, here, read_note(cache, image))
        try:
            return Fetching(cache, what, program, report, raise_if_failed).run(here)
        except Failed as failed:
            if not here:
                raise
            report.message(str(failed))
            return described(cache, here, read_note(cache, image))


def described(cache: Cache, key: str, note: Dict[str, Any] | None = None) -> Dict[str, str]:
    """What the console is told. The entry is marked as used."""
    with cache.locked(IMAGES, key, shared=True):
        found = read_json(os.path.join(cache.path(IMAGES, key), DESCRIPTION)) or {}
    return {"id": key, "digest": str((note or found).get("digest") or "")}


class Fetching:
    """One image. The caller holds the lock of its name."""

    options: Tuple[str, ...] = ()

    def __init__(
        self, cache: Cache, what: Dict[str, Any], program: str, report: Report, raise_if_failed: Check
    ) -> None:
        self.cache, self.program, self.report, self.check = cache, program, report, raise_if_failed
        self.image, self.archive = str(what["image"]), str(what.get("archive") or "")
        self.credentials: Dict[str, Any] = what.get("credentials") or {}
        # All that is made on the way. It is deleted with the name, should this process be killed.
        self.part = cache.path(IMAGES, key_of(self.image)) + ".part"
        self.tmp = os.path.join(self.part, "tmp")
        # A link to that directory, if it had to be made elsewhere: whoever fetches the image next deletes both.
        self.link = os.path.join(self.part, "elsewhere")

    def run(self, here: str) -> Dict[str, str]:
        if self.image.startswith(LOCAL) and not self.archive:
            raise Failed(USER, "the image %s is not on this host, and in no registry" % self.image)
        asked = "" if self.archive else digest_of(self.image, self.credentials)
        note = read_note(self.cache, self.image)
        if here and asked and asked == note.get("asked"):
            return described(self.cache, here, note)
        self.clean()
        os.makedirs(self.part, 0o700)
        try:
            self.make_tmp()
            self.build()
            found = self.description()
            self.keep(found)
        finally:
            self.clean()
        key, digest = found["id"], "" if self.archive else found["digest"]
        write_note(self.cache, self.image, {"id": key, "digest": digest, "asked": asked})
        return {"id": key, "digest": digest}

    def make_tmp(self) -> None:
        """Apptainer writes the path of this directory into a line for a shell, without quotes: it must not hold
        quotes, backticks, newlines or any of `; & | ( ) < >`. Blanks do no harm, nor does a `$`."""
        if _NO_SHELLS.fullmatch(self.tmp):
            os.mkdir(self.tmp, 0o700)
            return
        self.tmp = tempfile.mkdtemp(prefix="trainyard-image-")
        os.symlink(self.tmp, self.link)

    def clean(self) -> None:
        with contextlib.suppress(OSError):
            delete_tree(os.readlink(self.link))
        delete_tree(self.part)

    def source(self) -> str:
        if not self.archive:
            return "docker://" + self.image
        kind = "oci-archive:" if read_contents(self.archive).is_layout else "docker-archive:"
        return kind + self.archive

    def build(self) -> None:
        self.report.message("%s %s" % ("unpacking" if self.archive else "pulling", self.image))
        env = dict(os.environ)
        env["APPTAINER_CACHEDIR"] = os.path.join(self.part, "cache")
        env["APPTAINER_TMPDIR"] = self.tmp
        if self.credentials:
            env["APPTAINER_DOCKER_USERNAME"] = str(self.credentials["username"])
            env["APPTAINER_DOCKER_PASSWORD"] = str(self.credentials["password"])
        root = os.path.join(self.tmp, ROOT)
        words = [self.program, "build", *self.options, "--force", "--sandbox", root, self.source()]
        self.check(*run_on_terminal(words, env, self.report, Guard(lambda: [self.part, self.tmp])))

    def description(self) -> Dict[str, Any]:
        """What the image is, as its registry or archive has it: Apptainer keeps that beside the layers."""
        blobs = os.path.join(self.part, "cache", "cache", "blob")
        try:
            digest = str(_load(os.path.join(blobs, "index.json"))["manifests"][-1]["digest"])
            manifest = _load(_blob(blobs, digest))
            key = str(manifest["config"]["digest"])
            config = _load(_blob(blobs, key)).get("config") or {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise Failed(HOST, "apptainer did not keep what the image is: %r" % error) from None
        return {"id": key.partition(":")[2], "digest": digest, **read_config(config)}

    def keep(self, found: Dict[str, Any]) -> None:
        """Move it to its place, unless the same image is there under another name."""
        key = found["id"]
        if not is_key(key):
            raise Failed(HOST, "%.100r is not the ID of an image" % key)
        if find_image(self.cache, key):
            return
        whole = os.path.join(self.part, "whole")
        os.mkdir(whole, 0o700)
        move_tree(os.path.join(self.tmp, ROOT), os.path.join(whole, ROOT))
        self.forget_variables(os.path.join(whole, ROOT))
        write_file(os.path.join(whole, DESCRIPTION), json.dumps(found).encode("ascii"))
        with self.cache.locked(IMAGES, key):
            if not os.path.isdir(root_of(self.cache, key)):
                self.cache.delete(IMAGES, key)
                os.rename(whole, self.cache.path(IMAGES, key))

    def forget_variables(self, root: str) -> None:
        forget_variables(root)


def read_config(config: Any) -> Dict[str, Any]:
    """What a run needs of it. Raises Failed if its makers have written something else there."""
    if not isinstance(config, dict):
        raise Failed(USER, "the configuration of the image is no object")
    for name in ("Env", "Entrypoint", "Cmd"):
        words = config.get(name) or []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise Failed(USER, "%s of the image is no list of texts: %.200r" % (name, words))
    return {
        "env": config.get("Env"),
        "entrypoint": config.get("Entrypoint"),
        "cmd": config.get("Cmd"),
        "workdir": config.get("WorkingDir"),
    }


def move_tree(source: str, target: str) -> None:
    """Move a directory, also one that its owner may not write, and to another disk. What is copied stays."""
    os.chmod(source, stat.S_IMODE(os.lstat(source).st_mode) | stat.S_IRWXU)  # to move it is to write its `..`
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copytree(source, target, symlinks=True)


def forget_variables(root: str) -> None:
    """Each run is given those of the image, as they are. Apptainer's script would set them after the run's own, and
    would take a `$` in them for a shell's."""
    place = os.path.join(root, ".singularity.d", "env")
    if os.path.realpath(place) == os.path.join(os.path.realpath(root), ".singularity.d", "env"):
        unlink(os.path.join(place, "10-docker2singularity.sh"))


def _blob(blobs: str, digest: str) -> str:
    kind, _, key = digest.partition(":")
    if kind != "sha256" or not is_key(key):
        raise ValueError(digest)
    return os.path.join(blobs, "blobs", "sha256", key)


def _load(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError(path)
    return found
