"""Looks at the studies that hints are about, in a thread of its own: each study once, however many hints have come.

The trials of a study end together, and each end is a hint. A task of Celery's for each of them would wait for the row
of the study, keep a thread of the pool from other work meanwhile, and then find nothing to do: the first of them has
seen all that had ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from agents.infra.clock import Clock
from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.outbox import Outbox
from jobs.host_sync.database_connection import database_connection
from jobs.tuning.advance import advance

log = logging.getLogger(__name__)


def put(ids: list[int]) -> None:
    """Look at these studies soon. What comes while they are looked at is looked at after that, all at once."""
    for pk in ids:
        _studies.post(pk)


def _look(batch: dict[int, set[int]]) -> None:
    try:
        with database_connection():
            advance(batch, Clock())
    except DATABASE_UNAVAILABLE as problem:
        log.warning("Tuning jobs %s wait for the database: %s", sorted(batch), problem)
    except Exception:
        log.exception("Tuning jobs %s could not be looked at; the sweep will find them.", sorted(batch))


def _looking() -> Callable[[dict[int, set[int]]], None]:
    return _look


_studies: Outbox[int, int] = Outbox("studies", _looking)
