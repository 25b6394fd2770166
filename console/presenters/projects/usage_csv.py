"""The usage of a month as CSV, one line per job and accelerator type, for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from django.http import StreamingHttpResponse

from console.presenters.csv_cells import lines, plain
from jobs.projects.usage import JobLine

HEADER = ("month", "project", "user", "job", "accelerator_type", "runs", "gpu_seconds", "cpu_seconds")


def csv_parts(month: date, parts: Iterable[list[JobLine]], projects: Mapping[int, str]) -> Iterator[str]:
    """Write the lines as CSV, part by part. A name that begins with =, +, - or @ gets a quote, so that no spreadsheet
    runs it.
    """
    yield lines([HEADER])
    for part in parts:
        yield lines(
            (
                f"{month:%Y-%m}",
                projects[line.project],
                plain(line.owner_name),
                line.job,
                line.accelerator_type,
                line.runs,
                f"{line.gpu_seconds:.3f}",
                f"{line.cpu_seconds:.3f}",
            )
            for line in part
        )


def csv_response(
    month: date, parts: Iterable[list[JobLine]], projects: Mapping[int, str]
) -> StreamingHttpResponse:
    """The CSV as a download that is read from the database while it is sent."""
    response = StreamingHttpResponse(
        csv_parts(month, parts, projects), content_type="text/csv; charset=utf-8"
    )
    response["Content-Disposition"] = f'attachment; filename="usage-{month:%Y-%m}.csv"'
    return response
