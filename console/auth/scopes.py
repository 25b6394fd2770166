"""What a token may do of that what its owner may: its scope, and the one project that it may be limited to.

`access.verbs` narrows the rights of a person to the grant of the token by which they are here. So pages, API and
sockets follow it alike. A person who is logged in has the whole grant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.contrib.auth.models import User


class Scope(StrEnum):
    """Each has what the one before has."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """`project_id`: the only project; None for all of the person, and for what belongs to no project."""

    scope: Scope = Scope.ADMIN
    project_id: int | None = None


WHOLE: Final = Grant()


def give(user: User, grant: Grant) -> None:
    """From now on this object stands for the person with these rights only."""
    user._grant = grant  # type: ignore[attr-defined]


def of(user: User) -> Grant:
    return getattr(user, "_grant", WHOLE)


def missing(wanted: Scope, given: Scope) -> str:
    """Why a token is refused, and the cure."""
    return (
        f"This token has the scope “{given}”, and this needs “{wanted}”. Make another token: Account → API tokens, "
        f"or trainyard token create NAME --scope {wanted}"
    )


OF_ACCOUNT = (
    "This token is limited to one project, and this is about your whole account. Make a token without a project: "
    "Account → API tokens, or trainyard token create NAME"
)
