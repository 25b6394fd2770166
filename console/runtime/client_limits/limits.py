"""The limits of the web process on what strangers may send and keep open (docs/operating.md, *Limits for clients*)."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from functools import cache

from django.conf import settings

from console.environment import Environment
from console.runtime.client_limits.open_connections import OpenConnections, Proxies

KIB, MIB = 1024, 1024 * 1024
# File descriptors that are no connections of clients: the database, the channel layer, connections of shells to hosts.
RESERVED_FILES = 512
MOST_FILES = 65_536
# A client that takes nothing of an answer for this long is left.
STALLED_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may have, and the counters of one web process."""

    head_bytes: int
    head_s: float
    body_bytes: int
    upload_bytes: int
    body_s: float
    connections: int
    proxies: Proxies
    # Connections of one address when it connects itself; its requests and sockets when a proxy connects for it.
    by_peer: OpenConnections
    by_address: OpenConnections
    by_session: OpenConnections
    by_person: OpenConnections


@cache
def current() -> Limits:
    """The limits and counters of this process."""
    return limits_of(settings.TRAINYARD)


def limits_of(environment: Environment) -> Limits:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        head_bytes=environment.max_header_kb * KIB,
        head_s=environment.header_s,
        body_bytes=environment.max_body_mb * MIB,
        upload_bytes=environment.max_upload_gb * 10**9,
        body_s=environment.body_s,
        connections=min(environment.max_connections, max(files - RESERVED_FILES, files // 2)),
        proxies=Proxies(environment.proxies),
        by_peer=OpenConnections(environment.address_connections, "one address"),
        by_address=OpenConnections(environment.address_connections, "one address"),
        by_session=OpenConnections(environment.session_connections, "one session or token"),
        by_person=OpenConnections(environment.person_connections, "one person"),
    )


def raise_file_limit() -> None:
    """Let this process have as many open files as it may. The usual soft limit, 1024, is less than a busy day needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, MOST_FILES) if hard != resource.RLIM_INFINITY else MOST_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
