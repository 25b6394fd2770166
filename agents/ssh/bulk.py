"""Sends much on a channel: each byte is copied once on its way to the cipher, where paramiko's `sendall` copies it six
times."""

from __future__ import annotations

from typing import Any, cast

import paramiko
from paramiko.common import MSG_CHANNEL_DATA

from agents.ssh.gcm_packets import Piece
from agents.ssh.packets import DATA


def send_all(channel: paramiko.Channel, data: bytes | memoryview) -> None:
    """The same as `channel.sendall`."""
    transport, left = cast(Any, channel.get_transport()), memoryview(data)
    while left:
        with channel.lock:
            # 0: it is closed, or the host reads no more.
            size: int = cast(Any, channel)._wait_for_send_window(len(left))
        if not size:
            raise OSError("Socket is closed")
        head = DATA.pack(MSG_CHANNEL_DATA, channel.remote_chanid, size)
        transport._send_user_message(Piece(head, left[:size]))
        left = left[size:]
