"""Files to and from the storage of a project. What broke off goes on where it stopped, also in the next call."""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import configuration
from .connection import Answer, may_pass_later, quoted, refusal
from .errors import NOT_UNDERSTOOD, ClientError, Offline, Refusal
from .progress import Progress
from .session import Session
from .uploads import Counted

# Larger files are sent by an upload that can be resumed.
SMALL = 8 * 1024 * 1024
BLOCK = 1 << 20
# So many attempts that bring nothing, with a pause that grows.
TRIES, FIRST_S = 6, 0.5
# Uploads that broke off: a file of the client, with the newest.
OPEN, MOST_OPEN = "uploads.json", 100
GOES_ON = "Run it again: it goes on where it stopped."
_URI = re.compile(r"gs://([a-z0-9._-]{1,63})(?:/(.*))?", re.DOTALL)
_RECEIVED = re.compile(r"bytes=0-(\d+)")


@dataclass(frozen=True)
class Place:
    """A place in the storage: a bucket, and a name or the begin of names; both empty for all buckets."""

    bucket: str
    name: str

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.name}"


def is_remote(text: str) -> bool:
    return text.startswith("gs:")


def place(text: str) -> Place:
    found = _URI.fullmatch(text)
    if not found:
        raise ClientError(f"{text!r} is no place in the storage.", "Give gs://BUCKET/NAME.", NOT_UNDERSTOOD)
    return Place(found[1], found[2] or "")


def bucket_path(session: Session, bucket: str) -> str:
    return f"/api/v1/projects/{quoted(session.project)}/buckets/{quoted(bucket)}"


def object_path(session: Session, to: Place) -> str:
    return f"{bucket_path(session, to.bucket)}/objects/{quote(to.name, safe='/')}"


def listed(session: Session, to: Place, delimiter: str = "") -> Iterator[dict[str, Any]]:
    """The objects whose names begin so; with a delimiter, `{"prefix": …}` for what lies deeper."""
    query: dict[str, object] = {"prefix": to.name, "delimiter": delimiter, "pageSize": 1000}
    token = ""
    while True:
        page = session.api.get(f"{bucket_path(session, to.bucket)}/objects", {**query, "pageToken": token})
        yield from ({"prefix": prefix} for prefix in page["prefixes"])
        yield from page["objects"]
        token = page.get("nextPageToken", "")
        if not token:
            return


def send(session: Session, path: Path, to: Place, progress: Progress) -> None:
    """Store a file under this name."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            if status.st_size <= SMALL:
                headers = {"Content-Type": kind}
                session.api.request("PUT", object_path(session, to), headers=headers, body=file.read())
                progress.add(status.st_size)
                return
    except OSError as problem:
        raise ClientError(f"{path} cannot be read: {problem.strerror}") from None
    _Resumable(session, path, status, to, kind, progress).send()


class _Resumable:
    """An upload that goes on where it stopped: after a cut, and in the next call for the same file."""

    def __init__(
        self, session: Session, path: Path, status: os.stat_result, to: Place, kind: str, progress: Progress
    ) -> None:
        self._api, self._path, self._to, self._kind = session.api, path, to, kind
        self._size, self._progress = status.st_size, progress
        self._before = progress.done
        # Another content of the file is another upload.
        self._key = f"{session.console.url} {to.uri} {path.resolve()} {status.st_size} {status.st_mtime_ns}"

    def send(self) -> None:
        failed, reached = 0, -1
        while True:
            why = Offline(f"{self._path} does not arrive.", GOES_ON)
            try:
                at = self._begun()
                if at is not None and at > reached:
                    # More has come than the last time: that was progress.
                    failed, reached = 0, at
                if at is None or self._rest(at):
                    self._note("")
                    return
            except Offline as problem:
                why = problem
            failed += 1
            if failed >= TRIES:
                raise why
            time.sleep(FIRST_S * 2.0**failed)

    @property
    def _address(self) -> str:
        return f"/upload/storage/v1/b/{quoted(self._to.bucket)}/o"

    def _begun(self) -> int | None:
        """How much the console has of the file; None if it has all. Begins the upload where there is none."""
        key = configuration.read_json(OPEN).get(self._key, "")
        if key:
            headers = {"Content-Range": f"bytes */{self._size}"}
            answer = self._api.send_once("PUT", self._address, _query(key), b"", headers)
            if answer.status == 200:
                return None
            if answer.status == 308:
                found = _RECEIVED.fullmatch(answer.headers.get("Range", ""))
                return int(found[1]) + 1 if found else 0
            self._raise_if_later(answer)
        begin = {"X-Upload-Content-Length": str(self._size), "X-Upload-Content-Type": self._kind}
        asked = {"uploadType": "resumable", "name": self._to.name}
        answer = self._api.request("POST", self._address, asked, headers=begin, body=b"")
        self._note(answer.headers.get("X-GUploader-UploadID", ""))
        return 0

    def _rest(self, at: int) -> bool:
        """Send what is missing. Returns whether the console has all."""
        self._progress.at(self._before + at)
        headers = {"Content-Range": f"bytes {at}-{self._size - 1}/{self._size}"}
        key = configuration.read_json(OPEN).get(self._key, "")
        with open(self._path, "rb") as file:
            file.seek(at)
            body: Any = Counted(file, self._progress)
            answer = self._api.upload("PUT", self._address, body, self._size - at, headers, _query(key))
        if answer.status not in (200, 308):
            self._raise_if_later(answer)
            self._note("")
            raise refusal(answer, self._api.target, self._api.server_version)
        return answer.status == 200

    def _raise_if_later(self, answer: Answer) -> None:
        """Keep the key of an upload that only cannot go on now."""
        if may_pass_later(answer):
            told = refusal(answer, self._api.target, self._api.server_version)
            raise Offline(told.message, GOES_ON)

    def _note(self, key: str) -> None:
        """Keep the key of the upload for the next call; an empty one is forgotten."""
        kept = configuration.read_json(OPEN)
        kept.pop(self._key, None)
        newest = [*kept.items(), *([(self._key, key)] if key else [])][-MOST_OPEN:]
        configuration.write_json(OPEN, dict(newest))


def _query(key: str) -> dict[str, object]:
    return {"uploadType": "resumable", "upload_id": key}


def fetch(session: Session, found: dict[str, Any], to: Place, path: Path, progress: Progress) -> None:
    """Bring an object into a file, which is there when all of it is here and right, and not before."""
    size, before = int(found["sizeBytes"]), progress.done
    part = path.with_name(f".{path.name[:180]}.{found['generation']}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        failed = 0
        while (have := part.stat().st_size if part.exists() else 0) < size or not part.exists():
            progress.at(before + have)
            try:
                _fetch_rest(session, to, part, have, progress)
            except Offline:
                failed = 0 if part.exists() and part.stat().st_size > have else failed + 1
                if failed == TRIES:
                    raise
                time.sleep(FIRST_S * 2.0**failed)
        progress.at(before + size)
        if _sha256(part) != found["sha256"]:
            part.unlink()
            raise ClientError(f"{to.uri} has arrived broken.", "Run it again.")
        os.replace(part, path)
    except OSError as problem:
        raise ClientError(f"{path} cannot be written: {problem.strerror}") from None


def _fetch_rest(session: Session, to: Place, part: Path, have: int, progress: Progress) -> None:
    headers = {"Range": f"bytes={have}-"} if have else {}
    answer, blocks = session.api.download(object_path(session, to), {"alt": "media"}, headers)
    with open(part, "ab" if answer.status == 206 else "wb") as file:
        for block in blocks:
            file.write(block)
            progress.add(len(block))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def copy(session: Session, source: Place, to: Place) -> None:
    """Copy an object on the console: no bytes move."""
    path = f"/storage/v1/b/{quoted(source.bucket)}/o/{quoted(source.name)}"
    session.api.request("POST", f"{path}/copyTo/b/{quoted(to.bucket)}/o/{quoted(to.name)}", document={})


def described(session: Session, to: Place) -> dict[str, Any] | None:
    """The object of this name, if there is one."""
    try:
        return session.api.get(object_path(session, to)) if to.name and not to.name.endswith("/") else None
    except Refusal as problem:
        if problem.status == 404:
            return None
        raise
