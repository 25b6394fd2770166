"""Packets of a shell's connection, read by an event loop as long as they are what the shell says.

Else each echo would wake paramiko's thread only for that to wake the loop. So the loop reads, and anything but output
(an end, a window, new keys) it hands to the thread, which does with it what it does with every packet and then waits
here again. At any time one of the two reads, and not the other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import paramiko
from paramiko.common import MSG_CHANNEL_DATA
from paramiko.packet import NeedRekeyException, Packetizer

log = logging.getLogger(__name__)

Packet = tuple[int, paramiko.Message]

READ_BYTES = 64 * 1024
# They tell a packet's length in the clear, which is how the loop knows that it can take it without waiting.
CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class PacketSocket(Protocol):
    """What packets come by: agents/ssh/sockets.py's QuickSocket."""

    def descriptor(self) -> int: ...
    def never_wait(self) -> None: ...
    def came(self, data: bytes) -> None: ...
    def has_packet(self) -> bool: ...


class PacketReader(Packetizer):
    """What paramiko's thread reads its packets from."""

    reader: LoopReader | None = None

    def read_message(self) -> Packet:
        return super().read_message() if self.reader is None else self.reader.next()

    def read_whole(self) -> Packet:
        """Where it is known that one has come; `read_message` waits for it."""
        return super().read_message()


class LoopReader:
    """Made on the loop, which reads from the next packet on. `arrived` is called there when some output was kept."""

    def __init__(
        self,
        transport: paramiko.Transport,
        way: PacketSocket,
        channel: paramiko.Channel,
        arrived: Callable[[], None],
    ) -> None:
        packets = transport.packetizer
        assert isinstance(packets, PacketReader)
        self._transport, self._packets, self._way = transport, packets, way
        self._channel, self._arrived = channel, arrived
        self._loop = asyncio.get_running_loop()
        # One of our own: that of a socket which another thread closes could be another's by the time we let go of it.
        self._fd = way.descriptor()
        self._ended = False
        self._handed: queue.SimpleQueue[Packet | Exception] = queue.SimpleQueue()
        packets.reader = self

    def next(self) -> Packet:
        """In paramiko's thread, which has done what it had to."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            raise EOFError from None  # the loop has gone, and whoever looked at it
        handed = self._handed.get()
        if isinstance(handed, Exception):
            raise handed
        return handed

    def close(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, EOFError())

    def _begin(self) -> None:
        if self._ended:
            return
        self._way.never_wait()
        # The host chooses anew with each exchange of keys; paramiko's thread makes it, and comes by here after that.
        cipher = getattr(self._transport, "remote_cipher", "")
        if cipher not in CIPHERS_FIRST:
            self._end(paramiko.SSHException(f"keys for {cipher or 'nothing'} amid a shell"))
        elif self._take():
            self._loop.add_reader(self._fd, self._read)

    def _end(self, problem: Exception) -> None:
        if not self._ended:
            self._ended = True
            self._hand(problem)
            os.close(self._fd)

    def _hand(self, what: Packet | Exception) -> bool:
        self._loop.remove_reader(self._fd)
        self._handed.put(what)
        return False

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
            if not data:
                raise EOFError
            self._way.came(data)
        except BlockingIOError:
            return
        except (OSError, EOFError) as problem:
            self._end(problem)
            return
        self._take()

    def _take(self) -> bool:
        """All packets that are there. False when the thread goes on instead."""
        kept = False
        try:
            while self._way.has_packet():
                packet = self._packets.read_whole()
                if not self._keep(*packet):
                    return self._hand(packet)
                kept = True
                if self._packets.need_rekey():
                    return self._hand(NeedRekeyException())
        except Exception as problem:
            self._end(problem)
            return False
        finally:
            if kept:
                self._tell()
        return True

    def _tell(self) -> None:
        try:
            self._arrived()
        except Exception:  # theirs; we go on reading, else nobody would see the end either
            log.exception("Who looks at a shell could not take its output.")

    def _keep(self, kind: int, message: paramiko.Message) -> bool:
        if kind != MSG_CHANNEL_DATA:
            return False
        if message.get_int() == self._channel.chanid:
            data = self._checked(message)
            if not self._transport.in_kex:
                self._channel.in_buffer.feed(data)
                return True
        message.rewind()
        return False

    def _checked(self, message: paramiko.Message) -> bytes:
        """paramiko makes up for bytes that lack with zeros, up to a megabyte, and looks after no window."""
        size, data = message.get_int(), message.get_remainder()
        if size != len(data):
            raise paramiko.SSHException(f"{len(data)} bytes of output that claim to be {size}")
        if len(self._channel.in_buffer) + size > self._channel.in_window_size:
            raise paramiko.SSHException("more output than the window has room for")
        return data
