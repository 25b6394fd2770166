"""Packets of AES-GCM (RFC 5647), sealed and opened in the few steps that they need: each step delays an echo.

paramiko keeps the state of a connection's packets in attributes of its Packetizer. The methods here read and write the
same ones (of the paramiko that is pinned), so its own methods and these may follow each other in any order. For all
that is rare (another cipher, compression, new keys that are due) they do nothing, and paramiko's methods are called.
"""

from __future__ import annotations

import os
from struct import Struct
from threading import RLock
from typing import Any, Protocol, cast

import paramiko
from paramiko.packet import Packetizer

# Of a packet: the length of what follows without the tag, and the length of the padding.
HEAD = Struct("!IB")
BLOCK_BYTES, TAG_BYTES = 16, 16
MIN_PADDING = 4
# What a packet has around its message at most: lengths, padding, tag.
MOST_AROUND = 5 + MIN_PADDING + BLOCK_BYTES + TAG_BYTES
# RFC 4253 allows no shorter packet.
MIN_PACKET = 12
LAST_NUMBER = 0xFFFFFFFF


class Aead(Protocol):
    """AESGCM of the package cryptography."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...
    def encrypt_into(
        self, nonce: bytes, data: memoryview, associated_data: memoryview, buf: memoryview, /
    ) -> int: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes, /) -> bytes: ...


class Piece:
    """A message with data of a channel, as paramiko sends one. Its parts are joined where they are sealed."""

    def __init__(self, head: bytes, data: memoryview) -> None:
        self.head, self.data = head, data

    def asbytes(self) -> bytes:
        return self.head + self.data

    def __len__(self) -> int:
        return len(self.head) + len(self.data)


class Batch:
    """Messages with data that follow each other: they are written together."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


class GcmPackets(Packetizer):
    _Packetizer__block_engine_out: Aead
    _Packetizer__block_engine_in: Aead
    _Packetizer__aead_out: bool
    _Packetizer__aead_in: bool
    _Packetizer__iv_out: bytes
    _Packetizer__iv_in: bytes
    _Packetizer__compress_engine_out: Any
    _Packetizer__compress_engine_in: Any
    _Packetizer__need_rekey: bool
    _Packetizer__sent_bytes: int
    _Packetizer__sent_packets: int
    _Packetizer__received_bytes: int
    _Packetizer__received_packets: int
    _Packetizer__sequence_number_out: int
    _Packetizer__sequence_number_in: int
    _Packetizer__remainder: bytes
    _Packetizer__write_lock: RLock
    # A long message before it was sealed, and packets that are written together.
    _plain = _packet = bytearray()

    def send_at_once(self, payload: bytes, fd: int) -> bool:
        """Send a short message through this descriptor of the socket. False, and nothing is sent, if it had to wait, or
        if paramiko is to send it."""
        lock = self._Packetizer__write_lock
        if not lock.acquire(blocking=False):
            return False
        try:
            if not self._may_seal(len(payload)):
                return False
            packet = self._sealed(payload)
            try:
                written = os.write(fd, packet)
            except OSError:
                return False  # no room, so no byte was sent; or the connection has ended, which its reader notices
            self._count_sent(len(packet))
            if written < len(packet):
                self.write_all(packet[written:])
            return True
        finally:
            lock.release()

    def send_message(self, data: paramiko.Message | Batch) -> None:
        with self._Packetizer__write_lock:
            if not isinstance(data, Batch):
                super().send_message(data)
            elif self._may_seal(sum(map(len, data.pieces)), len(data.pieces)):
                self._write_together(data.pieces)
            else:
                for piece in data.pieces:  # what paramiko asks for is `asbytes`
                    super().send_message(cast(paramiko.Message, piece))

    def _write_together(self, pieces: list[Piece]) -> None:
        """Each system call takes as long as to seal a packet."""
        room = sum(len(piece) + MOST_AROUND for piece in pieces)
        if len(self._packet) < room:
            self._packet = bytearray(room)
        out, end = memoryview(self._packet), 0
        for piece in pieces:
            size = self._seal_into(out[end:], piece.head, piece.data)
            self._count_sent(size)
            end += size
        self.write_all(out[:end])

    def _seal_into(self, out: memoryview, head: bytes, data: memoryview) -> int:
        """Make the packet of such a message there. Returns its size."""
        size = len(head) + len(data)
        padding = _padding(size)
        inner, packet = 1 + size + padding, 4 + 1 + size + padding + TAG_BYTES
        if len(self._plain) < inner:
            self._plain = bytearray(inner)
        plain = memoryview(self._plain)[:inner]
        out[:4] = inner.to_bytes(4, "big")
        plain[0] = padding
        plain[1 : 1 + len(head)] = head
        plain[1 + len(head) : 1 + size] = data
        plain[1 + size :] = bytes(padding)
        self._Packetizer__block_engine_out.encrypt_into(
            self._Packetizer__iv_out, plain, out[:4], out[4:packet]
        )
        return packet

    def _may_seal(self, size: int, packets: int = 1) -> bool:
        return (
            self._Packetizer__aead_out
            and self._Packetizer__compress_engine_out is None
            and not self._Packetizer__need_rekey
            and self._Packetizer__sent_packets + packets < self.REKEY_PACKETS
            and self._Packetizer__sent_bytes + size + 1024 * packets < self.REKEY_BYTES
            and self._Packetizer__sequence_number_out + packets <= LAST_NUMBER
        )

    def _sealed(self, payload: bytes) -> bytes:
        """The packet of a message. Its padding is zeros: it is encrypted like the rest."""
        padding = _padding(len(payload))
        head = HEAD.pack(1 + len(payload) + padding, padding)
        inner = head[4:] + payload + bytes(padding)
        return head[:4] + self._Packetizer__block_engine_out.encrypt(
            self._Packetizer__iv_out, inner, head[:4]
        )

    def _count_sent(self, size: int) -> None:
        self._Packetizer__iv_out = _next(self._Packetizer__iv_out)
        self._Packetizer__sequence_number_out += 1
        self._Packetizer__sent_bytes += size
        self._Packetizer__sent_packets += 1

    def may_open(self, size: int) -> bool:
        """Whether `open_packet` may open the next packet, of so many bytes."""
        return (
            self._Packetizer__aead_in
            and size >= MIN_PACKET + TAG_BYTES
            and self._Packetizer__compress_engine_in is None
            and not self._Packetizer__remainder
            and not self._Packetizer__need_rekey
            and self._Packetizer__received_packets + 1 < self.REKEY_PACKETS
            and self._Packetizer__received_bytes + size < self.REKEY_BYTES
            and self._Packetizer__sequence_number_in < LAST_NUMBER
        )

    def open_packet(self, packet: bytes) -> tuple[bytes, int]:
        """The message of a whole packet, and its number. Raises InvalidTag for one that is not the host's."""
        message = self.look_into(packet)
        number = self._Packetizer__sequence_number_in
        self.count_received(len(packet))
        return message, number

    def look_into(self, packet: bytes) -> bytes:
        """The message of the next packet, which is not received before it is counted. Raises InvalidTag."""
        inner = self._Packetizer__block_engine_in.decrypt(self._Packetizer__iv_in, packet[4:], packet[:4])
        return inner[1 : len(inner) - inner[0]]

    def count_received(self, size: int) -> None:
        self._Packetizer__iv_in = _next(self._Packetizer__iv_in)
        self._Packetizer__sequence_number_in += 1
        self._Packetizer__received_bytes += size
        self._Packetizer__received_packets += 1


def _padding(size: int) -> int:
    """How many bytes a message of this size is filled up with."""
    padding = BLOCK_BYTES - (1 + size) % BLOCK_BYTES
    return padding if padding >= MIN_PADDING else padding + BLOCK_BYTES


def _next(nonce: bytes) -> bytes:
    return nonce[:4] + (int.from_bytes(nonce[4:], "big") + 1).to_bytes(8, "big")
