"""System checks: settings that contradict each other, and files that an installation needs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from console.environment import Environment


@register()
def check_environment(app_configs: Any, **options: Any) -> list[CheckMessage]:
    return [*contradictions(settings.TRAINYARD), *missing_packages(settings.NPM)]


def contradictions(environment: Environment) -> Iterator[CheckMessage]:
    if environment.lease_s < 3 * environment.tick_s:
        yield Error(
            "TRAINYARD_LEASE_S is shorter than three times TRAINYARD_TICK_S: leases would expire between two renewals.",
            hint="Raise TRAINYARD_LEASE_S or lower TRAINYARD_TICK_S.",
            id="trainyard.E001",
        )
    if environment.debug and not is_loopback(environment.bind):
        yield Error(
            f"TRAINYARD_DEBUG is on while Trainyard listens on {environment.bind}: "
            "error pages would show settings to anybody in the network.",
            hint="Unset TRAINYARD_DEBUG or bind to 127.0.0.1.",
            id="trainyard.E002",
        )
    if problem := incomplete_login_server(environment):
        yield Error(problem, hint="See docs/operating.md, Login server (OIDC).", id="trainyard.E004")
    if environment.storage is not None and not (find_spec("boto3") and find_spec("storages")):
        yield Error(
            "TRAINYARD_STORAGE_URL names a storage for which boto3 and django-storages are not installed.",
            hint="Run: TRAINYARD_STORAGE_URL=s3://... make install-run",
            id="trainyard.E005",
        )
    if not is_loopback(environment.bind) and not environment.url.startswith("https://"):
        yield Warning(
            f"Trainyard listens on {environment.bind} without TLS: passwords and tokens cross the network in clear.",
            hint="Put a TLS proxy in front and set TRAINYARD_URL=https://... (docs/operating.md).",
            id="trainyard.W001",
        )
    for name, url in (("REDIS_URL", environment.redis_url), ("BROKER_URL", environment.broker_url)):
        if is_open_redis(url):
            yield Warning(
                f"{name} has no password: whoever reaches that port can read and forge the messages between processes.",
                hint=f"Set `requirepass` in Redis and {name}=redis://:PASSWORD@host:6379/0, or use a unix:// socket.",
                id="trainyard.W002",
            )


def incomplete_login_server(environment: Environment) -> str:
    """Why the login by a server (OIDC) cannot work as it is set; empty if it can, or is not wanted."""
    if bool(environment.oidc_url) != bool(environment.oidc_client_id):
        return "A login server needs both TRAINYARD_OIDC_URL and TRAINYARD_OIDC_CLIENT_ID."
    if not environment.oidc_url and (environment.oidc_groups or environment.oidc_create):
        return "TRAINYARD_OIDC_GROUPS and _CREATE have no effect without TRAINYARD_OIDC_URL."
    return ""


def is_open_redis(url: str) -> bool:
    """Whether this is a Redis over TCP without a password. A Unix socket has the permissions of its file."""
    parts = urlsplit(url)
    in_query = parse_qs(parts.query).get("password", [""])[0]
    return parts.scheme in ("redis", "rediss") and not (parts.password or in_query)


def missing_packages(npm: Path) -> Iterator[CheckMessage]:
    if not (npm / "htmx-ext-ws" / "dist" / "ws.min.js").exists():
        yield Error(
            "The JavaScript packages for the browser are not installed.",
            hint="Run: make install",
            id="trainyard.E003",
        )


def is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
