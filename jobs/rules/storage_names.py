"""Names of buckets and objects, as people and Google's clients write them. Pure.

An object is also a file below `/gcs/BUCKET/` on hosts, so a name that no file could have is refused here, though
Google would take it: `..`, an empty part in the middle, a control character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.infra.texts import said

MAX_NAME_BYTES = 1024
BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9._-]{1,61})[a-z0-9]")
# Control characters of both sets, and what ends a line for some reader.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HALF = re.compile("[\ud800-\udfff]")
SCHEME = "gs://"


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """`gs://bucket/name`, taken apart. The name is empty for the bucket as a whole."""

    bucket: str
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.name}"


def address_of(uri: str) -> ObjectAddress | None:
    """The parts of a `gs://` address; None if it is none."""
    bucket, _, name = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or bucket_problem(bucket) or (name and object_problem(name)):
        return None
    return ObjectAddress(bucket, name)


def bucket_problem(name: str) -> str | None:
    """Why no bucket may have this name, as a sentence; None if one may."""
    if BUCKET.fullmatch(name) and ".." not in name:
        return None
    return said(
        "The name of a bucket has 3 to 63 small letters, digits, dashes, underscores and dots, and begins and ends "
        "with a letter or a digit."
    )


def object_problem(name: str) -> str | None:
    """Why no object may have this name, as a sentence; None if one may. A slash at the end marks a folder."""
    if not name:
        return said("An object needs a name.")
    if _HALF.search(name):
        return said("The name holds half of a surrogate pair, which is not text.")
    if len(name.encode()) > MAX_NAME_BYTES:
        return said("The name of an object may have at most {most} bytes.", most=MAX_NAME_BYTES)
    if _CONTROL.search(name):
        return said("The name of an object may not have control characters or ends of lines.")
    parts = name.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        return said(
            "The name of an object may not begin with a slash, have two slashes in a row, or a part that is . or .. :"
            " on hosts it is the path of a file."
        )
    return None


def after_prefix(prefix: bytes) -> bytes:
    """The first bytes, in their order, that come after everything that begins with `prefix`. UTF-8 has no byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
