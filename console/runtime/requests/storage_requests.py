"""Which requests read and write stored files. Their storage may be elsewhere, and as slow as it likes: they have
threads of their own, so that all others are answered as usual.

A large body has come before the second call of its view (large_bodies.py): that call stores it.
"""

from __future__ import annotations

import re
from enum import Enum

from django.http import HttpRequest

from console import large_bodies


class Work(Enum):
    """What a request does with stored files."""

    NONE = "request"
    READS = "reading"
    STORES = "storing"


# Addresses that send or show what is in files.
CONTENTS = re.compile(
    r"/+download/storage/v1/"
    r"|/+api/v1/projects/[^/]+/artifacts/[^/]+/content$"
    r"|/+api/v1/jobs/[^/]+/outputs/content$"
    r"|/projects/[^/]+/storage/(?:artifacts/[^/]+$|b/[^/]+/file/)"
    r"|/jobs/[^/]+/outputs/(?:file|image)$"
)
# Addresses of objects: `alt=media` asks for the bytes.
OBJECTS = re.compile(r"/+storage/v1/b/[^/]+/o/.|/+api/v1/projects/[^/]+/buckets/[^/]+/objects/.")
# Read here and not by Django: this runs before a malformed query can be answered.
MEDIA = re.compile(r"(?:^|&)alt=media(?:&|$)")
COMPOSE = re.compile(r"/+storage/v1/b/[^/]+/o/.+/compose$")


def work_of(request: HttpRequest) -> Work:
    if large_bodies.is_complete(request):
        return Work.STORES
    path = request.path
    if request.method == "POST":
        return Work.STORES if COMPOSE.match(path) else Work.NONE
    if CONTENTS.match(path) or (OBJECTS.match(path) and MEDIA.search(request.META["QUERY_STRING"])):
        return Work.READS
    return Work.NONE
