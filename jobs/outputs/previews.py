"""What of a stored file may be shown in a page: the beginning of a text, with secrets masked, or an image."""

from __future__ import annotations

from dataclasses import dataclass

from agents.runner.logs.mask_patterns import MaskPatterns, blank
from jobs.artifacts import objects
from jobs.models import Job, JobSecret, StoredObject
from jobs.secrets import of_jobs

TEXT_BYTES = 64 * 1024
IMAGE_BYTES = 8 << 20
# What no browser runs: kinds by the bytes that they begin with, never by what a program calls them.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class TextPreview:
    text: str
    is_cut: bool
    is_masked: bool


def image_type(stored: StoredObject) -> str:
    """The kind of image that a file is; empty for one that is not shown."""
    if stored.blob.size > IMAGE_BYTES:
        return ""
    head = b"".join(objects.open_object(stored, 0, 16))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if head.startswith(magic)), "")


def text(job: Job, stored: StoredObject) -> TextPreview | None:
    """The beginning of a text. None for a file that is none, and for one in which secrets cannot be masked any more."""
    data = b"".join(objects.open_object(stored, 0, TEXT_BYTES))
    values = _secrets(job)
    if values is None or b"\0" in data:
        return None
    is_cut = stored.blob.size > len(data)
    if values:
        patterns = MaskPatterns(values)
        shown = bytearray(data)
        blank(shown, patterns.spans(data))
        # The beginning of a secret at the cut would not be recognised.
        data = bytes(shown[: len(shown) - patterns.unfinished(data)]) if is_cut else bytes(shown)
    try:
        found = data.decode()
    except UnicodeDecodeError as problem:
        if not is_cut or len(data) - problem.start > 3:
            return None
        found = data[: problem.start].decode()
    return TextPreview(found, is_cut, bool(values))


def _secrets(job: Job) -> list[str] | None:
    """The values of the job's secrets. None where it has some, and they are not kept any more."""
    if not JobSecret.objects.filter(job=job).exists():
        return []
    return list(of_jobs.values_of(job.pk)) or None
