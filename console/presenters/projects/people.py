"""The people of this deployment, for its admins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.urls import reverse

from console.models import Invitation, Passkey, SecondFactor
from console.presenters.jobs.job_filters import cursor_number
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
    text, number = query.get("text", "").strip()[:150], cursor_number(query.get("page", "")) or 1
    found = User.objects.filter(username__icontains=text) if text else User.objects.all()
    pages = Paginator(_sorted(found), SIZE)
    shown = pages.get_page(number)
    here = [row.pk for row in shown]
    return PeoplePage(
        rows=tuple(people(User.objects.filter(pk__in=here))),
        text=text,
        total=pages.count,
        previous=_address(text, shown.previous_page_number()) if shown.has_previous() else "",
        next=_address(text, shown.next_page_number()) if shown.has_next() else "",
    )


def _address(text: str, number: int) -> str:
    return f"{reverse('people')}?{urlencode({**({'text': text} if text else {}), 'page': number})}"


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
