"""Artifacts: what a job brings, kept once by its SHA-256 in its project (console/api/projects, jobs/artifacts)."""

from __future__ import annotations

import time
from typing import IO, Any

from .connection import Answer, Query, may_pass_later, put_off, quoted, refusal
from .errors import Offline, Refusal
from .progress import Progress
from .session import Session

NOT_THERE = (404, 501)
TRIES = 3


class Counted:
    """A file whose reads move the bar."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file, self._progress = file, progress

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._progress.add(len(data))
        return data


def upload_artifact(session: Session, file: IO[bytes], digest: str, size: int, name: str) -> str:
    """Bring an archive into the project, unless it is there. Returns its SHA-256."""
    path = f"/api/v1/projects/{quoted(session.project)}/artifacts"
    try:
        session.api.get(f"{path}/{digest}")
        return digest
    except Refusal as problem:
        if problem.status not in NOT_THERE:
            raise
    query = {"kind": "archive", "name": name, "sha256": digest}
    for tried in range(TRIES):
        is_last = tried == TRIES - 1
        try:
            answer = _sent(session, path, file, size, query)
            wait = _wait(answer)
        except Offline:
            if is_last:
                raise
            wait = 0.0
        if wait is None or is_last:
            break
        time.sleep(max(2.0**tried, wait))
    if answer.status >= 300:
        raise refusal(answer, session.target, session.api.server_version)
    return digest


def _sent(session: Session, path: str, file: IO[bytes], size: int, query: Query) -> Answer:
    file.seek(0)
    with Progress("Uploading", size) as progress:
        body: Any = Counted(file, progress)
        return session.api.upload("POST", path, body, size, {"Content-Type": "application/gzip"}, query)


def _wait(answer: Answer) -> float | None:
    """How long to wait at least before it is sent again; None: the answer stays."""
    told = put_off(answer)
    # A quota that is full answers 429 too, and names no time to wait for.
    if told is None and answer.status != 429 and may_pass_later(answer):
        return 0.0
    return told
