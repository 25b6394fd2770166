"""Checks a password that a person typed, with a limit on wrong ones: at the login, and where it is asked for again."""

from __future__ import annotations

from datetime import datetime

from django.contrib import auth
from django.contrib.auth.models import User
from django.http import HttpRequest

from agents.infra.refusals import Refused
from agents.infra.texts import said
from console.auth.login import confirmation, login_audit, second_factor, throttle
from console.auth.person import person


def check(request: HttpRequest, name: str, password: str, now: datetime) -> User:
    """The person with this name and this password. Raises Refused, which does not say which of the two was wrong."""
    address = throttle.address_of(request)
    wait = throttle.attempt(name, address, now)
    if wait:
        login_audit.failed(name, address, now)
        minutes = int(wait.total_seconds() // 60) + 1
        raise Refused("", said("Too many wrong passwords. Try again in {minutes} min.", minutes=minutes))
    user = auth.authenticate(request, username=name, password=password)
    if not isinstance(user, User):
        login_audit.failed(name, address, now)
        raise Refused("password", said("The name or the password is wrong."))
    throttle.succeeded(name, address)
    return user


def confirm(request: HttpRequest, password: str, now: datetime) -> None:
    """The person who is logged in types the password again, which counts for an hour. Raises Refused."""
    try:
        check(request, request.user.get_username(), password, now)
    except Refused as refused:
        raise Refused(
            refused.field, said("The password is wrong.") if refused.field else refused.message
        ) from None
    confirmation.mark(request.session, now)


def confirm_any(request: HttpRequest, typed: str, now: datetime) -> None:
    """The same with the password or with a code of the second factor, as the person likes. Raises Refused."""
    user = person(request)
    if second_factor.looks_like_code(typed) and second_factor.has(user):
        second_factor.check(request, user, typed, now)
        confirmation.mark(request.session, now)
    else:
        confirm(request, typed, now)
