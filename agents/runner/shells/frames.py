"""The frames between the console and the process that holds a shell on its host. Both ends import this module.

A frame is a head (kind, length, number) and so many bytes. The head is binary: a key is a frame, and each step of it
delays the echo. Both ends ignore kinds that they do not know; the meaning of a known kind never changes.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any, Dict, List, Tuple

from agents.runner.wire import WireError, decode_object

HEAD = Struct("!BIQ")
MAX_PAYLOAD = 64 * 1024
# How often each end sends a beat, and after how long a silence the other end is taken for unreachable.
BEAT_S = 3.0
SILENT_S = 10.0
# A shell that ends with its connection waits longer: its silence cannot be made good.
PATIENT_S = 30.0

# console → host: typed bytes; `number` is the offset of the first one among all that this client typed
IN = 1
# host → console: output; `number` is the offset of its first byte
OUT = 2
# host → console: so much of what this client typed has been taken; less need not be sent again
TOOK = 3
# console → host: the size of the terminal, columns << 32 | rows
SIZE = 4
# host → console: output before `number` is not kept any more; the payload sets the modes of the terminal
LOST = 5
# both ways, every BEAT_S
BEAT = 6
# console → host: end the shell; the payload is the reason
CLOSE = 7
# host → console: the shell is over; the last frame. The payload is a JSON object: status, signal, reason
END = 8
# both ways: a JSON object; keys that are not known are ignored
NOTE = 9

Frame = Tuple[int, int, bytes]


def frame(kind: int, number: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, len(payload), number) + payload


def json_frame(kind: int, document: Dict[str, Any]) -> bytes:
    return frame(kind, 0, json.dumps(document, separators=(",", ":")).encode("ascii"))


def json_line(document: Dict[str, Any]) -> bytes:
    """The line before the frames: a request, or its answer."""
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def json_of(payload: bytes) -> Dict[str, Any]:
    """The object of an END or a NOTE. Raises WireError."""
    return decode_object(payload)


class Frames:
    """Bytes in, whole frames out. Holds at most one unfinished frame, in `rest`."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> List[Frame]:
        """All frames that `data` completes. Raises WireError at a frame that is too long."""
        if self.rest:
            data = self.rest + data
        found, at, size = [], 0, len(data)
        while size - at >= HEAD.size:
            kind, length, number = HEAD.unpack_from(data, at)
            if length > MAX_PAYLOAD:
                raise WireError("a frame of %d bytes is over the limit of %d" % (length, MAX_PAYLOAD))
            end = at + HEAD.size + length
            if end > size:
                break
            found.append((kind, number, data[at + HEAD.size : end]))
            at = end
        self.rest = data[at:]
        return found
