"""Slows down the guessing of passwords. Failures are counted for each pair of name and address.

A lock on the name alone would let anybody lock out others. A lock on the address alone would lock out an office behind
one address. The address alone also has a limit, a much higher one, against trying many names. An IPv6 address counts
as its network: whoever has one address has all 2^64 of its network.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q
from django.http import HttpRequest

from console.auth.login.client_network import client_network
from console.models import LoginFailure

WINDOW = timedelta(minutes=10)
TRIES_OF_PAIR = 5
TRIES_OF_ADDRESS = 100


def address_of(request: HttpRequest) -> str:
    """The address that failures of this request are counted for."""
    return client_network(str(request.META.get("REMOTE_ADDR", "")))


def attempt(name: str, address: str, now: datetime) -> timedelta:
    """Register a login attempt. Returns zero if the attempt is allowed, otherwise how long the person must wait.

    The attempt counts as a failure before the password is checked, until `succeeded` removes it. So attempts at the
    same time see each other, and no more of them than the limit are allowed.
    """
    address = client_network(address)
    LoginFailure.objects.filter(at__lte=now - WINDOW).delete()
    own = LoginFailure.objects.create(name=_short(name), address=address, at=now)
    wait = _locked_for(name, address, now)
    if wait:
        own.delete()
    return wait


def _locked_for(name: str, address: str, now: datetime) -> timedelta:
    failures = LoginFailure.objects.filter(address=address, at__gt=now - WINDOW)
    waits = [
        _wait(
            list(
                failures.filter(name=_short(name))
                .order_by("-at")
                .values_list("at", flat=True)[: TRIES_OF_PAIR + 1]
            ),
            TRIES_OF_PAIR,
            now,
        ),
        _wait(
            list(failures.order_by("-at").values_list("at", flat=True)[: TRIES_OF_ADDRESS + 1]),
            TRIES_OF_ADDRESS,
            now,
        ),
    ]
    return max(waits)


def succeeded(name: str, address: str) -> None:
    LoginFailure.objects.filter(Q(name=_short(name)) & Q(address=client_network(address))).delete()


def _wait(failures: list[datetime], tries: int, now: datetime) -> timedelta:
    """The time until the oldest of the last `tries` failures before this attempt leaves the window."""
    return max(failures[-1] + WINDOW - now, timedelta(0)) if len(failures) > tries else timedelta(0)


def _short(name: str) -> str:
    return name[:150]
