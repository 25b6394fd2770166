"""Images of Apptainer: unpacked, so that a start copies nothing and mounts no file of an archive.

An image is an entry under the SHA-256 of its configuration, its ID in all engines. A name of an image is an entry too,
under the SHA-256 of the name: a note of the ID that it had when its registry was asked last.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict

from agents.runner.cache.store import IMAGES, Cache
from agents.runner.files import read_json, write_file
from agents.runner.home import is_key

ROOT = "root"


def key_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def root_of(cache: Cache, key: str) -> str:
    return os.path.join(cache.path(IMAGES, key), ROOT)


def find_image(cache: Cache, image: str) -> str:
    """The ID of an image that is here, by that or by a name of it; else ""."""
    key = image if is_key(image) else str(read_note(cache, image).get("id"))
    return key if is_key(key) and os.path.isdir(root_of(cache, key)) else ""


def read_note(cache: Cache, name: str) -> Dict[str, Any]:
    """`id`, `digest`: what the name was. `asked`: what its registry called it then."""
    return read_json(cache.path(IMAGES, key_of(name))) or {}


def write_note(cache: Cache, name: str, note: Dict[str, str]) -> None:
    cache.make(IMAGES)
    write_file(cache.path(IMAGES, key_of(name)), json.dumps(note).encode("ascii"))
