"""Files of replicas outside of their output directories: fetched from their hosts when somebody asks for them.

So many at once that a slow host does not hold all threads. What a job writes below its output directories is stored,
and listed by browsing.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from agents.infra.texts import said
from agents.ssh import files, keys
from agents.ssh.dial import DialError
from agents.ssh.files import FileRefused, Listing, RemoteFile
from agents.ssh.targets import Target
from jobs.models import Job, Replica, Run

# Each one holds a thread of this process while a host answers.
MOST_AT_ONCE = 4
WAIT_S = 5.0
MAX_PATH = 2000
# What may go wrong, with words for the person.
PROBLEMS = (DialError, keys.KeyUnreadable)

_places = threading.BoundedSemaphore(MOST_AT_ONCE)


class Busy(Exception):
    """As many files are being fetched as this process fetches at once."""


def list_directory(job: Job, replica: Replica, path: str) -> Listing:
    """Raises Busy or one of PROBLEMS."""
    run = _newest_run(job, replica)
    with _place():
        return files.list_files(Target.of(run.host), keys.private_key(), _request(run, path))


def open_file(job: Job, replica: Replica, path: str) -> RemoteFile:
    """Raises Busy or one of PROBLEMS."""
    run = _newest_run(job, replica)
    with _place():
        return files.open_file(Target.of(run.host), keys.private_key(), _request(run, path))


def parts(found: RemoteFile) -> Iterator[bytes]:
    """The bytes of the file. Raises OSError when they do not all come."""
    try:
        with _place():
            yield from found.parts()
    except Busy as busy:
        raise OSError("too many files are fetched at once") from busy
    finally:
        found.close()


def _newest_run(job: Job, replica: Replica) -> Run:
    """Its work directory is on its host until the run is forgotten there."""
    if not job.spec.get("enableWebAccess"):
        raise FileRefused(said("The job was submitted without enableWebAccess."))
    rows = Run.objects.filter(replica=replica, held=False).select_related("host").defer("order", "log_proof")
    run = rows.order_by("-attempt", "-number").first()
    if run is None:
        raise FileRefused(said("The replica has not been on a host yet."))
    return run


def _request(run: Run, path: str) -> dict[str, Any]:
    # No connection to the database is held while a host is waited for.
    if not connection.in_atomic_block:
        connection.close()
    return {"deployment": settings.DEPLOYMENT, "run": run.pk, "path": path[:MAX_PATH].strip("/")}


@contextmanager
def _place() -> Iterator[None]:
    if not _places.acquire(timeout=WAIT_S):
        raise Busy
    try:
        yield
    finally:
        _places.release()
