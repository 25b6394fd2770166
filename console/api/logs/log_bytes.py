"""Downloads the bytes of a replica's log as the program wrote them, of any size.

`GET /api/v1/jobs/<id>/replicas/<name>/log[?run=][&from=&to=]`. Without `run`, the log of the replica's newest run.
Missing ranges are not filled: the response has the existing bytes one after the other, and `Trainyard-Log-Gaps` says
where bytes are missing. Offsets in `Range` count the bytes of the response; `from` and `to` count the bytes of the log,
as the socket and the gaps do. Of a growing log, the response has the part that is stored now.

An answer of more than 4 MiB is a download: a person has four of these at a time in a process (downloads.py).

With `Trainyard-Log-Masked`, `*` stands for each byte of the job's secrets. `Trainyard-Log-Digest` is then the digest of
what the program wrote, and not of the response.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.request import Request

from console.api import errors
from console.api.description import RUN, Query, Size, described, form
from console.api.errors import BadRequest
from console.api.logs.downloads import Placed
from console.api.query import whole_number
from console.api.views import TrainyardView
from console.auth import access
from console.live import tails
from console.presenters import byte_range
from console.runtime.database_threads import in_database_thread, in_download_thread
from jobs.logs import reader
from jobs.models import Job, Run
from jobs.projects import log_storage

# The bytes that a download reads and holds at once. For a smaller block, finding it would cost more than reading it.
BLOCK = 1024 * 1024
# Up to so many bytes, an answer is read among the lines of viewers, who read ranges. What is larger is a download: it
# has a place among those of its person, and threads that nobody else waits for.
RANGE_BYTES = 4 * BLOCK
# The most gaps in the header, which must stay readable. With more gaps, ask range by range.
MAX_GAPS = 50
# The most gaps that a response skips. With more, the response ends before the next gap: see `Trainyard-Log-To`.
MAX_PARTS = 10_000
InThread = Callable[[Callable[[str, int, int], tails.Piece], str, int, int], Awaitable[tails.Piece]]


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes [start, end) of the log, which are all stored."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


ASKED = (
    RUN,
    Query("from", "From this offset of the log on.", Size),
    Query("to", "Up to this offset.", Size),
    Query(
        "at",
        "From what was printed at this second since 1970 on.",
        Annotated[str, form(pattern=r"^[0-9]{1,10}(\.[0-9]{1,6})?$")],
    ),
    Query("limit", "At most so many bytes.", Size),
)


class LogView(TrainyardView):
    """One log, or a range of it."""

    @described(
        "Download the log of a replica, or a `Range` of it",
        needs="see_log",
        query=ASKED,
        files=("text/plain",),
        statuses=(200, 206),
    )
    def get(self, request: Request, job_id: str, replica: str) -> HttpResponseBase:
        job = access.get_or_404(
            request.user, "see_log", Job.objects.select_related("project"), pk=int(job_id)
        )
        run = run_of(job, replica, request.query_params.get("run", ""))
        if run is None:
            return _empty_log()
        low, high = _window(request, run)
        gaps = list(run.gaps.filter(start__lt=high, end__gt=low).order_by("start")[: MAX_PARTS + 1])
        if len(gaps) > MAX_PARTS:
            high = gaps.pop().start
        parts = stored_parts(low, high, [(gap.start, gap.end) for gap in gaps])
        total = sum(part.size for part in parts)
        chosen = byte_range.chosen(request.headers.get("Range", ""), total)
        if chosen is None:
            answer: HttpResponseBase = errors.error_response(416, f"There are {total} bytes.")
            answer["Content-Range"] = f"bytes */{total}"
            return answer
        first, last = chosen
        answer = self._body(request, run.pk, slice_parts(parts, first, last))
        if (first, last) != (0, total):
            answer.status_code = 206
            answer["Content-Range"] = f"bytes {first}-{last - 1}/{total}"
        answer["Content-Length"] = str(last - first)
        answer["Content-Disposition"] = f'attachment; filename="{run.pk}.log"'
        shown = [{"from": gap.start, "to": gap.end, "reason": gap.reason} for gap in gaps[:MAX_GAPS]]
        _set_log_headers(answer, run, low, high, shown)
        return answer

    # DRF answers HEAD only where a view defines it.
    head = get

    def _body(self, request: Request, run_id: str, parts: Sequence[Part]) -> HttpResponseBase:
        kind = "text/plain; charset=utf-8"
        if request.method == "HEAD":
            return HttpResponse(content_type=kind)
        if sum(part.size for part in parts) <= RANGE_BYTES:
            return StreamingHttpResponse(stream_blocks(run_id, parts, in_database_thread), content_type=kind)
        return StreamingHttpResponse(Placed(request, stream_blocks(run_id, parts)), content_type=kind)


def stored_parts(low: int, high: int, gaps: Sequence[tuple[int, int]]) -> list[Part]:
    """The parts of [low, high) outside the gaps. The gaps are sorted and do not overlap."""
    parts = []
    for start, end in [*gaps, (high, high)]:
        if start > low:
            parts.append(Part(low, min(start, high)))
        low = max(low, end)
    return parts


def slice_parts(parts: Sequence[Part], first: int, last: int) -> list[Part]:
    """The parts of the log that are the bytes [first, last) of the response."""
    chosen = []
    passed = 0
    for part in parts:
        start, end = max(first - passed, 0), min(last - passed, part.size)
        if start < end:
            chosen.append(Part(part.start + start, part.start + end))
        passed += part.size
    return chosen


async def stream_blocks(
    run_id: str, parts: Sequence[Part], in_thread: InThread = in_download_thread
) -> AsyncIterator[bytes]:
    """The bytes, block by block; each block is read after the previous one was sent.

    Aborts the connection when bytes are missing, because the promised length would be wrong.
    """
    for part in parts:
        at = part.start
        while at < part.end:
            piece = await in_thread(tails.read, run_id, at, min(BLOCK, part.end - at))
            if not piece.data:
                raise ConnectionAbortedError(f"The log of {run_id} ends at {at}, before {part.end}.")
            yield piece.data
            at = piece.end


def run_of(job: Job, replica: str, run_id: str) -> Run | None:
    """The named run, or the newest one. None if the replica has not been started yet."""
    row = job.replicas.filter(name=replica).first()
    if row is None:
        raise Http404
    rows = row.runs.defer("order", "log_proof")
    found = (
        rows.filter(pk=run_id) if run_id else rows.filter(held=False).order_by("-attempt", "-number")
    ).first()
    if found is None and run_id:
        raise Http404
    return found


def _empty_log() -> HttpResponseBase:
    """The response for a replica that has not been started yet: an empty log."""
    answer = HttpResponse(content_type="text/plain; charset=utf-8")
    for name, value in (("From", "0"), ("To", "0"), ("Stored", "0"), ("Size", "0"), ("Complete", "false")):
        answer[f"Trainyard-Log-{name}"] = value
    return answer


def _window(request: Request, run: Run) -> tuple[int, int]:
    """The requested part of the log: everything that is stored, or [from, to), or what begins at the time `at`."""
    asked = request.query_params
    low = whole_number("from", asked.get("from", "0"))
    shown = reader.shown_end(run, run.log_stored)
    high = min(whole_number("to", asked.get("to", str(shown))), shown)
    if "at" in asked:
        if not re.fullmatch(r"\d{1,10}(\.\d{1,6})?", asked["at"]):
            raise BadRequest("at", "at must be a time in seconds since 1970.")
        low = min(reader.offset_at(run, float(asked["at"])), run.log_stored)
    if "limit" in asked:
        high = min(high, low + whole_number("limit", asked["limit"]))
    low = min(low, shown)
    return low, max(high, low)


def _set_log_headers(
    answer: HttpResponseBase, run: Run, low: int, high: int, gaps: list[dict[str, object]]
) -> None:
    answer["Accept-Ranges"] = "bytes"
    answer["Cache-Control"] = "private, no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Trainyard-Run"] = run.pk
    answer["Trainyard-Log-From"] = str(low)
    answer["Trainyard-Log-To"] = str(high)
    answer["Trainyard-Log-Stored"] = str(run.log_stored)
    answer["Trainyard-Log-Size"] = str(max(run.log_size, run.log_stored))
    answer["Trainyard-Log-Complete"] = "true" if run.log_complete_at else "false"
    if held := log_storage.held_text(run):
        answer["Trainyard-Log-Held"] = held
    if reader.is_masked(run.pk):
        answer["Trainyard-Log-Masked"] = "true"
    if run.log_digest_here:
        answer["Trainyard-Log-Digest"] = run.log_digest_here
    if gaps:
        answer["Trainyard-Log-Gaps"] = json.dumps(gaps)
