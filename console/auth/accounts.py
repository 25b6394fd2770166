"""People: added, invited, given a password, shut out, let in again. The browser and the command line call this.

Each change is an audit row. Nothing here commits; whoever calls has asked whether the person may. A password is hashed
before the first question to the database: that takes long on a busy machine, and no transaction may idle meanwhile.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from agents.infra.refusals import Refused
from console.auth import tokens
from console.models import Invitation
from jobs.models import Membership, Project, Role
from jobs.models.first_rows import DEFAULT
from jobs.projects import audit

INVITED_FOR = timedelta(days=3)


def add(
    username: str, *, admin: bool, actor: str, now: datetime, password: str | None = None, member: bool = True
) -> User:
    """A person. Raises ValidationError with words by field. Without a password they need an invitation.

    `member`: of the default project, as everybody is who is added without saying more.
    """
    user = User(username=username, is_superuser=admin, is_staff=admin)
    user.set_unusable_password()
    user.clean_fields(exclude=["password"])
    if password is not None:
        validate_password(password, user)
        # Before the database is asked anything: a password is hashed slowly, and a transaction must not wait for that.
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
    """The token of a link with which the person sets a password, once. An older link of theirs stops working."""
    token = secrets.token_urlsafe(24)
    Invitation.objects.filter(user=user).delete()
    Invitation.objects.create(user=user, digest=tokens.digest(token), created_at=now, made_by=actor[:150])
    audit.record(actor, "user.invite", "user", user.username, None, None, now)
    return token


def invited_user(token: str, now: datetime) -> User | None:
    """Whose link this is, if it still works."""
    good = Invitation.objects.filter(digest=tokens.digest(token), created_at__gt=now - INVITED_FOR)
    row = good.select_related("user").filter(user__is_active=True).first()
    return row.user if row else None


def accept(user: User, token: str, password: str, now: datetime) -> None:
    """The person whose link it is. Raises ValidationError about the password, and Refused when the link is over."""
    validate_password(password, user)
    user.set_password(password)
    if (
        invited_user(token, now) != user
        or not Invitation.objects.filter(digest=tokens.digest(token)).delete()[0]
    ):
        raise Refused("", "This link has been used. Ask an admin for another.")
    user.save(update_fields=["password"])
    audit.record(user.username, "user.password", "user", user.username, None, None, now)


def set_password(user: User, password: str, actor: str, now: datetime) -> None:
    """Sessions that were open end, because a session's hash holds the password's."""
    validate_password(password, user)
    user.set_password(password)
    user.save(update_fields=["password"])
    Invitation.objects.filter(user=user).delete()
    audit.record(actor, "user.password", "user", user.username, None, None, now)


def disable(user: User, actor: str, now: datetime) -> int:
    """The name stays in every history; pages, sockets and tokens are closed to it. How many tokens were revoked."""
    _keep_an_admin(user, f"{user.username} is the last admin. Add another first.")
    changed = User.objects.filter(pk=user.pk, is_active=True).update(is_active=False)
    Invitation.objects.filter(user=user).delete()
    revoked = tokens.revoke_all(user, now)
    if changed:
        audit.record(actor, "user.disable", "user", user.username, None, None, now)
    return revoked


def enable(user: User, actor: str, now: datetime) -> None:
    """Tokens that were revoked stay so."""
    if User.objects.filter(pk=user.pk, is_active=False).update(is_active=True):
        audit.record(actor, "user.enable", "user", user.username, None, None, now)


def set_admin(user: User, admin: bool, actor: str, now: datetime) -> None:
    """Whether the person may do everything."""
    if user.is_superuser == admin:
        return
    if not admin:
        _keep_an_admin(user, f"{user.username} is the last admin. Make another person one first.")
    User.objects.filter(pk=user.pk).update(is_superuser=admin, is_staff=admin)
    audit.record(actor, "user.admin", "user", user.username, not admin, admin, now)


def _keep_an_admin(user: User, words: str) -> None:
    """Locks the admins, so that two cannot shut out each other."""
    admins = list(User.objects.select_for_update().filter(is_superuser=True, is_active=True))
    if user.is_superuser and not [one for one in admins if one.pk != user.pk]:
        raise Refused("user", words)


def error_text(problem: ValidationError) -> str:
    """All that is wrong, as one line."""
    return " ".join(problem.messages)
