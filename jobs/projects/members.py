"""The members of projects and their roles. Each change is audited. The caller has checked the permission."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User

from agents.infra.refusals import Refused
from agents.infra.texts import said
from jobs.models import Membership, Project, Role
from jobs.projects import audit
from jobs.wake import announce

ROLES = tuple(str(role) for role in Role)


def makes_admin(project: Project, user: User, role: str) -> bool:
    """Whether this role would give the person admin rights of the project that they do not have yet."""
    mine = Membership.objects.filter(project=project, user=user, role=Role.ADMIN)
    return role == Role.ADMIN and not mine.exists()


def set_role(project: Project, user: User, role: str, actor: str, now: datetime) -> None:
    """Add a member, or change a member's role. The new permissions hold at once."""
    if role not in ROLES:
        raise Refused("role", said("The role must be one of {roles}.", roles=", ".join(ROLES)))
    before = Membership.objects.filter(project=project, user=user).values_list("role", flat=True).first()
    if before == role:
        return
    Membership.objects.update_or_create(project=project, user=user, defaults={"role": role})
    audit.record(actor, "member.set", "user", user.username, before, role, now, project)
    announce.hint(f"jobs:{project.name}")


def remove(project: Project, user: User, actor: str, now: datetime) -> None:
    """Remove a member. The jobs that the person submitted go on; admins of the project can cancel them."""
    row = Membership.objects.filter(project=project, user=user).first()
    if row is None:
        raise Refused(
            "user", said("{person} is not a member of {project}.", person=user.username, project=project.name)
        )
    row.delete()
    audit.record(actor, "member.remove", "user", user.username, row.role, None, now, project)
    announce.hint(f"jobs:{project.name}")


def person_named(name: str) -> User:
    """The active user with the name that was typed. Raises Refused when there is none."""
    user = User.objects.filter(username=name.strip(), is_active=True).first()
    if user is None:
        raise Refused(
            "user", said("There is nobody named “{name}” here. An admin adds people under Admin.", name=name)
        )
    return user
