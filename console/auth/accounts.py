"""Adds, invites, disables, enables and deletes people, and sets passwords. The browser and the command line call this.

Each change writes an audit row. No function here commits, and the caller has checked the permission. A password is
hashed before the first query: hashing takes long on a busy machine, and no transaction may be idle in that time.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from agents.hosts import host_history
from agents.infra.refusals import Refused
from agents.infra.texts import said, said_of
from console.auth import sessions, tokens
from console.models import Invitation
from jobs.models import Job, Membership, Project, Role
from jobs.models.first_rows import DEFAULT
from jobs.projects import audit
from jobs.rules.lifecycle.states import TERMINAL

INVITED_FOR = timedelta(days=3)


def add(
    username: str, *, admin: bool, actor: str, now: datetime, password: str | None = None, member: bool = True
) -> User:
    """Add a person. Raises ValidationError with messages by field. Without a password the person needs an invitation.

    `member`: the person becomes a member of the default project, which is the usual case.
    """
    user = User(username=username, is_superuser=admin, is_staff=admin)
    user.set_unusable_password()
    user.clean_fields(exclude=["password"])
    if username.lower() == host_history.TRAINYARD:
        raise ValidationError({"username": "Histories name Trainyard itself so. Choose another name."})
    if password is not None:
        validate_password(password, user)
        # Before the first query: hashing a password is slow, and a transaction must not wait for it.
        user.set_password(password)
    user.validate_unique()
    user.save()
    if member:
        role, project = Role.ADMIN if admin else Role.SUBMITTER, default_project(now)
        Membership.objects.create(project=project, user=user, role=role)
        audit.record(actor, "member.set", "user", username, None, str(role), now, project)
    audit.record(actor, "user.add", "user", username, None, "admin" if admin else "user", now)
    return user


def default_project(now: datetime) -> Project:
    defaults = {"title": "Default", "created_at": now}
    return Project.objects.get_or_create(name=DEFAULT, defaults=defaults)[0]


def invite(user: User, actor: str, now: datetime) -> str:
    """Make the token of a one-time link with which the person sets a password. An older link stops working."""
    token = secrets.token_urlsafe(24)
    Invitation.objects.filter(user=user).delete()
    Invitation.objects.create(user=user, digest=tokens.digest(token), created_at=now, made_by=actor[:150])
    audit.record(actor, "user.invite", "user", user.username, None, None, now)
    return token


def invited_user(token: str, now: datetime) -> User | None:
    """The person who was invited with this token, if the link still works."""
    good = Invitation.objects.filter(digest=tokens.digest(token), created_at__gt=now - INVITED_FOR)
    row = good.select_related("user").filter(user__is_active=True).first()
    return row.user if row else None


def accept(user: User, token: str, password: str, now: datetime) -> None:
    """Set the password of an invited person, who may have had one before: sessions end and tokens are revoked.

    Raises ValidationError about the password, Refused when the link was used.
    """
    validate_password(password, user)
    user.set_password(password)
    if (
        invited_user(token, now) != user
        or not Invitation.objects.filter(digest=tokens.digest(token)).delete()[0]
    ):
        raise Refused("", said("This link has been used. Ask an admin for another."))
    user.save(update_fields=["password"])
    sessions.end_all(user, now)
    tokens.revoke_all(user, now)
    audit.record(user.username, "user.password", "user", user.username, None, None, now)


def set_password(user: User, password: str, actor: str, now: datetime, session: str | None = None) -> int:
    """Set the password. Tokens are revoked and sessions end, except the one with the key `session`. Returns how many
    tokens were revoked.
    """
    validate_password(password, user)
    user.set_password(password)
    user.save(update_fields=["password"])
    Invitation.objects.filter(user=user).delete()
    sessions.end_all(user, now, but=session)
    revoked = tokens.revoke_all(user, now, actor)
    audit.record(actor, "user.password", "user", user.username, None, None, now)
    return revoked


def disable(user: User, actor: str, now: datetime) -> int:
    """Disable a person. The name stays in every history; pages, sockets and tokens stop working, and do not work again
    when the person is enabled. Returns the number of revoked tokens.
    """
    _keep_an_admin(user, said("{person} is the last admin. Add another first.", person=user.username))
    changed = User.objects.filter(pk=user.pk, is_active=True).update(is_active=False)
    Invitation.objects.filter(user=user).delete()
    sessions.end_all(user, now)
    revoked = tokens.revoke_all(user, now, actor)
    if changed:
        audit.record(actor, "user.disable", "user", user.username, None, None, now)
    return revoked


def enable(user: User, actor: str, now: datetime) -> None:
    """Enable a person again. Ended sessions and revoked tokens stay so."""
    if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        audit.record(actor, "user.enable", "user", user.username, None, None, now)


def delete(user: User, actor: str, now: datetime) -> None:
    """Delete the account of a disabled person, with roles, limits, tokens and notification addresses.

    Jobs, histories and the audit keep the name. The jobs belong to their projects, and have no owner any more.
    Raises Refused.
    """
    locked = User.objects.select_for_update().get(pk=user.pk)
    if locked.is_active:
        raise Refused(
            "user", said("{person} is not disabled. Disable the account first.", person=user.username)
        )
    left = Job.every.filter(owner=locked).exclude(state__in=TERMINAL).count()
    if left:
        why = said_of(
            left,
            "{number} job of {person} is not over. Cancel what should not go on, or wait.",
            "{number} jobs of {person} are not over. Cancel what should not go on, or wait.",
            person=user.username,
        )
        raise Refused("user", why)
    roles = Membership.objects.filter(user=locked).values_list("project__name", "role")
    before = {"admin": locked.is_superuser, "roles": dict(roles)}
    locked.delete()
    audit.record(actor, "user.delete", "user", user.username, before, None, now)


def set_admin(user: User, admin: bool, actor: str, now: datetime) -> None:
    """Make the person an admin of the deployment, or take that away."""
    if user.is_superuser == admin:
        return
    if not admin:
        _keep_an_admin(
            user, said("{person} is the last admin. Make another person one first.", person=user.username)
        )
    User.objects.filter(pk=user.pk).update(is_superuser=admin, is_staff=admin)
    audit.record(actor, "user.admin", "user", user.username, not admin, admin, now)


def _keep_an_admin(user: User, message: str) -> None:
    """Refuse to lose the last admin. Locks the rows of all admins, so that two of them cannot disable each other."""
    admins = list(User.objects.select_for_update().filter(is_superuser=True, is_active=True))
    if user.is_superuser and not [one for one in admins if one.pk != user.pk]:
        raise Refused("user", message)


def error_text(problem: ValidationError) -> str:
    """All messages of the error in one line."""
    return " ".join(problem.messages)
