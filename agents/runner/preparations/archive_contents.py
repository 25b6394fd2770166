"""What an archive of an image says that it holds. Nobody trusts the file: it is read entry by entry, in bounds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any, BinaryIO, Dict, List, NamedTuple

from agents.runner.cache.archives import BLOCK, FILE, BadArchive, Entry, entries, in_words
from agents.runner.preparations.report import HOST, USER, Failed

# The list of images in an archive, by its form. Those of newer versions of Docker have both.
OF_DOCKER, OF_OCI = "manifest.json", "index.json"
_LAYOUT = "oci-layout"
_MOST_BYTES, _MOST_ENTRIES = 16 << 20, 10_000
# What describes an image is small: its configuration, its manifest.
_SMALL = 1 << 20
_TAR = slice(257, 262), b"ustar"


class Contents(NamedTuple):
    """`images`: by the list that names them. `digests`: the SHA-256 of each small file. An engine calls an image by
    that of its configuration or of its manifest, so the ID of the archive's image is among them."""

    images: Dict[str, List[Any]]
    is_layout: bool
    digests: List[str]

    def names(self) -> List[str]:
        """All names that the archive gives to its images."""
        return [name for image in sum(self.images.values(), []) for name in names_of(image)]


def read_contents(path: str) -> Contents:
    """Raises Failed."""
    images: Dict[str, List[Any]] = {}
    is_layout, digests = False, set()
    try:
        with in_words(), open(path, "rb") as file, contextlib.closing(_of_tar(file)) as found:
            for number, entry in enumerate(found):
                name = entry.name.lstrip("./")
                if number >= _MOST_ENTRIES:
                    raise BadArchive("it has more than %d entries" % _MOST_ENTRIES)
                if name in images:
                    raise BadArchive("it has %s twice" % name)
                is_layout = is_layout or name == _LAYOUT
                if name in (OF_DOCKER, OF_OCI):
                    if entry.kind != FILE:  # engines follow a link there, to a list that nobody has looked at
                        raise BadArchive("its %s is no plain file" % name)
                    text = _read(entry)
                    images[name] = _listed(text)
                    digests.add(hashlib.sha256(text).hexdigest())
                elif entry.kind == FILE and entry.size <= _SMALL:
                    digests.add(hashlib.sha256(_read(entry)).hexdigest())
    except OSError as error:
        raise Failed(HOST, "%s: %s" % (path, os.strerror(error.errno or 0))) from None
    except BadArchive as error:
        raise Failed(
            USER, "the archive holds no image: it is no tar file, or a damaged one: %s" % error
        ) from None
    return Contents(images, is_layout, sorted(digests))


def names_of(image: Any) -> List[str]:
    """The names that an engine would give the image."""
    if not isinstance(image, dict):
        return []
    notes = image.get("annotations")
    found = [image.get("RepoTags"), list(notes.values()) if isinstance(notes, dict) else None]
    return [str(name) for names in found if isinstance(names, list) for name in names]


def _of_tar(file: BinaryIO) -> Any:
    place, magic = _TAR
    if file.read(512)[place] != magic:
        raise BadArchive("it does not begin as one")
    return entries(file)


def _read(entry: Entry) -> bytes:
    text = bytearray()
    with entry.open() as file:
        for part in iter(lambda: file.read(BLOCK), b""):
            text += part
            if len(text) > _MOST_BYTES:
                raise BadArchive("its list of images is too long")
    return bytes(text)


def _listed(text: bytes) -> List[Any]:
    found = json.loads(text)
    images = found.get("manifests") if isinstance(found, dict) else found
    return images if isinstance(images, list) else []
