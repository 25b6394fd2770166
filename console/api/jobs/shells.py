"""The shells of a job: `GET, POST /api/v1/jobs/N/shells` and `PATCH, DELETE /api/v1/jobs/N/shells/KEY`.

POST makes the record of a shell that its host keeps, and names the socket over which it is used. The first socket has
the host make the shell.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, NotRequired, TypedDict

from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from agents.infra.texts import said
from console.api import resources
from console.api.description import Query, Time, described, form, one_of, paged
from console.api.errors import BadRequest
from console.api.query import page_size
from console.api.request_body import RequestBody
from console.api.times import format_time
from console.api.views import TrainyardView, absolute_url, person
from console.auth import access, tokens
from console.models import ApiToken
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.shells import job_shells
from console.presenters.shells.job_shells import ShellRow, ShellState
from jobs import shells
from jobs.models import Job, ShellSession

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000


class ShellDocument(TypedDict):
    """`key`, `socket` and `page` are there for shells that their host keeps. `recordingState`: `COMING` (it is fetched
    from the host), `WHOLE`, `CUT` (its end is missing), `DIFFERS` (the host's digest is another), `NONE`, `DELETED`."""

    key: NotRequired[str]
    socket: NotRequired[str]
    page: NotRequired[str]
    replica: str
    run: str
    host: str
    owner: str
    state: str
    attended: NotRequired[bool]
    shared: NotRequired[bool]
    openTime: NotRequired[Time]
    closeTime: NotRequired[Time]
    closeReason: NotRequired[str]
    recorded: bool
    recordingState: NotRequired[str]
    recording: NotRequired[str]


class Shells(TypedDict):
    shells: list[ShellDocument]
    nextPageToken: NotRequired[str]


class NewShell(TypedDict, total=False):
    """`replica`: workerpool0-0 if nothing is said."""

    replica: Annotated[str, form(maxLength=40)]


class ShellChange(TypedDict, total=False):
    """`shared`: those who may submit jobs may watch."""

    shared: bool


STATE = Query("state", "Only those in this state.", Annotated[str, one_of(("OPEN", "CLOSED"))])


class ShellsView(TrainyardView):
    @described(
        "List the shells of a job, the newest first",
        Shells,
        needs="see",
        query=(STATE, *paged(PAGE_SIZE, MAX_PAGE_SIZE)),
    )
    def get(self, request: Request, job_id: str) -> Response:
        """The newest shells first. `state=OPEN` leaves out those that are over."""
        job = _job(request, job_id, "see")
        query = request.query_params.dict()
        rows = shells.of_job(job).order_by("-pk")
        if state := query.get("state"):
            if state not in ("OPEN", "CLOSED"):
                raise BadRequest("state", "state must be OPEN or CLOSED.")
            rows = rows.filter(closed_at__isnull=state == "OPEN")
        if token := query.get("pageToken"):
            before = cursor_number(token)
            if before is None:
                raise BadRequest("pageToken", "pageToken must be a nextPageToken of an earlier answer.")
            rows = rows.filter(pk__lt=before)
        size = page_size(query, PAGE_SIZE, MAX_PAGE_SIZE)
        found = list(rows[: size + 1])
        allowed, now = access.verbs(person(request), job), timezone.now()
        told = [_document(request, job_shells.row_of(row, allowed, now)) for row in found[:size]]
        more = {"nextPageToken": str(found[size - 1].pk)} if len(found) > size else {}
        return Response({"shells": told, **more})

    @described(
        "Open a shell at a replica that runs", ShellDocument, needs="shell", body=NewShell, statuses=(201,)
    )
    def post(self, request: Request, job_id: str) -> Response:
        job = _job(request, job_id, "shell")
        replica = RequestBody(request, NewShell).text("replica", "workerpool0-0", max_length=40)
        resources.requested_replica(job, replica)
        run = next((run for run in job_shells.open_runs(job) if run.replica.name == replica), None)
        if run is None:
            raise BadRequest("replica", f"{replica} does not run now, so no shell opens there.")
        user = person(request)
        if reason := shells.why_not(run) or shells.too_many(user):
            raise BadRequest("replica", reason)
        kept = shells.Kept(secrets.token_hex(16), settings.TRAINYARD.shell_keep_s, _login(request))
        address = request.META.get("REMOTE_ADDR") or ""
        run.job = job
        session = shells.record_kept(run, user, address, kept, timezone.now())
        return Response(_shown(request, job, session), status=201)


class ShellView(TrainyardView):
    @described("Let colleagues watch a shell, or not", ShellDocument, needs="shell", body=ShellChange)
    def patch(self, request: Request, job_id: str, key: str) -> Response:
        """`{"shared": true}` lets colleagues watch."""
        job = _job(request, job_id, "shell")
        session = _session(job, key)
        shared = RequestBody(request, ShellChange).boolean("shared", session.shared)
        shells.share(session, shared, person(request).get_username(), timezone.now())
        return Response(_shown(request, job, _session(job, key)))

    @described("Close a shell", ShellDocument, needs="shell")
    def delete(self, request: Request, job_id: str, key: str) -> Response:
        """Its host ends the shell within seconds. Done twice, it is the same."""
        job = _job(request, job_id, "shell")
        name = person(request).get_username()
        shells.want_close(_session(job, key), said("Closed by {name}.", name=name), timezone.now())
        return Response(_shown(request, job, _session(job, key)))


def _job(request: Request, job_id: str, verb: access.Verb) -> Job:
    return access.get_or_404(request.user, verb, Job.objects.select_related("project"), pk=int(job_id))


def _session(job: Job, key: str) -> ShellSession:
    session = shells.of_job(job).select_related("run__job__project").filter(key=key).first()
    if session is None:
        raise Http404
    return session


def _login(request: Request) -> str:
    """By which login the shell ends: that of the token, or of the session of a page."""
    if isinstance(request.auth, ApiToken):
        return request.auth.digest
    return tokens.digest(request.session.session_key or "")


def _shown(request: Request, job: Job, session: ShellSession) -> dict[str, Any]:
    user: User = person(request)
    return _document(request, job_shells.row_of(session, access.verbs(user, job), timezone.now()))


def _recording(row: ShellRow) -> str:
    return f"/api/v1{row.replay_url.removesuffix('replay')}recording"


def _document(request: Request, row: ShellRow) -> dict[str, Any]:
    times = {"openTime": row.opened_at, "closeTime": row.closed_at}
    ways = {}
    if row.key:
        socket = absolute_url(request, f"/ws/shells/{row.key}?run={row.run}").replace("http", "ws", 1)
        ways = {"key": row.key, "socket": socket, "page": absolute_url(request, row.url or row.watch_url)}
    return {
        **ways,
        "replica": row.replica,
        "run": row.run,
        "host": row.host,
        "owner": row.owner,
        "state": row.state,
        **({} if row.state == ShellState.CLOSED else {"attended": row.attended, "shared": row.shared}),
        **{name: format_time(when) for name, when in times.items() if when},
        **({"closeReason": row.reason} if row.reason else {}),
        "recorded": bool(row.recording),
        **({"recordingState": row.recording.upper()} if row.recording else {}),
        **({"recording": absolute_url(request, _recording(row))} if row.replay_url else {}),
    }
