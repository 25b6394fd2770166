"""The last lines that a replica printed before it failed: for the banner, so that nobody has to look for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.logs import reader
from jobs.models import Job, Run
from jobs.rules.lifecycle.states import JobState, ReplicaState

BYTES = 8192
LINES = 12
COLUMNS = 300
# Escapes that colour or move, window titles and links, and every control character that is no line of text.
# One that its line does not finish must not swallow the next.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.?", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class LastLines:
    replica: str
    text: str


def last_lines(job: Job) -> LastLines | None:
    """Of the replica that failed first. None where nothing failed or nothing was printed."""
    if job.state != JobState.FAILED:
        return None
    failed = Run.objects.filter(job=job, attempt=job.attempt, held=False, replica__state=ReplicaState.FAILED)
    run = failed.select_related("replica").defer("order").order_by("ended_at", "pk").first()
    if run is None:
        return None
    # A replica that was restarted failed with its latest run.
    run = failed.select_related("replica").defer("order").filter(replica=run.replica).latest("number")
    text = tail(*_end(run))
    return LastLines(run.replica.name, text) if text else None


def _end(run: Run) -> tuple[bytes, bool]:
    """The last bytes of its log, and whether they begin at the first one. What lies before a gap is left out."""
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
    """The last lines of it as plain text: what a terminal would show, without what makes a terminal act."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    lines = text.rstrip().split("\n")
    if not whole and len(lines) > 1:
        lines = lines[1:]  # it begins in the middle of a line
    shown = [_CONTROL.sub("", line.rpartition("\r")[2].replace("\t", "    ")) for line in lines[-LINES:]]
    return "\n".join(f"{line[:COLUMNS]}…" if len(line) > COLUMNS else line for line in shown)


def plain(line: bytes) -> str:
    """One line, or a part of it, as plain text."""
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode("utf-8", "replace")).replace("\t", "    "))
