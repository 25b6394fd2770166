"""Where a job's document names cloud storage: `gs://bucket/x` and `/gcs/bucket/x`, which are one address.

On hosts such an address is a directory (agents/runner/outputs/directories.py). The same expression finds it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobs.rules.spec.custom_job import CustomJobSpec, Pool

_ADDRESS = re.compile(
    r"(?<![\w./-])(?:gs:/|/gcs)/([a-z0-9][a-z0-9._-]*[a-z0-9])(?![A-Za-z0-9_-])"
    r"(/(?:[^\s\"'`,;:|&<>()]|:(?!/|gs:))*)?"
)
# A pattern of names, as programs for data take it: what stands before it is the directory.
_PATTERN = re.compile(r"[*?\[{$]")
OUTPUT_VARIABLES = ("AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR")
OUTPUT_NAMES = ("model", "checkpoints", "logs")


@dataclass(frozen=True, slots=True)
class Address:
    """`path` has no slash at its ends; it is empty for a whole bucket."""

    bucket: str
    path: str = ""

    def __str__(self) -> str:
        return f"gs://{self.bucket}/{self.path}".rstrip("/")


@dataclass(frozen=True, slots=True)
class OutputAddresses:
    """`base`: the output directory; None where it is a path on hosts, or none is given. `named`: all of them."""

    base: Address | None
    named: tuple[Address, ...]

    @property
    def buckets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(address.bucket for address in self.named))

    def of(self, buckets: Mapping[str, object]) -> tuple[Address, ...]:
        """Those in these buckets, without those that lie below another one."""
        found = sorted({each for each in self.named if each.bucket in buckets}, key=str)
        return tuple(each for each in found if not any(_is_below(each, other) for other in found))


def output_addresses(spec: CustomJobSpec) -> OutputAddresses:
    base = base_address(spec.base_output_directory)
    named = [base] if base else []
    for pool in spec.pools:
        for text in texts_of(pool) if pool else ():
            named += addresses_in(text)
    return OutputAddresses(base, tuple(dict.fromkeys(named)))


def base_address(text: str) -> Address | None:
    """The output directory, all of the text: Google's SDK puts the time into it, with colons."""
    found = _ADDRESS.match(text)
    return _address(found.group(1), text[found.end(1) :], False) if found else None


def texts_of(pool: Pool) -> Iterator[str]:
    """The texts of a pool in which addresses become directories."""
    yield from pool.task.argv
    yield from (value for _, value in pool.task.env)


def variables_of(pool: Pool) -> list[str]:
    """The variables whose addresses become directories: those of Vertex, and those of the user that name one."""
    own = [name for name, value in pool.task.env if addresses_in(value)]
    return list(dict.fromkeys((*OUTPUT_VARIABLES, *own)))


def addresses_in(text: str) -> list[Address]:
    if "gs://" not in text and "/gcs/" not in text:
        return []
    return [_address(found.group(1), found.group(2) or "") for found in _ADDRESS.finditer(text)]


def _address(bucket: str, path: str, may_be_pattern: bool = True) -> Address:
    if may_be_pattern and (pattern := _PATTERN.search(path)):
        path = path[: pattern.start()].rpartition("/")[0]
    return Address(bucket, "/".join(part for part in path.split("/") if part not in ("", ".", "..")))


def is_below(name: str, path: str) -> bool:
    """Whether an object of this name lies in the directory, or is it."""
    return not path or name == path or name.startswith(f"{path}/")


def _is_below(address: Address, other: Address) -> bool:
    if address == other or address.bucket != other.bucket:
        return False
    return not other.path or address.path.startswith(f"{other.path}/")
