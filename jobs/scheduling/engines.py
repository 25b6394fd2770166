"""Which hosts can run containers, as their last checks found: a job with an image is placed on these only."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from django.db.models.fields.json import KT

from agents.infra.shared_answers import SharedAnswers
from agents.infra.sql import SelectStatement
from agents.infra.texts import said
from agents.models import Host
from jobs.rules.list_text import list_text
from jobs.rules.scheduling.views import ANYWHERE, HostView
from jobs.rules.spec.runtime_choice import ENGINES

MAX_NAMED = 3

# What is installed on a host changes with its checks, and a check takes longer than this.
RELIED_FOR = timedelta(seconds=3)
# A host that was not checked yet could have anything.
_found = SelectStatement(
    lambda: Host.machines.exclude(facts={}).order_by().values_list("pk", KT("facts__runtimes"))
)
Engines = Mapping[int, frozenset[str]]
_recent: SharedAnswers[str, Engines] = SharedAnswers(RELIED_FOR, 1)


def incomplete() -> Engines:
    """The hosts that lack one of the engines by which this version runs containers, with those that they have. At most
    RELIED_FOR old."""
    return _recent.get("", _read)


def named(runtimes: Iterable[object]) -> frozenset[str]:
    """The names of the engines that a check has found, which stand there with their versions."""
    return frozenset(str(each).partition(" ")[0] for each in runtimes) & frozenset(ENGINES)


def read_named(runtimes: object) -> frozenset[str]:
    """The same of a column of a query."""
    return named(_list(runtimes))


def lacking(views: Iterable[HostView], location: str, needed: Collection[str]) -> list[str]:
    """The hosts of the location that lack one of these engines."""
    return [
        view.name
        for view in views
        if (location in ANYWHERE or view.location == location)
        if needed and view.engines is not None and not view.engines.issuperset(needed)
    ]


def lacking_text(views: Iterable[HostView], location: str, needed: Collection[str]) -> str:
    """The same as a part of the reason why a job waits."""
    hosts = lacking(views, location, needed)
    if not hosts:
        return ""
    engine = list_text(sorted(needed))
    return said(
        "Its image needs {engine}, which is not on {hosts}.", engine=engine, hosts=list_text(hosts, MAX_NAMED)
    )


def _read() -> Engines:
    found = {host: read_named(runtimes) for host, runtimes in _found()}
    return {host: engines for host, engines in found.items() if engines != frozenset(ENGINES)}


def _list(runtimes: object) -> list[object]:
    """A database gives the list, or its text."""
    read = json.loads(runtimes) if isinstance(runtimes, str) else runtimes
    return read if isinstance(read, list) else []
