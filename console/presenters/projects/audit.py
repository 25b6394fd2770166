"""The audit: filtered, paged, and worded for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from console.auth import access
from console.auth.login import login_audit
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.newest_first import Cut, cut
from jobs.models import AuditEntry

SIZE = 100
FORMS = {"csv": "CSV", "jsonl": "JSON Lines"}
LOGINS = (login_audit.LOGIN, login_audit.FAILED, login_audit.WRONG_CODE)
# The value of the filter `what` that shows logins beside the changes.
ANYTHING = "any"
FILTERS = {
    "project": "project__name",
    "actor": "actor",
    "subject": "subject__icontains",
    "kind": "subject_kind",
    "what": "what",
}
# Days by UTC, the last one included.
DAYS = {"since": ("at__gte", timedelta()), "until": ("at__lt", timedelta(days=1))}
WORDS = {
    "project.create": gettext_noop("Project created"),
    "project.change": gettext_noop("Project changed"),
    "project.archive": gettext_noop("Project archived"),
    "project.restore": gettext_noop("Project restored"),
    "member.set": gettext_noop("Role given"),
    "member.remove": gettext_noop("Member removed"),
    "quota.set": gettext_noop("Quota"),
    "queue.reorder": gettext_noop("Jobs moved in the queue"),
    "study.extend": gettext_noop("Study extended"),
    "user.add": gettext_noop("Person added"),
    "user.invite": gettext_noop("Login link created"),
    "user.password": gettext_noop("Password changed"),
    "user.disable": gettext_noop("Person disabled"),
    "user.enable": gettext_noop("Person enabled"),
    "user.delete": gettext_noop("Person deleted"),
    "user.admin": gettext_noop("Admin rights"),
    "login": gettext_noop("Logged in"),
    "login.failed": gettext_noop("Login failed"),
    "session.end": gettext_noop("Session ended"),
    "session.end_all": gettext_noop("Logged out everywhere"),
    "login.wrong_code": gettext_noop("Wrong code of a second factor"),
    "oidc.connect": gettext_noop("Connected with the login server"),
    "oidc.disconnect": gettext_noop("Disconnected from the login server"),
    "passkey.add": gettext_noop("Passkey added"),
    "passkey.remove": gettext_noop("Passkey removed"),
    "second_factor.set": gettext_noop("Second factor set up"),
    "second_factor.remove": gettext_noop("Second factor removed"),
    "second_factor.codes": gettext_noop("New recovery codes"),
    "second_factor.recovery": gettext_noop("Recovery code used"),
    "token.make": gettext_noop("Token made"),
    "token.revoke": gettext_noop("Token revoked"),
    "artifact.add": gettext_noop("File for jobs stored"),
    "artifact.delete": gettext_noop("File for jobs deleted"),
    "bucket.create": gettext_noop("Bucket made"),
    "bucket.delete": gettext_noop("Bucket deleted"),
    "bucket.keep": gettext_noop("Age of objects in a bucket limited"),
    "bucket.expire": gettext_noop("Old objects of a bucket deleted"),
    "object.delete": gettext_noop("Object deleted"),
    "outputs.delete": gettext_noop("Outputs of a job deleted"),
    "model.delete": gettext_noop("Model deleted"),
    "model_version.delete": gettext_noop("Version of a model deleted"),
    "secret.set": gettext_noop("Secret set"),
    "registry.set": gettext_noop("Credential of a registry set"),
    "registry.change": gettext_noop("Credential of a registry changed"),
    "registry.remove": gettext_noop("Credential of a registry deleted"),
    "secret.change": gettext_noop("Secret changed"),
    "secret.remove": gettext_noop("Secret deleted"),
    "template.make": gettext_noop("Template of jobs kept"),
    "template.change": gettext_noop("Template of jobs changed"),
    "template.remove": gettext_noop("Template of jobs deleted"),
    "host.add": gettext_noop("Host added"),
    "host.accept_key": gettext_noop("Host key accepted"),
    "host.edit": gettext_noop("Host changed"),
    "host.network": gettext_noop("Address for data of a host"),
    "host.check": gettext_noop("Host checked again"),
    "host.remove": gettext_noop("Host removed"),
    "host.cordon": gettext_noop("Host closed to new jobs"),
    "host.uncordon": gettext_noop("Host opened to jobs"),
    "host.drain": gettext_noop("Host drained"),
    "host.contain": gettext_noop("Containment of a host"),
    "host.logins": gettext_noop("Logins of projects on a host"),
    "host.discard": gettext_noop("Something removed from a host"),
    "host.declare_gone": gettext_noop("Host declared gone"),
    "gpu.recheck": gettext_noop("GPU checked again"),
    "gpu.evict": gettext_noop("Other processes on a GPU killed"),
    "gpu.use": gettext_noop("Quarantine of a GPU lifted"),
    "clock.set": gettext_noop("Trainyard's time set right"),
    "recovery.begin": gettext_noop("Recovery mode started by hand"),
    "recovery.confirm": gettext_noop("Recovery confirmed"),
    "stray.stop": gettext_noop("Unknown run stopped"),
    "stray.dismiss": gettext_noop("Unknown run dismissed"),
    "location.bind": gettext_noop("Projects of a location"),
    "location.images": gettext_noop("Images of a location"),
    "location.storage": gettext_noop("Shared directories of a location"),
    "machine_type.define": gettext_noop("Machine type created"),
    "machine_type.change": gettext_noop("Machine type changed"),
    "machine_type.remove": gettext_noop("Machine type removed"),
    "notice.vouch": gettext_noop("Address vouched for"),
    "notice.add": gettext_noop("Notification added"),
    "notice.set": gettext_noop("Notification changed"),
    "notice.remove": gettext_noop("Notification removed"),
    "shell.open": gettext_noop("Shell opened"),
    "shell.share": gettext_noop("Shell shared with colleagues"),
    "shell.close": gettext_noop("Shell closed"),
    "shell.recording": gettext_noop("Recording of a shell complete"),
    "stacks.take": gettext_noop("Stacks of a job taken"),
    "shell.replay": gettext_noop("Recording of a shell replayed"),
    "project.idle_rule": gettext_noop("Idle rule"),
}

# Fields of changed objects, as their forms call them.
FIELDS = {
    "name": gettext_noop("Name"),
    "title": gettext_noop("Title"),
    "weight": gettext_noop("Weight"),
    "highest_priority": gettext_noop("Highest priority of its jobs"),
    "record_shells": gettext_noop("Recordings of shells"),
    "login": gettext_noop("Login"),
    "location": gettext_noop("Location"),
    "jump": gettext_noop("Jump host"),
    "data_address": gettext_noop("Address for data"),
    "cpus": gettext_noop("CPUs"),
    "memory_mb": gettext_noop("Memory in MiB"),
    "accelerator_type": gettext_noop("Accelerator type"),
    "note": gettext_noop("Note"),
}
# The values of `record_shells`.
RECORDED = {
    None: gettext_noop("as the deployment says"),
    True: gettext_noop("recorded"),
    False: gettext_noop("not recorded"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    actor: str
    what: str
    slug: str
    subject: str
    project: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    entries: tuple[Entry, ...]
    filters: Mapping[str, str]
    previous: str
    next: str
    slugs: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...]
    projects: tuple[str, ...]
    exports: tuple[tuple[str, str], ...]


def found(user: access.AnyUser, query: Mapping[str, str], logins: bool = False) -> QuerySet[AuditEntry]:
    """Return the matching entries, newest first. A value that makes no sense counts as no filter.

    `logins`: they are among the entries. A page shows them only where they are asked for: a stranger who fails to log
    in must not fill it.
    """
    rows = access.visible(user, AuditEntry.objects.select_related("project").order_by("-id"))
    for name, path in FILTERS.items():
        text = query.get(name, "").strip().replace("\0", "")[:200]
        if name == "what" and text == ANYTHING:
            continue
        if name == "what" and not text and not logins:
            rows = rows.exclude(what__in=LOGINS)
        elif text:
            rows = rows.filter(**{path: text})
    for name, (path, more) in DAYS.items():
        moment = day(query.get(name, ""), more)
        if moment is not None:
            rows = rows.filter(**{path: moment})
    before = cursor_number(query.get("before", ""))
    return rows.filter(pk__lt=before) if before is not None else rows


def page(user: User, query: Mapping[str, str]) -> AuditPage:
    shown = _cut(user, query)
    kept = {name: query[name] for name in (*FILTERS, *DAYS) if query.get(name)}
    here = reverse("audit")
    previous, following = (
        f"{here}?{urlencode({**kept, **edge})}" if edge else "" for edge in (shown.previous, shown.next)
    )
    seen = access.visible(user, AuditEntry.objects.order_by())
    slugs = sorted(seen.values_list("what", flat=True).distinct())
    kinds = sorted(seen.values_list("subject_kind", flat=True).distinct())
    projects = seen.exclude(project=None).values_list("project__name", flat=True).distinct()
    return AuditPage(
        entries=tuple(_entry(row) for row in shown.rows),
        filters=kept,
        previous=previous,
        next=following,
        slugs=tuple((slug, gettext(WORDS.get(slug, slug))) for slug in slugs),
        kinds=tuple(kinds),
        projects=tuple(sorted(projects)),
        exports=tuple(
            (words, f"{reverse('audit-export')}?{urlencode({**kept, 'format': form})}")
            for form, words in FORMS.items()
        ),
    )


def _cut(user: User, query: Mapping[str, str]) -> Cut[AuditEntry]:
    filters = {name: text for name, text in query.items() if name not in ("before", "ahead")}
    return cut(found(user, filters), query, SIZE)


def stamp(user: User, query: Mapping[str, str]) -> list[object]:
    """What changes whenever this page of the audit changes: entries are only added."""
    shown = _cut(user, query)
    return [[row.pk for row in shown.rows], shown.previous, shown.next]


def day(text: str, more: timedelta = timedelta()) -> datetime | None:
    """The start of the day, and so much more. None where there is no such time: after the last day comes none."""
    try:
        return datetime.combine(date.fromisoformat(text.strip()), time.min, UTC) + more
    except (ValueError, OverflowError):
        return None


def _entry(row: AuditEntry) -> Entry:
    before, after = _changed(row.before, row.after)
    return Entry(
        at=row.at,
        actor=row.actor,
        what=gettext(WORDS.get(row.what, row.what)),
        slug=row.what,
        subject=row.subject,
        project=row.project.name if row.project else "",
        before=before,
        after=after,
    )


def _changed(before: object, after: object) -> tuple[str, str]:
    """Return two values as texts. Of two objects only the differing fields are shown."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        before = {name: before.get(name) for name in names}
        after = {name: after.get(name) for name in names}
    return _text(before), _text(after)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(_field(name, each) for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _field(name: str, value: object) -> str:
    label = gettext(FIELDS[name]) if name in FIELDS else name.replace("_", " ")
    if name == "record_shells" and isinstance(value, bool | None):
        return f"{label}: {gettext(RECORDED[value])}"
    return f"{label}: {_text(value) or '–'}"
