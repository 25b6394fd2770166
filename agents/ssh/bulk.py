"""Sends much on a channel: each byte is copied once on its way to the cipher, where paramiko's `sendall` copies it six
times, and packets are written several at a time."""

from __future__ import annotations

from typing import Any, cast

import paramiko
from paramiko.common import MSG_CHANNEL_DATA

from agents.ssh.gcm_packets import Batch, Piece
from agents.ssh.packets import DATA

# A packet has 32 KiB. More at a time would hold up the packets of the same connection that are not data.
MOST_TOGETHER = 8


def send_all(channel: paramiko.Channel, data: bytes | memoryview) -> None:
    """The same as `channel.sendall`."""
    transport, left = cast(Any, channel.get_transport()), memoryview(data)
    while left:
        pieces = []
        for size in _sizes(channel, len(left)):
            head = DATA.pack(MSG_CHANNEL_DATA, channel.remote_chanid, size)
            pieces.append(Piece(head, left[:size]))
            left = left[size:]
        transport._send_user_message(Batch(pieces))


def _sizes(channel: paramiko.Channel, left: int) -> list[int]:
    """The sizes of the next packets, for which the host's window has room. Waits until there is room for one."""
    found: list[int] = []
    with channel.lock:
        while left and len(found) < MOST_TOGETHER and (channel.out_window_size or not found):
            # 0: it is closed, or the host reads no more.
            size: int = cast(Any, channel)._wait_for_send_window(left)
            if not size:
                raise OSError("Socket is closed")
            found.append(size)
            left -= size
    return found
