"""Stored files in S3, or in what speaks as S3 does (MinIO, Ceph): django-storages, with what it lacks.

Django's interface reads a whole file and writes from memory. Here files go up from the disk in parts, a range is read
as a range, and all threads of a process share one client, which costs 13 MB and a second.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from storages.backends.s3 import S3Storage

from agents.infra.texts import said
from jobs.artifacts.storage import MB, READ_BYTES, BytesMissing, NotReached, Part

log = logging.getLogger(__name__)

# The transfer makes larger parts of files that would have more than 10,000.
PART_BYTES = 16 * MB
# Parts of one file that are under way at the same time. They are read from the disk as they are sent.
AT_ONCE = 4
# A connection may break while a large file is read: so often it goes on where it broke off.
TRIES = 5
BROKEN = (HTTPClientError, IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
PROBLEMS = (Boto3Error, BotoCoreError, ClientError)
MISSING = frozenset({"404", "NoSuchKey"})


class S3Files(S3Storage):  # type: ignore[misc]  # django-storages has no types
    """One bucket, below one prefix."""

    def __init__(self, **settings: Any) -> None:
        endpoint = settings.get("endpoint_url")
        settings["client_config"] = Config(
            connect_timeout=5,
            read_timeout=30,
            retries={"mode": "standard", "max_attempts": 3},
            max_pool_connections=50,
            # A name for each bucket needs DNS that only Amazon's service surely has; older servers know no checksums.
            s3={"addressing_style": "path" if endpoint else "auto"},
            request_checksum_calculation="when_required" if endpoint else "when_supported",
            response_checksum_validation="when_required",
        )
        settings["transfer_config"] = TransferConfig(
            multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=AT_ONCE
        )
        super().__init__(**settings)
        self._shared: Any = None
        self._making = threading.Lock()

    @property
    def connection(self) -> Any:
        """django-storages makes one for each thread."""
        with self._making:
            if self._shared is None:
                self._shared = super().connection
            return self._shared

    @property
    def client(self) -> Any:
        return self.connection.meta.client

    def keep(self, path: Path, key: str) -> None:
        """A file has its name when all parts have come: S3 shows nothing before, and a problem leaves nothing."""
        with self.reached():
            self.client.upload_file(
                str(path), self.bucket_name, self._normalize_name(key), Config=self.transfer_config
            )

    def is_coming(self, key: str) -> bool:
        """A file has its name when it is whole."""
        return False

    def exists(self, name: str) -> bool:
        with self.reached():
            return bool(super().exists(name))

    def delete(self, name: str) -> None:
        with self.reached():
            super().delete(name)

    def pieces(self, key: str, start: int, end: int) -> Iterator[bytes]:
        """What broke off goes on at its place. `start` moves only when a piece has come."""
        tries = 0
        while start < end:
            try:
                for piece in self._range(key, start, end):
                    start += len(piece)
                    tries = 0
                    yield piece
                break
            except BROKEN as problem:
                tries += 1
                if tries == TRIES:
                    raise self._not_reached(problem) from problem
        if start < end:
            raise BytesMissing

    def _range(self, key: str, start: int, end: int) -> Iterator[bytes]:
        try:
            found = self.client.get_object(
                Bucket=self.bucket_name, Key=self._normalize_name(key), Range=f"bytes={start}-{end - 1}"
            )
        except ClientError as problem:
            if _code(problem) in MISSING | {"InvalidRange", "416"}:
                raise BytesMissing from problem
            raise self._not_reached(problem) from problem
        except BROKEN:
            raise
        except PROBLEMS as problem:
            raise self._not_reached(problem) from problem
        with closing(found["Body"]) as body:
            yield from body.iter_chunks(READ_BYTES)

    def keys(self) -> Iterator[str]:
        with self.reached():
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket_name, Prefix=f"{self.location}/"):
                for found in page.get("Contents", ()):
                    yield found["Key"].removeprefix(f"{self.location}/")

    def parts(self) -> Iterator[Part]:
        with self.reached():
            pages = self.client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket_name, Prefix=f"{self.location}/"):
                for found in page.get("Uploads", ()):
                    yield found["Key"], found["UploadId"]

    def abandon(self, part: Part) -> None:
        key, upload = part
        with self.reached():
            self.client.abort_multipart_upload(Bucket=self.bucket_name, Key=key, UploadId=upload)

    def problem(self) -> str:
        """Store, read and delete a few bytes."""
        key = self._normalize_name(f"probe/{secrets.token_hex(6)}")
        where = {"Bucket": self.bucket_name, "Key": key}
        try:
            self.client.put_object(**where, Body=b"trainyard")
            with closing(self.client.get_object(**where, Range="bytes=5-8")["Body"]) as body:
                same = body.read() == b"yard"
            self.client.delete_object(**where)
        except PROBLEMS as problem:
            return f"{_named(problem)} {self._cure(problem)}"
        return "" if same else said("It does not answer with the range of a file that was asked for.")

    def _cure(self, problem: Exception) -> str:
        if isinstance(problem, NoCredentialsError | PartialCredentialsError):
            return said("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials.")
        if isinstance(problem, ConnectionError | HTTPClientError):
            return said("Check the endpoint in TRAINYARD_STORAGE_URL, and that this machine reaches it.")
        code = _code(problem)
        if code == "NoSuchBucket":
            return said("Make the bucket {name}, or correct TRAINYARD_STORAGE_URL.", name=self.bucket_name)
        if code in ("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            return said("Check the credentials: they must list, read, write and delete in this bucket.")
        return said("Check TRAINYARD_STORAGE_URL and the credentials.")

    @contextmanager
    def reached(self) -> Iterator[None]:
        try:
            yield
        except PROBLEMS as problem:
            raise self._not_reached(problem) from problem

    def _not_reached(self, problem: Exception) -> NotReached:
        log.warning("The storage s3://%s/%s: %s", self.bucket_name, self.location, _named(problem))
        return NotReached()


def _code(problem: Exception) -> str:
    return str(problem.response.get("Error", {}).get("Code", "")) if isinstance(problem, ClientError) else ""


def _named(problem: Exception) -> str:
    return f"{_code(problem) or type(problem).__name__}: {str(problem).rstrip('.')}."
