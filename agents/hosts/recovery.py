"""Detect that the database was restored from a backup: the hosts know of later events than the database.

There are two signs. A host has runs that have no row; or a host remembers a *mark* that is later than the database's. A
mark is a number that grows by one a second while a dispatcher holds a link to the host. It is committed first and sent
to the host afterwards, so that without a restored backup no host knows a later mark than the database.

In recovery mode the product only observes: hosts report, logs are fetched, and nothing is decided, started, stopped or
deleted until a person has seen the differences and has confirmed (jobs/host_sync/recovery_mode.py).

Both signs count only under the console's seal (seals.py): without seals any program on a host could stop the whole
deployment by writing a file there. A sealed sign says something about the database and not about one host, so
everything stops. A sign without a seal is no evidence: it is recorded in the history of its host and stops nothing.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from django.db.models import QuerySet

from agents.hosts import host_history, seals
from agents.hosts.seals import SealOwner
from agents.infra.sql import SelectStatement
from agents.infra.texts import said
from agents.models import Host, Recovery

log = logging.getLogger(__name__)

# Two rows of one machine, or the moment between committing a mark and sending it, are no reason to stop everything.
SLACK_S = 30
FORGED_MARK = "forged_mark"


def unconfirmed() -> QuerySet[Recovery]:
    """The row of the recovery mode that is on, for statements that ask more at the same time."""
    return Recovery.objects.filter(confirmed_at=None).order_by()


# What `in_recovery_mode` asks the database, for `read_ahead`.
UNCONFIRMED = SelectStatement(lambda: unconfirmed().values_list("pk")[:1])


def in_recovery_mode() -> bool:
    """Whether recovery mode is on. This is asked before anything is decided or sent."""
    return bool(UNCONFIRMED())


def begin(why: str, now: datetime) -> bool:
    if in_recovery_mode():
        return False
    log.error("Recovery mode: %s Nothing is started or stopped until an admin confirms.", why)
    Recovery.objects.create(since=now, why=why)
    return True


def check_mark(host: Host, mark: int, seal: str, now: datetime) -> int:
    """Judge the mark that a host remembers, and return the mark from which its row goes on.

    A host that never got a mark from this row is no evidence. An older mark is none either: it is one that the row
    gave before. A forged mark is ignored.
    """
    if mark <= host.mark:
        return host.mark
    late = bool(host.mark) and mark > host.mark + SLACK_S
    if not seals.is_seal_of_mark(SealOwner.of(host), mark, seal):
        if late:
            host_history.record_once_a_day(host.pk, FORGED_MARK, _forged_text(mark), "trainyard", now)
        return host.mark
    if late:
        there, here = _mark_text(mark), _mark_text(host.mark)
        begin(
            said(
                "{host} was last contacted at {there}, but the database knows of nothing there after {here}.",
                host=host.name,
                there=there,
                here=here,
            ),
            now,
        )
    return mark


def _mark_text(mark: int) -> str:
    try:
        return f"{datetime.fromtimestamp(mark, UTC):%Y-%m-%d %H:%M:%S UTC}"
    except (ValueError, OverflowError, OSError):
        return "an impossible time"


def _forged_text(mark: int) -> str:
    return said(
        "It reports a contact at {there}, which is later than the database knows, without a valid seal. The report is "
        "ignored. A program of its login wrote it, or the deployment's field key was replaced. If the database was "
        "restored from a backup, put Trainyard into recovery mode yourself (page Recovery).",
        there=_mark_text(mark),
    )
