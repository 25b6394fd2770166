"""Dial a host: from its address to an authenticated SSH connection, through jump hosts, with pinned host keys only.

paramiko leaves Nagle's algorithm and delayed ACKs on, which costs 40 ms at each stage of a handshake, and it prefers a
slow cipher. So we set TCP_NODELAY, set TCP_QUICKACK again at each read, and offer AES-GCM first.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar, cast

import paramiko
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA, MSG_EXT_INFO

from agents.infra import name_lookup
from agents.infra.text import clean_text
from agents.ssh import deadlines, host_keys, peer_limits
from agents.ssh.packets import CIPHERS_FIRST, LoopReader, PacketReader, ShowOutput
from agents.ssh.peer_limits import PeerMisbehaved
from agents.ssh.pieces import PiecesPipe
from agents.ssh.sockets import CONNECTION_ERRORS, QuickAckSocket, Socket
from agents.ssh.targets import Jump, Target, address_text

CONNECT_S = 5.0
# The system asks the next name server after 5 s: a dead first one must not use up all the time.
LOOKUP_S = 20.0
HANDSHAKE_S = 10.0
DEAD_S = 12.0
# paramiko's thread wakes up from reading its socket this often. Its default of 0.1 s costs 4.5 % of a core for 200
# links on which nothing happens.
POLL_S = 5.0
MAX_HANDSHAKES = 16
MAX_OUTPUT = 8 * 1024 * 1024

# paramiko logs a traceback for each lost connection. Our own errors say what happened.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

Result = TypeVar("Result")


class DialError(Exception):
    """The host could not be reached or logged in to. The message is for people; `at` names the jump host, if it failed
    there."""

    def __init__(self, message: str, at: str = "") -> None:
        super().__init__(clean_text(f"{at}: {message}" if at else message))
        self.at = at


class Unreachable(DialError):
    """Nothing answers at the address."""


class SshdBusy(DialError):
    """Something answers, but accepts no login now: MaxStartups, MaxSessions, an overloaded or hanging sshd."""


class HostMisbehaves(DialError):
    """The machine sent more than it may, or what no SSH server sends: it is disconnected."""


class AuthFailed(DialError):
    """The login name or our key was refused."""


class HostKeyUnknown(DialError):
    """The machine showed a host key that no person has accepted yet. Nothing was sent to it."""

    def __init__(self, offered: str, at: str = "") -> None:
        super().__init__(f"its host key {host_keys.fingerprint(offered)} has not been accepted", at)
        self.offered = offered


class HostKeyChanged(DialError):
    """The machine showed another host key than the accepted one. Nothing was sent to it."""

    def __init__(self, pinned: str, offered: str, at: str = "") -> None:
        super().__init__(
            f"its host key changed: {host_keys.fingerprint(pinned)} was accepted, "
            f"{host_keys.fingerprint(offered)} is shown now",
            at,
        )
        self.pinned, self.offered = pinned, offered


@dataclass(frozen=True, slots=True)
class CommandResult:
    stdout: bytes
    stderr: bytes
    status: int


class HandshakeLimiter:
    """Limits the handshakes of this process: so many at once in all, and one at a time with each sshd."""

    def __init__(self, max_handshakes: int = MAX_HANDSHAKES) -> None:
        self._slots = threading.BoundedSemaphore(max_handshakes)
        self._lock = threading.Lock()
        self._endpoints: dict[str, threading.Lock] = {}

    @contextmanager
    def handshake(self, endpoint: str, until: float = math.inf) -> Iterator[None]:
        with self._lock:
            endpoint_lock = self._endpoints.setdefault(endpoint, threading.Lock())
        # The lock of the endpoint first: threads that wait for one slow sshd must not hold slots that others could use.
        if not endpoint_lock.acquire(timeout=_left(6 * HANDSHAKE_S, until)):
            raise SshdBusy(f"other logins at {endpoint} take too long")
        try:
            if not self._slots.acquire(timeout=_left(6 * HANDSHAKE_S, until)):
                raise SshdBusy("too many handshakes are under way")
            try:
                yield
            finally:
                self._slots.release()
        finally:
            endpoint_lock.release()


HANDSHAKES = HandshakeLimiter()


class Connection(paramiko.Transport):
    """An SSH connection. Closing it also closes the connections to the jump hosts that it goes through.

    What the other end may send is limited (peer_limits.py), on every connection and from its first byte on.
    """

    _channel_handler_table = paramiko.Transport._channel_handler_table | {  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: peer_limits.keep_output,
        MSG_CHANNEL_EXTENDED_DATA: peer_limits.keep_stderr,
    }

    def __init__(self, sock: Socket, through: Connection | None = None) -> None:
        super().__init__(cast("socket.socket", sock), packetizer_class=PacketReader)
        self.through = through
        self._socket = sock
        # Reentrant, so that `without_waiting` can hold it while it sends one message or several.
        self.clear_to_send_lock = threading.RLock()  # type: ignore[assignment]
        self.banner_timeout = self.handshake_timeout = self.auth_timeout = HANDSHAKE_S
        options = self.get_security_options()
        rest = tuple(name for name in options.ciphers if name not in CIPHERS_FIRST)
        options.ciphers = CIPHERS_FIRST + rest
        # A hostile server could choose an exchange over 8,192 bits, which holds the whole process for seconds.
        options.kex = tuple(name for name in options.kex if not name.startswith("diffie-hellman-"))
        # What sshd says there is for RSA keys, and ours is of another kind. paramiko reads as many fields as it claims.
        self._handler_table[MSG_EXT_INFO] = lambda message: None  # type: ignore[attr-defined]
        cast("PacketReader", self.packetizer).is_open = self._is_open

    @property
    def misbehaviour(self) -> str:
        """How the other end, or a jump host on the way, went beyond a limit. Empty if none did."""
        if isinstance(self.saved_exception, PeerMisbehaved):
            return str(self.saved_exception)
        if self.through is not None and (of_jump := self.through.misbehaviour):
            return f"the jump host before it misbehaves: {of_jump}"
        return ""

    def _is_open(self, channel: int) -> bool:
        return self._channels.get(channel) is not None  # type: ignore[attr-defined]

    def _check_banner(self) -> None:
        try:
            super()._check_banner()  # type: ignore[misc]
        except paramiko.SSHException as error:
            # paramiko wraps every exception at this place.
            if isinstance(error.__context__, PeerMisbehaved):
                raise error.__context__ from None
            raise

    def _verify_key(self, host_key: bytes, sig: bytes) -> None:
        peer_limits.check_key(host_key)
        peer_limits.check_signature(sig)
        super()._verify_key(host_key, sig)  # type: ignore[misc]

    def prefer(self, pinned: str) -> None:
        """Ask for the kind of key that is pinned: a machine with keys of several kinds could show another one."""
        options = self.get_security_options()
        supported = options.key_types
        first = tuple(name for name in host_keys.algorithms(pinned) if name in supported)
        options.key_types = first + tuple(name for name in supported if name not in first)

    def without_waiting(self, send: Callable[[], Result]) -> Result:
        """Call `send`, which sends a small message, on an event loop.

        Raises BlockingIOError, and sends nothing, if it had to wait: for a key exchange, for another thread that sends,
        or for the socket.
        """
        if not self.clear_to_send_lock.acquire(blocking=False):
            raise BlockingIOError
        try:
            if not (self.clear_to_send.is_set() and self._socket.can_send_small_message()):
                raise BlockingIOError
            return self.through.without_waiting(send) if self.through is not None else send()
        finally:
            self.clear_to_send_lock.release()

    def read_on_loop(
        self, channel: paramiko.Channel, on_output: Callable[[], None], show: ShowOutput | None = None
    ) -> LoopReader | None:
        """Let the running event loop read the channel's output. None where that is impossible: through a jump host."""
        if (
            not isinstance(self._socket, QuickAckSocket)
            or getattr(self, "remote_cipher", "") not in CIPHERS_FIRST
        ):
            return None
        try:
            return LoopReader(self, self._socket, channel, on_output, show)
        except OSError:
            return None  # the connection has ended already

    def close(self) -> None:
        self.sock.close()
        super().close()
        if self.through is not None:
            self.through.close()


def dial(
    target: Target,
    key: paramiko.PKey,
    limiter: HandshakeLimiter = HANDSHAKES,
    dead_s: float = DEAD_S,
    lookup_s: float = LOOKUP_S,
    until: float = math.inf,
) -> Connection:
    """Connect, compare the host key with the pinned one, log in. Raises a DialError, and then leaves nothing open.

    `until`: when it gives up in any case, by the monotonic clock.
    """
    last = Jump(target.user, target.address, target.port, target.pinned_key)
    connection: Connection | None = None
    for number, hop in enumerate((*target.jumps, last)):
        at = hop.endpoint if number < len(target.jumps) else ""
        try:
            sock = _connect(hop, connection, at, dead_s, lookup_s, until)
            connection = _log_in(hop, sock, connection, at, key, limiter, until)
        except BaseException:
            if connection is not None:
                connection.close()
            raise
    assert connection is not None
    return connection


def _left(seconds: float, until: float) -> float:
    """As many seconds, or fewer where the deadline comes first."""
    left = min(seconds, until - time.monotonic())
    if left <= 0:
        raise SshdBusy("it took too long")
    return left


def raise_if_misbehaving(connection: Connection, at: str = "") -> None:
    if blame := connection.misbehaviour:
        raise HostMisbehaves(blame, at)


def run_command(
    transport: Connection, command: str, stdin: bytes = b"", timeout: float = 30.0
) -> CommandResult:
    """Run a constant command to its end, within a limit of time and of output."""
    deadline = time.monotonic() + timeout
    channel = open_session(transport)
    try:
        channel.settimeout(timeout)
        start_command(channel, command)
        outputs = _OutputReader(channel)
        if stdin:
            channel.sendall(stdin)
        channel.shutdown_write()
        result = outputs.finish(deadline)
        raise_if_misbehaving(transport)
        return result
    except CONNECTION_ERRORS as error:
        raise_if_misbehaving(transport)
        raise SshdBusy(
            f"the host did not finish an answer within {timeout:g} s ({error})".rstrip()
        ) from error
    finally:
        with suppress(*CONNECTION_ERRORS):
            channel.close()


def open_session(transport: Connection, window: int | None = None) -> paramiko.Channel:
    try:
        channel = transport.open_session(window_size=window, timeout=HANDSHAKE_S)
        # Nothing has come yet: no command was started.
        channel.in_buffer = PiecesPipe()
        return channel
    except paramiko.ChannelException as error:
        raise SshdBusy(f"sshd opens no more sessions on this connection (MaxSessions): {error}") from error
    except CONNECTION_ERRORS as error:
        raise_if_misbehaving(transport)
        raise SshdBusy(f"no session could be opened: {error}") from error


def start_command(channel: paramiko.Channel, command: str) -> None:
    """Start a constant command. Raises one of CONNECTION_ERRORS, also when sshd does not answer the request."""
    with deadlines.of_request(channel, HANDSHAKE_S):
        channel.exec_command(command)


class _OutputReader:
    """Reads both outputs at once: a command would hang if it filled one of them while nobody reads that one."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._errors: list[bytes] = []
        self._reader = threading.Thread(target=self._read_errors, name="ssh-stderr", daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        kept = 0
        try:
            while data := self._channel.recv_stderr(65536):
                if kept < 65536:
                    self._errors.append(data)
                kept += len(data)
        except CONNECTION_ERRORS:
            pass

    def finish(self, deadline: float) -> CommandResult:
        kept: list[bytes] = []
        size = 0
        while True:
            self._channel.settimeout(max(0.01, deadline - time.monotonic()))
            data = self._channel.recv(65536)
            if not data:
                break
            kept.append(data)
            size += len(data)
            if size > MAX_OUTPUT:
                raise OSError(f"more than {MAX_OUTPUT} bytes of output")
        left = max(0.01, deadline - time.monotonic())
        if not self._channel.status_event.wait(left):
            raise TimeoutError("no exit status")
        self._reader.join(max(0.01, deadline - time.monotonic()))
        return CommandResult(b"".join(kept), b"".join(self._errors), self._channel.exit_status)


def _connect(
    hop: Jump, through: Connection | None, at: str, dead_s: float, lookup_s: float, until: float
) -> Socket:
    if through is None:
        return QuickAckSocket(_open_socket(hop, at, lookup_s, until), dead_s)
    seconds = _left(CONNECT_S, until)
    try:
        channel = through.open_channel(
            "direct-tcpip", (hop.address, hop.port), ("127.0.0.1", 0), timeout=seconds
        )
        return Socket(channel)
    except CONNECTION_ERRORS as error:
        raise_if_misbehaving(through, at)
        raise Unreachable(f"{hop.endpoint} cannot be reached through the jump host: {error}", at) from error


def _open_socket(hop: Jump, at: str, lookup_s: float, until: float) -> socket.socket:
    try:
        addresses = name_lookup.addresses(hop.address, hop.port, _left(lookup_s, until))
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{hop.endpoint} does not answer: {error}", at) from error
    deadline = time.monotonic() + CONNECT_S
    problem: OSError | None = None
    for address in addresses:
        try:
            # Each address gets a second, even when those before it took all the time.
            left = _left(max(1.0, deadline - time.monotonic()), until)
            return socket.create_connection((address, hop.port), timeout=left)
        except OSError as error:
            problem = error
    raise Unreachable(f"{hop.endpoint} does not answer: {problem}", at) from problem


def _log_in(
    hop: Jump,
    sock: Socket,
    through: Connection | None,
    at: str,
    key: paramiko.PKey,
    limiter: HandshakeLimiter,
    until: float,
) -> Connection:
    connection = Connection(sock, through)
    try:
        with (
            limiter.handshake(address_text(hop.address, hop.port), until),
            deadlines.closing_at(connection, until),
        ):
            _check_host_key(connection, hop, at)
            _authenticate(connection, hop, at, key)
        connection.sock.settimeout(POLL_S)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_host_key(connection: Connection, hop: Jump, at: str) -> None:
    if hop.pinned_key:
        connection.prefer(hop.pinned_key)
    try:
        connection.start_client(timeout=HANDSHAKE_S)
        shown = connection.get_remote_server_key()
    except PeerMisbehaved as error:
        raise HostMisbehaves(str(error), at) from error
    except CONNECTION_ERRORS as error:
        raise_if_misbehaving(connection, at)
        raise SshdBusy(
            f"{hop.endpoint} answers, but not with an SSH handshake: {error or 'closed'}", at
        ) from error
    offered = f"{shown.get_name()} {shown.get_base64()}"
    if not hop.pinned_key:
        raise HostKeyUnknown(offered, at)
    if not host_keys.same_key(hop.pinned_key, offered):
        raise HostKeyChanged(hop.pinned_key, offered, at)


def _authenticate(connection: Connection, hop: Jump, at: str, key: paramiko.PKey) -> None:
    try:
        further = connection.auth_publickey(hop.user, key)
    except PeerMisbehaved as error:
        raise HostMisbehaves(str(error), at) from error
    except paramiko.AuthenticationException as error:
        raise_if_misbehaving(connection, at)
        # paramiko says "authentication failed" for a lost connection too; only an answer of sshd is a refusal.
        if not connection.is_active() or "timeout" in str(error).lower():
            raise SshdBusy(f"{hop.endpoint} ended the login without an answer: {error}", at) from error
        raise AuthFailed(f"{hop.user}@{hop.endpoint} refused our key: {error}", at) from error
    except CONNECTION_ERRORS as error:
        raise_if_misbehaving(connection, at)
        raise SshdBusy(f"{hop.endpoint} ended the login: {error or 'closed'}", at) from error
    if further:
        raise AuthFailed(f"{hop.user}@{hop.endpoint} wants more than a key: {', '.join(further)}", at)
