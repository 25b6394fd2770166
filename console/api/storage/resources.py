"""Buckets and objects as Google's storage API writes them."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from rest_framework.request import Request

from console.api.errors import BadRequest
from console.api.times import format_time
from console.api.views import absolute_url
from jobs.artifacts.incoming import Digests
from jobs.artifacts.objects import HEADERS, About
from jobs.models import Bucket, StoredObject

Document = dict[str, Any]
MAX_TYPE = 255
# What a client may send and nothing follows from.
WITHOUT_EFFECT = frozenset(
    {
        "bucket",
        "kind",
        "id",
        "selfLink",
        "mediaLink",
        "storageClass",
        "acl",
        "contexts",
        "customTime",
        "eventBasedHold",
    }
    | {
        "temporaryHold",
        "timeCreated",
        "updated",
        "generation",
        "metageneration",
        "size",
        "etag",
        "owner",
        "retention",
    }
    | {"kmsKeyName", "timeStorageClassUpdated", "componentCount", "timeFinalized"}
)
KNOWN = {"name", "contentType", "metadata", "md5Hash", "crc32c"} | HEADERS


def bucket_document(row: Bucket, request: Request) -> Document:
    return {
        "kind": "storage#bucket",
        "id": row.name,
        "name": row.name,
        "projectNumber": str(row.project_id),
        "selfLink": absolute_url(request, f"/storage/v1/b/{row.name}"),
        "location": "DEFAULT",
        "locationType": "region",
        "storageClass": "STANDARD",
        "metageneration": "1",
        "timeCreated": format_time(row.created_at),
        "updated": format_time(row.created_at),
        "etag": base64.b64encode(str(row.pk).encode()).decode(),
    }


def object_document(row: StoredObject, request: Request) -> Document:
    path = f"b/{row.bucket.name}/o/{quote(row.name, safe='')}"
    return {
        "kind": "storage#object",
        "id": f"{row.bucket.name}/{row.name}/{row.generation}",
        "name": row.name,
        "bucket": row.bucket.name,
        "generation": str(row.generation),
        "metageneration": str(row.metageneration),
        "contentType": row.content_type,
        "storageClass": "STANDARD",
        "size": str(row.blob.size),
        "crc32c": row.blob.crc32c,
        **({"md5Hash": row.blob.md5} if row.blob.md5 else {}),
        **({"metadata": row.metadata} if row.metadata else {}),
        **row.headers,
        "etag": etag(row),
        "timeCreated": format_time(row.created_at),
        "updated": format_time(row.updated_at),
        "timeStorageClassUpdated": format_time(row.created_at),
        "selfLink": absolute_url(request, f"/storage/v1/{path}"),
        "mediaLink": absolute_url(
            request, f"/download/storage/v1/{path}?generation={row.generation}&alt=media"
        ),
    }


def etag(row: StoredObject) -> str:
    return base64.b64encode(f"{row.generation}/{row.metageneration}".encode()).decode()


def about(body: object, usual_type: str = "", if_generation: int | None = None) -> tuple[str, About, Digests]:
    """The name, what is said of the object, and the digests that it must have, from the metadata that a client sends.

    A field that is not known is refused: it would be lost silently.
    """
    if not isinstance(body, dict):
        raise BadRequest("", "The metadata of an object must be a JSON object.")
    unknown = sorted(str(name)[:60] for name in body.keys() - KNOWN - WITHOUT_EFFECT)
    if unknown:
        raise BadRequest(unknown[0], f"{unknown[0]} is not a field of an object here.")
    texts = {name: _text(body, name) for name in KNOWN - {"metadata"}}
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(
        isinstance(value, str | None) for value in metadata.values()
    ):
        raise BadRequest("metadata", "metadata must be texts by names.")
    if any("\0" in f"{name}{value}" for name, value in metadata.items()):
        raise BadRequest("metadata", "metadata may not have the character NUL.")
    said = About(
        texts["contentType"] or usual_type,
        {name: value for name, value in metadata.items() if value is not None},
        {name: texts[name] for name in sorted(HEADERS) if texts[name]},
        if_generation,
    )
    return texts["name"], said, Digests(0, "", texts["crc32c"], texts["md5Hash"])


def _text(body: Document, name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 1024 or "\0" in value or "\r" in value or "\n" in value:
        raise BadRequest(name, f"{name} must be a text of one line.")
    return value
