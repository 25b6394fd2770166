"""Who a person of the login server is here, and which roles their groups give them.

A person is known by the server's `sub`. Names and addresses may be given to somebody else later, so nobody is found by
them. A person who is not known is refused, or gets an account where the deployment wants that. Groups are looked at in
each login; each change of a role is in the audit.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from agents.infra.refusals import Refused
from agents.infra.texts import said
from console.auth import accounts
from console.auth.login.oidc_server import Claims
from console.models import OidcIdentity
from jobs.models import Membership, Project
from jobs.projects import audit, members

log = logging.getLogger(__name__)

# Who gives and takes roles in the audit.
ACTOR = "login server"
RANKS = ("viewer", "submitter", "admin")


def person_of(claims: Claims, now: datetime) -> User:
    """The person, made where the deployment wants that, with the roles of their groups. Raises Refused."""
    with transaction.atomic():
        known = (
            OidcIdentity.objects.filter(issuer=claims["iss"], sub=claims["sub"])
            .select_related("user")
            .first()
        )
        if known is None:
            user = _made(claims, now)
        elif not known.user.is_active:
            raise Refused("", said("This account is disabled. Ask an admin."))
        else:
            user = known.user
        _follow_groups(user, claims, now)
    user.refresh_from_db()
    return user


def connect(user: User, claims: Claims, actor: str, now: datetime) -> None:
    """From now on the person may log in by the login server. Raises Refused where that is somebody else already."""
    with transaction.atomic():
        taken = OidcIdentity.objects.filter(issuer=claims["iss"], sub=claims["sub"]).exclude(user=user)
        if taken.exists():
            raise Refused("", said("This login belongs to another account here."))
        fields = {"issuer": claims["iss"], "sub": claims["sub"], "made_at": now}
        OidcIdentity.objects.update_or_create(user=user, defaults=fields)
        audit.record(actor, "oidc.connect", "user", user.username, None, {"sub": claims["sub"]}, now)


def disconnect(user: User, actor: str, now: datetime) -> bool:
    """Returns False where there was nothing. Raises Refused where the person would have no way in any more."""
    if not user.has_usable_password():
        raise Refused("", said("You have no password. Ask an admin for a link to set one, then disconnect."))
    with transaction.atomic():
        removed = bool(OidcIdentity.objects.filter(user=user).delete()[0])
        if removed:
            audit.record(actor, "oidc.disconnect", "user", user.username, None, None, now)
    return removed


def _made(claims: Claims, now: datetime) -> User:
    if not settings.TRAINYARD.oidc_create:
        raise Refused(
            "",
            said(
                "You have no account here that is connected with this login. If you have a password here, log in with "
                "it and connect: Account → Security. Otherwise ask an admin for an account."
            ),
        )
    name = str(claims.get("preferred_username") or "")[:151]
    try:
        user = accounts.add(
            name, admin=False, actor=ACTOR, now=now, member=not settings.TRAINYARD.oidc_groups
        )
    except ValidationError as problem:
        raise Refused(
            "",
            said(
                "No account could be made with the name “{name}”: {why} If it is yours, log in with your password and "
                "connect: Account → Security.",
                name=name,
                why=accounts.error_text(problem),
            ),
        ) from problem
    connect(user, claims, ACTOR, now)
    return user


def _follow_groups(user: User, claims: Claims, now: datetime) -> None:
    """Give the roles that the groups give, and take those away that they do not.

    Projects and admin rights that TRAINYARD_OIDC_GROUPS does not name are left alone.
    """
    rules = settings.TRAINYARD.oidc_groups
    named = claims.get(settings.TRAINYARD.oidc_groups_claim) or ()
    groups = {str(each) for each in named} if isinstance(named, list | tuple) else {str(named)}
    for name in sorted({project for _, project, _ in rules if project}):
        project = Project.objects.filter(name=name).first()
        if project is None:
            log.warning("TRAINYARD_OIDC_GROUPS names the project %s, which does not exist", name)
            continue
        given = [role for group, where, role in rules if where == name and group in groups]
        _set_role(user, project, max(given, key=RANKS.index, default=""), now)
    if any(not project for _, project, _ in rules):
        is_admin = any(group in groups for group, project, _ in rules if not project)
        try:
            accounts.set_admin(user, is_admin, ACTOR, now)
        except Refused as problem:
            log.warning("%s stays an admin: %s", user.username, problem.message)


def _set_role(user: User, project: Project, role: str, now: datetime) -> None:
    row = Membership.objects.filter(user=user, project=project).first()
    if role and (row is None or row.role != role):
        members.set_role(project, user, role, ACTOR, now)
    elif not role and row is not None:
        members.remove(project, user, ACTOR, now)
