"""The page of one host, as frozen values, with a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext as _

from agents.hosts import checklist, data_address, host_history
from agents.infra.sentences import shown
from agents.models import Host, HostEvent, HostStatus
from agents.ssh import keys
from agents.ssh.host_keys import fingerprint
from console.auth import access
from console.presenters import badges, sizes
from console.presenters.badges import Badge
from console.presenters.hosts import host_gpus, host_logins
from console.presenters.hosts.host_list import closed_text
from console.presenters.hosts.host_logins import LoginLine
from console.presenters.hosts.job_ids import JobIdFilter
from console.presenters.notes import replaced_key
from console.presenters.words import word
from jobs.host_sync import strays
from jobs.lifecycle.host_maintenance import maintenance_of
from jobs.maintenance.logins import template_of
from jobs.models import Proof, Run
from jobs.rules.lifecycle.states import RunPhase

SHOWN_EVENTS, SHOWN_ACTS = 30, 10
SSH_ERROR = gettext_noop("The last SSH error, word for word")
ERROR_TITLES = {
    HostStatus.UNUSABLE: gettext_noop("Why no job is placed on it"),
    HostStatus.MISBEHAVING: gettext_noop("Why it was disconnected"),
}
LOCKED_OUT = frozenset({HostStatus.NEW, HostStatus.AUTH_FAILED})
# One line for people who are logged in on the host. It is safe to run twice.
APPEND = (
    "mkdir -p -m 700 ~/.ssh && echo '{key}' >> ~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys"
)


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One line of the checklist. `tone` and `icon` are those of a badge; `word` says the same in text."""

    name: str
    word: str
    tone: str
    icon: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class RunLine:
    id: str
    replica: str
    job_name: str
    job_url: str
    phase: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class DoubtedLine:
    """A run that the host reports and that the database does not know."""

    id: int
    run: str
    ours: bool
    why: str
    phase: str
    open: bool
    stopped_by: str
    found_at: datetime


@dataclass(frozen=True, slots=True)
class EventLine:
    at: datetime
    kind: str
    text: str
    actor: str


@dataclass(frozen=True, slots=True)
class HostLive:
    """The live part of a host's page."""

    id: int
    name: str
    badge: Badge
    since: datetime
    retired: bool
    cordoned: bool
    pid_namespaces: bool
    closed_title: str
    cordon_message: str
    cordoned_by: str
    cordoned_at: datetime | None
    progress: str
    gone_by: str
    gone_at: datetime | None
    draining: bool
    running: int
    location: str
    login: str
    data_address: str
    jump: str
    offered: str
    offered_at: str
    pinned: str
    accepted_by: str
    accepted_at: datetime | None
    changed: bool
    error: str
    error_title: str
    command: str
    checks: tuple[CheckLine, ...]
    checking: bool
    gpus: tuple[host_gpus.GpuLine, ...]
    runs: tuple[RunLine, ...]
    doubted: tuple[DoubtedLine, ...]
    events: tuple[EventLine, ...]
    seen_at: datetime | None
    cpus: int
    memory_mb: int
    free_disk_mb: int | None
    may_manage: bool
    machine_url: str
    project: str
    logins: tuple[LoginLine, ...]
    login_template: str
    make_logins: str


def live(host: Host, user: User) -> HostLive:
    allowed = access.verbs(user, host)
    events = _events(host)
    ids = JobIdFilter(user, [host.last_error, *(event.text for event in events)])
    known = {str(row["name"]): row for row in host.checklist}
    # A key that would replace an accepted key is never shown as a first key, whatever else happened to the host.
    changed = bool(host.offered_key and replaced_key(host))
    runs = tuple(_runs(host, user))
    running = Run.objects.filter(host_gpus.on_machine(host), released_at=None, held=False).count()
    maintenance = maintenance_of(host)
    logins = host_logins.lines(host, user)
    return HostLive(
        id=host.pk,
        name=host.name,
        badge=badges.RETIRED if host.retired_at else badges.HOST[host.status],
        since=host.retired_at or host.status_since,
        retired=host.retired_at is not None,
        cordoned=maintenance.cordoned,
        pid_namespaces=host.pid_namespaces,
        closed_title=closed_text(host, running).capitalize(),
        cordon_message=maintenance.cordon_message,
        cordoned_by=maintenance.cordoned_by,
        cordoned_at=maintenance.cordoned_at,
        progress=_progress(host, running, user),
        gone_by=maintenance.gone_by if maintenance.gone_at else "",
        gone_at=maintenance.gone_at,
        draining=maintenance.drain_at is not None,
        running=running,
        location=host.location.name,
        login=f"{host.user}@{host.address}" + (f":{host.port}" if host.port != 22 else ""),
        data_address=data_address.address_for_data(host),
        jump=host.jump,
        offered=_fingerprint(host.offered_key),
        offered_at=host.offered_at,
        pinned=_fingerprint(replaced_key(host)),
        accepted_by=host.key_accepted_by,
        accepted_at=host.key_accepted_at,
        changed=changed,
        error=ids.clean(shown(host.last_error)),
        error_title=gettext(ERROR_TITLES.get(HostStatus(host.status), SSH_ERROR)),
        command=append_command() if host.status in LOCKED_OUT else "",
        checks=tuple(_checks(host, known)),
        checking=host.status == HostStatus.CHECKING,
        gpus=tuple(host_gpus.gpus(host, user)),
        runs=runs,
        doubted=tuple(_doubted(host)) if "manage" in allowed else (),
        events=tuple(EventLine(e.at, word(e.kind), ids.clean(shown(e.text)), e.actor) for e in events),
        seen_at=host.seen_at,
        cpus=host.cpus,
        memory_mb=host.memory_mb,
        free_disk_mb=host.free_disk_mb,
        may_manage="manage" in allowed and host.retired_at is None,
        machine_url=reverse("host", args=[host.machine_id]) if host.machine_id else "",
        project=host_logins.project_of(host),
        logins=logins,
        login_template=template_of(host),
        make_logins=host_logins.make_command(host, logins) if "manage" in allowed else "",
    )


def _events(host: Host) -> list[HostEvent]:
    """Return the newest lines of the history, and the newest of what people did, which a host's chatter cannot hide."""
    acts = host.events.exclude(actor=host_history.TRAINYARD)[:SHOWN_ACTS]
    lines = {event.pk: event for event in (*host.events.all()[:SHOWN_EVENTS], *acts)}
    return sorted(lines.values(), key=lambda event: (event.at, event.pk), reverse=True)


def _progress(host: Host, running: int, user: User) -> str:
    """Say how far the host is drained, and which jobs it waits for."""
    maintenance = maintenance_of(host)
    if maintenance.drain_at is None:
        return ""
    all_of = max(maintenance.drain_runs, running)
    words = (
        _("{left} of {all} replicas have left.").format(left=all_of - running, all=all_of) + " "
        if all_of
        else ""
    )
    late = maintenance.drain_until is not None and maintenance.drain_until <= timezone.now()
    if not running or maintenance.drain_until is None:
        return words
    until = f"{maintenance.drain_until:%Y-%m-%d %H:%M:%S %Z}"
    if not late:
        after = (
            _("Until {time}, then the remaining jobs go back to the queue.")
            if maintenance.drain_force
            else _("Until {time}.")
        )
        return words + after.format(time=until)
    return words + _("Overdue since {time}: waits for {jobs}.").format(time=until, jobs=_left(host, user))


def _left(host: Host, user: User) -> str:
    """Name the jobs that are still on the host. Jobs that the person may not see are only counted."""
    here = Run.objects.filter(host_gpus.on_machine(host), released_at=None, held=False).order_by()
    seen = set(access.visible(user, here).values_list("job", flat=True))
    others = here.exclude(job__in=seen).values("job").distinct().count()
    told = [_("job {ids}").format(ids=", ".join(str(pk) for pk in sorted(seen)[:8]))] if seen else []
    if others and seen:
        told.append(
            ngettext("{number} job of other projects", "{number} jobs of other projects", others).format(
                number=others
            )
        )
    elif others:
        told.append(
            ngettext(
                "{number} job of a project that is not yours",
                "{number} jobs of a project that is not yours",
                others,
            ).format(number=others)
        )
    return _(" and ").join(told)


def append_command() -> str:
    return APPEND.format(key=keys.public_line().strip())


def _fingerprint(line: str) -> str:
    return fingerprint(line) if line else ""


def _checks(host: Host, known: Mapping[str, Mapping[str, Any]]) -> Iterable[CheckLine]:
    """Yield every line of the checklist, also the lines that the check has not reached yet."""
    going = host.status == HostStatus.CHECKING
    free = "" if host.free_disk_mb is None else sizes.mebibytes(host.free_disk_mb)
    for name in checklist.ORDER if host.machine_id is None else checklist.ORDER_OF_LOGIN:
        row = known.get(name)
        if row is None:
            word, icon = (_("being checked"), "ring") if going else (_("not known yet"), "dash")
            yield CheckLine(name, word, "wait", icon, "", "")
            continue
        tone, word, icon = {
            True: ("good", _("fine"), "tick"),
            False: ("bad", _("not right"), "cross"),
        }.get(
            row["ok"],
            ("warn", _("worth knowing"), "note") if row["fix"] else ("still", _("for information"), "note"),
        )
        text = shown(checklist.text_now(row, free)).replace(checklist.FREE_DISK, free)
        yield CheckLine(name, word, tone, icon, text, shown(row["fix"]))


def _runs(host: Host, user: User) -> Iterable[RunLine]:
    held = host_gpus.held_runs(host, user).select_related("job", "replica")
    for run in held.only("id", "phase", "started_at", "replica__name", "job__display_name"):
        url = reverse("job", args=[run.job_id])
        yield RunLine(run.pk, run.replica.name, run.job.display_name, url, word(run.phase), run.started_at)


def _doubted(host: Host) -> Iterable[DoubtedLine]:
    for row in strays.shown(host):
        why, closed = shown(strays.WHY[Proof(row.proof)]), row.phase == RunPhase.CLOSED
        ours = row.proof == Proof.SEALED
        yield DoubtedLine(row.pk, row.run, ours, why, word(row.phase), not closed, row.stop_by, row.found_at)
