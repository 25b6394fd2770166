"""A line of a list of files (templates/parts/files.html): of a storage, of the outputs of a job, of a replica."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class FileRow:
    """`about`: what or where it is, in words. `url`: its page, or the directory; `download`: its bytes; `delete`: the
    question before it is deleted. They are empty where that cannot be done."""

    name: str
    about: str
    is_directory: bool = False
    size: int | None = None
    changed_at: datetime | None = None
    by: str = ""
    url: str = ""
    download: str = ""
    delete: str = ""
