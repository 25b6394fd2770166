"""Writes logins and failed ones into the audit, folded, because an entry of the audit stays for ever.

The first of its kind (what, name, address) is written at once. Those that follow within the hour are only counted, and
written as one entry when the hour is over. A stranger can make no more than MAX_OPEN entries of each sort in an hour,
and as many at its end: what comes beside them is counted together. A name that nobody has is not written down, because
people type passwords into the wrong field.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q

from console.models import LoginTally
from jobs.projects import audit

LOGIN, FAILED, WRONG_CODE = "login", "login.failed", "login.wrong_code"
FOLDED_FOR = timedelta(hours=1)
# Failures that are told apart at a time: with the names of people, and with names that nobody has.
MAX_OPEN = {True: 50, False: 20}
NOBODY, REST = "a name that nobody has", "others, not told apart"
STRANGER = "not logged in"
# A row that begins later than this from now was written before the clock was set back.
FUTURE = timedelta(minutes=1)


def succeeded(user: User, address: str, now: datetime) -> None:
    _count(LOGIN, user.username, address, now)


def failed(name: str, address: str, now: datetime) -> None:
    known = User.objects.filter(username=name).exists()
    shown = name if known else NOBODY
    if not _is_open(shown, address, now):
        others = LoginTally.objects.filter(what=FAILED).exclude(name=REST)
        of_sort = others.exclude(name=NOBODY) if known else others.filter(name=NOBODY)
        if of_sort.count() >= MAX_OPEN[known]:
            shown, address = REST, ""
    _count(FAILED, shown, address, now)


def wrong_code(user: User, address: str, now: datetime) -> None:
    """Somebody had the password of this person and gave a wrong code of the second factor."""
    _count(WRONG_CODE, user.username, address, now)


def fold(now: datetime) -> None:
    """Write what was counted in hours that are over."""
    over = Q(since__lte=now - FOLDED_FOR) | Q(since__gt=now + FUTURE)
    for key in LoginTally.objects.filter(over).values_list("pk", flat=True):
        with transaction.atomic():
            row = LoginTally.objects.select_for_update().filter(pk=key).first()
            if row is not None:
                _close(row, now)


def _is_open(name: str, address: str, now: datetime) -> bool:
    return LoginTally.objects.filter(what=FAILED, name=name, address=address).exists()


def _count(what: str, name: str, address: str, now: datetime) -> None:
    with transaction.atomic():
        key = {"what": what, "name": name[:150], "address": address[:64]}
        counted = LoginTally.objects.filter(**key, since__gt=now - FOLDED_FOR, since__lte=now + FUTURE)
        if counted.update(more=F("more") + 1, last_at=now):
            return
        row = LoginTally.objects.select_for_update().filter(**key).first()
        if row is not None:
            _close(row, now)
        _, first = LoginTally.objects.get_or_create(**key, defaults={"since": now, "last_at": now})
        if first:
            _write(what, name, {"from": address} if address else {}, now)
        else:
            LoginTally.objects.filter(**key).update(more=F("more") + 1, last_at=now)


def _close(row: LoginTally, now: datetime) -> None:
    if row.more:
        until = row.last_at.isoformat(timespec="seconds")
        after = {"from": row.address, "times": row.more, "until": until}
        _write(row.what, row.name, {name: value for name, value in after.items() if value}, now)
    row.delete()


def _write(what: str, name: str, after: dict[str, object], now: datetime) -> None:
    actor = name if what == LOGIN else STRANGER
    audit.record(actor, what, "user", name, None, after or None, now)
