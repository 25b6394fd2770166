"""The people of this deployment, for its admins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse

from console.models import Invitation, Passkey, SecondFactor
from console.presenters.numbered_pages import numbered
from jobs.models import Membership

SIZE = 50


@dataclass(frozen=True, slots=True)
class PersonRow:
    id: int
    name: str
    admin: bool
    active: bool
    invited: bool
    has_second_factor: bool
    roles: tuple[tuple[str, str], ...]
    last_login: datetime | None


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """One page of people. `next` and `previous` are addresses, or empty."""

    rows: tuple[PersonRow, ...]
    text: str
    total: int
    previous: str
    next: str


def page(query: Mapping[str, str]) -> PeoplePage:
    text = query.get("text", "").strip()[:150]
    found = User.objects.filter(username__icontains=text) if text else User.objects.all()
    here = reverse("people") + (f"?{urlencode({'text': text})}" if text else "")
    pages = numbered(_sorted(found), query.get("page", ""), here, SIZE)
    shown = User.objects.filter(pk__in=[row.pk for row in pages.rows])
    return PeoplePage(tuple(people(shown)), text, pages.total, pages.previous, pages.next)


def _sorted(users: QuerySet[User]) -> QuerySet[User]:
    return users.order_by("-is_active", "username")


def people(only: QuerySet[User] | None = None) -> list[PersonRow]:
    """Return all people, or only those of a query set."""
    users = User.objects.all() if only is None else only
    roles = defaultdict(list)
    of = Membership.objects.filter(user__in=users).select_related("project").order_by("project__name")
    for row in of:
        roles[row.user_id].append((row.project.name, str(row.role)))
    invited = set(Invitation.objects.values_list("user", flat=True))
    factors = {
        *SecondFactor.objects.values_list("user", flat=True),
        *Passkey.objects.values_list("user", flat=True),
    }
    return [
        PersonRow(
            id=user.pk,
            name=user.username,
            admin=user.is_superuser,
            active=user.is_active,
            invited=user.pk in invited,
            has_second_factor=user.pk in factors,
            roles=tuple(roles[user.pk]),
            last_login=user.last_login,
        )
        for user in _sorted(users)
    ]
