"""Files of replicas outside of their output directories: fetched from their hosts when somebody asks for them.

A host that stands still holds a place for each who asks, in threads of their own
(console/runtime/requests/waiting_requests.py), and a person has no more places than they leave to others. Nobody waits
for a place. That a host gives no answer is kept for some seconds: whoever asks next is told so at once. What a job
writes below its output directories is stored, and listed by browsing.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings

from agents.infra import database_pool
from agents.infra.places import AllTaken, Places
from agents.infra.shared_answers import KeptFailures
from agents.infra.texts import said
from agents.ssh import files, keys
from agents.ssh.dial import DialError, SshdBusy, Unreachable
from agents.ssh.files import FileRefused, HostSilent, Listing, RemoteFile
from agents.ssh.targets import Target
from jobs.models import Job, Replica, Run

T = TypeVar("T")

# Those who wait for the answer of a host, by person. Each holds a thread.
dials = Places(6)
# Files that are being sent, by person, from the question until the last byte. A client may take one slowly: then it
# holds no thread, but its place.
transfers = Places(8)
MAX_PATH = 2000
# What may go wrong, with words for the person.
PROBLEMS = (DialError, keys.KeyUnreadable)

_failures = KeptFailures(timedelta(seconds=5), 256, (Unreachable, SshdBusy, HostSilent))


class Busy(Exception):
    """As many files are being fetched as this process, or this person, fetches at once."""


class Transfer(Iterator[bytes]):
    """A file on its way. It has a place until its end, or until `close`."""

    def __init__(self, found: RemoteFile, share: str) -> None:
        self.size, self._found, self._share = found.size, found, share
        self._parts = found.parts()
        # Held from its end on, which two threads may come to: the one that reads, and the one whose client has gone.
        self._ended = threading.Lock()

    def __next__(self) -> bytes:
        """Raises OSError when not all bytes come."""
        try:
            return next(self._parts)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._ended.acquire(blocking=False):
            transfers.give_back(self._share)
            self._found.close()


def list_directory(job: Job, replica: Replica, path: str, share: str) -> Listing:
    """`share`: whose place it takes. Raises Busy or one of PROBLEMS."""
    run = _newest_run(job, replica)
    request = _request(run, path)
    return _asked(run, share, lambda: files.list_files(Target.of(run.host), keys.private_key(), request))


def open_file(job: Job, replica: Replica, path: str, share: str) -> Transfer:
    """`share`: whose place it takes. Raises Busy or one of PROBLEMS."""
    run = _newest_run(job, replica)
    request = _request(run, path)
    try:
        transfers.take(share)
    except AllTaken:
        raise Busy from None
    try:
        found = _asked(run, share, lambda: files.open_file(Target.of(run.host), keys.private_key(), request))
        return Transfer(found, share)
    except BaseException:
        transfers.give_back(share)
        raise


def _asked(run: Run, share: str, ask: Callable[[], T]) -> T:
    try:
        with dials.place(share):
            # No connection to the database is held while a host is waited for.
            database_pool.give_back()
            return _failures.call(run.host_id, ask)
    except AllTaken:
        raise Busy from None


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
    return {"deployment": settings.DEPLOYMENT, "run": run.pk, "path": path[:MAX_PATH].strip("/")}
