"""One POST to an address that somebody typed in, without being led anywhere else.

The name is resolved once, every address that it has must be allowed, and the connection goes to one of those very
addresses: a name that says something else a moment later leads nowhere. Redirects are not followed; a proxy of the
environment is not asked. No library was taken for this: those that send to Slack and hooks (apprise) or speak HTTP
(httpx, requests) resolve names themselves, where nobody can look, and put addresses with their tokens into their logs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from jobs.rules.notifications import FINAL_ANSWERS, Network, address_refusal

CONNECT_S = 10.0
# The whole of it: who sends one byte a second is left.
WHOLE_S = 20.0
MAX_ANSWER = 2_000
TOO_SLOW = "it took too long"


@dataclass(frozen=True, slots=True)
class Answer:
    """`words` are the other side's own where it had any. `final`: no later try would change it."""

    taken: bool
    words: str
    final: bool = False


class WebhookRefused(Exception):
    """Nothing was sent to this address. Nothing will be sent while the address and the settings stay as they are."""


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """An address taken apart, and where it leads at this moment."""

    tls: bool
    host: str
    port: int
    path: str
    addresses: tuple[str, ...] = ()


def parse_address(url: str) -> WebhookAddress:
    """Raises WebhookRefused for a text that is not the address of a webhook."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise WebhookRefused("This is not an address.") from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not url.isascii()
        or not url.isprintable()
    ):
        raise WebhookRefused("Give an address that begins with https:// and names a host.")
    if parts.username is not None or parts.password is not None or " " in url:
        raise WebhookRefused("An address must not hold a user, a password or spaces.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    tls = parts.scheme == "https"
    return WebhookAddress(tls, parts.hostname, port or (443 if tls else 80), path)


def resolve(place: WebhookAddress, allowed: Sequence[Network]) -> WebhookAddress:
    """Look up where the address leads now. Raises WebhookRefused if one of its IP addresses is not allowed, OSError if
    the name is not known."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of the name is empty, or longer than the 63 characters of any name
        raise WebhookRefused("This is not the name of a host.") from None
    addresses = tuple(dict.fromkeys(str(each[4][0]) for each in found))
    for address in addresses:
        if address_refusal(address, allowed):
            # Not which one: what names of our own network resolve to is nobody's business.
            raise WebhookRefused(
                f"{place.host} leads to a private, loopback or otherwise local address. "
                "An admin can allow it (TRAINYARD_NOTIFY_PRIVATE)."
            )
        if not place.tls and address_refusal(address, ()) == "":
            raise WebhookRefused(
                "Give an address that begins with https://: anybody on the way could read the other kind."
            )
    return WebhookAddress(place.tls, place.host, place.port, place.path, addresses)


class _PinnedConnection(http.client.HTTPConnection):
    """To the address that was looked at, whatever the name says by now. TLS still asks for the name."""

    def __init__(self, place: WebhookAddress) -> None:
        super().__init__(place.host, place.port, timeout=CONNECT_S)
        self.place = place
        self._until = time.monotonic() + WHOLE_S
        self._late = False

    def connect(self) -> None:
        sock = self._reach()
        if self.place.tls:
            context = ssl.create_default_context()
            # The handshake comes later: by then there is something that can be cut.
            sock = context.wrap_socket(sock, server_hostname=self.place.host, do_handshake_on_connect=False)
        self.sock = sock
        if self._late:
            raise TimeoutError(TOO_SLOW)
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()

    def _reach(self) -> socket.socket:
        problem: OSError = OSError("it has no address")
        for address in self.place.addresses:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError(TOO_SLOW)
            try:
                return socket.create_connection((address, self.place.port), min(CONNECT_S, left))
            except OSError as error:
                problem = error
        raise problem

    def cut(self) -> None:
        """From another thread: whatever waits for the other side waits no longer."""
        self._late = True
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                # Not TLS's own way of ending, which would wait for the other side.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]) -> Answer:
    try:
        connection = _PinnedConnection(resolve(parse_address(url), allowed))
    except WebhookRefused as refused:
        return Answer(False, str(refused), final=True)
    except OSError as problem:
        return Answer(False, f"The name cannot be resolved: {problem.strerror or problem}")
    watch = threading.Timer(WHOLE_S, connection.cut)
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", connection.place.path, body, {**headers, "User-Agent": "Trainyard"})
        response = connection.getresponse()
        return _read(response.status, response.reason, response.read(MAX_ANSWER))
    except (OSError, ValueError, http.client.HTTPException) as problem:
        return Answer(False, f"No answer: {_plain(str(problem)) or type(problem).__name__}"[:500])
    finally:
        watch.cancel()
        connection.close()


def _read(status: int, reason: str, body: bytes) -> Answer:
    words = _plain(f"{status} {reason}\n{body.decode('utf-8', 'replace').strip()}")
    if 300 <= status < 400:
        return Answer(False, f"{words}\nIt leads elsewhere, and that is not followed.", final=True)
    return Answer(200 <= status < 300, words, final=status in FINAL_ANSWERS)


def _plain(text: str) -> str:
    """Whatever a receiver said, as text that can be stored and shown."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text).strip()


def signed(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers by which a receiver knows that it was us, and when (standardwebhooks.com, version v1)."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
