"""The last lines that a replica printed before it failed. The error banner of the job shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.logs import reader
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import JobState, ReplicaState

BYTES = 8192
LINES = 12
COLUMNS = 300
# Terminal escapes (colours, cursor movements, window titles, links) and control characters. An escape that is not
# finished in its line must not remove text of the next line.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?", re.MULTILINE)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)


@dataclass(frozen=True, slots=True)
class LastLines:
    replica: str
    text: str


def last_lines(job: Job) -> LastLines | None:
    """Return the last lines of the replica that failed first, or None if none failed or nothing was printed."""
    if job.state != JobState.FAILED:
        return None
    failed = Run.objects.filter(job=job, attempt=job.attempt, held=False, replica__state=ReplicaState.FAILED)
    run = failed.select_related("replica").defer("order").order_by("ended_at", "pk").first()
    if run is None:
        return None
    # A replica that was restarted failed with its latest run, so read the log of that run.
    run = failed.select_related("replica").defer("order").filter(replica=run.replica).latest("number")
    text = tail(*_end(run))
    return LastLines(run.replica.name, text) if text else None


def _end(run: Run) -> tuple[bytes, bool]:
    """Return the last bytes of the log, and whether they are the whole log. Bytes before a gap are left out."""
    at, data, whole = max(run.log_stored - BYTES, 0), b"", run.log_stored <= BYTES
    while at < run.log_stored:
        chunk = reader.read(run, at, BYTES)
        if chunk.end == at:
            break
        if chunk.gaps and chunk.data:
            data, whole = b"", False
        at, data = chunk.end, data + chunk.data
    return data, whole


def tail(data: bytes, whole: bool = False) -> str:
    """Return the last lines as plain text: what a terminal would show, without escapes and control characters."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    lines = text.rstrip().split("\n")
    if not whole and len(lines) > 1:
        lines = lines[1:]  # the first line may be cut at its beginning
    shown = [_CONTROL.sub("", line.rpartition("\r")[2].replace("\t", "    ")) for line in lines[-LINES:]]
    return "\n".join(f"{line[:COLUMNS]}…" if len(line) > COLUMNS else line for line in shown)


def plain(line: bytes) -> str:
    """Return a line, or a part of a line, as plain text."""
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode("utf-8", "replace")).replace("\t", "    "))
