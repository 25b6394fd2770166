"""The people of this deployment, for its admins."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import QuerySet

from console.models import Invitation
from jobs.models import Membership


@dataclass(frozen=True, slots=True)
class PersonRow:
    id: int
    name: str
    admin: bool
    active: bool
    invited: bool
    roles: tuple[tuple[str, str], ...]
    last_login: datetime | None


def people(only: QuerySet[User] | None = None) -> list[PersonRow]:
    """Return all people, or only those of a query set."""
    users = User.objects.all() if only is None else only
    roles = defaultdict(list)
    of = Membership.objects.filter(user__in=users).select_related("project").order_by("project__name")
    for row in of:
        roles[row.user_id].append((row.project.name, str(row.role)))
    invited = set(Invitation.objects.values_list("user", flat=True))
    return [
        PersonRow(
            id=user.pk,
            name=user.username,
            admin=user.is_superuser,
            active=user.is_active,
            invited=user.pk in invited,
            roles=tuple(roles[user.pk]),
            last_login=user.last_login,
        )
        for user in users.order_by("-is_active", "username")
    ]
