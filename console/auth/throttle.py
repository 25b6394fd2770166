"""Guessing passwords is made slow, by name and address together.

By the pair, because a lock on the name alone would let anybody lock others out, and a lock on the address alone would
lock out an office behind one address. The address alone has a limit too, far higher, against trying many names.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from console.models import LoginFailure

WINDOW = timedelta(minutes=10)
TRIES_OF_PAIR = 5
TRIES_OF_ADDRESS = 100


def attempt(name: str, address: str, now: datetime) -> timedelta:
    """A try that is about to be made: zero if it may be, else for how long it may not.

    It counts as a wrong one from before it is looked at, until `succeeded` says otherwise: of many at once each sees
    the others, and no more of them than the limit come through.
    """
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
    LoginFailure.objects.filter(Q(name=_short(name)) & Q(address=address)).delete()


def _wait(failures: list[datetime], tries: int, now: datetime) -> timedelta:
    """Until the oldest of the last `tries` failures before this try falls out of the window."""
    return max(failures[-1] + WINDOW - now, timedelta(0)) if len(failures) > tries else timedelta(0)


def _short(name: str) -> str:
    return name[:150]
