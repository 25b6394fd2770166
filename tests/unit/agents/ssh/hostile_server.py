"""An SSH server that does one hostile thing without end, as a process of its own. It stops by itself after a while.

`python -m tests.unit.agents.ssh.hostile_server ATTACK` prints its port and its host key, and serves one connection.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time

import paramiko
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    MSG_CHANNEL_REQUEST,
    MSG_CHANNEL_WINDOW_ADJUST,
    MSG_DEBUG,
    MSG_EXT_INFO,
    MSG_GLOBAL_REQUEST,
    MSG_IGNORE,
    MSG_UNIMPLEMENTED,
    MSG_USERAUTH_BANNER,
)

ATTACK_S = 20.0
BLOCK = b"x" * 32768


class Lax(paramiko.ServerInterface):
    """Lets everybody in and says yes to everything."""

    def __init__(self, transport):
        self.transport = transport
        self.asked = threading.Event()

    def get_allowed_auths(self, username):
        return "publickey"

    def check_auth_publickey(self, username, key):
        flood = BEFORE_LOGIN.get(sys.argv[1])
        if flood:
            without_end(self.transport, flood)
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.asked.set()
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        self.asked.set()
        return True


def text(data):
    return struct.pack(">I", len(data)) + data


def without_end(transport, message):
    """Send a message again and again, for as long as the other end takes it."""
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until and transport.active:
        transport.packetizer.send_message(paramiko.Message(message))


def kind(number, *rest):
    return bytes([number]) + b"".join(
        struct.pack(">I", each) if isinstance(each, int) else each for each in rest
    )


BEFORE_LOGIN = {
    "login banners": kind(MSG_USERAUTH_BANNER, text(b"b" * 1000), text(b"")),
    "a banner that claims more": kind(MSG_USERAUTH_BANNER, 1_000_000),
}
# By the number of the client's channel.
AFTER_LOGIN = {
    "output past the window": lambda near: kind(MSG_CHANNEL_DATA, near, text(BLOCK)),
    "errors past the window": lambda near: kind(MSG_CHANNEL_EXTENDED_DATA, near, 1, text(BLOCK)),
    "output of nothing": lambda near: kind(MSG_CHANNEL_DATA, near, text(b"")),
    "errors of nothing": lambda near: kind(MSG_CHANNEL_EXTENDED_DATA, near, 1, text(b"")),
    "output of an unknown kind": lambda near: kind(MSG_CHANNEL_EXTENDED_DATA, near, 7, text(BLOCK)),
    "output that claims more": lambda near: kind(MSG_CHANNEL_DATA, near, 1_000_000),
    "messages to be ignored": lambda near: kind(MSG_IGNORE, text(b"")),
    "debug messages": lambda near: kind(MSG_DEBUG, b"\0", text(b"d" * 20_000), text(b"")),
    "a debug message that claims more": lambda near: kind(MSG_DEBUG, b"\0", 1_000_000),
    "global requests": lambda near: kind(MSG_GLOBAL_REQUEST, text(b"x@y"), b"\1"),
    "channel requests": lambda near: kind(MSG_CHANNEL_REQUEST, near, text(b"x@y"), b"\1"),
    "windows that nobody waits for": lambda near: kind(MSG_CHANNEL_WINDOW_ADJUST, near, 1),
    "unimplemented": lambda near: kind(MSG_UNIMPLEMENTED, 1),
}


def byte_by_byte(transport, near):
    """As much output as a host may send, in packets of one byte each."""
    without_end(transport, kind(MSG_CHANNEL_DATA, near, text(b"x")))


def echo(channel):
    """What an honest host does: send back what is typed."""
    while data := channel.recv(4096):
        channel.sendall(data)


def endless_fields(transport, near):
    transport.packetizer.send_message(paramiko.Message(kind(MSG_EXT_INFO, 2**32 - 1)))
    without_end(transport, kind(MSG_IGNORE, text(b"")))


def huge_packet(transport, near):
    """A packet that claims two gigabytes, and its bytes."""
    if transport.local_cipher == "aes128-ctr":
        transport.packetizer._build_packet = lambda payload: struct.pack(">I", 2**31 - 4) + bytes(28)
        transport.packetizer.send_message(paramiko.Message(kind(MSG_IGNORE)))
    else:
        transport.packetizer.write_all(struct.pack(">I", 2**31 - 20))
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        transport.packetizer.write_all(BLOCK)


def endless_key_exchanges(transport, near):
    transport.packetizer.REKEY_PACKETS = 1
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until and transport.active:
        transport.renegotiate_keys()


WHOLE = {
    "extensions without end": endless_fields,
    "a huge packet": huge_packet,
    "a huge packet, its length encrypted": huge_packet,
    "key exchanges without end": endless_key_exchanges,
}


def before_version(sock, attack):
    """Send lines, or one endless line, before the version of the protocol."""
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        sock.sendall(b"y" * 4096 if attack == "an endless line before the version" else b"line\r\n" * 100)


def forge(real, attack):
    """Let the key show itself, or its signatures, with a number that takes long to read."""
    number = struct.pack(">I", 1_000_000) + b"\x7f" * 200_000
    if attack == "a host key with a huge number":
        real.asbytes = lambda: text(b"ssh-rsa") + text(b"\1\0\1") + number
    else:
        real.sign_ssh_data = lambda *_: paramiko.Message(text(b"ecdsa-sha2-nistp256") + text(number + number))


BEFORE_VERSION = ("an endless line before the version", "lines before the version")
FORGED_KEYS = ("a host key with a huge number", "a signature with a huge number")
ATTACKS_AT_DIALLING = (*BEFORE_VERSION, *FORGED_KEYS, *BEFORE_LOGIN)
ATTACKS_ON_A_CHANNEL = (*AFTER_LOGIN, *WHOLE)
BYTE_BY_BYTE, ECHO = "output byte by byte", "an echo"


def serve(sock, key, attack):
    if attack in BEFORE_VERSION:
        before_version(sock, attack)
        return
    transport = paramiko.Transport(sock)
    if attack.endswith("encrypted"):
        options = transport.get_security_options()
        options.ciphers, options.digests = ("aes128-ctr",), ("hmac-sha2-256",)
    transport.add_server_key(key)
    if attack in FORGED_KEYS:
        forge(key, attack)
    server = Lax(transport)
    transport.start_server(event=threading.Event(), server=server)
    channel = transport.accept(30)
    if channel is None or not server.asked.wait(30):
        return
    time.sleep(0.2)
    if attack == ECHO:
        echo(channel)
    elif attack == BYTE_BY_BYTE:
        byte_by_byte(transport, channel.remote_chanid)
    elif attack in WHOLE:
        WHOLE[attack](transport, channel.remote_chanid)
    else:
        without_end(transport, AFTER_LOGIN[attack](channel.remote_chanid))


def main():
    attack = sys.argv[1]
    rsa = attack == "a host key with a huge number"
    key = paramiko.RSAKey.generate(2048) if rsa else paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], key.get_name(), key.get_base64(), flush=True)
        listener.settimeout(60)
        sock, _ = listener.accept()
        # The other end hangs up.
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            serve(sock, key, attack)


if __name__ == "__main__":
    main()
