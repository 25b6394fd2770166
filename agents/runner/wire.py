"""The wire: one line of JSON, then as many raw bytes as its "n" says. Both directions, both ends.

The console imports this module too, so that both ends use the same framing.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Tuple

PROTOCOL = 1
MAX_HEADER = 64 * 1024
MAX_PAYLOAD = 8 * 1024 * 1024
# Login shells may print before us (motd, rc files). More junk than this comes from another program.
MAX_JUNK = 64 * 1024
PREFACE = b"TRAINYARD-RUNNER 1\n"
SHELL_PREFACE = b"TRAINYARD-SHELL 1\n"
FILES_PREFACE = b"TRAINYARD-FILES 1\n"
PUT_PREFACE = b"TRAINYARD-PUT-BLOB 1\n"
OUTPUTS_PREFACE = b"TRAINYARD-OUTPUTS 1\n"
STACKS_PREFACE = b"TRAINYARD-STACKS 1\n"

_SEAL = re.compile(r"[0-9a-f]{1,100}\Z")

Message = Dict[str, Any]


class WireError(Exception):
    """The other end broke the framing. Nothing after this point of the stream can be trusted: close it."""


def encode(message: Message, payload: bytes = b"") -> bytes:
    """The bytes of one message on the wire."""
    if payload:
        if len(payload) > MAX_PAYLOAD:
            raise WireError("a payload of %d bytes is over the limit of %d" % (len(payload), MAX_PAYLOAD))
        message = dict(message, n=len(payload))
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
    if len(line) > MAX_HEADER:
        raise WireError("a message line of %d bytes is over the limit of %d" % (len(line), MAX_HEADER))
    return line + payload


def refuse_constant(text: str) -> Any:
    raise ValueError("%s is not JSON" % text)


def _bounded_int(text: str) -> int:
    # int() of a digit string takes quadratic time: a line full of digits must not cost a second.
    if len(text) > 20:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)


def finite_float(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError("a number out of range")
    return value


def decode_object(line: bytes) -> Message:
    """One JSON object, strictly: no NaN, no giant numbers, no other type. Raises WireError."""
    try:
        value = json.loads(
            line.decode("utf-8"),
            parse_constant=refuse_constant,
            parse_int=_bounded_int,
            parse_float=finite_float,
        )
    except (ValueError, RecursionError) as error:
        raise WireError("not a JSON line: %s" % error) from None
    if not isinstance(value, dict):
        raise WireError("not a JSON object but %s" % type(value).__name__)
    return value


class Decoder:
    """Bytes in, whole messages out. Holds at most one unfinished message, never blocks, never guesses.

    With `preface=True` it first skips what a login shell printed, up to the runner's first line.
    """

    def __init__(self, preface: bool = False, max_payload: int = MAX_PAYLOAD) -> None:
        self._max_payload = max_payload
        self._buffer = bytearray()
        self._at = 0
        self._scanned = 0
        self._message: Message | None = None
        self._junk = 0
        self._broken: str | None = None
        self.greeted = not preface

    @property
    def unfinished(self) -> bool:
        """Whether a part of a message has arrived and waits for its rest."""
        return self._message is not None or len(self._buffer) > self._at

    def feed(self, data: bytes) -> List[Tuple[Message, bytes]]:
        """All messages completed by `data`.

        Messages that were complete before the framing broke are still returned. A WireError is raised when none is left
        to return, and at every later call.
        """
        if self._broken is not None:
            raise WireError(self._broken)
        self._buffer += data
        found: List[Tuple[Message, bytes]] = []
        try:
            while self._step(found):
                pass
        except WireError as error:
            self._broken = str(error)
            self._buffer.clear()
            if not found:
                raise
            return found
        del self._buffer[: self._at]
        self._scanned -= self._at
        self._at = 0
        return found

    def _step(self, found: List[Tuple[Message, bytes]]) -> bool:
        if self._message is None:
            line = self._line()
            if line is None:
                return False
            if not self.greeted:
                self._skip(line)
                return True
            message = decode_object(line)
            size = message.pop("n", 0)
            if type(size) is not int or not 0 <= size <= self._max_payload:
                raise WireError("a payload length of %.40r" % (size,))
            if type(message.get("t")) is not str:
                raise WireError("a message without a type")
            self._message, self._need = message, size
        if len(self._buffer) - self._at < self._need:
            return False
        found.append((self._message, bytes(self._buffer[self._at : self._at + self._need])))
        self._at += self._need
        self._scanned = max(self._scanned, self._at)
        self._message = None
        return True

    def _line(self) -> bytes | None:
        start = max(self._at, self._scanned)
        end = self._buffer.find(b"\n", start)
        length = (len(self._buffer) if end < 0 else end + 1) - self._at
        if length > MAX_HEADER:
            raise WireError("a message line of more than %d bytes" % MAX_HEADER)
        if end < 0:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = self._scanned = end + 1
        return line

    def _skip(self, line: bytes) -> None:
        # A prompt without a newline may stand before the preface on the same line.
        if (line + b"\n").endswith(PREFACE):
            self.greeted = True
            return
        self._junk += len(line) + 1
        if self._junk > MAX_JUNK:
            raise WireError("%d bytes of other output, but no runner" % self._junk)


def seal_of(message: Message) -> str:
    """The seal of a message, by which the console recognises it later. Runners cannot read it: they keep it and show
    it."""
    seal = message.get("seal")
    return seal if isinstance(seal, str) and _SEAL.match(seal) else ""
