"""Variables by which the client of an engine would itself do something else. Its container gets them by a file, of
which each line is one variable."""

from __future__ import annotations

import re

# Names that begin like these and are no engine's own (GOOGLE_CREDENTIALS, STORAGE_KEY) are the program's.
_NAMES = re.compile(
    r"PATH|HOME|TMPDIR|USER|LOGNAME|SHELL|LANG|LD_.*|XDG_.*|DBUS_.*|NOTIFY_.*|LISTEN_.*|[a-z]*_proxy|[A-Z]*_PROXY"
    # Go, in which the engines are written.
    r"|GO(?:DEBUG|GC|MEMLIMIT|MAXPROCS|TRACEBACK|COVERDIR|RACE|FIPS.*|ROOT|EXPERIMENT)"
    # Podman, its storage, its network and its registries; Docker.
    r"|CONTAINER_(?:HOST|CONNECTION|SSHKEY|PASSPHRASE|PROXY|TLS_.*)|CONTAINERS_.*|_CONTAINERS_.*|PODMAN_.*|BUILDAH_.*"
    r"|STORAGE_(?:DRIVER|OPTS)|REGISTR(?:Y|IES)_(?:AUTH_FILE|CONFIG_PATH)|NETAVARK_.*|DOCKER_.*",
    re.ASCII | re.DOTALL,
)


def is_of_client(name: str) -> bool:
    return bool(_NAMES.fullmatch(name))


def fits_client(name: str, value: str) -> bool:
    """Whether a container of podman or Docker can get this variable."""
    return not is_of_client(name) or not ("\n" in value or "\r" in value)
