"""What a job wrote, as a tree: what is stored, and what is still on hosts only. A path is `bucket/directory/file`.

Only what lies below the addresses that the job's document names can be seen this way: the rest of a bucket is not the
job's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import F

from jobs.artifacts import buckets, objects
from jobs.models import Bucket, HostOutputs, Job, OutputFile, StoredObject
from jobs.rules.spec.output_addresses import Address, is_below

PAGE = 500
# How many files that are on hosts only are looked through for one page.
MAX_ON_HOSTS = 5_000


@dataclass(frozen=True, slots=True)
class Entry:
    """`host`: where the only copy of a file lies; empty for one that is stored. A directory has no size."""

    name: str
    is_directory: bool
    size: int | None = None
    changed_at: datetime | None = None
    host: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    entries: tuple[Entry, ...]
    next_position: bytes = b""
    # More files are on hosts only than were looked through.
    is_cut: bool = False


def addresses(job: Job) -> tuple[Address, ...]:
    """What the job's hosts have directories for, the output directory and the others that its document names."""
    found = HostOutputs.objects.filter(job=job).order_by("pk").values_list("addresses", flat=True)
    return tuple(dict.fromkeys(Address(*pair) for pairs in found for pair in pairs))


def clean(path: str) -> str | None:
    """The path without slashes at its ends; None for one that no file could have."""
    parts = [part for part in path.split("/") if part]
    return None if {".", ".."} & set(parts) or "\0" in path else "/".join(parts)


def is_of_job(roots: tuple[Address, ...], path: str) -> bool:
    return any(is_below(path, _root(root)) for root in roots)


def list_directory(job: Job, path: str, position: bytes = b"", limit: int = PAGE) -> Listing | None:
    """The entries of a directory, "" for the top. None if the job has no such directory."""
    roots = addresses(job)
    if not is_of_job(roots, path):
        return _above(roots, path)
    bucket, below = _bucket(job, path)
    stored = None
    if bucket is not None:
        prefix = f"{below}/" if below else ""
        stored = objects.list_objects(bucket, prefix, "/", position, limit)
    entries = list(_stored(stored, below)) if stored else []
    live, is_cut = _on_hosts(job, path) if not position else ([], False)
    known = {(entry.name, entry.is_directory) for entry in live}
    merged = [*(entry for entry in entries if (entry.name, entry.is_directory) not in known), *live]
    merged.sort(key=lambda entry: (not entry.is_directory, entry.name))
    if not merged and path not in map(_root, roots):
        return None
    return Listing(tuple(merged), stored.next_position if stored else b"", is_cut)


def find(job: Job, path: str) -> StoredObject | None:
    """The stored file of the job at this path."""
    bucket, name = _bucket(job, path)
    if bucket is None or not name or not is_of_job(addresses(job), path):
        return None
    return objects.in_bucket(bucket, name)


def walk(job: Job, path: str) -> Iterator[tuple[str, StoredObject]]:
    """Every stored file below a directory, each with its path below it."""
    bucket, below = _bucket(job, path)
    if bucket is None or not is_of_job(addresses(job), path):
        return
    position, prefix = b"", f"{below}/" if below else ""
    while True:
        page = objects.list_objects(bucket, prefix, position=position, limit=PAGE)
        for stored in page.objects:
            if not stored.name.endswith("/"):
                yield stored.name[len(prefix) :], stored
        position = page.next_position
        if not position:
            return


def delete(job: Job, path: str, now: datetime) -> int:
    """Delete a stored file, or all below a directory. Returns how many files were deleted. What a host still has is
    not deleted there, and not stored again, unless its program changes it."""
    found = find(job, path)
    rows = [found] if found else [stored for _, stored in walk(job, path)]
    for stored in rows:
        objects.remove(stored, now)
    return len(rows)


def _above(roots: tuple[Address, ...], path: str) -> Listing | None:
    """A directory above the job's own: only the ways down to them are shown."""
    prefix = f"{path}/" if path else ""
    names = {_root(root)[len(prefix) :].split("/")[0] for root in roots if _root(root).startswith(prefix)}
    return Listing(tuple(Entry(name, True) for name in sorted(names))) if names else None


def _stored(listing: objects.Listing, below: str) -> Iterator[Entry]:
    cut = len(below) + 1 if below else 0
    for prefix in listing.prefixes:
        yield Entry(prefix[cut:-1], True)
    for stored in listing.objects:
        name = stored.name[cut:]
        if name:
            yield Entry(name, False, stored.blob.size, stored.updated_at)


def _on_hosts(job: Job, path: str) -> tuple[list[Entry], bool]:
    rows = OutputFile.objects.filter(
        outputs__job=job, stored_at=None, gone_at=None, path__startswith=f"{path}/"
    )
    found: dict[tuple[str, bool], Entry] = {}
    values = rows.values_list("path", "size", "mtime_ns", F("outputs__host__name"))
    files = list(values.order_by("path")[: MAX_ON_HOSTS + 1])
    for file, size, mtime_ns, host in files[:MAX_ON_HOSTS]:
        name, _, deeper = file[len(path) + 1 :].partition("/")
        changed_at = None if deeper else _time(mtime_ns)
        found[name, bool(deeper)] = Entry(name, bool(deeper), None if deeper else size, changed_at, host)
    return list(found.values()), len(files) > MAX_ON_HOSTS


def _time(nanoseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(nanoseconds / 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _bucket(job: Job, path: str) -> tuple[Bucket | None, str]:
    bucket, _, name = path.partition("/")
    return buckets.find(job.project, bucket), name


def _root(address: Address) -> str:
    return f"{address.bucket}/{address.path}".rstrip("/")
