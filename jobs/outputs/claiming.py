"""A worker's claim of one row of HostOutputs: while it lasts, no other worker works on that row.

The claim is `due_at`, moved ahead, and renewed by a thread while the work goes on. A worker that dies leaves the row
due. Whoever claims it next has a higher `serial`, and the former holder cannot write any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import close_old_connections, connection
from django.db.models import F
from django.utils import timezone

from jobs.models import HostOutputs, Run
from jobs.preparations import reasons
from jobs.rules.lifecycle.states import RunPhase
from jobs.wake import announce

HELD_S = 30.0
RENEWED_S = 5.0
log = logging.getLogger(__name__)


class Superseded(Exception):
    """Somebody else has claimed the row, or a new run writes there: this work ends."""


class Claim:
    """A claimed row. Each of its methods that writes raises Superseded when the claim is over."""

    def __init__(self, row: HostOutputs) -> None:
        self.row = row
        self._renew_at = time.monotonic() + RENEWED_S

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the claim while the block runs, also when one step of it takes minutes."""
        over = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(over,), name="outputs claim", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(RENEWED_S):
            try:
                # A row that was written meanwhile with another time, or none, keeps it.
                now = timezone.now()
                mine = HostOutputs.objects.filter(pk=self.row.pk, serial=self.row.serial, due_at__gt=now)
                mine.update(due_at=now + timedelta(seconds=HELD_S))
            except Exception:
                log.exception("The claim of outputs %s could not be renewed.", self.row.pk)
            finally:
                close_old_connections()
        connection.close()

    def write(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.row, name, value)
        fields.setdefault("due_at", timezone.now() + timedelta(seconds=HELD_S))
        if not HostOutputs.objects.filter(pk=self.row.pk, serial=self.row.serial).update(**fields):
            raise Superseded
        self._renew_at = time.monotonic() + RENEWED_S
        announce.send_now([f"job:{self.row.job_id}"])

    def renew(self, **fields: Any) -> None:
        """Write now and then that the work goes on, and how far it is."""
        if time.monotonic() >= self._renew_at:
            self.write(**fields)
            self.hold_back_runs()

    def hold_back_runs(self) -> None:
        """Runs that wait until this host is filled are not late while that goes on. When nothing moves, they are."""
        if self.row.filled_at is not None:
            return
        waiting = Run.objects.filter(job=self.row.job_id, phase=RunPhase.CREATED, held=False)
        # One by one: nobody who locks several runs can wait for this in a circle.
        for pk in waiting.order_by().values_list("pk", flat=True):
            waiting.filter(pk=pk).update(prepared_at=timezone.now())
        reasons.explain(self.row.job_id, timezone.now())


def claim(pk: int) -> Claim | None:
    """The claim of a row that is due; None if it is not, or another worker was first."""
    now = timezone.now()
    row = HostOutputs.objects.filter(pk=pk, due_at__lte=now).select_related("job__project", "host").first()
    if row is None:
        return None
    taken = HostOutputs.objects.filter(pk=pk, serial=row.serial, due_at=row.due_at).update(
        serial=F("serial") + 1, due_at=now + timedelta(seconds=HELD_S)
    )
    row.serial += 1
    return Claim(row) if taken else None
