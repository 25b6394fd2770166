"""The jobs of all projects that a person may see: searched, sorted, in pages, with totals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NotRequired, TypedDict

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.description import Id, Query, Time, described, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.times import format_time
from console.api.views import TrainyardView, person
from console.presenters.jobs import job_list
from console.presenters.jobs.job_filters import SORTS, Filters
from console.presenters.jobs.job_list import JobList, JobRow
from console.presenters.jobs.job_totals import Totals
from jobs.rules.lifecycle.states import JobState

Document = dict[str, Any]
PAGE_SIZE, MAX_PAGE_SIZE = 50, 500
STATES = ("active", *JobState)
KNOWN = ("label", "owner", "pageSize", "pageToken", "project", "sort", "state", "text", "trials")
_TOKEN = re.compile(r"(after|ahead)-([0-9]{1,19})")
_LABEL = re.compile(r"[\w-]{1,64}(?:=[\w-]{0,64})?")


class JobOfList(TypedDict):
    id: Id
    displayName: str
    project: str
    owner: str
    state: str
    note: str
    labels: dict[str, str]
    replicas: int
    gpus: int
    attempt: int
    createTime: NotRequired[Time]
    startTime: NotRequired[Time]
    endTime: NotRequired[Time]


class JobsInState(TypedDict):
    jobs: int
    gpus: int


class JobTotals(TypedDict):
    """`more`: there are more than `jobs`, and nobody counted how many."""

    jobs: int
    more: bool
    gpus: int
    states: dict[str, JobsInState]


class JobPage(TypedDict):
    jobs: list[JobOfList]
    nextPageToken: NotRequired[str]
    previousPageToken: NotRequired[str]
    totals: JobTotals


ASKED = (
    Query(
        "state", "Only jobs in this state; `active`: all that have not ended.", Annotated[str, one_of(STATES)]
    ),
    Query("text", "Only jobs whose name or id has this text."),
    Query("owner", "Only the jobs of this person."),
    Query("project", "Only the jobs of this project."),
    Query("label", "key=value, or key for any value; several with spaces between them."),
    Query(
        "trials",
        "`false`: without trials of studies that are over.",
        Annotated[str, one_of(("true", "false"))],
    ),
    Query("sort", "The order.", Annotated[str, one_of(SORTS)]),
    *paged(PAGE_SIZE, MAX_PAGE_SIZE),
)


class JobListView(TrainyardView):
    """`GET /api/v1/jobs[?state=&text=&owner=&project=&label=team%3Dnlp&trials=false&sort=-gpus&pageSize=]`."""

    @described("List jobs of all your projects", JobPage, query=ASKED)
    def get(self, request: Request) -> Response:
        query = request.query_params
        filters = _filters(query.dict())
        found = job_list.found(person(request), filters, page_size(query, PAGE_SIZE, MAX_PAGE_SIZE))
        return Response({"jobs": [_job(row) for row in found.rows], **_tokens(found), **_sums(found.totals)})


def _filters(query: Mapping[str, str]) -> Filters:
    """A value that no list has is refused here, where a page takes it for no filter."""
    for name in query:
        if name not in KNOWN:
            raise BadRequest(name, f"There is no parameter {name!r}. Known are {', '.join(KNOWN)}.")
    for name, known in (("state", STATES), ("sort", SORTS), ("trials", ("true", "false"))):
        if query.get(name) and query[name] not in known:
            raise BadRequest(name, f"{name} must be one of {', '.join(known)}, not {query[name]!r}.")
    # A program that does not say otherwise gets all jobs.
    filters = replace(Filters.of(query), trials=query.get("trials") != "false")
    for label in filters.label.split():
        if not _LABEL.fullmatch(label):
            raise BadRequest("label", f"label must be key=value or key, not {label[:140]!r}.")
    token = query.get("pageToken", "")
    place = _TOKEN.fullmatch(token)
    if token and place is None:
        raise BadRequest("pageToken", "pageToken must be one of an earlier answer.")
    return filters.at(place[1], place[2]) if place else filters.unpaged


def _tokens(found: JobList) -> Document:
    tokens = {}
    if found.next and found.rows:
        tokens["nextPageToken"] = f"after-{found.rows[-1].id}"
    if found.previous and found.rows:
        tokens["previousPageToken"] = f"ahead-{found.rows[0].id}"
    return tokens


def _sums(totals: Totals) -> Document:
    """`more`: there are more than `jobs`, and nobody counted how many."""
    counted = {each.badge.value: {"jobs": each.jobs, "gpus": each.gpus} for each in totals.states}
    return {"totals": {"jobs": totals.jobs, "more": totals.more, "gpus": totals.gpus, "states": counted}}


def _job(row: JobRow) -> Document:
    times = {"createTime": row.created_at, "startTime": row.started_at, "endTime": row.ended_at}
    return {
        "id": str(row.id),
        "displayName": row.name,
        "project": row.project,
        "owner": row.owner,
        "state": row.badge.value,
        "note": row.note,
        "labels": {label.key: label.value for label in row.labels},
        "replicas": row.replicas,
        "gpus": row.gpus,
        "attempt": row.attempt,
        **{name: format_time(when) for name, when in times.items() if when},
    }
