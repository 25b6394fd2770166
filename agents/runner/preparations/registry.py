"""What a registry calls the image of a name now, without fetching it: the digest of its manifest.

Only a saving depends on the answer, so whatever goes wrong is none: then the engine asks, and tells what is wrong.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Dict, Mapping
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


def digest_of(image: str, credentials: Mapping[str, Any]) -> str:
    """The digest, or "": not known. `credentials`: `username`, `password`; or nothing."""
    host, path, tag = split_name(image)
    if "@" in image or not host:
        return ""
    for scheme in ("https", "http") if is_near(host) else ("https",):
        try:
            return _ask("%s://%s" % (scheme, host), path, tag, credentials)
        except (OSError, ValueError, HTTPException):
            continue
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
    name = urlsplit("//" + host).hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_private
    except ValueError:
        return False


def _ask(base: str, path: str, tag: str, credentials: Mapping[str, Any]) -> str:
    address = "%s/v2/%s/manifests/%s" % (base, path, tag)
    try:
        return _head(address, "")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        challenge = str(error.headers.get("WWW-Authenticate") or "")
    return _head(address, _authorization(base, path, challenge, credentials))


def _head(address: str, authorization: str) -> str:
    request = urllib.request.Request(address, headers={"Accept": KINDS}, method="HEAD")
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        found = str(answer.headers.get("Docker-Content-Digest") or "")
    return found if _DIGEST.match(found) else ""


def _authorization(base: str, path: str, challenge: str, credentials: Mapping[str, Any]) -> str:
    """The header by which the registry knows who asks: the password itself, or a token that another server gives."""
    basic = ""
    if credentials:
        pair = "%s:%s" % (credentials["username"], credentials["password"])
        basic = "Basic " + base64.b64encode(pair.encode()).decode()
    if challenge.lower().startswith("basic"):
        return basic
    asked = dict(_CHALLENGE.findall(challenge))
    realm = asked.get("realm", "")
    if not realm.startswith(("https://", "http://") if base.startswith("http:") else "https://"):
        raise ValueError("no token is asked for at %.200r" % realm)
    scope = {"service": asked.get("service", ""), "scope": "repository:%s:pull" % path}
    request = urllib.request.Request("%s?%s" % (realm, urlencode(scope)))
    if basic:
        request.add_unredirected_header("Authorization", basic)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        found: Dict[str, Any] = json.loads(answer.read(MAX_TOKEN))
    return "Bearer %s" % (found.get("token") or found.get("access_token"))
