"""How many bytes a project stores, and whether more fit its quota.

Every blob counts once, however many names it has. A file that is being received has a reservation, which grows as its
bytes come, or is all that it has announced: so many at once cannot exceed the quota together. While bytes come no lock
is held: it is taken for a moment at each step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db import close_old_connections, connection, transaction
from django.db.models import Sum
from django.utils import timezone

from agents.infra.database_errors import DATABASE_UNAVAILABLE
from agents.infra.refusals import Exhausted
from agents.infra.texts import said
from jobs.artifacts import storage
from jobs.models import Blob, Project, Quota, Reservation, Upload
from jobs.rules.scheduling.quota import GB, Metric, storage_refusal, storage_warning

log = logging.getLogger(__name__)

# So many bytes are reserved at a time. The first ones of a file need no reservation: most files have no more.
STEP = 8 * storage.MB
UNRESERVED = storage.MB
# How often the reservation of a file is renewed that is on its way to a storage elsewhere.
RENEWED_S = 60.0


def lock(project: int) -> None:
    """Until the end of the transaction, nobody else stores, replaces or deletes anything of this project. Taken before
    any row of an object or blob is locked, and before what is decided upon is read."""
    Project.objects.select_for_update(no_key=True).only("pk").get(pk=project)


def stored_bytes(projects: Sequence[int]) -> dict[int, int]:
    """What each of these projects stores. Those that store nothing are left out."""
    rows = Blob.objects.filter(project__in=projects).order_by().values_list("project")
    return dict(rows.annotate(Sum("size")))


def limit_of(project: Project) -> float | None:
    """The quota in GB; None where there is none."""
    rows = Quota.objects.filter(project=project, metric=Metric.STORAGE_GB, user=None, each=False)
    return rows.values_list("value", flat=True).first()


def check(project: Project, more: int, without: str = "") -> None:
    """Raise Exhausted when so many more bytes exceed the quota. Whoever adds them has locked the project, so that two
    uploads cannot share the last place. `without`: the file, as in Reservation, that these bytes come from."""
    limit = limit_of(project)
    if limit is not None:
        _check(project, limit, _used(project, without), more)


def _check(project: Project, limit: float, used: int, more: int) -> None:
    why = storage_refusal(_named(project), limit, used, more)
    if why:
        raise Exhausted("project", why)


def warning(project: Project) -> str:
    """What people are to know before the quota is full; empty while there is room."""
    limit = limit_of(project)
    return "" if limit is None else storage_warning(_named(project), limit, _used(project))


def free_bytes(project: Project, without: str = "") -> int | None:
    """How many more bytes the quota allows; None where there is no quota. `without`: as in `check`."""
    limit = limit_of(project)
    return None if limit is None else max(int(limit * GB) - _used(project, without), 0)


class Reserve:
    """The reservation of one file that is being received. It grows as the bytes come, and holds no lock between.

    `unreserved`: so many bytes need none, because most files have no more, and the end of each is checked anyway.
    """

    def __init__(self, project: Project, name: str, lasts: timedelta, unreserved: int = UNRESERVED) -> None:
        self._project, self._name, self._lasts = project, name, lasts
        self._size, self._is_made, self._renew_at = unreserved, False, 0.0

    def up_to(self, size: int) -> None:
        """Called before the file gets so large. Raises Exhausted where the quota does not allow it."""
        if size <= self._size and (not self._is_made or time.monotonic() < self._renew_at):
            return
        self._renew_at = time.monotonic() + self._lasts.total_seconds() / 4
        if limit_of(self._project) is None:
            self._size = size + STEP
        else:
            # The larger the file, the larger the steps: each counts what the project stores.
            ahead = max(STEP, size // 8)
            self._size, self._is_made = reserve(self._project, self._name, size, self._lasts, ahead), True

    def trim(self, size: int) -> None:
        """No more bytes come now: what was reserved ahead is free again."""
        if self._is_made:
            with suppress(*DATABASE_UNAVAILABLE):
                Reservation.objects.filter(name=self._name).update(size=size)

    def renew(self) -> None:
        """The file waits, and no byte comes that would do it."""
        if self._is_made:
            with suppress(*DATABASE_UNAVAILABLE):
                _renew(self._name)

    def release(self) -> None:
        """Without the database it ends by itself."""
        if self._is_made:
            with suppress(*DATABASE_UNAVAILABLE):
                release(self._name)


def while_it_comes() -> timedelta:
    """How long the reservation of a file lasts whose sender has died. Senders may not be slower than this."""
    return timedelta(seconds=max(600.0, 5 * settings.TRAINYARD.body_s))


def reserve(project: Project, name: str, size: int, lasts: timedelta, ahead: int = 0) -> int:
    """Reserve so many bytes for the file, and as many ahead as there are. Returns how many are reserved."""
    with transaction.atomic():
        lock(project.pk)
        wanted, limit = size + ahead, limit_of(project)
        if limit is not None:
            used = _used(project, name)
            _check(project, limit, used, size)
            wanted = min(wanted, int(limit * GB) - used)
        had = Reservation.objects.filter(name=name).values_list("size", flat=True).first() or 0
        wanted = max(had, wanted)
        values = {"project": project, "size": wanted, "until": timezone.now() + lasts}
        Reservation.objects.update_or_create(name=name, defaults=values)
    return wanted


@contextmanager
def kept(name: str) -> Iterator[None]:
    """Keep the reservation of a file, if it has one, while the block runs, however long a step of it takes."""
    if not _renew(name):
        # Most files are small.
        yield
        return
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(name, over), name="reservation", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _keep(name: str, over: threading.Event) -> None:
    while not over.wait(RENEWED_S):
        try:
            _renew(name)
        except Exception:
            log.exception("The reservation of %s could not be renewed.", name)
        finally:
            close_old_connections()
    connection.close()


def _renew(name: str) -> bool:
    """False where there is none."""
    until = timezone.now() + while_it_comes()
    mine = Reservation.objects.filter(name=name)
    mine.filter(until__lt=until).update(until=until)
    return mine.exists()


def release(name: str) -> None:
    Reservation.objects.filter(name=name).delete()


def sweep(now: datetime) -> None:
    """Forget what those have reserved who have died, and uploads that have gone with their bucket."""
    Reservation.objects.filter(until__lte=now).delete()
    names = Reservation.objects.filter(name__startswith=storage.UPLOAD_PREFIX).values_list("name", flat=True)
    keys = {name.removeprefix(storage.UPLOAD_PREFIX) for name in names}
    gone = keys - set(Upload.objects.filter(key__in=keys, stored=None).values_list("key", flat=True))
    Reservation.objects.filter(name__in=[f"{storage.UPLOAD_PREFIX}{key}" for key in gone]).delete()


def _used(project: Project, without: str = "") -> int:
    coming = Reservation.objects.filter(project=project, until__gt=timezone.now()).exclude(name=without)
    reserved = coming.aggregate(size=Sum("size"))["size"] or 0
    return stored_bytes([project.pk]).get(project.pk, 0) + reserved


def _named(project: Project) -> str:
    return said("project {name}", name=project.name)
