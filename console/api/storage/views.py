"""What the views of Google's storage API share: who asks, which bucket, and how a problem is told.

Google's client sends no token where only `STORAGE_EMULATOR_HOST` is set. Nothing is open to it: it has to be given
credentials, or the token in the address, `http://token:TOKEN@host`, which it sends as a password.
"""

from __future__ import annotations

import base64
import binascii

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.refusals import Exhausted
from console.api import errors
from console.api.errors import BadRequest
from console.api.views import GoogleView, TextOnlyJSONParser
from console.auth import access, tokens
from console.auth.access import Verb
from console.models import ApiToken
from jobs.artifacts.objects import Changed, NoSuchBucket
from jobs.models import Bucket, StoredObject

CURE = (
    "This address needs a token. Give Google's client credentials: google.oauth2.credentials.Credentials(TOKEN), in "
    "storage.Client(credentials=…) or aiplatform.init(credentials=…); or put the token into the address: "
    "STORAGE_EMULATOR_HOST=http://token:TOKEN@HOST:PORT"
)


class PasswordAuthentication(BaseAuthentication):
    """`Authorization: Basic …` with a token as the password: what clients send for `http://token:TOKEN@host`."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            token = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            token = ""
        row = tokens.valid(token, timezone.now())
        if row is None:
            raise AuthenticationFailed(tokens.refusal(token, timezone.now()))
        return row.user, row


class StorageView(GoogleView):
    """A view of Google's storage API."""

    authentication_classes = [*GoogleView.authentication_classes, PasswordAuthentication]
    parser_classes = [TextOnlyJSONParser]

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Changed):
            return errors.error_response(412, exc.message)
        if isinstance(exc, NoSuchBucket):
            return super().handle_exception(Http404())
        if isinstance(exc, Exhausted):
            # Google's client would try again for two minutes after a 429.
            return errors.error_response(403, exc.message)
        if isinstance(exc, NotAuthenticated) and "x-goog-api-client" in self.request.headers:
            # After a 401, the client tries to renew credentials that it does not have, and shows that.
            return errors.error_response(403, CURE)
        return super().handle_exception(exc)


def bucket_or_404(request: Request, verb: Verb, name: str) -> Bucket:
    """The bucket, in a project where the person may do this. Another's does not exist."""
    row = Bucket.objects.filter(name=name).select_related("project").first()
    if row is None:
        raise Http404
    access.require(request.user, verb, row.project)
    return row


def object_or_404(request: Request, verb: Verb, bucket: str, name: str) -> StoredObject:
    holder = bucket_or_404(request, verb, bucket)
    rows = StoredObject.objects.filter(bucket=holder, path=name.encode("utf-8", "surrogatepass"))
    row = rows.select_related("blob", "bucket__project").first()
    if row is None or request.query_params.get("generation", str(row.generation)) != str(row.generation):
        raise Http404
    return row


def check_conditions(request: Request, row: StoredObject | None) -> None:
    """Raise Changed where the object is in another generation than the client wants."""
    generation = row.generation if row else 0
    metageneration = row.metageneration if row else 0
    for name, found, equal in (
        ("ifGenerationMatch", generation, True),
        ("ifGenerationNotMatch", generation, False),
        ("ifMetagenerationMatch", metageneration, True),
        ("ifMetagenerationNotMatch", metageneration, False),
    ):
        asked = number(request, name)
        if asked is not None and (asked == found) is not equal:
            raise Changed(name, f"The condition {name}={asked} does not hold: it is {found}.")


def number(request: Request, name: str) -> int | None:
    value = request.query_params.get(name)
    if value is None:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 18:
        raise BadRequest(name, f"{name} must be a whole number of at least 0.")
    return int(value)


def actor(request: Request) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user
