"""What all REST views share: authentication, and errors as responses."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, MethodNotAllowed, NotAuthenticated
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api import conditional, errors, rate_limits
from console.api.times import format_time
from console.auth import access, tokens
from console.auth.login import confirmation
from console.client import VERSION
from console.models import ApiToken
from console.runtime import languages

TOKEN_ENDS = "Trainyard-Token-Expires"
# A client of another version says so where the console does not understand it.
CONSOLE_VERSION = "Trainyard-Version"
_HALF = re.compile("[\ud800-\udfff]")


class BearerAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`, as made on the account page or by `trainyard token create`."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        row = tokens.valid(token.strip(), timezone.now())
        if row is None:
            raise AuthenticationFailed(tokens.refusal(token.strip(), timezone.now()))
        return row.user, row

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="Trainyard"'


def person(request: Request) -> User:
    """The user of the request. Call this only where IsAuthenticated has let the user in."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def account(request: Request) -> User:
    """The user of a request about what belongs to them alone. Raises PermissionDenied where the token is too narrow."""
    access.require_account(request.user, change=request.method not in SAFE_METHODS)
    return person(request)


def require_confirmed(request: Request, act: str) -> None:
    """Refuse an act that asks a person for the password (auth/login/confirmation.py). `act` completes "may not ...".

    A script has no password to give, so its token must have been made for such acts. A page of ours is asked like any
    page: its session must have had the password within the hour.
    """
    if isinstance(request.auth, ApiToken):
        if not request.auth.elevated:
            raise PermissionDenied(
                f"This token may not {act}. Make one that may: tick it at Account → API tokens, or run "
                "trainyard token create NAME --elevated"
            )
    elif not confirmation.is_fresh(request.session, timezone.now()):
        raise PermissionDenied(f"You may not {act} without your password: log in again first.")


def absolute_url(request: Request, path: str) -> str:
    """The address of a path for people elsewhere: below TRAINYARD_URL, or else below the address of this request."""
    return settings.TRAINYARD.url + path if settings.TRAINYARD.url else request.build_absolute_uri(path)


class GoogleView(APIView):
    """A view for scripts: authenticates by bearer token and answers errors in Google's form."""

    authentication_classes = [BearerAuthentication]
    permission_classes = [IsAuthenticated]
    token: ApiToken | None = None

    def perform_authentication(self, request: Request) -> None:
        super().perform_authentication(request)
        if isinstance(request.auth, ApiToken):
            self.token = request.auth
            rate_limits.OF_TOKENS.take(request.auth.pk, settings.TRAINYARD.token_requests)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Tell each script when its token ends, so that it can warn in time, and the console's version.

        `request.auth` is not asked: where the database is away, it would be asked a second time."""
        response = super().finalize_response(request, response, *args, **kwargs)
        if self.token is not None:
            response[TOKEN_ENDS] = format_time(self.token.expires_at)
            response[CONSOLE_VERSION] = VERSION
        if isinstance(response, Response):
            conditional.add_etag(request, response)
            if response.status_code >= 400:
                self._translate(request, response)
        return response

    def _translate(self, request: Request, response: Response) -> None:
        patch_vary_headers(response, ("Accept-Language", "Cookie"))
        language = languages.chosen(request.COOKIES, request.headers.get("Accept-Language", ""))
        if language != settings.LANGUAGE_CODE:
            errors.add_translations(response, language)

    def handle_exception(self, exc: Exception) -> Response:
        given = errors.response_for(exc)
        if given is None:
            raise exc
        if given.status_code == 401:
            return self._unauthenticated(exc, given)
        if isinstance(exc, MethodNotAllowed):
            given["Allow"] = ", ".join(self.allowed_methods)
        given.exception = True
        return given

    def _unauthenticated(self, exc: Exception, given: Response) -> Response:
        """After a 401, Google's SDK tries to renew the token and shows that failure instead of our message. Therefore
        the SDK gets a 403 for an unknown token.
        """
        if isinstance(exc, AuthenticationFailed) and "x-goog-api-client" in self.request.headers:
            return errors.error_response(403, str(exc.detail))
        given["WWW-Authenticate"] = 'Bearer realm="Trainyard"'
        return given


class TextOnlyJSONParser(JSONParser):
    """Parses JSON and refuses NUL and half of a surrogate pair: JSON can express them, no database can store them."""

    def parse(self, *arguments: Any, **named: Any) -> Any:
        document = super().parse(*arguments, **named)
        field = not_text(document)
        if field is not None:
            raise errors.BadRequest(
                field, f"{field or 'The body'} holds NUL or half of a surrogate pair, which is not text."
            )
        return document


class UnreadBody(BaseParser):
    """For bodies of any kind that `large_bodies` reads: whoever looks for a form's token in them finds none."""

    media_type = "*/*"

    def parse(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        return {}


def not_text(document: object) -> str | None:
    """The name of the field that contains NUL or half of a surrogate pair. None if there is no such field."""
    left = [("", document)]
    while left:
        field, value = left.pop()
        if isinstance(value, dict):
            left += [(field or str(name), each) for name, each in value.items()]
            left += [(field, str(name)) for name in value]
        elif isinstance(value, list):
            left += [(field, each) for each in value]
        elif isinstance(value, str) and ("\0" in value or (not value.isascii() and _HALF.search(value))):
            return _HALF.sub("?", field).replace("\0", "?")[:60]
    return None


class TrainyardView(GoogleView):
    """A view for scripts and for our own pages: authenticates by bearer token or by session."""

    authentication_classes = [BearerAuthentication, SessionAuthentication]
    parser_classes = [TextOnlyJSONParser]
