"""Let an event loop read the packets of a shell's connection as long as they hold output of the shell.

Otherwise each echo would wake paramiko's thread, and the thread would only wake the loop. So the loop reads. A packet
that is not output (an end, a window, new keys) it hands over to paramiko's thread, which handles it as it handles every
packet and then waits here again. At any time exactly one of the two reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Protocol

import paramiko
from cryptography.exceptions import InvalidTag
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_KEXINIT,
)
from paramiko.packet import NeedRekeyException

from agents.ssh.gcm_packets import TAG_BYTES, GcmPackets
from agents.ssh.peer_limits import PacketLimits, check_output, checked_size, harmless

log = logging.getLogger(__name__)

Packet = tuple[int, paramiko.Message]
# Shows output before which nothing waits. False: it is shown by no means yet, and is to be kept.
ShowOutput = Callable[[bytes], bool]

READ_BYTES, SHORT_READ_BYTES = 64 * 1024, 2 * 1024
MAX_KEPT = 1024
# The packet of a short piece of output, with all that is around it.
MAX_ECHO_PACKET = 1024
# So long a connection that sends too many packets is not read at a time.
LONGEST_PAUSE_S = 0.5
# So many packets the loop reads at a time, and at least so long it pauses where the limits want a pause: READ_BYTES can
# be 1,800 packets, for which the loop would need 0.1 s.
TURN_PACKETS, SHORTEST_PAUSE_S = 32, 0.02
# These ciphers leave the length of a packet in the clear, so that the loop knows when it can read one without waiting.
CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


# The head of a message with data of a channel (RFC 4254, 5.2): kind of message, channel, length.
DATA = Struct("!BII")


class PacketSocket(Protocol):
    """What a reader of packets needs of its socket. QuickAckSocket (agents/ssh/sockets.py) implements it."""

    def descriptor(self) -> int: ...
    def stop_waiting(self) -> None: ...
    def has_unread(self) -> bool: ...
    def feed(self, data: bytes) -> None: ...
    def acknowledge(self) -> None: ...
    def packet_size(self) -> int: ...
    def can_send_small_message(self) -> bool: ...
    def recv(self, size: int) -> bytes: ...


class PacketReader(GcmPackets):
    """The packetizer of a connection: paramiko's thread reads its packets here, within the limits for the other end.

    `is_open` tells whether a channel of that number is open; the connection sets it.
    """

    reader: LoopReader | None = None

    def __init__(self, socket: socket.socket) -> None:
        super().__init__(socket)
        self._limits = PacketLimits()
        self.is_open: Callable[[int], bool] = lambda number: False
        # The number that paramiko had counted when it was looked at.
        self._counted = 0

    def read_message(self) -> Packet:
        kind, message = super().read_message() if self.reader is None else self.reader.next()
        if kind == MSG_CHANNEL_WINDOW_ADJUST:
            self._count_sent_bytes()
        wait_s = self._limits.count_packet(kind, self._is_wanted(kind, message))
        if wait_s > 0:
            time.sleep(min(wait_s, LONGEST_PAUSE_S))
        return harmless(kind, message)

    def count_output(self, size: int) -> float:
        """Count output that the loop has read. Returns how many seconds to wait after it."""
        return self._limits.count_packet(MSG_CHANNEL_DATA, size > 0)

    def _count_sent_bytes(self) -> None:
        """What was sent since the last look. paramiko begins at 0 again with each key exchange."""
        sent = self._Packetizer__sent_bytes
        self._limits.count_sent(sent - self._counted if sent >= self._counted else sent)
        self._counted = sent

    def _is_wanted(self, kind: int, message: paramiko.Message) -> bool:
        """Whether it is output of an open channel, and not empty, or the answer to our own request for new keys."""
        if kind == MSG_KEXINIT:
            return self.need_rekey()
        if kind not in (MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA):
            return False
        channel = message.get_int()
        if kind == MSG_CHANNEL_EXTENDED_DATA:
            message.get_int()
        size = message.get_int()
        message.rewind()
        return size > 0 and self.is_open(channel)

    def read_whole(self, socket: PacketSocket, size: int) -> tuple[bytes, int]:
        """The message of a packet that has arrived whole, of so many bytes, and its number. `read_message` waits for
        one."""
        if self.may_open(size):
            return self.open_packet(socket.recv(size))
        kind, message = super().read_message()
        return bytes((kind,)) + message.asbytes(), message.seqno

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        # A packet is read in two pieces. The second one is as long as the packet claims, whatever the cipher.
        return super().read_all(checked_size(n), check_rekey)

    def _read_timeout(self, timeout: float) -> bytes:
        # paramiko reads the lines before the server's version by this, and limits neither of them.
        data: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self._limits.count_banner(len(data))
        return data


class LoopReader:
    """Reads from the next packet on. Made on the event loop, where `on_output` is called after output was kept.

    A short piece of output that comes alone, as an echo does, is offered to `show` first, which keeps nothing.
    """

    def __init__(
        self,
        transport: paramiko.Transport,
        socket: PacketSocket,
        channel: paramiko.Channel,
        on_output: Callable[[], None],
        show: ShowOutput | None = None,
    ) -> None:
        packets = transport.packetizer
        assert isinstance(packets, PacketReader)
        self._transport, self._packets, self._socket = transport, packets, socket
        self._channel, self._on_output, self._show = channel, on_output, show
        self._loop = asyncio.get_running_loop()
        # A duplicate: when another thread closes the socket, the number of its descriptor may soon mean another file.
        self._fd = socket.descriptor()
        self._ended = False
        # How long to wait before the next packet is read.
        self._pause_s = 0.0
        # A short piece of output, which came before all that is in the channel's buffer: an echo needs no locks.
        self.kept = b""
        # How much to read at once: less where less comes, so that an echo needs no large piece of memory.
        self._read_bytes = SHORT_READ_BYTES
        self._handed_over: queue.SimpleQueue[Packet | Exception] = queue.SimpleQueue()
        packets.reader = self

    def next(self) -> Packet:
        """Wait, in paramiko's thread, for the next packet that the loop hands over."""
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:
            raise EOFError from None  # the loop is closed, and with it the viewer of this shell
        handed = self._handed_over.get()
        if isinstance(handed, Exception):
            raise handed
        return handed

    def send(self, data: bytes) -> bool:
        """Send a short piece of input, on the event loop. False, and nothing is sent, if it had to wait: for a key
        exchange, for another thread that sends, for the host's window or for the socket."""
        channel, lock = self._channel, self._transport.clear_to_send_lock
        # A socket that is nearly full might take a part of the packet, and the loop would wait for the rest.
        if self._ended or not self._socket.can_send_small_message() or not lock.acquire(blocking=False):
            return False
        try:
            if not self._transport.clear_to_send.is_set():
                return False
            with channel.lock:
                if channel.closed or channel.eof_sent or channel.out_window_size < len(data):
                    return False
                head = DATA.pack(MSG_CHANNEL_DATA, channel.remote_chanid, len(data))
                if not self._packets.send_at_once(head + data, self._fd):
                    return False
                channel.out_window_size -= len(data)
                return True
        finally:
            lock.release()

    def take(self) -> bytes:
        """The output in `kept`."""
        kept, self.kept = self.kept, b""
        return kept

    def close(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, EOFError())

    def _start(self) -> None:
        if self._ended:
            return
        self._socket.stop_waiting()
        # Each key exchange chooses the cipher anew. paramiko's thread does the exchange and comes here again after it.
        cipher = getattr(self._transport, "remote_cipher", "")
        if cipher not in CIPHERS_FIRST:
            self._end(
                paramiko.SSHException(
                    f"the host changed to cipher {cipher or 'none'} while the shell was open"
                )
            )
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Read what has arrived, then what will. Called where the loop does not watch the socket."""
        if not self._ended and self._read_packets():
            self._loop.add_reader(self._fd, self._read)

    def _end(self, problem: Exception) -> None:
        if not self._ended:
            self._ended = True
            self._hand_over(problem)
            os.close(self._fd)

    def _hand_over(self, item: Packet | Exception) -> bool:
        self._loop.remove_reader(self._fd)
        self._handed_over.put(item)
        return False

    def _read(self) -> None:
        try:
            data = os.read(self._fd, self._read_bytes)
            if not data:
                raise EOFError
        except BlockingIOError:
            return
        except (OSError, EOFError) as problem:
            self._end(problem)
            return
        if not self._show_echo(data):
            self._read_bytes = READ_BYTES if len(data) >= SHORT_READ_BYTES else SHORT_READ_BYTES
            self._socket.feed(data)
            self._read_packets()
        self._socket.acknowledge()

    def _show_echo(self, data: bytes) -> bool:
        """Show what has arrived, if it is one whole packet with a short piece of output, and nothing is before it.

        False, and nothing is changed: it is to be read as everything else is. Each step here delays an echo.
        """
        size, channel = len(data), self._channel
        if (
            self._show is None
            or size > MAX_ECHO_PACKET
            or int.from_bytes(data[:4], "big") != size - 4 - TAG_BYTES
            or self.kept
            or self._socket.has_unread()
            or len(channel.in_buffer)
            or self._transport.in_kex
            or not self._packets.may_open(size)
        ):
            return False
        try:
            message = self._packets.look_into(data)
        except InvalidTag:
            return False
        if len(message) <= DATA.size or message[0] != MSG_CHANNEL_DATA:
            return False
        _, number, length = DATA.unpack_from(message)
        if (
            number != channel.chanid
            or length != len(message) - DATA.size
            or channel.in_window_sofar + length > channel.in_window_threshold
            or not self._is_shown(self._show, message[DATA.size :])
        ):
            return False
        self._packets.count_received(size)
        channel.in_window_sofar += length  # only this loop reads from the channel
        self._pause_s = self._packets.count_output(length)
        if self._pause_s > 0:
            self._pause()
        return True

    def _is_shown(self, show: ShowOutput, data: bytes) -> bool:
        try:
            return show(data)
        except Exception:  # a bug of the viewer, which gets the output once more with all that is kept
            log.exception("The viewer of a shell failed to show its output.")
            return False

    def _read_packets(self) -> bool:
        """Read the packets that have arrived, up to a limit. False when the loop is not to watch the socket now:
        paramiko's thread reads on, or the rest of the packets comes after a pause."""
        kept, self._pause_s = 0, 0.0
        try:
            while size := self._socket.packet_size():
                if kept == TURN_PACKETS or self._pause_s > 0:
                    return self._pause()
                payload, number = self._packets.read_whole(self._socket, size)
                if not payload:
                    raise paramiko.SSHException("the host sent a packet without a message")
                if not self._keep_output(payload):
                    message = paramiko.Message(payload[1:])
                    message.seqno = number
                    return self._hand_over((payload[0], message))
                kept += 1
                if self._packets.need_rekey():
                    return self._hand_over(NeedRekeyException())
        except Exception as problem:
            self._end(problem)
            return False
        finally:
            if kept:
                self._notify()
        return True if self._pause_s == 0 else self._pause()

    def _pause(self) -> bool:
        """Let everybody else on the loop go first. Meanwhile the host has to wait: nobody reads the socket."""
        self._loop.remove_reader(self._fd)
        if self._pause_s > 0:
            pause_s = min(max(self._pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
            self._loop.call_later(pause_s, self._go_on)
        else:
            self._loop.call_soon(self._go_on)
        return False

    def _notify(self) -> None:
        try:
            self._on_output()
        except Exception:  # a bug of the viewer; if we stopped reading, nobody would see the end either
            log.exception("The viewer of a shell failed to take its output.")

    def _keep_output(self, payload: bytes) -> bool:
        """Keep what a message brings for the channel. False: paramiko's thread is to handle the message."""
        if payload[0] != MSG_CHANNEL_DATA or len(payload) < DATA.size:
            return False
        _, number, size = DATA.unpack_from(payload)
        if number != self._channel.chanid or self._transport.in_kex:
            return False
        data, later = payload[DATA.size :], self._channel.in_buffer
        check_output(self._channel, size, data, len(self.kept))
        self._pause_s = self._packets.count_output(size)
        if len(later) or (size > MAX_KEPT and not self.kept):
            later.feed(data)
        elif self.kept:
            later.feed(self.take() + data)
        else:
            self.kept = data
        return True
