"""Fetches what jobs write on hosts, in threads of a worker: one pass over one host and job at a time.

A pass that ends too early, whatever the reason, is made again after a while. Nothing is lost with it: the host has its
files until all of them are stored, and a file is stored whole or not at all.
"""

from __future__ import annotations

import logging
import queue
import threading
from datetime import timedelta

from django.conf import settings
from django.db import close_old_connections, transaction
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Refused, Unavailable
from agents.infra.texts import said
from agents.models import HostStatus
from agents.ssh import keys
from agents.ssh.dial import DialError
from agents.ssh.outputs import OutputsConversation, converse
from agents.ssh.targets import Target
from jobs.models import HostOutputs, OutputStage
from jobs.outputs import telling
from jobs.outputs.claiming import Claim, Superseded, claim
from jobs.outputs.filling import Filling, open_runs, others_are_stored, unread_runs, writing
from jobs.outputs.uploading import Upload, to_store
from jobs.preparations import reasons
from jobs.preparations.progress import NO_PLACE
from jobs.rules.lifecycle.states import TERMINAL
from jobs.wake import hints

log = logging.getLogger(__name__)

# Each thread may wait for a host, and moves the bytes of one. More of them would take the cores from each other.
THREADS = 8
# So many of them put files on hosts at the same time: the others store what jobs write meanwhile.
_fills = threading.BoundedSemaphore(THREADS // 2)
SOON = timedelta(seconds=5)
SILENT_PAUSE = timedelta(seconds=10)
SILENT = said("the host does not answer")
FIRST_PAUSE_S, LAST_PAUSE_S = 10.0, 60.0
RETRY_S, LAST_RETRY_S = 5.0, 300.0
# How often a file that its host does not give is asked for before it is left there.
MAX_TRIES = 6
KEPT_KINDS = frozenset({"names", "too_many", "elsewhere", "unreadable"})


class Mover:
    """A queue without duplicates, and daemon threads that start with the first row."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._known: set[int] = set()
        self._lock = threading.Lock()
        self._started = False

    def put(self, pk: int) -> None:
        with self._lock:
            if pk in self._known:
                return
            self._known.add(pk)
            self._waiting.put(pk)
            if not self._started:
                self._started = True
                for _ in range(THREADS):
                    threading.Thread(target=self._work, name="outputs", daemon=True).start()

    def _work(self) -> None:
        while True:
            pk = self._waiting.get()
            try:
                move(pk)
            except DATABASE_UNAVAILABLE as problem:
                log.warning("The database did not answer while outputs were moved: %s", problem)
            except Exception:
                log.exception("The outputs of row %s cannot be moved; it is tried again.", pk)
            finally:
                with self._lock:
                    self._known.discard(pk)
                close_old_connections()


mover = Mover()


def move(pk: int) -> None:
    """Make one pass over a row that is due."""
    claimed = claim(pk)
    if claimed is None:
        return
    try:
        with claimed.kept():
            _pass(claimed)
    except Superseded:
        log.info("The outputs of row %s are moved by somebody else.", pk)
    except (DialError, keys.KeyUnreadable) as problem:
        _failed(claimed, str(problem.args[0] if problem.args else problem))
    except (Refused, Unavailable) as refused:
        _failed(claimed, refused.message)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        _failed(
            claimed, said("Trainyard could not do it. Its operator finds the reason in the worker's log.")
        )
        raise


def _pass(claimed: Claim) -> None:
    row = claimed.row
    if row.host.retired_at is not None:
        claimed.write(stage=OutputStage.KEPT, due_at=None, problem=said("The host was removed."))
        telling.tell(row, timezone.now())
        return
    if row.host.status != HostStatus.UP:
        # Its link notices when it answers again. Dialling it here would only hold a thread.
        claimed.write(problem=SILENT, due_at=timezone.now() + SILENT_PAUSE)
        telling.tell_problem(row, timezone.now())
        return
    # What is read before the look at the host: runs that are closed now write nothing any more.
    is_open, is_quiet, is_over = open_runs(row).exists(), not writing(row), row.job.state in TERMINAL
    if row.dropped_at is None and row.stage in (OutputStage.STORED, OutputStage.KEPT):
        _drop(claimed)
        return
    found = Upload(claimed, lambda: _connect(row), is_quiet)
    try:
        found.run()
        # Where no run waits, nothing is filled: two such hosts would wait for each other.
        if row.filled_at is None and is_open and not is_over:
            _fill(claimed, found)
        if not is_open:
            _settle(claimed, found, is_over and not unread_runs(row).exists())
        else:
            _pause(claimed, found)
    finally:
        found.close()


def _connect(row: HostOutputs) -> OutputsConversation:
    request = {"deployment": settings.DEPLOYMENT, "key": str(row.job_id)}
    return converse(Target.of(row.host), keys.private_key(), request)


def _fill(claimed: Claim, found: Upload) -> None:
    row = claimed.row
    can_begin = others_are_stored(row)
    if not can_begin or not _fills.acquire(blocking=False):
        claimed.write(problem=NO_PLACE if can_begin else "")
        claimed.hold_back_runs()
        return
    try:
        Filling(claimed, found.host).run()
    finally:
        _fills.release()
    with transaction.atomic():
        reasons.hold(row.job_id)
        claimed.write(filled_at=timezone.now())
        reasons.explain(row.job_id, timezone.now())
        # The other hosts of a gang start their runs together with this one's.
        hints.hosts(list(HostOutputs.objects.filter(job=row.job_id).values_list("host", flat=True)))


def _pause(claimed: Claim, found: Upload) -> None:
    """Runs may write more, or the directory waits for what other hosts have."""
    row = claimed.row
    is_waiting = row.filled_at is None or to_store(row.pk).exists()
    pause_s = FIRST_PAUSE_S if found.has_news else min(max(row.pause_s * 2, FIRST_PAUSE_S), LAST_PAUSE_S)
    due = SOON if is_waiting else timedelta(seconds=pause_s)
    claimed.write(due_at=timezone.now() + due, pause_s=pause_s, tries=0)


def _settle(claimed: Claim, found: Upload, is_over: bool) -> None:
    """No run writes there any more. When all is stored, and the job is over, the host need not keep it."""
    row, now = claimed.row, timezone.now()
    left = to_store(row.pk)
    if left.exists() and row.tries < MAX_TRIES:
        claimed.write(stage=OutputStage.ENDING, due_at=now + _retry(row.tries), tries=row.tries + 1)
    elif not is_over:
        claimed.write(stage=OutputStage.ENDING, settled_at=now, due_at=None)
    elif left.exists() or KEPT_KINDS & set(row.left_out):
        claimed.write(stage=OutputStage.KEPT, settled_at=now, due_at=None)
        telling.tell(row, now)
    else:
        found.host.drop()
        claimed.write(stage=OutputStage.STORED, settled_at=now, dropped_at=now, due_at=None, tries=0)
        telling.tell(row, now)


def _drop(claimed: Claim) -> None:
    """The job is deleted: what its host kept goes too."""
    host = _connect(claimed.row)
    try:
        host.drop()
    finally:
        host.close()
    claimed.write(dropped_at=timezone.now(), due_at=None)


def _failed(claimed: Claim, problem: str) -> None:
    row = claimed.row
    try:
        claimed.write(
            problem=problem,
            due_at=timezone.now() + _retry(row.tries),
            tries=row.tries + 1,
            moving_path="",
            moving_bytes=0,
        )
    except Superseded:
        return
    telling.tell_problem(row, timezone.now())


def _retry(tries: int) -> timedelta:
    return timedelta(seconds=min(RETRY_S * 2 ** min(tries, 10), LAST_RETRY_S))
