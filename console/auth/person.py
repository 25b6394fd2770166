"""The person who makes a request."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest


def person(request: HttpRequest) -> User:
    """The logged-in user with the type User. Raises PermissionDenied when nobody is logged in."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user
