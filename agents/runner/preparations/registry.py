"""What a registry calls the image of a name now, without fetching it: the digest of its manifest.

Only a saving depends on the answer, so whatever goes wrong is none: then the engine asks, and tells what is wrong.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Mapping
from urllib.parse import urlencode, urlsplit

ANSWER_S = 20.0
MAX_TOKEN = 1 << 20
KINDS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
# What OpenSSL calls an answer that is not of TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL")


class _NoTLS(OSError):
    """Nothing at this address speaks TLS."""


def digest_of(image: str, credentials: Mapping[str, Any]) -> str:
    """The digest, or "": not known. `credentials`: `username`, `password`; or nothing."""
    host, path, tag = split_name(image)
    if "@" in image or not host:
        return ""
    try:
        try:
            return _ask("https://" + host, path, tag, credentials)
        except _NoTLS:
            if not is_near(host):
                return ""
        return _ask("http://" + host, path, tag, credentials)
    except (OSError, ValueError, HTTPException):
        return ""


def split_name(image: str) -> tuple[str, str, str]:
    """(registry, path, tag), as engines read a name."""
    first, slash, rest = image.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    host, path = (first, rest) if named else ("docker.io", image)
    path, colon, tag = path.partition(":")
    if host in ("docker.io", "index.docker.io"):
        host, path = "registry-1.docker.io", path if "/" in path else "library/" + path
    return host, path, tag if colon else "latest"


def is_near(host: str) -> bool:
    """Whether the engine would ask this registry without TLS too: one of this host, or of a private network."""
    found = _address(host)
    return found is not None and found.is_private


def is_this_host(host: str) -> bool:
    """Whether what is sent there stays on this host. A password is sent to no other host without TLS."""
    found = _address(host)
    return found is not None and found.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    name = urlsplit("//" + host).hostname or ""
    try:
        return ipaddress.ip_address("127.0.0.1" if name == "localhost" else name)
    except ValueError:
        return None


def _ask(base: str, path: str, tag: str, credentials: Mapping[str, Any]) -> str:
    address = "%s/v2/%s/manifests/%s" % (base, path, tag)
    try:
        return _head(address, "")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        challenge = str(error.headers.get("WWW-Authenticate") or "")
    except urllib.error.URLError as error:
        raise _NoTLS if _speaks_no_tls(error.reason) else error from None
    return _head(address, _authorization(base, path, challenge, credentials))


def _speaks_no_tls(reason: object) -> bool:
    """Whether nothing listens there, or what listens is no TLS. A certificate that does not do is one of TLS."""
    if isinstance(reason, ssl.SSLError):
        return isinstance(reason, ssl.SSLEOFError) or getattr(reason, "reason", "") in _NOT_TLS
    return isinstance(reason, (ConnectionRefusedError, ConnectionResetError))


def _head(address: str, authorization: str) -> str:
    request = urllib.request.Request(address, headers={"Accept": KINDS}, method="HEAD")
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        found = str(answer.headers.get("Docker-Content-Digest") or "")
    return found if _DIGEST.match(found) else ""


def _authorization(base: str, path: str, challenge: str, credentials: Mapping[str, Any]) -> str:
    """The header by which the registry knows who asks: the password itself, or a token that another server gives."""
    if challenge.lower().startswith("basic"):
        return _basic(base, credentials)
    asked = dict(_CHALLENGE.findall(challenge))
    realm = asked.get("realm", "")
    if not realm.startswith(("https://", "http://") if base.startswith("http:") else "https://"):
        raise ValueError("no token is asked for at %.200r" % realm)
    scope = {"service": asked.get("service", ""), "scope": "repository:%s:pull" % path}
    request = urllib.request.Request("%s?%s" % (realm, urlencode(scope)))
    basic = _basic(realm, credentials)
    if basic:
        request.add_unredirected_header("Authorization", basic)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        found = json.loads(answer.read(MAX_TOKEN))
    token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise ValueError("%.200r gives no token" % realm)
    return "Bearer %s" % token


def _basic(address: str, credentials: Mapping[str, Any]) -> str:
    """The password for this address; nothing where others could read it on its way."""
    parts = urlsplit(address)
    if not credentials or not (parts.scheme == "https" or is_this_host(parts.netloc)):
        return ""
    pair = "%s:%s" % (credentials["username"], credentials["password"])
    return "Basic " + base64.b64encode(pair.encode()).decode()
