"""Which console a command speaks with, for which project: options, then variables, then what `login` has kept."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import NOT_UNDERSTOOD, ClientError

FILE = "client.json"
NO_CONSOLE = ClientError(
    "You are not logged in to a console.",
    "Run: trainyard login https://ADDRESS (or set TRAINYARD_CONSOLE and TRAINYARD_TOKEN)",
)


@dataclass
class Console:
    """A console that somebody has logged in to. `name`: how the person calls it; empty for one that is not kept."""

    url: str
    name: str = ""
    project: str = ""
    ca_file: str = ""
    # Whether its token is in the keyring of the system; else it is in a file.
    keyring: bool = False


@dataclass
class Configuration:
    """What is kept below `directory()`, without tokens."""

    current: str = ""
    consoles: dict[str, Console] = field(default_factory=dict)

    def chosen(self, wanted: str) -> Console:
        """The console with this name or address; without one, the variable's, or the one of the last login."""
        wanted = wanted or os.environ.get("TRAINYARD_CONSOLE", "") or self.current
        if not wanted:
            raise NO_CONSOLE
        if wanted in self.consoles:
            return self.consoles[wanted]
        if "://" not in wanted:
            known = ", ".join(self.consoles) or "none"
            raise ClientError(
                f"There is no console {wanted!r}. Known are: {known}.",
                "Run: trainyard login ADDRESS",
                NOT_UNDERSTOOD,
            )
        url = address(wanted)
        return next((kept for kept in self.consoles.values() if kept.url == url), Console(url))


def address(text: str) -> str:
    """The address of a console, as the client keeps it: scheme, host, port, and the path below which it is."""
    if "://" not in text:
        text = f"https://{text}"
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ClientError(
            f"{text!r} is no address of a console.",
            "Give one such as https://trainyard.example.org",
            NOT_UNDERSTOOD,
        )
    if parts.username is not None:
        raise ClientError(
            "An address must not have a name or password in it.", "Use --token.", NOT_UNDERSTOOD
        )
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def directory() -> Path:
    """Where the client keeps its files."""
    named = os.environ.get("TRAINYARD_CONFIG", "")
    if named:
        return Path(named)
    if os.name == "nt":
        return Path(os.environ.get("APPDATA", "") or Path.home()) / "trainyard"
    return Path(os.environ.get("XDG_CONFIG_HOME", "") or Path.home() / ".config") / "trainyard"


def load() -> Configuration:
    kept = read_json(FILE)
    consoles = {}
    for name, row in kept.get("consoles", {}).items():
        consoles[name] = Console(
            url=str(row.get("url", "")),
            name=name,
            project=str(row.get("project", "")),
            ca_file=str(row.get("caFile", "")),
            keyring=bool(row.get("keyring")),
        )
    return Configuration(str(kept.get("current", "")), consoles)


def save(configuration: Configuration) -> None:
    rows = {
        one.name: {"url": one.url, "project": one.project, "caFile": one.ca_file, "keyring": one.keyring}
        for one in configuration.consoles.values()
    }
    write_json(FILE, {"current": configuration.current, "consoles": rows})


def read_json(name: str) -> dict[str, Any]:
    """A file of the client. Empty if there is none."""
    path = directory() / name
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise ClientError(
            f"{path} cannot be read: {problem}", "Mend it, or delete it and log in again."
        ) from None
    return found if isinstance(found, dict) else {}


def write_json(name: str, document: dict[str, Any]) -> None:
    """Replace a file of the client at once. Only its owner may read it."""
    folder = directory()
    made: str | None = None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        os.replace(made, folder / name)
    except OSError as problem:
        if made is not None:
            with suppress(OSError):
                os.unlink(made)
        raise ClientError(
            f"{folder / name} cannot be written: {problem.strerror}",
            "Set TRAINYARD_CONFIG to a folder of yours.",
        ) from None
