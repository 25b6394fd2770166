"""The logins of a machine on which each project has its own, and the command that makes them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.urls import reverse

from agents.infra.sentences import shown
from agents.models import Host, HostStatus
from agents.ssh import keys
from console.auth import access
from console.presenters import badges
from console.presenters.badges import Badge
from jobs.models import ProjectLogin

# For root on the machine. It is safe to run twice. The password "*" fits no password and, unlike none at all, does not
# lock the login where sshd runs without PAM. The names come from a template that was checked (USER of
# agents/ssh/targets.py), so no shell takes them for anything else.
MAKE = (
    'for u in {users}; do id "$u" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --password "*" "$u"; '
    'h=$(getent passwd "$u" | cut -d: -f6); chmod 700 "$h"; '
    'install -d -m 700 -o "$u" -g "$(id -gn "$u")" "$h/.ssh"; f="$h/.ssh/authorized_keys"; touch "$f"; '
    "grep -qxF '{key}' \"$f\" || echo '{key}' >> \"$f\"; "
    'chmod 600 "$f"; chown "$u:$(id -gn "$u")" "$f"; done'
)


@dataclass(frozen=True, slots=True)
class LoginLine:
    """The login of one project on a machine."""

    id: int
    url: str
    project: str
    user: str
    badge: Badge
    status: str
    error: str


def lines(machine: Host, user: User) -> tuple[LoginLine, ...]:
    """Return the logins of the machine that the person may see."""
    if machine.machine_id is not None:
        return ()
    rows = access.visible(user, Host.objects.filter(machine=machine))
    rows = rows.select_related("project_login__project").order_by("project_login__project__name")
    return tuple(
        LoginLine(
            id=row.pk,
            url=reverse("host", args=[row.pk]),
            project=row.project_login.project.name,
            user=row.user,
            badge=badges.HOST[row.status],
            status=row.status,
            error=shown(row.last_error),
        )
        for row in rows
    )


def project_of(host: Host) -> str:
    """Return the project that this login serves; empty for a machine."""
    if host.machine_id is None:
        return ""
    row = ProjectLogin.objects.select_related("project").filter(host=host).first()
    return row.project.name if row else ""


def make_command(machine: Host, logins: Sequence[LoginLine]) -> str:
    """Return the command that makes the logins which do not work yet; empty if all do."""
    users = [line.user for line in logins if line.status != HostStatus.UP]
    return MAKE.format(users=" ".join(users), key=keys.public_line().strip()) if users else ""
