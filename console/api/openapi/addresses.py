"""The addresses of our own API as OpenAPI writes them, from the patterns by which they are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from console.api.description import Acts, Call

ROOT = "/api/v1/"
METHODS = ("get", "post", "put", "patch", "delete")
_START, _END = re.compile(r"^\^?/\*"), re.compile(r"/?\??\$$")
_GROUP = re.compile(r"\(\?P<(\w+)>([^()]*)\)")
_WORDS = re.compile(r"\w+(?:\|\w+)+")
# What the parts of addresses mean.
TEXTS = {
    "bucket": "The name of a bucket.",
    "host": "The name of a host, or its id.",
    "job_id": "The id of a job.",
    "tuning_id": "The id of a study.",
    "key": "Of a shell, or of a limit: an accelerator type, `running`, `queued`, `gpuHours`, `logGb`, `storageGb`.",
    "location": "The name of a location.",
    "name": "The name of what is meant.",
    "project": "The name of a project, or its number.",
    "registry": "The name of an image registry, with its port where it has one.",
    "replica": "The name of a replica, such as `workerpool0-0`.",
    "session": "The id of a session.",
    "sha256": "The SHA-256 of the bytes, as 64 hexadecimal digits.",
    "target": "The id of a notification target.",
    "token": "The id of a token.",
    "user": "The name of a person.",
    "uuid": "The UUID of a GPU.",
    "kind": "Of what a host keeps: `blobs`, `trees`, `environments`, `images`, `podman`, `docker`.",
    "digest": "The SHA-256 that names it.",
    "view_id": "The id of a saved view.",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One call. `path`: with names in braces. `parameters`: what each of them looks like, as a regular expression."""

    path: str
    method: str
    callback: Any
    parameters: dict[str, str]
    act: str

    @property
    def call(self) -> Call | None:
        """None where the method of the view is not described."""
        acts: Acts | None = getattr(getattr(self.callback.cls, self.method), "described", None)
        return acts.calls.get(self.act) if acts else None


def endpoints(patterns: Any) -> Iterator[Endpoint]:
    """The calls of our own API. An address that names an act is a call for each act."""
    for pattern in patterns:
        path = "/" + _END.sub("", _START.sub("", str(pattern.pattern)))
        if not path.startswith(ROOT):
            continue
        parameters = dict(_GROUP.findall(path))
        path = _GROUP.sub(r"{\1}", path).replace("\\", "")
        for act, spoken, kept in _acts(path, parameters):
            for method in METHODS:
                if hasattr(pattern.callback.cls, method):
                    yield Endpoint(spoken, method, pattern.callback, kept, act)


def _acts(path: str, parameters: dict[str, str]) -> Iterator[tuple[str, str, dict[str, str]]]:
    name = next((name for name, form in parameters.items() if _WORDS.fullmatch(form)), None)
    if name is None:
        yield "", path, parameters
        return
    kept = {other: form for other, form in parameters.items() if other != name}
    for act in parameters[name].split("|"):
        yield act, path.replace(f"{{{name}}}", act), kept
