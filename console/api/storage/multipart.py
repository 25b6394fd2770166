"""The body of a multipart upload: metadata as JSON, then the bytes of the object (multipart/related)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from console.api.errors import BadRequest
from console.api.views import not_text
from jobs.artifacts.storage import READ_BYTES

# The metadata and both heads must be in the first bytes.
HEAD_BYTES = 256 * 1024
BOUNDARY = re.compile(r"[\x20-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class Related:
    """The metadata, the type that the second head says, and where in the file the bytes of the object are."""

    metadata: Any
    content_type: str
    start: int
    end: int


def read(path: Path, content_type: str) -> Related:
    """Take such a body apart, without reading its bytes. Raises BadRequest."""
    mark = b"--" + _boundary(content_type).encode()
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        size = file.seek(0, 2)
        file.seek(max(size - len(mark) - 16, 0))
        tail = file.read()
    end_mark = tail.rfind(b"\r\n" + mark + b"--")
    begin = head.find(mark + b"\r\n")
    first = _after_head(head, begin + len(mark)) if begin >= 0 else -1
    second = head.find(b"\r\n" + mark + b"\r\n", first) if first >= 0 else -1
    start = _after_head(head, second + 2 + len(mark)) if second >= 0 else -1
    end = size - len(tail) + end_mark
    if start < 0 or end_mark < 0 or end < start:
        raise BadRequest("", "The body must be metadata as JSON and then the bytes, as multipart/related.")
    return Related(json_of(head[first:second]), _type_of(head[second + 2 + len(mark) : start]), start, end)


def json_of(text: bytes) -> Any:
    """The metadata of an object. Raises BadRequest."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("", "The metadata of the object must be JSON.") from None
    if (field := not_text(found)) is not None:
        raise BadRequest(field, "The metadata holds NUL or half of a surrogate pair, which is not text.")
    return found


def _boundary(content_type: str) -> str:
    message = Message()
    message["content-type"] = content_type.replace("\r", "").replace("\n", "")
    boundary = message.get_boundary("")
    if message.get_content_type() != "multipart/related" or not BOUNDARY.fullmatch(boundary):
        raise BadRequest("Content-Type", "Content-Type must be multipart/related with a boundary.")
    return boundary


def _after_head(data: bytes, at: int) -> int:
    """Where the body of a part begins, whose head begins at `at`; -1 if it is not there."""
    if data[at : at + 4] == b"\r\n\r\n":
        return at + 4
    end = data.find(b"\r\n\r\n", at)
    return end + 4 if end >= 0 else -1


def _type_of(head: bytes) -> str:
    found = re.search(rb"(?im)^content-type:[ \t]*([\x20-\x7e]*?)[ \t]*\r$", head)
    return found[1].decode() if found else ""


def bytes_of(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while start < end and (piece := file.read(min(READ_BYTES, end - start))):
            start += len(piece)
            yield piece
