"""The members of projects and their roles. Each change is audited. The caller has checked the permission."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import User

from agents.infra.refusals import Refused
from agents.infra.sql import Parameter, SelectStatement
from agents.infra.texts import said
from jobs.models import Membership, Project, Role
from jobs.projects import audit
from jobs.wake import announce

ROLES = tuple(str(role) for role in Role)

_role = SelectStatement(
    lambda: (
        Membership.objects.filter(project=Parameter("project"), user=Parameter("user"))
        .order_by()
        .values_list("role")
    )
)


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
    """Remove a member. The jobs that the person submitted go on; admins of the project can cancel them. Their studies
    get no more trials (jobs/tuning/trials.py)."""
    row = Membership.objects.filter(project=project, user=user).first()
    if row is None:
        raise Refused(
            "user", said("{person} is not a member of {project}.", person=user.username, project=project.name)
        )
    row.delete()
    audit.record(actor, "member.remove", "user", user.username, row.role, None, now, project)
    announce.hint(f"jobs:{project.name}")


def may_submit(project: Project, user: User) -> bool:
    """Whether this person may still submit here: asked again before Trainyard submits something in their name. What
    people ask for themselves is decided by console/auth/access.py, and a test compares the two."""
    return _has_role(project, user, Role.SUBMITTER, Role.ADMIN)


def may_prioritize(project: Project, user: User) -> bool:
    """The same for jobs of high priority."""
    return _has_role(project, user, Role.ADMIN)


def _has_role(project: Project, user: User, *roles: Role) -> bool:
    if not user.is_active or user.is_superuser:
        return user.is_active
    return not set(roles).isdisjoint(_role.column(project=project.pk, user=user.pk))


def person_named(name: str) -> User:
    """The active user with the name that was typed. Raises Refused when there is none."""
    user = User.objects.filter(username=name.strip(), is_active=True).first()
    if user is None:
        raise Refused(
            "user", said("There is nobody named “{name}” here. An admin adds people under Admin.", name=name)
        )
    return user
