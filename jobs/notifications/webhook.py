"""One POST to an address that somebody typed in, and to no other place (no server-side request forgery).

The name is resolved once, every IP address that it has must be allowed, and the connection goes to one of exactly these
IP addresses: a name that resolves to something else a moment later has no effect. Redirects are not followed, and a
proxy of the environment is not used. No library does this: those that send to Slack and webhooks (apprise) or speak
HTTP (httpx, requests) resolve names themselves, where no check is possible, and log addresses with their tokens.
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

from agents.infra import name_lookup
from agents.infra.texts import said
from jobs.rules.notifications import FINAL_ANSWERS, Network, address_refusal

# The system asks the next name server after 5 s.
LOOKUP_S = 12.0
CONNECT_S = 10.0
# The whole exchange. A receiver that sends one byte a second is given up after this.
TOTAL_S = 20.0
MAX_ANSWER = 2_000
TOO_SLOW = "it took too long"
NO_NAME = said("This is not the name of a host.")
NEEDS_TLS = said("Give an address that begins with https://: anybody on the way could read the other kind.")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered. `text` is its own where it sent any; `final` says that no later try can succeed."""

    taken: bool
    text: str
    final: bool = False


class WebhookRefused(Exception):
    """Nothing may be sent to this address, now or later, unless the address or the settings change."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """A parsed address, and the IP addresses that its name resolved to."""

    tls: bool
    host: str
    port: int
    path: str
    addresses: tuple[str, ...] = ()


def parse_address(url: str) -> WebhookAddress:
    """Parse an address. Raises WebhookRefused for anything that cannot be the address of a webhook."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise WebhookRefused(said("This is not an address.")) from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or not url.isascii()
        or not url.isprintable()
    ):
        raise WebhookRefused(said("Give an address that begins with https:// and names a host."))
    if parts.username is not None or parts.password is not None or " " in url:
        raise WebhookRefused(said("An address must not hold a user, a password or spaces."))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    tls = parts.scheme == "https"
    return WebhookAddress(tls, parts.hostname, port or (443 if tls else 80), path)


def check_before_storing(url: str, allowed: Sequence[Network]) -> None:
    """Refuse what can be refused without a name server, which may keep the person's request waiting.

    The name is looked up when a message is sent: `resolve` then checks what it leads to.
    """
    parsed = parse_address(url)
    name = parsed.host.rstrip(".")
    if not all(0 < len(label) < 64 for label in name.split(".")) or len(name) > 253:
        raise WebhookRefused(NO_NAME)
    here = ("127.0.0.1", "::1") if name == "localhost" or name.endswith(".localhost") else ()
    _check_addresses(parsed, name_lookup.literal(parsed.host) or here, allowed)
    if not parsed.tls and not allowed:
        raise WebhookRefused(NEEDS_TLS)


def resolve(parsed: WebhookAddress, allowed: Sequence[Network]) -> WebhookAddress:
    """Resolve the name. Raises WebhookRefused for an IP address that is not allowed, OSError for an unknown name."""
    try:
        addresses = name_lookup.addresses(parsed.host, parsed.port, LOOKUP_S)
    except UnicodeError:
        # A label of the name is empty, or longer than 63 characters.
        raise WebhookRefused(NO_NAME) from None
    _check_addresses(parsed, addresses, allowed)
    return WebhookAddress(parsed.tls, parsed.host, parsed.port, parsed.path, addresses)


def _check_addresses(parsed: WebhookAddress, addresses: Sequence[str], allowed: Sequence[Network]) -> None:
    for address in addresses:
        if address_refusal(address, allowed):
            # The message does not say which IP address: it must not reveal how names of our own network resolve.
            raise WebhookRefused(
                said(
                    "{host} leads to a private, loopback or otherwise local address. "
                    "An admin can allow it (TRAINYARD_NOTIFY_PRIVATE).",
                    host=parsed.host,
                )
            )
        if not parsed.tls and address_refusal(address, ()) == "":
            raise WebhookRefused(NEEDS_TLS)


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to the checked IP addresses, whatever the name resolves to by now. TLS still verifies the name."""

    def __init__(self, parsed: WebhookAddress) -> None:
        super().__init__(parsed.host, parsed.port, timeout=CONNECT_S)
        self.parsed = parsed
        self._deadline = time.monotonic() + TOTAL_S
        self._timed_out = False

    def connect(self) -> None:
        sock = self._open()
        if self.parsed.tls:
            context = ssl.create_default_context()
            # The handshake comes later, when self.sock is set and abort() can close it.
            sock = context.wrap_socket(sock, server_hostname=self.parsed.host, do_handshake_on_connect=False)
        self.sock = sock
        if self._timed_out:
            raise TimeoutError(TOO_SLOW)
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()

    def _open(self) -> socket.socket:
        problem: OSError = OSError("it has no address")
        for address in self.parsed.addresses:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(TOO_SLOW)
            try:
                return socket.create_connection((address, self.parsed.port), min(CONNECT_S, left))
            except OSError as error:
                problem = error
        raise problem

    def abort(self) -> None:
        """Called from another thread: end every wait for the receiver at once."""
        self._timed_out = True
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                # The shutdown of the plain socket: that of TLS would wait for the receiver.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network]) -> Answer:
    try:
        connection = _PinnedConnection(resolve(parse_address(url), allowed))
    except WebhookRefused as refused:
        return Answer(False, refused.message, final=True)
    except OSError as problem:
        return Answer(False, f"The name cannot be resolved: {problem.strerror or problem}")
    timer = threading.Timer(TOTAL_S, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        connection.request("POST", connection.parsed.path, body, {**headers, "User-Agent": "Trainyard"})
        response = connection.getresponse()
        return _read(response.status, response.reason, response.read(MAX_ANSWER))
    except (OSError, ValueError, http.client.HTTPException) as problem:
        return Answer(
            False, said("No answer: {why}", why=_printable(str(problem))[:480] or type(problem).__name__)
        )
    finally:
        timer.cancel()
        connection.close()


def _read(status: int, reason: str, body: bytes) -> Answer:
    text = _printable(f"{status} {reason}\n{body.decode('utf-8', 'replace').strip()}")
    if 300 <= status < 400:
        return Answer(False, f"{text}\nThis is a redirect, and redirects are not followed.", final=True)
    return Answer(200 <= status < 300, text, final=status in FINAL_ANSWERS)


def _printable(text: str) -> str:
    """Replace what cannot be stored or shown in a receiver's text."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text).strip()


def signed(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers that prove to a receiver who sent the message and when (standardwebhooks.com, version v1)."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
