"""What trainers and reducers say to each other: raw bytes behind fixed headers.

A connection begins with a proof on both sides that the secret of the job is known. Then the trainer sends buckets and
gets their means back, each cut into chunks. A bucket is known by its stream (which model) and its number there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from typing import List, NamedTuple, Tuple

VERSION = 2
# At 100 Mbit/s larger send buffers void the turns that reducers take: the kernel swallows a whole slice for the first
# of them. Measured: 1.6 times as fast as a ring with 32 KiB and chunks of 16 KiB, 1.2 times with 64 and 32 KiB.
CHUNK = 16 * 1024
SEND_BUFFER = 32 * 1024
# A reducer says every few seconds that it is there, and is lost to a trainer that hears nothing for longer. The kernel
# must not judge it: TCP_USER_TIMEOUT also counts the time in which a reducer does not read, and it does not while it
# waits for another trainer.
BEAT_S, SILENT_S = 5.0, 20.0
# A trainer always reads, but its program may hold the interpreter, or be stopped, for a while.
KEEPALIVE_S, TRAINER_SILENT_S = 20, 60
SECRET_VARIABLE = "TRAINYARD_REDUCTION_SECRET"

# A frame: what it is, flags, its stream, how many bytes follow.
FRAME = struct.Struct("<BBHI")
BUCKET, CHUNK_OF, GOODBYE, FAILED, LOST, BEAT = 1, 2, 3, 4, 5, 6
# What is said about a bucket: its number, its bytes at this reducer, the kind of its numbers.
ABOUT = struct.Struct("<QQB7x")
# Flags of a bucket. A trainer without inputs sends zeros (`join`), and then the others may divide by those that
# have some.
EMPTY, BY_SENDERS = 1, 2
FLOAT32, FLOAT16, BFLOAT16, FLOAT64 = 0, 1, 2, 3
ITEM = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2, FLOAT64: 8}
NAMES = {FLOAT32: "float32", FLOAT16: "float16", BFLOAT16: "bfloat16", FLOAT64: "float64"}
MAX_SENTENCE = 2000
# Why a reducer gives up a session: its code, and a sentence.
REASON = struct.Struct("<H")
DISAGREE, GONE, REDUCER_LOST, LATE, REFUSED = 1, 2, 3, 4, 5

# How long trainers wait for one that sends nothing, unless their group has another timeout: torch's own.
PATIENCE_S = 30 * 60

_MAGIC = b"TYRS"
_GREETING = struct.Struct("<4sHxx16s")
# Version, index among the trainers, how many there are, for how many seconds they wait, which session.
_HELLO = struct.Struct("<4sHxxIII16s16s")
_PROOF = 32


class Unfit(Exception):
    """The other end is not what it should be. The message is for people."""


class Trainer(NamedTuple):
    """Who connects to a reducer."""

    number: int
    trainers: int
    session: bytes
    patience_s: int = PATIENCE_S


def slices(numbers: int, item: int, reducers: int) -> List[Tuple[int, int]]:
    """Where each reducer's part of a bucket begins and ends, in bytes."""
    edges = [numbers * reducer // reducers * item for reducer in range(reducers + 1)]
    return [(edges[each], edges[each + 1]) for each in range(reducers)]


def frame(kind: int, size: int, stream: int = 0, flags: int = 0) -> bytes:
    return FRAME.pack(kind, flags, stream, size)


def reason(code: int, sentence: str) -> bytes:
    """A whole frame that says why a session ends."""
    text = sentence.encode("utf-8", "replace")[:MAX_SENTENCE]
    return frame(FAILED, REASON.size + len(text)) + REASON.pack(code) + text


def tune(connection: socket.socket, silent_s: int = 0) -> None:
    """Small buffers, no delay, and an end that comes by itself when the other host is gone: also so many seconds after
    something was sent that is not acknowledged."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S // 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 4)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silent_s * 1000)


def greet(connection: socket.socket, trainer: Trainer, secret: bytes, until: float) -> None:
    """The trainer's half of the beginning. Raises OSError and Unfit."""
    version, nonce = parse_greeting(read(connection, _GREETING.size, until))
    if version != VERSION:
        raise Unfit("it speaks version %d and this trainer version %d" % (version, VERSION))
    own = os.urandom(16)
    numbers = trainer.number, trainer.trainers, trainer.patience_s
    hello = _HELLO.pack(_MAGIC, VERSION, *numbers, trainer.session, own)
    connection.sendall(hello + _proof(secret, b"trainer", nonce + hello))
    answer = read(connection, _PROOF, until)
    if not hmac.compare_digest(answer, _proof(secret, b"reducer", own + nonce)):
        raise Unfit("it does not know the secret of this job")


def parse_greeting(data: bytes) -> Tuple[int, bytes]:
    magic, version, nonce = _GREETING.unpack(data)
    if magic != _MAGIC:
        raise Unfit("it is no reducer")
    return version, nonce


def receive(connection: socket.socket, secret: bytes, until: float) -> Trainer:
    """The reducer's half. It says nothing to a stranger but a random number. Raises OSError and Unfit."""
    nonce = os.urandom(16)
    connection.sendall(_GREETING.pack(_MAGIC, VERSION, nonce))
    hello = read(connection, _HELLO.size, until)
    magic, version, index, count, patience_s, session, own = _HELLO.unpack(hello)
    if magic != _MAGIC:
        raise Unfit("it is no trainer")
    if version != VERSION:
        raise Unfit("it speaks version %d and this reducer version %d" % (version, VERSION))
    proof = read(connection, _PROOF, until)
    if not hmac.compare_digest(proof, _proof(secret, b"trainer", nonce + hello)):
        connection.sendall(bytes(_PROOF))  # no proof: the trainer need not wait for one
        raise Unfit("it does not know the secret of this job")
    if not 0 <= index < count <= 1 << 16:
        raise Unfit("it calls itself trainer %d of %d" % (index, count))
    connection.sendall(_proof(secret, b"reducer", own + nonce))
    return Trainer(index, count, session, patience_s)


def _proof(secret: bytes, role: bytes, text: bytes) -> bytes:
    return hmac.new(secret, role + b"\0" + text, hashlib.sha256).digest()


def read(connection: socket.socket, size: int, until: float) -> bytes:
    """Exactly so many bytes, before this moment (of time.monotonic)."""
    data = b""
    while len(data) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise socket.timeout("no answer in time")
        connection.settimeout(left)
        piece = connection.recv(size - len(data))
        if not piece:
            raise OSError("it closed the connection")
        data += piece
    return data


def split_addresses(text: str) -> List[Tuple[str, int]]:
    """`10.0.0.1:7000,[fd00::1]:7000`"""
    found = []
    for address in filter(None, text.split(",")):
        host, _, port = address.rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found
