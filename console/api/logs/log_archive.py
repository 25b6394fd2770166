"""Downloads the logs of a job together.

`GET /api/v1/jobs/<id>/log?as=zip` has a file for each log, as the programs wrote it. `?as=text` has the lines of all
logs in the order of their times, each behind its time and the name of its replica; with `q=` (and `regex=1`) only the
lines that match, with `after=` and `before=` (seconds since 1970) only those of a time. For both: `replicas=NAME,NAME`,
and `runs=all` for the logs of earlier runs too, or `run=ID` for one.

Both are sent as they are made, so their size is not known at the beginning. Of logs that grow, they have what is stored
when the download begins, or a little more.

A download reads in threads that only downloads use. A person has four of these at a time in a process; the next one is
answered 429.
"""

from __future__ import annotations

import asyncio
import time
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from rest_framework.request import Request

from console.api.description import Query, Size, described, one_of
from console.api.errors import BadRequest
from console.api.logs.downloads import Placed
from console.api.logs.log_bytes import MAX_PARTS, Part, stored_parts, stream_blocks
from console.api.logs.log_search import PATTERN, REPLICAS, RUNS, named_replicas, pattern_of
from console.api.logs.merged_logs import SECOND, Found, MergedLogs
from console.api.query import whole_number
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.archive_sink import ArchiveSink
from console.runtime.database_threads import in_download_thread
from jobs.logs import job_search, reader
from jobs.logs.search_pattern import LogPattern
from jobs.models import Job, LogGap, Run

MAX_RUNS = 1000
NEVER = 1 << 53
# How long lines are looked for at a time. Between two times, the process has as long for everybody else.
STEP_S = 0.05

WHICH_LOGS = (
    REPLICAS,
    RUNS,
    Query("run", "Only the log of this run."),
)
ASKED = (
    Query("as", "Files in a ZIP archive, or lines by their times.", Annotated[str, one_of(("zip", "text"))]),
    *WHICH_LOGS,
    *(replace(each, required=False) for each in PATTERN),
    Query("after", "Lines of this second since 1970 and later.", Size),
    Query("before", "Lines before this second.", Size),
)


class ArchiveView(TrainyardView):
    """All logs of a job: as files in a ZIP archive, or as lines in the order of their times."""

    @described(
        "Download all logs of a job", needs="see_log", query=ASKED, files=("application/zip", "text/plain")
    )
    def get(self, request: Request, job_id: str) -> HttpResponseBase:
        job = access.get_or_404(
            request.user, "see_log", Job.objects.select_related("project"), pk=int(job_id)
        )
        asked, kind = request.query_params, request.query_params.get("as", "zip")
        if kind not in ("zip", "text"):
            raise BadRequest("as", "as must be zip or text.")
        runs = chosen_runs(job, asked)
        if kind == "zip":
            files = Placed(request, _zip(runs, f"job-{job.pk}"))
            return _download(files, "application/zip", f"job-{job.pk}-logs.zip")
        pattern = pattern_of(request) if "q" in asked else None
        low = SECOND * whole_number("after", asked.get("after", "0"))
        high = SECOND * whole_number("before", asked.get("before", str(NEVER)))
        several = len({run.replica_id for run in runs}) < len(runs)
        lines = _lines(MergedLogs(runs, low, high, False, {}), _Wanted(low, pattern, several))
        return _download(Placed(request, lines), "text/plain; charset=utf-8", f"job-{job.pk}.log")


def _download(parts: Placed, kind: str, name: str) -> HttpResponseBase:
    answer = StreamingHttpResponse(parts, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    answer["Cache-Control"] = "private, no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def chosen_runs(job: Job, asked: Mapping[str, str]) -> list[Run]:
    """The runs that are asked for, in the order of replicas."""
    which, one = asked.get("runs", "newest"), asked.get("run", "")
    if which not in ("newest", "all"):
        raise BadRequest("runs", "runs must be newest or all.")
    names = named_replicas(job, asked)
    found = job_search.runs_of(job, which == "all" or bool(one), () if one else names)
    runs = [run for run in found if not one or run.pk == one]
    if one and not runs:
        raise Http404
    if len(runs) > MAX_RUNS:
        raise BadRequest(
            "replicas", f"There are {len(runs)} logs. Name replicas: at most {MAX_RUNS} at once."
        )
    return runs


def _name(run: Run, several: bool = True) -> str:
    return f"{run.replica.name}-a{run.attempt}-r{run.number}" if several else run.replica.name


async def _zip(runs: Sequence[Run], folder: str) -> AsyncIterator[bytes]:
    """The archive, block by block. Its files are not compressed: nothing is waited for."""
    sink, missing = ArchiveSink(), []
    with zipfile.ZipFile(sink, "w") as archive:
        for run in runs:
            parts, gaps = await in_download_thread(_stored, run)
            missing += [f"{_name(run)}.log: {gap}" for gap in gaps]
            with archive.open(f"{folder}/{_name(run)}.log", "w", force_zip64=True) as file:
                async for block in stream_blocks(run.pk, parts):
                    file.write(block)
                    yield sink.take()
        if missing:
            archive.writestr(f"{folder}/MISSING.txt", "\n".join(missing) + "\n")
    yield sink.take()


def _stored(run: Run) -> tuple[list[Part], list[str]]:
    """The parts of a log that are stored, and a text for each gap."""
    gaps = list(LogGap.objects.filter(run=run, start__lt=run.log_stored).order_by("start")[: MAX_PARTS + 1])
    shown = reader.shown_end(run, run.log_stored)
    end = gaps.pop().start if len(gaps) > MAX_PARTS else shown
    texts = [f"{gap.end - gap.start} bytes are missing at {gap.start}: {gap.reason}" for gap in gaps]
    if end < shown:
        texts.append(f"what lies behind {end} is left out: there are too many gaps")
    return stored_parts(0, end, [(gap.start, gap.end) for gap in gaps]), texts


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which lines are wanted: from this time on, and those that match. `several`: a replica has several logs."""

    low: int
    pattern: LogPattern | None
    several: bool

    def holds(self, found: Found) -> bool:
        if found.at < self.low:
            return False
        return self.pattern is None or self.pattern.finder(found.entry.data)(0) is not None


async def _lines(logs: MergedLogs, wanted: _Wanted) -> AsyncIterator[bytes]:
    while not logs.over():
        began = time.monotonic()
        yield await in_download_thread(_some_lines, logs, wanted)
        await asyncio.sleep(time.monotonic() - began)


def _some_lines(logs: MergedLogs, wanted: _Wanted) -> bytes:
    until, lines = time.monotonic() + STEP_S, []
    while not logs.over() and time.monotonic() < until:
        found = logs.step()
        if found is not None and wanted.holds(found):
            lines.append(_line(found, wanted.several))
    return b"".join(lines)


def _line(found: Found, several: bool) -> bytes:
    at = format_time(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=found.at))
    text = f"[{found.entry.missing}]".encode() if found.entry.missing else found.entry.data
    return f"{at} {_name(found.run, several)} ".encode() + text + b"\n"
