"""Puts what a job's runs on other hosts have stored into its directories on this host, before its next run starts.

What the host changed itself is stored first (uploading.py), and is never replaced: what is not stored yet is newer than
the storage. A file that its program deleted does not come back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from agents.infra.refusals import Unavailable
from agents.infra.texts import said
from agents.models import HostStatus
from agents.ssh.outputs import OutputsConversation
from agents.ssh.put import Rate
from jobs.artifacts import buckets, objects
from jobs.models import HostOutputs, OutputFile, Project, Run, StoredObject
from jobs.outputs import times
from jobs.outputs.claiming import Claim
from jobs.outputs.uploading import to_store
from jobs.preparations.progress import NO_PLACE
from jobs.rules.lifecycle.states import RunPhase
from jobs.rules.spec.output_addresses import Address, is_below

PAGE = 500


def others_are_stored(row: HostOutputs) -> bool:
    """Whether the job's other hosts, on which none of its runs writes, have nothing left that could be fetched now.

    What lies on a host that does not answer is not waited for, nor what could not be stored at the last try.
    """
    others = HostOutputs.objects.filter(job=row.job_id, settled_at=None, problem__in=("", NO_PLACE)).exclude(
        pk=row.pk
    )
    return all(writing(other) or _is_next(other) for other in others.filter(host__status=HostStatus.UP))


def _is_next(row: HostOutputs) -> bool:
    """Whether runs wait for this host, too, and all is stored that earlier ones left there."""
    is_stored = row.looked_at is not None and not to_store(row.pk).filter(problem="").exists()
    return is_stored and open_runs(row).exists()


def writing(row: HostOutputs) -> bool:
    """Whether a run that writes there may run. Before the host is filled, those that are created are not started."""
    runs = open_runs(row)
    return (runs.exclude(phase=RunPhase.CREATED) if row.filled_at is None else runs).exists()


def open_runs(row: HostOutputs) -> QuerySet[Run]:
    runs = Run.objects.filter(job=row.job_id, host=row.host_id, held=False)
    return runs.exclude(phase=RunPhase.CLOSED)


def unread_runs(row: HostOutputs) -> QuerySet[Run]:
    """Closed runs whose metrics are not all here: files of TensorBoard in the outputs are read before they go."""
    runs = Run.objects.filter(job=row.job_id, host=row.host_id, phase=RunPhase.CLOSED)
    return runs.filter(metrics_proof="", forgotten_at=None)


@functools.cache
def _rate() -> Rate:
    """Of all that this process puts on hosts."""
    return Rate(settings.TRAINYARD.ship_mb_s * 1e6)


class _StoredFile(NamedTuple):
    """A stored file that the host should have."""

    mtime_ns: int
    pk: int
    path: str
    size: int
    generation: int


class Filling:
    """What is to be put on one host."""

    def __init__(self, claim: Claim, host: OutputsConversation) -> None:
        self._claim, self._host = claim, host
        self._done = 0

    def run(self) -> None:
        """Raises DialError, Unavailable or Superseded."""
        row = self._claim.row
        # The oldest first: directories and links then have their order of age, too.
        files = sorted(self._missing())
        self._claim.write(fill_done=0, fill_total=sum(file.size for file in files))
        same = dict(
            OutputFile.objects.filter(outputs=row, gone_at=None)
            .exclude(stored_at=None)
            .values_list("path", "generation")
        )
        # What the host has only itself is newer than the storage: its program has written it since.
        own = set(to_store(row.pk).values_list("path", flat=True))
        lacking = [file for file in files if file.path not in own and same.get(file.path) != file.generation]
        self._check_room(sum(file.size for file in lacking))
        for path, stored in _rows(files):
            if path not in own and same.get(path) != stored.generation:
                self._put(path, stored)
            self._done += stored.blob.size
            self._claim.renew(fill_done=self._done)

    def _check_room(self, size: int) -> None:
        """Before the first byte: other jobs write to that disk."""
        problem = self._host.lack_of_room(size) if size else ""
        if problem:
            raise Unavailable(
                said(
                    "The files that this job needs cannot be put on host {host}: {problem}. It goes on when there is "
                    "room.",
                    host=self._claim.row.host.name,
                    problem=problem.rstrip("."),
                )
            )

    def _put(self, path: str, stored: StoredObject) -> None:
        blob = stored.blob
        mtime_ns = times.mtime_ns(stored)
        state = self._host.same(path, blob.size, blob.sha256, mtime_ns) or self._host.write(
            path, blob.size, blob.sha256, self._counted(objects.open_object(stored)), mtime_ns
        )
        if isinstance(state, str):
            raise Unavailable(
                said(
                    "{path} cannot be put on host {host}: {problem}.",
                    path=path,
                    host=self._claim.row.host.name,
                    problem=state.rstrip("."),
                )
            )
        # It is not stored once more.
        now = timezone.now()
        OutputFile.objects.update_or_create(
            outputs=self._claim.row,
            path=path,
            defaults={
                **asdict(state),
                "seen_at": now,
                "stored_at": now,
                "generation": stored.generation,
                "gone_at": None,
                "problem": "",
            },
        )

    def _counted(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        sent = self._done
        for data in chunks:
            sent += len(data)
            _rate().take(len(data))
            self._claim.renew(fill_done=sent)
            yield data

    def _missing(self) -> Iterator[_StoredFile]:
        """Every stored file below the job's addresses that its program has not deleted since."""
        job = self._claim.row.job
        deleted = _deleted(job.pk)
        for bucket, below in self._claim.row.addresses:
            for stored in objects_below(job.project, Address(bucket, below)):
                path = f"{bucket}/{stored.name}"
                if deleted.get(path) != stored.generation and not stored.name.endswith("/"):
                    age = times.mtime_ns(stored)
                    yield _StoredFile(age, stored.pk, path, stored.blob.size, stored.generation)


def _rows(files: Sequence[_StoredFile]) -> Iterator[tuple[str, StoredObject]]:
    for start in range(0, len(files), PAGE):
        page = files[start : start + PAGE]
        rows = StoredObject.objects.select_related("blob", "bucket").in_bulk([file.pk for file in page])
        # One that was deleted meanwhile is missing nowhere.
        yield from ((file.path, rows[file.pk]) for file in page if file.pk in rows)


def objects_below(project: Project, address: Address) -> Iterator[StoredObject]:
    bucket = buckets.find(project, address.bucket)
    position = b""
    while bucket is not None:
        page = objects.list_objects(bucket, address.path, position=position, limit=PAGE)
        for stored in page.objects:
            if is_below(stored.name, address.path):
                yield stored
        if not page.next_position:
            return
        position = page.next_position


def _deleted(job: int) -> dict[str, int]:
    """By path, the generation of each file that a program of the job has deleted after it was stored."""
    rows = OutputFile.objects.filter(outputs__job=job).exclude(gone_at=None).exclude(stored_at=None)
    return dict(rows.values_list("path", "generation"))
