"""Reads the environment variables once. A wrong value stops the start; the message names the variable and the cure."""

from __future__ import annotations

import difflib
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from django.core.exceptions import ImproperlyConfigured

PROJECT_ROOT = Path(__file__).resolve().parent.parent
DEFAULT_DATA = PROJECT_ROOT / "var"


class BadSetting(ImproperlyConfigured):
    """An environment variable has a wrong value. The message names the variable, the value and the cure."""

    def __init__(self, name: str, value: str, cure: str) -> None:
        super().__init__(f"{name} is {value!r}: {cure}")


def whole_number(low: int, high: int, unit: str = "") -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if not re.fullmatch(r"\d{1,12}", value) or not low <= int(value) <= high:
            raise BadSetting(name, value, f"give a whole number{unit} from {low} to {high}.")
        return int(value)

    return read


def seconds(low: float, high: float) -> Callable[[str, str], float]:
    def read(name: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not low <= number <= high:
            raise BadSetting(name, value, f"give a number of seconds from {low:g} to {high:g}.")
        return number

    return read


def boolean(name: str, value: str) -> bool:
    choices = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if value.lower() not in choices:
        raise BadSetting(name, value, "give 'true' or 'false'.")
    return choices[value.lower()]


def port_range(name: str, value: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", value)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1024 <= low <= high <= 65535:
        raise BadSetting(
            name, value, "give a range LOW-HIGH of ports from 1024 to 65535, for example 23000-23999."
        )
    return low, high


def one_of(*choices: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value.upper() not in choices:
            raise BadSetting(name, value, f"give one of {', '.join(choices)}.")
        return value.upper()

    return read


def url_of(*schemes: str, example: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        parts = urlsplit(value)
        complete = bool(parts.netloc or (parts.path.startswith("/") and parts.scheme in ("unix", "sqlite")))
        if parts.scheme not in schemes or not complete:
            # The address may contain a password, so the message shows only the scheme.
            raise BadSetting(name, f"{parts.scheme or 'no'}://...", f"give an address such as {example}.")
        return value

    return read


def public_url(name: str, value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise BadSetting(name, value, "give scheme and host, for example https://train.example.org.")
    return value.rstrip("/")


def host_names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    for part in names:
        if not re.fullmatch(r"\.?[A-Za-z0-9._:\[\]-]+", part):
            raise BadSetting(name, value, "give host names separated by commas, without scheme or port.")
    return names


def networks(name: str, value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
    except ValueError:
        raise BadSetting(
            name, value, "give networks or addresses separated by commas, such as 10.0.0.0/8."
        ) from None


def matching(pattern: str, cure: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise BadSetting(name, value, cure)
        return value

    return read


def python_index(name: str, value: str) -> Mapping[str, str]:
    """`https://…` for all locations, or `lab=https://…,other=none`, by location."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        location, equals, index = (
            part.partition("=") if re.match(r"[a-z0-9-]{1,63}=", part) else ("", "", part)
        )
        parts = urlsplit(index)
        if index != "none" and not (parts.scheme in ("http", "https") and parts.hostname):
            # The address may contain a password.
            raise BadSetting(
                name,
                "...",
                "give https://host/simple or none, or location=https://host/simple, separated by commas.",
            )
        found[location] = index
    return found


def login_server(name: str, value: str) -> str:
    """The address of an OpenID Connect server, without the path of its configuration."""
    parts = urlsplit(value)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if (
        not parts.hostname
        or parts.scheme not in ("https", "http")
        or (parts.scheme == "http" and not is_here)
    ):
        raise BadSetting(
            name, value, "give an address that begins with https://, such as https://login.example.org."
        )
    return value.removesuffix("/.well-known/openid-configuration")


def groups(name: str, value: str) -> tuple[tuple[str, str, str], ...]:
    """`ml-admins=admin,nlp=nlp:submitter`: (group, project, role). An admin of the deployment has no project."""
    found = []
    for part in value.split(","):
        group, _, what = part.strip().rpartition("=")
        project, _, role = what.rpartition(":")
        if not group or role not in ("viewer", "submitter", "admin") or (not project and role != "admin"):
            raise BadSetting(name, value, "give GROUP=admin or GROUP=PROJECT:ROLE, separated by commas.")
        found.append((group, project, role))
    return tuple(found)


def directory(name: str, value: str) -> Path:
    path = Path(value).expanduser().resolve()
    if path.exists() and not path.is_dir():
        raise BadSetting(
            name, value, "this is not a directory. Give a directory that Trainyard may write to."
        )
    return path


@dataclass(frozen=True, slots=True)
class S3:
    """A bucket of S3, or of what speaks as S3 does, and the prefix below which all files are."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""


def storage(name: str, value: str) -> S3:
    """`s3://bucket/prefix?endpoint=https://host:9000&region=r`. Its credentials are looked for where AWS's programs
    look for them."""
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise BadSetting(
            name,
            "s3://...",
            "give the credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws/credentials.",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = urlsplit(options.get("endpoint", "https://s3"))
    if (
        parts.scheme != "s3"
        or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc)
        or not re.fullmatch(r"(/[A-Za-z0-9._-]{1,100}){0,8}/?", parts.path)
        or {"/.", "/.."} & {f"/{each}" for each in parts.path.split("/")}
        or not options.keys() <= {"endpoint", "region"}
        or not (endpoint.scheme in ("http", "https") and endpoint.hostname and "@" not in endpoint.netloc)
    ):
        raise BadSetting(
            name,
            "s3://..." if parts.scheme == "s3" else "...",
            "give s3://bucket/prefix, for a storage that is not Amazon's with ?endpoint=https://host:9000.",
        )
    return S3(parts.netloc, parts.path.strip("/"), options.get("endpoint", ""), options.get("region", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The values of all environment variables. Django code reads them as `settings.TRAINYARD`."""

    data: Path = DEFAULT_DATA
    port: int = 8000
    bind: str = "127.0.0.1"
    url: str = ""
    hosts: tuple[str, ...] = ()
    debug: bool = False
    log_level: str = "INFO"
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    broker_url: str = field(default="", repr=False)
    dispatcher: str = ""

    lease_s: float = 15.0
    tick_s: float = 1.0
    grace_s: float = 10.0
    start_s: float = 600.0
    retry_wait_s: float = 5.0
    preempt_grace_s: float = 30.0
    link_dead_s: float = 12.0
    min_free_mb: int = 200
    ports: tuple[int, int] = (23000, 23999)
    stall_s: float = 1800.0
    unconnected_s: float = 300.0
    smtp_url: str = field(default="", repr=False)
    mail_from: str = "trainyard@localhost"
    notify_private: tuple[IPv4Network | IPv6Network, ...] = ()
    proxies: tuple[IPv4Network | IPv6Network, ...] = (ip_network("127.0.0.1"), ip_network("::1"))
    max_connections: int = 4000
    address_connections: int = 500
    session_connections: int = 200
    person_connections: int = 400
    token_requests: int = 6000
    max_header_kb: int = 64
    header_s: float = 10.0
    max_body_mb: int = 8
    max_upload_gb: int = 100
    body_s: float = 60.0
    log_budget_mb: int = 4096
    host_events_days: int = 90
    storage: S3 | None = None
    ship_mb_s: int = 0
    # The package index of each location; that of "" holds for all others.
    python_index: Mapping[str, str] = field(default_factory=dict, repr=False)
    segment_mb: int = 8
    shell_keep_s: int = 1800
    record_shells: bool = True
    shell_recording_days: int = 30
    require_second_factor: str = ""
    oidc_url: str = ""
    oidc_client_id: str = ""
    oidc_client_secret_file: str = ""
    oidc_name: str = "single sign-on"
    oidc_create: bool = False
    oidc_groups: tuple[tuple[str, str, str], ...] = ()
    oidc_groups_claim: str = "groups"
    failpoint: str = ""


NAME = r"[A-Za-z0-9._-]{1,80}"
READERS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "data": ("TRAINYARD_DATA", directory),
    "port": ("TRAINYARD_PORT", whole_number(0, 65535)),
    "bind": (
        "TRAINYARD_BIND",
        matching(r"[A-Za-z0-9.:_-]{1,255}", "give an address of this machine, such as 127.0.0.1 or 0.0.0.0."),
    ),
    "url": ("TRAINYARD_URL", public_url),
    "hosts": ("TRAINYARD_HOSTS", host_names),
    "debug": ("TRAINYARD_DEBUG", boolean),
    "log_level": ("TRAINYARD_LOG_LEVEL", one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    "database_url": (
        "DATABASE_URL",
        url_of("postgres", "postgresql", "sqlite", example="postgresql://user:password@host:5432/trainyard"),
    ),
    "redis_url": ("REDIS_URL", url_of("redis", "rediss", "unix", example="redis://host:6379/0")),
    "broker_url": (
        "BROKER_URL",
        url_of("amqp", "amqps", "redis", "rediss", example="amqp://user:password@host:5672//"),
    ),
    "dispatcher": (
        "TRAINYARD_DISPATCHER",
        matching(NAME, "give a name of letters, digits, dots and dashes."),
    ),
    "lease_s": ("TRAINYARD_LEASE_S", seconds(1, 3600)),
    "tick_s": ("TRAINYARD_TICK_S", seconds(0.05, 60)),
    "grace_s": ("TRAINYARD_GRACE_S", seconds(0, 3600)),
    "start_s": ("TRAINYARD_START_S", seconds(1, 86_400)),
    "retry_wait_s": ("TRAINYARD_RETRY_WAIT_S", seconds(0, 3600)),
    "preempt_grace_s": ("TRAINYARD_PREEMPT_GRACE_S", seconds(0, 3600)),
    "link_dead_s": ("TRAINYARD_LINK_DEAD_S", seconds(1, 600)),
    "min_free_mb": ("TRAINYARD_MIN_FREE_MB", whole_number(0, 10**9, " of MiB")),
    "ports": ("TRAINYARD_PORTS", port_range),
    "stall_s": ("TRAINYARD_STALL_S", seconds(0, 10**7)),
    "unconnected_s": ("TRAINYARD_UNCONNECTED_S", seconds(0, 10**7)),
    "smtp_url": (
        "TRAINYARD_SMTP_URL",
        url_of(
            "smtp", "smtp+starttls", "smtps", example="smtp+starttls://user:password@mail.example.org:587"
        ),
    ),
    "mail_from": ("TRAINYARD_MAIL_FROM", matching(r"[^@\s]{1,64}@[^@\s]{1,255}", "give an e-mail address.")),
    "notify_private": ("TRAINYARD_NOTIFY_PRIVATE", networks),
    "proxies": ("TRAINYARD_PROXIES", networks),
    "max_connections": ("TRAINYARD_MAX_CONNECTIONS", whole_number(10, 60_000)),
    "address_connections": ("TRAINYARD_ADDRESS_CONNECTIONS", whole_number(1, 60_000)),
    "session_connections": ("TRAINYARD_SESSION_CONNECTIONS", whole_number(1, 60_000)),
    "person_connections": ("TRAINYARD_PERSON_CONNECTIONS", whole_number(1, 60_000)),
    "token_requests": ("TRAINYARD_TOKEN_REQUESTS", whole_number(0, 1_000_000)),
    "max_header_kb": ("TRAINYARD_MAX_HEADER_KB", whole_number(8, 1024, " of KiB")),
    "header_s": ("TRAINYARD_HEADER_S", seconds(1, 600)),
    "max_body_mb": ("TRAINYARD_MAX_BODY_MB", whole_number(1, 1024, " of MiB")),
    "max_upload_gb": ("TRAINYARD_MAX_UPLOAD_GB", whole_number(1, 10_000, " of GB")),
    "body_s": ("TRAINYARD_BODY_S", seconds(1, 3600)),
    "host_events_days": ("TRAINYARD_HOST_EVENTS_DAYS", whole_number(1, 36_500, " of days")),
    "log_budget_mb": ("TRAINYARD_LOG_BUDGET_MB", whole_number(1, 10**9, " of MiB")),
    "storage": ("TRAINYARD_STORAGE_URL", storage),
    "ship_mb_s": ("TRAINYARD_SHIP_MB_S", whole_number(0, 100_000, " of MB in a second")),
    "python_index": ("TRAINYARD_PYTHON_INDEX", python_index),
    "segment_mb": ("TRAINYARD_SEGMENT_MB", whole_number(1, 1024, " of MiB")),
    "shell_keep_s": ("TRAINYARD_SHELL_KEEP_S", whole_number(10, 86_400, " of seconds")),
    "record_shells": ("TRAINYARD_RECORD_SHELLS", boolean),
    "shell_recording_days": ("TRAINYARD_SHELL_RECORDING_DAYS", whole_number(1, 36_500, " of days")),
    "require_second_factor": ("TRAINYARD_REQUIRE_SECOND_FACTOR", one_of("ADMINS", "ALL")),
    "oidc_url": ("TRAINYARD_OIDC_URL", login_server),
    "oidc_client_id": (
        "TRAINYARD_OIDC_CLIENT_ID",
        matching(r"[\x21-\x7e]{1,255}", "give the id of the client."),
    ),
    "oidc_client_secret_file": (
        "TRAINYARD_OIDC_CLIENT_SECRET_FILE",
        matching(r"/.{1,1000}", "give the whole path of a file that only this user can read."),
    ),
    "oidc_name": (
        "TRAINYARD_OIDC_NAME",
        matching(r"[^<>\n]{1,40}", "give the name for the button, such as Keycloak."),
    ),
    "oidc_create": ("TRAINYARD_OIDC_CREATE", boolean),
    "oidc_groups": ("TRAINYARD_OIDC_GROUPS", groups),
    "oidc_groups_claim": (
        "TRAINYARD_OIDC_GROUPS_CLAIM",
        matching(r"[^\s]{1,100}", "give the name of a claim."),
    ),
    "failpoint": (
        "TRAINYARD_FAILPOINT",
        matching(r"[\x20-\x7e]{1,500}", "give a specification that agents/infra/failpoints.py can parse."),
    ),
}


def read(environ: Mapping[str, str]) -> Environment:
    """The environment with typed values. An empty variable counts as unset."""
    values = {
        key: reader(name, environ[name]) for key, (name, reader) in READERS.items() if environ.get(name)
    }
    return Environment(**values)  # type: ignore[arg-type]


def misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each TRAINYARD_ variable that is not a setting but whose name is similar to one."""
    known = [name for name, _ in READERS.values()]
    unknown = [name for name in sorted(environ) if name.startswith("TRAINYARD_") and name not in known]
    guesses = ((name, difflib.get_close_matches(name, known, n=1, cutoff=0.85)) for name in unknown)
    return [f"{name} is not a setting. Did you mean {guess[0]}?" for name, guess in guesses if guess]


def allowed_hosts(environment: Environment) -> list[str]:
    """The Host headers that are accepted: this machine's own names and addresses, and those that the operator set.

    Literal addresses are safe to accept, because a DNS rebinding attack needs a foreign *name*.
    """
    names = {"localhost", "127.0.0.1", "[::1]", environment.bind, *environment.hosts}
    if environment.url:
        names.add(urlsplit(environment.url).hostname or "")
    if environment.bind in ("0.0.0.0", "::"):
        names |= {socket.gethostname(), outward_address()}
    return sorted(names - {"", "0.0.0.0", "::"})


def outward_address() -> str:
    """The address at which other machines most likely reach this one. Connecting a UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def current() -> Environment:
    return read(os.environ)
