"""What a machine at the other end of an SSH connection may send: how large, how much, how often.

paramiko enforces neither the window nor the size of a packet, and answers as many key exchanges and small messages as
come. A hacked host could fill the memory of this process, or keep a core busy. A machine that goes beyond a limit is
disconnected, with the reason in the exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_DEBUG,
    MSG_IGNORE,
    MSG_KEXINIT,
)

# The largest packet that OpenSSH takes. sshd sends packets of about 32 KiB.
MAX_PACKET = 256 * 1024
# The lines before the version of the server, together.
MAX_BANNER_BYTES = 64 * 1024
# A host key or a signature. One of RSA with 16,384 bits has 2 KiB.
MAX_KEY_BYTES = 16 * 1024
# paramiko fills a field that is shorter than it claims with zeros, up to a megabyte. Up to here that does no harm.
MAX_FILLED_BYTES = 4096
# (at once, a second). sshd sends a keep-alive now and then.
HOUSEKEEPING_RATE = (2_000, 100.0)
# A new window answers what was sent: sshd sends one for each piece that its program has taken, mostly 64 KiB, of a slow
# program a page. So many are owed for so many bytes that were sent, at most for this much; the others are housekeeping.
BYTES_FOR_A_WINDOW, OWED_BYTES = 4096, 4 << 20
# A key exchange costs milliseconds of CPU. One is due after each half gigabyte, or when sshd's RekeyLimit says so.
KEY_EXCHANGE_RATE = (10, 0.2)
# Packets with output, beyond which the connection is read more slowly. Whole ones would be 260 MB a second.
OUTPUT_RATE = (20_000, 8_000.0)
STDERR = 1
_OUTPUT = frozenset({MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA})


class PeerMisbehaved(paramiko.SSHException):
    """The other end went beyond a limit. The connection has ended."""


class TokenBucket:
    """Lets `at_once` things through at once, and `per_s` a second in the long run."""

    def __init__(self, at_once: float, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._per_s, self._clock = at_once, per_s, clock
        self._left, self._looked_at = at_once, clock()

    def take(self, number: float = 1.0) -> bool:
        """Whether `number` more may pass now; if so, they are counted."""
        if self._refill() < number:
            return False
        self._left -= number
        return True

    def spend(self, number: float = 1.0) -> float:
        """Count `number` more in any case. Returns how many seconds to wait until the debt is paid."""
        self._left = self._refill() - number
        return max(0.0, -self._left / self._per_s)

    def _refill(self) -> float:
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._looked_at) * self._per_s)
        self._looked_at = now
        return self._left


class PacketLimits:
    """Counts the packets of one connection by their kinds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._housekeeping = TokenBucket(*HOUSEKEEPING_RATE, clock)
        self._key_exchanges = TokenBucket(*KEY_EXCHANGE_RATE, clock)
        self._output = TokenBucket(*OUTPUT_RATE, clock)
        self._banner_bytes = 0
        self._owed_bytes = 0

    def count_banner(self, size: int) -> None:
        self._banner_bytes += size
        if self._banner_bytes > MAX_BANNER_BYTES:
            raise PeerMisbehaved(f"it sent {self._banner_bytes} bytes before its SSH version")

    def count_sent(self, size: int) -> None:
        self._owed_bytes = min(OWED_BYTES, self._owed_bytes + size)

    def count_packet(self, kind: int, wanted: bool) -> float:
        """Count a packet. Returns how many seconds to wait after it.

        `wanted`: it is output of an open channel, and not empty, or answers our own request for new keys.
        """
        if kind in _OUTPUT and wanted:
            return self._output.spend()
        if kind == MSG_CHANNEL_WINDOW_ADJUST and self._owed_bytes >= BYTES_FOR_A_WINDOW:
            self._owed_bytes -= BYTES_FOR_A_WINDOW
            return 0.0
        if kind == MSG_KEXINIT and not wanted and not self._key_exchanges.take():
            raise PeerMisbehaved("it asks for one key exchange after the other")
        if not self._housekeeping.take():
            raise PeerMisbehaved(f"it sends one message after the other that brings no output (kind {kind})")
        return 0.0


class StrictMessage(paramiko.Message):
    """A message whose fields are not much longer than the message itself."""

    def get_bytes(self, n: int) -> bytes:
        if n > MAX_FILLED_BYTES and n > (left := len(self.get_remainder())):
            raise PeerMisbehaved(f"a field that claims {n} bytes in a message with {left} left")
        return super().get_bytes(n)


def checked_size(size: int) -> int:
    """The number of bytes to read for a packet, if a packet may have so many."""
    if size > MAX_PACKET:
        raise PeerMisbehaved(f"a packet of {size} bytes")
    return size


def harmless(kind: int, message: paramiko.Message) -> tuple[int, paramiko.Message]:
    """The packet as paramiko may handle it.

    Of a debug message paramiko makes a text, byte by byte, and throws it away: that could take a second. Such a message
    is allowed where one to be ignored is.
    """
    if kind in _OUTPUT or kind == MSG_CHANNEL_WINDOW_ADJUST:
        return kind, message
    strict = StrictMessage(message.asbytes())
    strict.seqno = message.seqno
    return MSG_IGNORE if kind == MSG_DEBUG else kind, strict


def checked_output(channel: paramiko.Channel, message: paramiko.Message) -> bytes:
    """The output in a message, if it is as long as it claims and the window has room for it."""
    size, data = message.get_int(), message.get_remainder()
    check_output(channel, size, data)
    return data


def check_output(channel: paramiko.Channel, claimed: int, data: bytes, kept: int = 0) -> None:
    """`kept`: the bytes of output that wait elsewhere than in the channel."""
    if claimed != len(data):
        raise PeerMisbehaved(f"{len(data)} bytes of output that claim to be {claimed}")
    if kept + len(channel.in_buffer) + len(channel.in_stderr_buffer) + claimed > channel.in_window_size:
        raise PeerMisbehaved("more output than the window has room for")


def keep_output(channel: paramiko.Channel, message: paramiko.Message) -> None:
    channel.in_buffer.feed(checked_output(channel, message))


def keep_stderr(channel: paramiko.Channel, message: paramiko.Message) -> None:
    if (kind := message.get_int()) != STDERR:
        raise PeerMisbehaved(f"output of the unknown kind {kind}")
    channel.in_stderr_buffer.feed(checked_output(channel, message))


def check_key(blob: bytes) -> None:
    """Check a host key before paramiko reads it: it takes quadratic time for a number that is as long as it claims."""
    _fields(blob, "a host key")


def check_signature(blob: bytes) -> None:
    fields = _fields(blob, "a signature")
    if len(fields) == 2 and fields[0].startswith(b"ecdsa-"):
        _fields(fields[1], "a signature")


def _fields(blob: bytes, what: str) -> list[bytes]:
    if len(blob) > MAX_KEY_BYTES:
        raise PeerMisbehaved(f"{what} of {len(blob)} bytes")
    fields: list[bytes] = []
    at = 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        if at + 4 + size > len(blob):
            raise PeerMisbehaved(f"{what} with a field that claims {size} bytes")
        fields.append(blob[at + 4 : at + 4 + size])
        at += 4 + size
    return fields
