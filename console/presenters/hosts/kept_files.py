"""What a host keeps for the runs to come, as frozen values for pages and REST, within what the person may see.

Who does not manage the host sees what projects of theirs have brought, and nothing of who else uses it: the digest of a
file, its size and its times would say which model or data another project has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext as _

from agents.hosts import kept
from agents.hosts.kept import Entry
from agents.infra.sentences import shown
from agents.models import Discard, Host, HostKept
from console.auth import access
from jobs.models import Artifact, Project
from jobs.preparations.kept import Name, Use, uses_of

_KINDS = {
    kept.BLOBS: gettext_noop("shipped file"),
    kept.TREES: gettext_noop("code"),
    kept.ENVIRONMENTS: gettext_noop("Python environment"),
    kept.IMAGES: gettext_noop("image of Apptainer"),
    "podman": gettext_noop("image of podman"),
    "docker": gettext_noop("image of Docker"),
}

# The jobs that are named of all that need something.
MOST_JOBS = 8


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One thing. `name`: what a project of the person calls it, else "". `others`: how many projects the person may
    not see, where the person manages the host. `why`: why it cannot be removed now, with the ids of `jobs`.
    `leaving`: an admin has asked the host to remove it."""

    kind: str
    kind_word: str
    key: str
    name: str
    size: int | None
    since: datetime | None
    used: datetime | None
    projects: tuple[str, ...]
    others: int
    why: str
    jobs: tuple[int, ...]
    leaving: bool


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """`left_out`: how many more the host has, which it has not told of. `of_others`: how many more there are that no
    project of the person has brought. `bytes` has these too."""

    at: datetime
    lines: tuple[KeptLine, ...]
    bytes: int
    left_out: int
    of_others: int


def kept_files(host: Host, user: User) -> KeptFiles | None:
    """None if the host has told nothing yet. Makes a constant number of queries."""
    row = HostKept.objects.filter(host=host).first()
    if row is None:
        return None
    entries = kept.entries_of(row)
    uses = uses_of(host, [entry[:2] for entry in entries])
    mine = dict(access.visible(user, Project.objects.all()).values_list("pk", "name"))
    files = {entry.key for entry in entries if entry.kind == kept.BLOBS}
    archives = {use.archive for of_name in uses.values() for use in of_name if use.archive}
    called = _names_of_files(files | archives, mine)
    leaving = set(Discard.objects.filter(host=host).values_list("kind", "key"))
    lines = [_line(entry, uses.get(entry[:2], []), mine, called, leaving) for entry in entries]
    size = sum(line.size or 0 for line in lines)
    if not access.can(user, "manage", host):
        lines = [_as_if_alone(line) for line in lines if line.projects or line.name]
    return KeptFiles(row.at, tuple(lines), size, row.left_out, len(entries) - len(lines))


def _as_if_alone(line: KeptLine) -> KeptLine:
    """As it is where no other project uses the same."""
    if not line.others:
        return line
    why = line.why if line.jobs else ""
    return replace(line, others=0, since=None, used=None, why=why)


def _line(
    entry: Entry, uses: list[Use], mine: Mapping[int, str], called: Mapping[str, str], leaving: set[Name]
) -> KeptLine:
    seen = [use for use in uses if use.project in mine]
    jobs = _jobs_that_need(seen)
    return KeptLine(
        entry.kind,
        gettext(_KINDS[entry.kind]),
        entry.key,
        called.get(entry.key, "") if entry.kind == kept.BLOBS else _name(seen, called),
        entry.size,
        entry.since,
        entry.used,
        tuple(sorted({mine[use.project] for use in seen})),
        len({use.project for use in uses} - mine.keys()),
        _why(entry, uses, jobs),
        jobs,
        entry[:2] in leaving,
    )


def _name(seen: Collection[Use], called: Mapping[str, str]) -> str:
    """The name of the file that a person has given, else what the newest job calls it."""
    if not seen:
        return ""
    newest = max(seen, key=lambda use: use.job)
    return called.get(newest.archive) or shown(newest.title)


def _jobs_that_need(seen: Iterable[Use]) -> tuple[int, ...]:
    return tuple(sorted({use.job for use in seen if use.live})[:MOST_JOBS])


def _why(entry: Entry, uses: Iterable[Use], jobs: Collection[int]) -> str:
    if jobs:
        return _("needed by job {ids}").format(ids=", ".join(map(str, jobs)))
    live = [use for use in uses if use.live]
    if live:
        return ngettext("needed by a job of another project", "needed by jobs of other projects", len(live))
    return _("in use on the host") if entry.in_use else ""


def _names_of_files(digests: Iterable[str], mine: Mapping[int, str]) -> dict[str, str]:
    """By the digests of files, what the newest artifact of a project of the person is called."""
    rows = Artifact.objects.filter(sha256__in=list(digests), project__in=list(mine)).order_by("pk")
    return dict(rows.values_list("sha256", "name"))
