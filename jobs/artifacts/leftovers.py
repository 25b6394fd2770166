"""Removes what crashes have left in the storage: files that no row points to, and the beginnings of files.

A storage may have millions of files, and answer as slowly as it likes. So the sweep looks for some seconds only, and
goes on at the next time where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Generic, TypeVar

from agents.infra import clock
from jobs.artifacts import storage
from jobs.models import Blob

# How long a file is kept that has no row.
KEPT = timedelta(hours=1)
# A file of 100 GB may take so long to a remote storage.
KEPT_PART = timedelta(days=1)
BATCH = 500
Name = TypeVar("Name", str, storage.Part)


@dataclass
class _Looks(Generic[Name]):
    """Looks through all names of one kind, by this process.

    For how long nothing has explained one, the process has seen itself, by `clock.elapsed()`: dates of files are those
    of another clock.
    """

    # Those of this batch of names that nothing explains now.
    unexplained: Callable[[list[Name]], list[Name]]
    names: Callable[[], Iterator[Name]]
    # False: it is not left over.
    remove: Callable[[Name], bool]
    kept: timedelta
    # When each was first seen.
    seen: dict[Name, float] = field(default_factory=dict)
    # The look that goes on at the next time.
    going: Iterator[Name | None] | None = None
    now: float = 0.0

    def look(self, elapsed: float) -> int:
        """Go on for some seconds. Returns how many were removed."""
        until = clock.elapsed() + storage.SWEEP_S
        going, self.going, self.now = self.going or self._old(), None, elapsed
        removed = 0
        for name in going:
            removed += name is not None and self._removes(name)
            if clock.elapsed() >= until:
                self.going = going
                break
        return removed

    def _old(self) -> Iterator[Name | None]:
        """Yield those that are old enough, one by one, and None between batches."""
        found: set[Name] = set()
        for batch in _batched(self.names()):
            yield None
            for name in self.unexplained(batch):
                found.add(name)
                if self.now - self.seen.setdefault(name, self.now) >= self.kept.total_seconds():
                    yield name
        for name in self.seen.keys() - found:
            del self.seen[name]

    def _removes(self, name: Name) -> bool:
        # The look may have stopped before it for a while.
        if not self.unexplained([name]):
            return False
        if not self.remove(name):
            self.seen[name] = self.now
            return False
        with suppress(KeyError):
            del self.seen[name]
        return True

    def forget(self) -> None:
        """For tests: as a new process."""
        self.seen, self.going = {}, None


def sweep_orphans(elapsed: float) -> int:
    """Remove files that no row points to: a crash between file and row left them. Returns how many were removed."""
    return _orphans.look(elapsed)


def sweep_parts(elapsed: float) -> int:
    """Abandon what a remote storage has received only parts of for a day: a kill left them, and they take room.
    Returns how many there were."""
    return _parts.look(elapsed)


def are_looks_open() -> bool:
    """Whether a look has stopped before its end, to go on soon."""
    return bool(_orphans.going or _parts.going)


def forget() -> None:
    """For tests: as a new process."""
    _orphans.forget()
    _parts.forget()


def _without_row(keys: list[str]) -> list[str]:
    known = set(Blob.objects.filter(key__in=keys).values_list("key", flat=True))
    return [key for key in keys if key not in known]


def _remove(key: str) -> bool:
    if storage.is_coming(key):
        # Its row comes when it is whole.
        return False
    storage.remove(key)
    return True


def _abandon(part: storage.Part) -> bool:
    storage.abandon(part)
    return True


def _batched(names: Iterator[Name]) -> Iterator[list[Name]]:
    while batch := list(islice(names, BATCH)):
        yield batch


_orphans = _Looks[str](_without_row, storage.files, _remove, KEPT)
_parts = _Looks[storage.Part](list, storage.parts, _abandon, KEPT_PART)
