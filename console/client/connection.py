"""HTTP to a console: one connection that is used again, and errors in words that say what helps.

The token goes into a header, and nowhere else: not into addresses, messages or arguments of other programs.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from . import VERSION
from .errors import ClientError, Offline, Refusal
from .progress import Waiting

TIMEOUT_S = 60.0
BLOCK = 256 * 1024
# How often a request is repeated that the console has put off (429, 503), and how long it is waited for at most.
TRIES, MOST_WAIT_S = 4, 30.0
Query = Mapping[str, object]


@dataclass(frozen=True)
class Target:
    """A console, and how to reach it."""

    url: str
    token: str = field(default="", repr=False)
    ca_file: str = ""

    @property
    def base(self) -> str:
        """The path below which the console is."""
        return urlsplit(self.url).path

    def headers(self) -> dict[str, str]:
        own = {"User-Agent": f"trainyard-client/{VERSION}", "Accept": "application/json"}
        return {**own, "Authorization": f"Bearer {self.token}"} if self.token else own

    def dial(self, timeout: float = TIMEOUT_S) -> http.client.HTTPConnection:
        """A connection that is open. Raises Offline, or ClientError where the certificate is not trusted."""
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        proxy = _proxy(parts.scheme, host)
        to, at = (proxy.hostname or "", proxy.port or 3128) if proxy else (host, port)
        made: http.client.HTTPConnection
        if secure:
            made = http.client.HTTPSConnection(
                to, at, timeout=timeout, context=_context(self.ca_file), blocksize=BLOCK
            )
        else:
            made = http.client.HTTPConnection(to, at, timeout=timeout, blocksize=BLOCK)
        if proxy:
            made.set_tunnel(host, port)
        try:
            made.connect()
            made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, http.client.HTTPException) as problem:
            made.close()
            raise offline(self.url, problem) from None
        return made


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def document(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClientError(
                "The address answers, but it is no console of Trainyard.",
                "Check it: trainyard whoami shows it.",
            )
        return found


class Connection:
    """Sends requests one after the other. `now`: the console's clock at its last answer. `says`: an answer that takes
    longer than a second is told to be waited for."""

    def __init__(self, target: Target, says: bool = True) -> None:
        self.target, self._says = target, says
        self.now = datetime.fromtimestamp(0, timezone.utc)
        self.server_version = ""
        self._open: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        return self.request("GET", path, query=query).document()

    def post(self, path: str, document: object) -> dict[str, Any]:
        return self.request("POST", path, document=document).document()

    def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        document: object = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,
        body: bytes | None = None,
    ) -> Answer:
        """Send a request whose answer is small. Raises Refusal for an error, Offline where there is no answer."""
        more = {}
        if document is not None:
            body, more = json.dumps(document).encode(), {"Content-Type": "application/json"}
        with Waiting("Waiting for the console" if self._says else ""):
            for last in range(TRIES):
                answer = self._send(method, path, query, body, {**more, **(headers or {})}, timeout)
                wait = put_off(answer) if last < TRIES - 1 else None
                if wait is None:
                    break
                time.sleep(wait)
        if answer.status >= 300:
            raise refusal(answer, self.target, self.server_version)
        return answer

    def send_once(
        self, method: str, path: str, query: Query, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """Send a request whose caller looks at the status."""
        return self._send(method, path, query, body, headers, TIMEOUT_S)

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> Answer:
        """The console may have closed a connection that was idle: then the request goes over another one."""
        is_used = self._open is not None
        while True:
            try:
                response = self._response(method, path, query, body, headers, timeout)
                answer = Answer(response.status, response.msg, response.read())
                break
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                if not is_used or isinstance(problem, TimeoutError):
                    raise offline(self.target.url, problem) from None
                is_used = False
        if answer.headers.get("Connection", "").lower() == "close":
            self.close()
        return answer

    def _response(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | IO[bytes] | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> http.client.HTTPResponse:
        if self._open is None:
            self._open = self.target.dial(timeout)
        self._open.sock.settimeout(timeout)
        asked = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
        address = self.target.base + path + ("?" + urlencode(asked) if asked else "")
        self._open.request(method, address, body, {**self.target.headers(), **headers})
        response = self._open.getresponse()
        self._note(response)
        return response

    def _note(self, response: http.client.HTTPResponse) -> None:
        self.server_version = response.headers.get("Trainyard-Version", self.server_version)
        told = response.headers.get("Date", "")
        try:
            at = parsedate_to_datetime(told)
        except (TypeError, ValueError):
            return
        self.now = at if at.tzinfo else at.replace(tzinfo=timezone.utc)

    def download(
        self, path: str, query: Query | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[Answer, Iterator[bytes]]:
        """An answer of any size, block by block. Its connection is not used for anything else meanwhile."""
        self.close()
        try:
            response = self._response("GET", path, query, None, headers or {}, TIMEOUT_S)
            if response.status >= 300:
                answer = Answer(response.status, response.msg, response.read())
                raise refusal(answer, self.target, self.server_version)
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise offline(self.target.url, problem) from None
        return Answer(response.status, response.msg, b""), self._blocks(response)

    def _blocks(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        left = response.length
        try:
            while block := response.read(BLOCK):
                yield block
                left = None if left is None else left - len(block)
        except (OSError, http.client.HTTPException) as problem:
            raise offline(self.target.url, problem) from None
        finally:
            self.close()
        if left:
            raise Offline("The download broke off.", "Run it again: it goes on where it stopped.")

    def upload(
        self,
        method: str,
        path: str,
        body: IO[bytes],
        length: int,
        headers: Mapping[str, str],
        query: Query | None = None,
    ) -> Answer:
        """Send a body of any size, which is read as it is sent. It is sent once: the caller knows how to go on."""
        self.close()
        sized = {"Content-Length": str(length), **headers}
        try:
            response = self._response(method, path, query, body, sized, TIMEOUT_S)
            answer = Answer(response.status, response.msg, response.read())
        except (OSError, http.client.HTTPException) as problem:
            answer = self._early_answer(problem)
        finally:
            self.close()
        return answer

    def _early_answer(self, problem: Exception) -> Answer:
        """A console that refuses a large body answers before it has read it, and closes."""
        try:
            if self._open is not None and isinstance(problem, (BrokenPipeError, ConnectionResetError)):
                response = self._open.getresponse()
                return Answer(response.status, response.msg, response.read())
        except (OSError, http.client.HTTPException):
            pass
        raise offline(self.target.url, problem) from None


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _context(ca_file: str) -> ssl.SSLContext:
    """Which certificates are trusted: those of one file, or those of the system (SSL_CERT_FILE changes these)."""
    named = ca_file or os.environ.get("TRAINYARD_CA_FILE", "") or os.environ.get("REQUESTS_CA_BUNDLE", "")
    try:
        if not named:
            return ssl.create_default_context()
        context = (
            ssl.create_default_context(capath=named)
            if os.path.isdir(named)
            else ssl.create_default_context(cafile=named)
        )
    except (OSError, ssl.SSLError) as problem:
        raise ClientError(
            f"The certificates in {named!r} cannot be read: {problem}",
            "Give a file in PEM format: --ca-file FILE",
        ) from None
    # The person has named this authority. Some that work everywhere else lack fields that Python 3.13 asks for.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _proxy(scheme: str, host: str) -> Any:
    """The proxy that the variables name for this host, or None."""
    lower = os.environ.get(f"{scheme}_proxy", "") or os.environ.get("ALL_PROXY", "")
    named = lower or (os.environ.get("HTTPS_PROXY", "") if scheme == "https" else "")
    if not named:
        return None
    for each in (os.environ.get("no_proxy", "") or os.environ.get("NO_PROXY", "")).split(","):
        name = each.strip().lstrip("*").lstrip(".")
        if each.strip() == "*" or (name and (host == name or host.endswith("." + name))):
            return None
    return urlsplit(named if "://" in named else f"http://{named}")


def put_off(answer: Answer) -> float | None:
    """How long to wait before the request is sent again; None: the answer stays. Both answers say that nothing was
    done."""
    told = answer.headers.get("Retry-After", "")
    if answer.status not in (429, 503) or not told.isdigit() or float(told) > MOST_WAIT_S:
        return None
    return max(float(told), 0.1)


def may_pass_later(answer: Answer) -> bool:
    """Whether the same request may be taken in a moment: the console is busy, or what stands before it has lost it."""
    return answer.status in (429, 500, 502, 503, 504)


def offline(url: str, problem: BaseException) -> ClientError:
    """Why the console does not answer, and what helps."""
    name = urlsplit(url).netloc
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = getattr(problem, "verify_message", "") or str(problem)
        return ClientError(
            f"The certificate of {name} is not trusted: {why}.",
            "If an authority of your own has signed it: --ca-file FILE (or REQUESTS_CA_BUNDLE, SSL_CERT_FILE).",
        )
    if isinstance(problem, ssl.SSLError) and "WRONG_VERSION" in str(problem):
        return ClientError(
            f"{name} speaks no TLS.", "Give the address with http://, or the port of its TLS proxy."
        )
    if isinstance(problem, socket.gaierror):
        return Offline(f"The name {name} is not known here.", "Check the address, and your network or VPN.")
    if isinstance(problem, ConnectionRefusedError):
        return Offline(f"Nothing listens at {name}.", "Is the console running, and is the port right?")
    if isinstance(problem, TimeoutError):
        return Offline(f"{name} does not answer.", "Check your network or VPN, and try again.")
    if isinstance(problem, (http.client.RemoteDisconnected, ConnectionError)):
        return Offline(f"{name} has closed the connection.", "Try again; the console may be starting.")
    return Offline(
        f"{name} cannot be reached: {_words(problem)}", "Check your network or VPN, and try again."
    )


def _words(problem: BaseException) -> str:
    return getattr(problem, "strerror", "") or str(problem) or type(problem).__name__


CURES = {
    401: "Log in again: trainyard login",
    404: "Check the number or name, and the project (--project): what you may not see is not found either.",
    413: "Send less at once.",
    429: "Wait a little, and try again.",
    503: "Wait a little, and try again.",
}


def refusal(answer: Answer, target: Target, server_version: str) -> ClientError:
    """An error of the console in words."""
    if 300 <= answer.status < 400:
        to = answer.headers.get("Location", "")
        return Refusal(
            answer.status, f"{target.url} leads to another address: {to[:200]}", "Log in to that one."
        )
    try:
        error = json.loads(answer.body)["error"]
        message = str(error["message"])
    except (ValueError, KeyError, TypeError):
        return Refusal(
            answer.status,
            f"{target.url} answers {answer.status}, and not as a console does.",
            _other(server_version),
        )
    fields = [
        f"\n  {one.get('field', '')}: {one.get('description', '')}"
        for detail in error.get("details", ())
        for one in detail.get("fieldViolations", ())
        if one.get("description", "") not in message
    ]
    cure = CURES.get(answer.status, "")
    if answer.status == 429 and (wait := answer.headers.get("Retry-After")):
        cure = f"Try again in {wait} s."
    if answer.status in (404, 405, 501):
        cure = " ".join(filter(None, (cure, _other(server_version))))
    return Refusal(answer.status, message + "".join(fields), cure)


def _other(server_version: str) -> str:
    """What helps where client and console are not of the same version."""
    if server_version == VERSION:
        return ""
    if not server_version:
        return "If the address is right, the console is older than this client."
    return (
        f"This client is version {VERSION}, the console {server_version}. "
        "Its own client: the page “Command line” has the line that installs it."
    )
