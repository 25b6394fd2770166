"""Bodies of requests that are too large for memory: uploads of files.

A view at one of these addresses is called twice. The first time nothing of the body was read: the view checks who asks
for what, and answers, or returns `BodyWanted`. Then the body is received into a file
(runtime/requests/large_requests.py), and the view is called again with it, checking everything again: a right that was
lost meanwhile is not used. So a stranger sends nothing, a slow sender holds no thread and no connection of the
database, and memory stays flat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from django.http import HttpRequest, HttpResponse

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.artifacts.incoming import Incoming, new_file
from jobs.models import Project

# Where large bodies may come, by POST and PUT.
ADDRESSES = re.compile(
    r"/+(?:resumable/)?upload/storage/v1/"
    r"|/+api/v1/projects/[^/]+/(?:artifacts/?$|buckets/[^/]+/objects/)"
    r"|/projects/[^/]+/storage/(?:artifacts/add|b/[^/]+/upload)$"
    r"|/jobs/(?:pipelines/)?new/code$"
)
METHODS = frozenset({"POST", "PUT"})
PIECE = 1024 * 1024
# On the request, where the body of a second call is.
RECEIVED = "received_body"


class Sink(Protocol):
    """Where a body goes. A problem of `write` ends the receiving, and is raised in the second call. `renew` keeps what
    it has reserved of a quota while the body waits to be stored. `share`: of which share of the places for uploads it
    takes one (jobs/artifacts/incoming.py)."""

    share: str

    def write(self, data: bytes) -> None: ...

    def renew(self) -> None: ...

    def discard(self) -> None: ...


class BodyWanted(HttpResponse):
    """What a view answers to the first call: the body may come, into this sink. `as_form`: the second call reads it as
    any form, from the file that the sink has written."""

    def __init__(self, sink: Sink, as_form: bool = False) -> None:
        super().__init__()
        self.sink, self.as_form = sink, as_form


class Received:
    """A body that came. It may be only the beginning, where the client has gone, or the sink has refused the rest."""

    def __init__(self, sink: Sink, complete: bool, problem: Exception | None = None) -> None:
        self.sink, self.complete, self.problem = sink, complete, problem


class Incomplete(Refused):
    """The client went before its body was complete."""


def is_large(method: str, path: str) -> bool:
    return method in METHODS and ADDRESSES.match(path) is not None


def is_first_call(request: HttpRequest) -> bool:
    """Whether the body is still to come. False where no such handler is: then the body is read from the request."""
    return getattr(request, RECEIVED, False) is None


def has_come(request: HttpRequest) -> bool:
    """Whether the body has come to its sink, which has reserved what it takes of a quota."""
    return isinstance(getattr(request, RECEIVED, None), Received)


def is_complete(request: HttpRequest) -> bool:
    """Whether all of the body has come, so that the second call stores it."""
    found = getattr(request, RECEIVED, None)
    return isinstance(found, Received) and found.complete


@contextmanager
def received(
    request: HttpRequest, project: Project | None, most: int | None = None, with_md5: bool = False
) -> Iterator[Incoming]:
    """The complete body, in the second call. It is removed at the end, also where the storage keeps its bytes.
    `project`, `most`, `with_md5`: as of the sink of the first call."""
    found = getattr(request, RECEIVED, None)
    file = found.sink if isinstance(found, Received) else new_file(project, most, with_md5)
    assert isinstance(file, Incoming)
    try:
        if isinstance(found, Received):
            check_complete(found)
        else:
            # Without the handler: another server, or a test.
            fill(file, request)
        yield file
    finally:
        file.discard()


def check_complete(found: Received) -> None:
    if found.problem is not None:
        raise found.problem
    if not found.complete:
        raise Incomplete("", said("The body did not come completely."))


def release(found: Received) -> None:
    if isinstance(found.sink, Incoming):
        found.sink.release()


def fill(sink: Sink, request: HttpRequest) -> None:
    while piece := request.read(PIECE):
        sink.write(piece)
