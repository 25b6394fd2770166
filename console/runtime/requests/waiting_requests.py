"""Which requests wait for another machine, that may be as slow as it likes: the storage of files, the login server of a
company, the host of a job. They have threads of their own, so that all others are answered as usual.

A large body has come before the second call of its view (large_bodies.py): that call stores it. Who waits for a login
server or a host needs one of its places (agents/infra/places.py), and is refused at once where none is free.
"""

from __future__ import annotations

import re
from enum import Enum

from django.http import HttpRequest

from console import large_bodies


class Work(Enum):
    """What a request waits for."""

    NONE = "request"
    READS = "reading"
    STORES = "storing"
    LOGS_IN = "login"
    FETCHES = "fetching"


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
# Addresses that ask the login server.
LOGINS = re.compile(r"/login/oidc(?:/callback)?$|/account/oidc/(?:connect|confirm)$")
# Addresses that fetch something from the host of a replica.
HOSTS = re.compile(
    r"/jobs/[^/]+/files/[^/]+(?:/download)?$|/+api/v1/jobs/[^/]+/replicas/[^/]+/files(?:/content)?$"
)
# Addresses that ask all hosts of a job, where they are posted.
STACKS = re.compile(r"(?:/|/+api/v1/)jobs/[^/]+/stacks$")
# Addresses that try another way to a host, where it is posted or patched.
WAYS = re.compile(r"/hosts/[^/]+/edit$|/+api/v1/hosts/[^/:]+$")
COMPOSE = re.compile(r"/+storage/v1/b/[^/]+/o/.+/compose$")


def work_of(request: HttpRequest) -> Work:
    if large_bodies.is_complete(request):
        return Work.STORES
    path = request.path
    if LOGINS.match(path):
        return Work.LOGS_IN
    if HOSTS.match(path) or (request.method in {"POST", "PATCH"} and WAYS.match(path)):
        return Work.FETCHES
    if request.method == "POST" and STACKS.match(path):
        return Work.FETCHES
    if request.method == "POST":
        return Work.STORES if COMPOSE.match(path) else Work.NONE
    if CONTENTS.match(path) or (OBJECTS.match(path) and MEDIA.search(request.META["QUERY_STRING"])):
        return Work.READS
    return Work.NONE
