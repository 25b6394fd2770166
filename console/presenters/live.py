"""The fragments that sockets send, and their stamps. A stamp changes whenever its fragment would change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from django.contrib.auth.models import User
from django.db.models import Max
from django.template.loader import render_to_string
from django.utils import timezone

from agents.models import Gpu, GpuState, Host, HostEvent
from console.auth import access
from console.presenters import notes
from console.presenters.hosts import gpu_map, host_gpus, host_list, host_load, host_page, offered_keys
from console.presenters.jobs import job_list
from console.presenters.people import sessions, tokens
from console.presenters.projects import audit, notifications, people, projects, usage
from console.presenters.queue import queue_page
from console.presenters.stamps import digest
from jobs.models import HostMaintenance, Project, Run, Stray
from jobs.rules.scheduling.usage_months import month_of

USAGE_EVERY_S = 30


class NotForAll(Exception):
    """Raised for a fragment that people with the given rights see differently."""


def list_stamp(user: User, query: Mapping[str, str]) -> str:
    """Return the stamp of one page of the job list: what happens to jobs of other pages does not change it."""
    return digest([*job_list.stamp(user, query), access.jobs_key(user)])


def list_live(user: User, query: Mapping[str, str]) -> str:
    return render_to_string("jobs/_list.html", {"list": job_list.job_list(user, query)})


def queue_stamp(user: User, query: Mapping[str, str]) -> str:
    return digest([queue_page.queue(user, query), access.rights_key(user)])


def queue_live(user: User, query: Mapping[str, str]) -> str:
    return render_to_string("jobs/_queue.html", {"queue": queue_page.queue(user, query)})


def hosts_stamp(user: User, query: Mapping[str, str]) -> str:
    """Return the stamp of one page of the host list, without `seen_at` and what else changes at every contact.

    The person's rights are in it: with other rights, the page that this person sees is not that of the others.
    """
    return digest([*host_list.stamp(user, query), host_list.rights(user)])


def hosts_live(user: User, query: Mapping[str, str], rights: Hashable = None) -> str:
    """Render a page of the host list for all people with these rights. Raises NotForAll if theirs differ."""
    shown = host_list.host_list(user, query)
    if rights is not None and not host_list.fits(shown, rights):
        raise NotForAll
    return render_to_string("hosts/_list.html", {"list": shown})


def gpus_stamp(user: User) -> str:
    return digest([gpu_map.stamp(user), access.rights_key(user)])


def gpus_live(user: User, query: Mapping[str, str]) -> str:
    return render_to_string("hosts/_gpu_map.html", {"map": gpu_map.gpu_map(user, query)})


def projects_stamp(user: User) -> str:
    return digest(projects.project_list(user))


def projects_live(user: User) -> str:
    return render_to_string("projects/_list.html", {"projects": projects.project_list(user)})


def project_stamp(user: User, project: Project) -> str:
    """Return the stamp of what a project uses. Hours grow all the time: a tenth of one is a change."""
    page = projects.page(project, user)
    bars = [(bar.label, round(bar.used, 1), bar.limit, bar.change) for bar in (*page.bars, *page.each)]
    return digest([bars, round(page.lately_hours, 1), round(page.part, 3), project.weight])


def project_live(user: User, project: Project) -> str:
    page = projects.page(project, user)
    return render_to_string("projects/_use.html", {"page": page, "project": page.row})


def host_stamp(host_id: int) -> str:
    """Return the stamp of a host's page: its row and its maintenance, without columns that every contact changes."""
    row: Mapping[str, object] = Host.every.filter(pk=host_id).values().first() or {}
    maintenance = HostMaintenance.objects.filter(host=host_id).values().first()
    unseen = ("lease_", "due_", "seen_", "mark")
    shown = {name: value for name, value in row.items() if not name.startswith(unseen)}
    event = HostEvent.objects.filter(host_id=host_id).aggregate(Max("pk"))
    kept_out = list(
        Gpu.objects.filter(host_id=host_id).exclude(state=GpuState.OK).values_list("pk", "holders")
    )
    held = Run.objects.filter(host_gpus.on_machines([host_id]), released_at=None).values_list("pk", "phase")
    logins = list(
        Host.objects.filter(machine=host_id).order_by("pk").values_list("pk", "status", "last_error")
    )
    strays = Stray.objects.filter(host_id=host_id, dismissed_at=None)
    doubted = list(strays.values_list("pk", "phase", "stop_by"))
    return digest([shown, maintenance, event, kept_out, sorted(held), doubted, logins])


def host_live(user: User, host_id: int) -> str:
    host = access.visible(
        user, Host.every.select_related("location", "maintenance").filter(pk=host_id)
    ).first()
    return render_to_string("hosts/_live.html", {"host": host_page.live(host, user)}) if host else ""


def host_load_stamp(host_id: int) -> str:
    return digest(host_load.stamp(host_id, timezone.now()))


def host_load_live(user: User, host_id: int) -> str:
    host = access.visible(user, Host.every.filter(pk=host_id)).first()
    if host is None:
        return ""
    return render_to_string("hosts/_load.html", {"load": host_load.load_now(host, timezone.now())})


def host_keys_stamp(user: User) -> str:
    machines = offered_keys.machines_of(user)
    keys = [(key.row.pk, key.address, key.at, key.fingerprint) for key in offered_keys.waiting(machines)]
    return digest([keys, offered_keys.silent(machines)])


def host_keys_live(user: User) -> str:
    machines = offered_keys.machines_of(user)
    shown = {"keys": offered_keys.waiting(machines), "silent": offered_keys.silent(machines)}
    return render_to_string("hosts/_keys.html", shown)


def audit_stamp(user: User, query: Mapping[str, str]) -> str:
    return digest([audit.stamp(user, query), access.rights_key(user)])


def audit_live(user: User, query: Mapping[str, str]) -> str:
    return render_to_string("admin/_audit_entries.html", {"page": audit.page(user, query)})


def people_stamp(query: Mapping[str, str]) -> str:
    return digest(people.page(query))


def people_live(query: Mapping[str, str]) -> str:
    return render_to_string("admin/_people.html", {"people": people.page(query)})


def usage_stamp(user: User, query: Mapping[str, str]) -> str:
    """Sums of a month grow all the time: they are added up again every USAGE_EVERY_S."""
    month = usage.asked_month(query.get("month", ""), timezone.now())
    turn = int(timezone.now().timestamp() // USAGE_EVERY_S) if month == month_of(timezone.now()) else 0
    return digest([str(month), turn, access.rights_key(user)])


def usage_live(user: User, query: Mapping[str, str], only: Project | None) -> str:
    month = usage.asked_month(query.get("month", ""), timezone.now())
    if month is None:
        return ""
    return render_to_string("usage/_report.html", {"report": usage.report(user, only, month, timezone.now())})


def tokens_stamp(user: User) -> str:
    return digest(tokens.stamp(user, timezone.now()))


def tokens_live(user: User) -> str:
    return render_to_string("people/_tokens.html", tokens.context(user, timezone.now()))


def sessions_stamp(user: User) -> str:
    rows = sessions.rows(user, None, timezone.now())
    seen = [row.seen_at and row.seen_at.replace(second=0, microsecond=0) for row in rows]
    return digest([[replace(row, seen_at=None) for row in rows], seen])


def sessions_live(user: User) -> str:
    """All browsers of a person are shown the same: which one shows it stands outside of the part."""
    rows = sessions.rows(user, None, timezone.now())
    return render_to_string("people/_session_rows.html", {"sessions": rows})


def sent_stamp(owner: User | Project) -> str:
    return digest(notifications.log(owner))


def sent_live(owner: User | Project) -> str:
    context = {"log": notifications.log(owner), "address": notifications.address(owner)}
    return render_to_string("notifications/_log.html", context)


def notes_stamp(user: User) -> str:
    return digest(notes.notes(user))


def notes_live(user: User) -> str:
    return render_to_string("frame/_notes.html", {"notes": notes.notes(user)})
