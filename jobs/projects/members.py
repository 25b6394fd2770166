"""Who is in a project, as what. Each change is an audit row. Whoever calls has asked whether the person may."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User

from agents.infra.refusals import Refused
from jobs.models import Membership, Project, Role
from jobs.projects import audit
from jobs.wake import announce

ROLES = tuple(str(role) for role in Role)


def set_role(project: Project, user: User, role: str, actor: str, now: datetime) -> None:
    """A new member, or another role. What the person may do changes at once."""
    if role not in ROLES:
        raise Refused("role", f"The role must be one of {', '.join(ROLES)}.")
    before = Membership.objects.filter(project=project, user=user).values_list("role", flat=True).first()
    if before == role:
        return
    Membership.objects.update_or_create(project=project, user=user, defaults={"role": role})
    audit.record(actor, "member.set", "user", user.username, before, role, now, project)
    announce.hint(f"jobs:{project.name}")


def remove(project: Project, user: User, actor: str, now: datetime) -> None:
    """The jobs that the person has started go on; admins of the project can cancel them."""
    row = Membership.objects.filter(project=project, user=user).first()
    if row is None:
        raise Refused("user", f"{user.username} is not a member of {project.name}.")
    row.delete()
    audit.record(actor, "member.remove", "user", user.username, row.role, None, now, project)
    announce.hint(f"jobs:{project.name}")


def person_named(name: str) -> User:
    """Somebody who may log in, by the name that was typed."""
    user = User.objects.filter(username=name.strip(), is_active=True).first()
    if user is None:
        raise Refused("user", f"There is nobody named “{name}” here. An admin adds people under Admin.")
    return user
