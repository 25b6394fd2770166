"""How the first person gets in: a link that is printed at start, and works once, while no admin exists."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from console.models import SetupToken
from console.tokens import digest
from jobs.models import Membership, Project, Role

DEFAULT_PROJECT = "default"


class SetupClosed(Exception):
    """This setup link is not valid any more. While no admin exists, restarting Trainyard prints a new one."""


def needed() -> bool:
    return not User.objects.filter(is_superuser=True, is_active=True).exists()


def renew(now: datetime) -> str:
    """A fresh token for the link. Older links stop working, so that one that scrolled by in a shared log is dead."""
    token = secrets.token_urlsafe(24)
    SetupToken.objects.all().delete()
    SetupToken.objects.create(digest=digest(token), created_at=now)
    return token


def is_open(token: str) -> bool:
    return needed() and SetupToken.objects.filter(digest=digest(token), used_at=None).exists()


def redeem(token: str, username: str, password: str, now: datetime) -> User:
    """Make the first admin. The caller owns the transaction; of two who come at once, one gets SetupClosed."""
    taken = SetupToken.objects.filter(digest=digest(token), used_at=None).update(used_at=now)
    if not taken or not needed():
        raise SetupClosed(SetupClosed.__doc__)
    return add_user(username, password, admin=True, now=now)


def add_user(username: str, password: str, *, admin: bool, now: datetime) -> User:
    """A person, member of the default project. Raises ValidationError with words for a person."""
    user = User(username=username, is_superuser=admin, is_staff=admin)
    user.set_unusable_password()
    user.clean_fields(exclude=["password"])
    user.validate_unique()
    validate_password(password, user)
    user.set_password(password)
    user.save()
    Membership.objects.create(
        project=default_project(now), user=user, role=Role.ADMIN if admin else Role.SUBMITTER
    )
    return user


def default_project(now: datetime) -> Project:
    project, _ = Project.objects.get_or_create(
        name=DEFAULT_PROJECT, defaults={"title": "Default", "created_at": now}
    )
    return project


def set_password(user: User, password: str) -> None:
    validate_password(password, user)
    user.set_password(password)
    user.save(update_fields=["password"])


def words(problem: ValidationError) -> str:
    """All that is wrong, as one line."""
    return " ".join(problem.messages)
