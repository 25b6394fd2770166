"""The audit as a file: the entries that the filters of the page match, as CSV or as JSON lines.

It is read from the database part by part while it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone

from console.presenters.csv_cells import lines, plain
from console.presenters.projects.audit import WORDS
from jobs.models import AuditEntry

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
HEADER = ("id", "time", "actor", "what", "description", "subject_kind", "subject", "project", "from", "to")
PART = 500


def response(rows: QuerySet[AuditEntry], form: str) -> StreamingHttpResponse:
    """A download of these entries, the newest first. `form`: one of FORMATS."""
    parts = csv_parts(rows) if form == "csv" else json_parts(rows)
    answer = StreamingHttpResponse(parts, content_type=FORMATS[form])
    name = f"audit-{timezone.now():%Y-%m-%d}.{form}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def csv_parts(rows: QuerySet[AuditEntry]) -> Iterator[str]:
    yield lines([HEADER])
    for part in _parts(rows):
        yield lines(map(_cells, part))


def json_parts(rows: QuerySet[AuditEntry]) -> Iterator[str]:
    for part in _parts(rows):
        yield "".join(json.dumps(document(row), ensure_ascii=False) + "\n" for row in part)


def document(row: AuditEntry) -> dict[str, Any]:
    """An entry as REST has it."""
    return {
        "id": str(row.pk),
        "time": row.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "actor": row.actor,
        "what": row.what,
        "subjectKind": row.subject_kind,
        "subject": row.subject,
        "project": row.project.name if row.project else None,
        "from": row.before,
        "to": row.after,
    }


def _parts(rows: QuerySet[AuditEntry]) -> Iterator[list[AuditEntry]]:
    """By id, because nothing of the audit is ever deleted: new entries do not move those that follow."""
    # There are few projects: one of each part is made for all its entries.
    rows = rows.select_related(None).prefetch_related("project")
    part = list(rows[:PART])
    while part:
        yield part
        part = list(rows.filter(pk__lt=part[-1].pk)[:PART]) if len(part) == PART else []


def _cells(row: AuditEntry) -> Iterable[object]:
    known = document(row)
    values = [known[name] for name in ("actor", "what")]
    texts = [*values, WORDS.get(row.what, row.what), row.subject_kind, row.subject, known["project"] or ""]
    values = [
        "" if value is None else json.dumps(value, ensure_ascii=False) for value in (row.before, row.after)
    ]
    return (known["id"], known["time"], *(plain(text) for text in (*texts, *values)))
