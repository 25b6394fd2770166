"""Speaks with the login server of a company: OpenID Connect, authorization code flow with PKCE.

Nothing is believed that the server has not signed for this client and this login: the signature, issuer, audience, time
and nonce of its token are checked.

A login waits for the server for at most 10 s in all, in threads of its own (runtime/requests/waiting_requests.py). That
the server has failed is kept for some seconds: the next login is told so at once. Its configuration and its keys are
kept for minutes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import jwt
from django.conf import settings

from agents.infra import database_pool
from agents.infra.places import Places
from agents.infra.shared_answers import KeptFailures, SharedAnswers
from agents.infra.texts import said
from console.auth import secret_files
from console.auth.login import timed_http

# One login, with all that is asked for it.
WITHIN_S: Final = 10.0
# The logins that ask the server at the same time, by their browsers' addresses. Each holds a thread.
places = Places(16)
MAX_ANSWER: Final = 1 << 20
LEEWAY: Final = timedelta(minutes=1)
# What the server is asked for, where it knows it.
SCOPES: Final = ("openid", "profile", "email", "groups")
# Signatures with a key that only the server has. Never `none`, never a shared secret.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEPT: Final = timedelta(minutes=5)
FAILURES_KEPT: Final = timedelta(seconds=10)
# A question that had less time says nothing of the server: the login had spent it on the questions before.
ENOUGH_S: Final = 5.0
Claims = dict[str, Any]
_configurations: SharedAnswers[str, dict[str, Any]] = SharedAnswers(KEPT, most=4)
# By address and name of a key: a name that is new is asked for at once.
_keys: SharedAnswers[tuple[str, str | None], list[jwt.PyJWK]] = SharedAnswers(KEPT, most=16)


class OidcFailed(Exception):
    """The login server did not do its part. The message is for the person, and says what would help."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


_failures = KeptFailures(FAILURES_KEPT, 8, (OidcFailed,))


@dataclass(frozen=True, slots=True)
class Question:
    """What a browser was sent to the login server with. It is kept in the browser's session until it comes back.

    `fresh`: the person must type the password there again, which `auth_time` proves.
    """

    state: str
    nonce: str
    verifier: str
    back: str
    asked_at: float
    fresh: bool
    purpose: str
    onward: str

    def kept(self) -> dict[str, Any]:
        return asdict(self)


def is_on() -> bool:
    return bool(settings.TRAINYARD.oidc_url and settings.TRAINYARD.oidc_client_id)


def new_question(back: str, now: float, purpose: str, onward: str = "", fresh: bool = False) -> Question:
    """`back`: the address to which the server sends the browser."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return Question(state, nonce, verifier, back, now, fresh, purpose, onward)


def address_for(question: Question) -> str:
    """The address of the login server to which the browser goes. Raises OidcFailed."""
    found = configuration(_deadline())
    known = found.get("scopes_supported") or SCOPES
    digest = hashlib.sha256(question.verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": settings.TRAINYARD.oidc_client_id,
        "redirect_uri": question.back,
        "scope": " ".join(name for name in SCOPES if name == "openid" or name in known),
        "state": question.state,
        "nonce": question.nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        **({"prompt": "login", "max_age": "0"} if question.fresh else {}),
    }
    address = _endpoint(found, "authorization_endpoint")
    return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"


def claims_for(question: Question, code: str, issuer: str) -> Claims:
    """What the server says of the person who came back with this code. Raises OidcFailed.

    `issuer`: what the answer names as its issuer, or empty.
    """
    until = _deadline()
    found = configuration(until)
    if issuer and issuer != found["issuer"]:
        raise OidcFailed(said("The answer came from another login server than the one that was asked."))
    answer = _exchanged(found, question, code, until)
    claims = _checked(found, str(answer.get("id_token", "")), question.nonce, until)
    if question.fresh and float(claims.get("auth_time", 0)) < question.asked_at - LEEWAY.total_seconds():
        raise OidcFailed(said("The login server did not ask for the password again. Try again."))
    return {**_more(found, claims, str(answer.get("access_token", "")), until), **claims}


def _deadline() -> float:
    return time.monotonic() + WITHIN_S


def configuration(until: float) -> dict[str, Any]:
    """What the server says of itself. Raises OidcFailed."""
    issuer = settings.TRAINYARD.oidc_url.rstrip("/")
    # A failure is looked at by each of those who have waited for the same answer.
    return _configurations.get(issuer, lambda: _ask(issuer, lambda: _configuration(issuer, until), until))


def _ask(address: str, question: Callable[[], dict[str, Any]], until: float) -> dict[str, Any]:
    """A failure is kept for the logins that come, if the server had its time."""
    return _failures.call(address, question, keep=until - time.monotonic() >= ENOUGH_S)


def _configuration(issuer: str, until: float) -> dict[str, Any]:
    found = _fetch(urllib.request.Request(f"{issuer}/.well-known/openid-configuration"), until)
    if str(found.get("issuer", "")).rstrip("/") != issuer:
        raise OidcFailed(
            said("The login server names another issuer than TRAINYARD_OIDC_URL. An admin has to correct it.")
        )
    return found


def _exchanged(found: Mapping[str, Any], question: Question, code: str, until: float) -> dict[str, Any]:
    client, secret = settings.TRAINYARD.oidc_client_id, _client_secret()
    body = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": question.back,
        "code_verifier": question.verifier,
    }
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    ways = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    if not secret or "client_secret_basic" not in ways:
        body |= {"client_id": client} | ({"client_secret": secret} if secret else {})
    else:
        pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    address = _endpoint(found, "token_endpoint")
    return _fetch(urllib.request.Request(address, urlencode(body).encode(), headers), until)


def _client_secret() -> str:
    path = settings.TRAINYARD.oidc_client_secret_file
    try:
        return secret_files.read(Path(path)) if path else ""
    except (OSError, secret_files.UnsafeFile) as problem:
        raise OidcFailed(
            said(
                "The client secret cannot be read. An admin has to look at TRAINYARD_OIDC_CLIENT_SECRET_FILE."
            )
        ) from problem


def _checked(found: Mapping[str, Any], token: str, nonce: str, until: float) -> Claims:
    try:
        fitting = _fitting(_endpoint(found, "jwks_uri"), jwt.get_unverified_header(token).get("kid"), until)
        if len(fitting) != 1:
            raise OidcFailed(said("The login server signed with a key that it does not publish. Try again."))
        claims: Claims = jwt.decode(
            token,
            fitting[0],
            algorithms=list(ALGORITHMS),
            audience=settings.TRAINYARD.oidc_client_id,
            issuer=found["issuer"],
            leeway=LEEWAY,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as problem:
        raise OidcFailed(
            said("The token of the login server is not good: {problem}. Try again.", problem=problem)
        ) from problem
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise OidcFailed(said("The token of the login server belongs to another login. Try again."))
    if claims.get("azp", settings.TRAINYARD.oidc_client_id) != settings.TRAINYARD.oidc_client_id:
        raise OidcFailed(said("The token of the login server was made for another program."))
    return claims


def _fitting(address: str, name: str | None, until: float) -> list[jwt.PyJWK]:
    """The keys that the server publishes under this name; all of them for a token that names none."""

    def published() -> list[jwt.PyJWK]:
        found = _ask(address, lambda: _fetch(urllib.request.Request(address), until), until)
        keys = jwt.PyJWKSet.from_dict(found).keys
        return [key for key in keys if name is None or key.key_id == name]

    # Keys without a name may be exchanged at any time.
    return _keys.get((address, name), published, keep=lambda keys: name is not None and len(keys) == 1)


def _more(found: Mapping[str, Any], claims: Claims, access_token: str, until: float) -> Claims:
    """What the server says of the person elsewhere, where its token does not say it."""
    wanted = {settings.TRAINYARD.oidc_groups_claim, "preferred_username"}
    if not access_token or "userinfo_endpoint" not in found or wanted <= claims.keys():
        return {}
    address = _endpoint(found, "userinfo_endpoint")
    more = _fetch(urllib.request.Request(address, headers={"Authorization": f"Bearer {access_token}"}), until)
    if more.get("sub") != claims["sub"]:
        raise OidcFailed(said("The login server answered about another person."))
    return more


def _endpoint(found: Mapping[str, Any], name: str) -> str:
    """An address of the server, with the same protection as the server's own."""
    address = str(found.get(name, ""))
    if urlsplit(address).scheme not in {"https", urlsplit(settings.TRAINYARD.oidc_url).scheme}:
        raise OidcFailed(
            said("The login server has no usable {name}. An admin has to look at it.", name=name)
        )
    return address


def _fetch(request: urllib.request.Request, until: float) -> dict[str, Any]:
    host = urlsplit(request.full_url).hostname
    database_pool.give_back()
    try:
        found = json.loads(timed_http.fetch(request, until, MAX_ANSWER))
    except urllib.error.HTTPError as problem:
        problem.close()
        raise OidcFailed(
            said(
                "The login server {host} refused: HTTP {code}. An admin has to look at it.",
                host=host,
                code=problem.code,
            )
        ) from None
    except (OSError, HTTPException, ValueError, RecursionError) as problem:
        raise OidcFailed(
            said(
                "The login server {host} does not answer as it should. Log in with your password, or try again later.",
                host=host,
            )
        ) from problem
    if not isinstance(found, dict):
        raise OidcFailed(
            said(
                "The login server {host} does not answer as it should. An admin has to look at it.", host=host
            )
        )
    return found
