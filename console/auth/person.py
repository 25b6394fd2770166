"""Who is asking."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest


def person(request: HttpRequest) -> User:
    """The logged-in user, as the type that everything else works with."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user
