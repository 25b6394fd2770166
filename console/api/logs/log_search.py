"""Searches logs for a text, or with `regex=1` for a regular expression of RE2; upper and lower case are the same. Each
request searches some megabytes, for half a second at most; the answer says how far it came. A person has one search at
a time: a new one ends the one before, which then answers what it has.

`GET /api/v1/jobs/<id>/replicas/<name>/log/search?q=[&regex=1&run=&from=]` searches one log; without `run`, that of the
replica's newest run. To continue, repeat the request with `from` set to `searchedTo`, until that equals `stored`.

`GET /api/v1/jobs/<id>/log/search?q=[&regex=1&runs=all&replicas=NAME,NAME&pageToken=]` searches the logs of all
replicas, or of those that are named: of the newest run of each, or of all runs. To continue, repeat the request with
the `nextPageToken`, until there is none. With `order=time` the lines come in the order in which they were printed; of
more logs than can be searched so at once, replica by replica, as without it. The answer says which.
A token keeps the order that it began with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra import untrusted
from console.api.description import RUN, Query, Size, Time, described, form, one_of
from console.api.errors import BadRequest
from console.api.logs.log_bytes import run_of
from console.api.logs.merged_logs import SECOND, BadToken, Place, read_token, write_token
from console.api.query import whole_number
from console.api.times import format_time
from console.api.views import TrainyardView
from console.auth import access
from console.presenters.jobs.last_lines import plain
from jobs.logs import job_search, run_search
from jobs.logs.job_search import START, SearchPosition
from jobs.logs.regex_pattern import BadExpression, RegexPattern
from jobs.logs.search_budget import SearchBudget
from jobs.logs.search_pattern import LogPattern, SearchPattern
from jobs.logs.timed_search import TimedPage, TimedPosition, search_in_time
from jobs.models import Job, Run

MAX_TEXT = 200
# Of more logs, the positions of a search by time (some 32 bytes each) are too much for an address: proxies take 8 KB.
# One that has begun goes on while the job gets so many.
MAX_IN_TIME, MAX_GROWN = 150, 1000
BY_REPLICA, BY_TIME = "replica", "time"
TOKEN = re.compile(r"(\d{1,4})-(\d{1,6})-(\d{1,6})-(\d{1,6})-(\d{1,18})")

Document = dict[str, Any]


class Hit(TypedDict):
    """`match`: the part of the text that was looked for."""

    offset: int
    line: int | None
    text: str
    match: str


class HitOfRun(Hit):
    replica: str
    run: str
    attempt: int
    number: int
    host: str
    time: NotRequired[Time]


class Hits(TypedDict):
    """Go on `from` `searchedTo`, until that equals `stored`."""

    run: str
    searchedTo: int
    stored: int
    hits: list[Hit]


class HitsOfJob(TypedDict):
    """In bytes: how far the search came, and how much there is. `order`: in which the lines come."""

    order: str
    hits: list[HitOfRun]
    searched: int
    stored: int
    nextPageToken: NotRequired[str]


PATTERN = (
    Query("q", "A text of one line.", Annotated[str, form(minLength=1, maxLength=MAX_TEXT)], required=True),
    Query("regex", "1: the text is a regular expression of RE2.", Annotated[str, one_of(("0", "1"))]),
)
RUNS = Query("runs", "The newest run of each replica, or all.", Annotated[str, one_of(("newest", "all"))])
REPLICAS = Query("replicas", "Only these, with commas between them.")


class SearchView(TrainyardView):
    """Searches one log."""

    @described(
        "Search the log of a replica, for half a second",
        Hits,
        needs="see_log",
        query=(*PATTERN, RUN, Query("from", "The offset at which the search begins.", Size)),
    )
    def get(self, request: Request, job_id: str, replica: str) -> Response:
        job, needle = _asked(request, job_id)
        start = whole_number("from", request.query_params.get("from", "0"))
        run = run_of(job, replica, request.query_params.get("run", ""))
        if run is None:
            return Response({"run": "", "hits": [], "searchedTo": 0, "stored": 0})
        begin = min(start, run.log_stored)
        with SearchBudget(request.user.pk) as budget:
            found = run_search.search_run(run, needle, begin, run.log_stored, budget=budget)
        end = run.log_stored if found.over else found.end
        answer: Document = {"run": run.pk, "searchedTo": end, "stored": run.log_stored}
        return Response({**answer, "hits": [document(hit) for hit in found.hits]})


class SearchAllView(TrainyardView):
    """Searches the logs of all replicas of a job."""

    @described(
        "Search the logs of all replicas, for half a second",
        HitsOfJob,
        needs="see_log",
        query=(
            *PATTERN,
            RUNS,
            REPLICAS,
            Query("order", "By replica, or by time.", Annotated[str, one_of((BY_REPLICA, BY_TIME))]),
            Query("pageToken", "The `nextPageToken` of the page before."),
        ),
    )
    def get(self, request: Request, job_id: str) -> Response:
        job, needle = _asked(request, job_id)
        runs = request.query_params.get("runs", "newest")
        if runs not in ("newest", "all"):
            raise BadRequest("runs", "runs must be newest or all.")
        order, token = (
            request.query_params.get("order", BY_REPLICA),
            request.query_params.get("pageToken", ""),
        )
        if order not in (BY_REPLICA, BY_TIME):
            raise BadRequest("order", f"order must be {BY_REPLICA} or {BY_TIME}.")
        names = named_replicas(job, request.query_params)
        with SearchBudget(request.user.pk) as budget:
            if order == BY_TIME and not TOKEN.fullmatch(token):
                found = list(job_search.runs_of(job, runs == "all", names))
                if len(found) <= (MAX_GROWN if token else MAX_IN_TIME):
                    return Response(_in_time(found, needle, token, budget))
            page = job_search.search_job(job, needle, _place(token), runs == "all", budget, names)
        return Response(_answer(BY_REPLICA, page, _token(page.next) if page.next else ""))


def _in_time(runs: Sequence[Run], needle: LogPattern, token: str, budget: SearchBudget) -> Document:
    page = search_in_time(runs, needle, _positions(token), budget)
    places = {
        pk: Place(None if one.at is None else round(one.at * SECOND), one.offset, str(one.told))
        for pk, one in page.positions.items()
    }
    return _answer(BY_TIME, page, write_token(BY_TIME, places) if places else "")


def _answer(order: str, page: job_search.Page | TimedPage, token: str) -> Document:
    answer: Document = {
        "order": order,
        "hits": [_line(line) for line in page.lines],
        "searched": page.searched,
        "stored": page.stored,
    }
    return {**answer, **({"nextPageToken": token} if token else {})}


def named_replicas(job: Job, asked: Mapping[str, str]) -> frozenset[str]:
    """The replicas that are asked for; empty for all. A name that the job does not have is not found."""
    names = frozenset(name for name in asked.get("replicas", "").split(",") if name)
    if names and job.replicas.filter(name__in=names).count() != len(names):
        raise Http404
    return names


def document(hit: run_search.Hit) -> Document:
    return {"offset": hit.offset, "line": hit.line, "text": plain(hit.text), "match": plain(hit.match)}


def _asked(request: Request, job_id: str) -> tuple[Job, LogPattern]:
    job = access.get_or_404(request.user, "see_log", Job.objects.select_related("project"), pk=int(job_id))
    return job, pattern_of(request)


def pattern_of(request: Request) -> LogPattern:
    """What is searched: `q`, as a text, or with `regex=1` as a regular expression."""
    text = request.query_params.get("q", "")
    if not 0 < len(text) <= MAX_TEXT or not text.isprintable():
        raise BadRequest("q", f"q must be a text of one line, of 1 to {MAX_TEXT} characters.")
    kind = request.query_params.get("regex", "0")
    if kind not in ("0", "1"):
        raise BadRequest("regex", "regex must be 0 or 1.")
    if kind == "0":
        return SearchPattern(text)
    try:
        return RegexPattern(text)
    except BadExpression as problem:
        raise BadRequest("q", f"q is no regular expression of RE2: {problem}") from None


def _line(line: job_search.FoundLine) -> Document:
    run, at = line.run, untrusted.timestamp(line.hit.wall)
    time = {"time": format_time(at)} if at else {}
    return {
        "replica": run.replica.name,
        "run": run.pk,
        "attempt": run.attempt,
        "number": run.number,
        "host": run.host.name,
        **time,
        **document(line.hit),
    }


def _token(place: SearchPosition) -> str:
    return "-".join(map(str, (*place.run, place.offset)))


def _positions(token: str) -> dict[str, TimedPosition]:
    try:
        places = read_token(token, BY_TIME)
        return {
            pk: TimedPosition(
                None if place.at is None else place.at / SECOND, place.offset or 0, int(place.seen)
            )
            for pk, place in places.items()
        }
    except (BadToken, ValueError):
        raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.") from None


def _place(token: str) -> SearchPosition:
    if not token:
        return START
    read = TOKEN.fullmatch(token)
    if read is None:
        raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.")
    pool, index, attempt, run, offset = map(int, read.groups())
    return SearchPosition((pool, index, attempt, run), offset)
