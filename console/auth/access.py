"""Decides who may do what. This is the only place where permission is decided, for pages, API and sockets.

A viewer sees jobs, logs, stored files, quotas and usage. A submitter also submits, stores and deletes files, and
cancels, deletes and opens shells on jobs of their own, replays the recordings of these, and watches shells that
colleagues share. An admin of a project does that on every job of it, puts jobs first, moves them among those of the
project that wait, and manages members and their limits.
The deployment's admins (`is_superuser`) do everything; they alone make projects, set their quotas and weights, manage
people, move jobs in the whole queue, and manage hosts and locations. A host belongs to no project; but where its
location is bound to projects (jobs/projects/locations.py), only their members see it. For a person who may not see an
object, it does not exist: the answer is 404, not 403. The same holds for a kind of object (people, the audit) of which
a person may see none.

A token may have a part of its owner's rights only (console/auth/scopes.py). What it lacks is refused with the name of
the scope; what is in other projects than its own does not exist for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Literal, TypeVar

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import Model, Q, QuerySet
from django.http import Http404

from agents.infra.sql import Parameter, PartialModel, SelectStatement, read_ahead
from agents.models import Host, Location
from console.auth import scopes
from console.auth.scopes import Scope
from jobs.models import (
    AuditEntry,
    Job,
    LocationBinding,
    MachineType,
    Membership,
    Project,
    ProjectLogin,
    Role,
    Run,
    TuningJob,
)

AnyUser = AbstractBaseUser | AnonymousUser | None
Verb = Literal[
    "see",
    "see_log",
    "see_usage",
    "see_files",
    "submit",
    "store",
    "prioritize",
    "cancel",
    "delete",
    "shell",
    "watch_shell",
    "replay_shell",
    "see_audit",
    "manage_members",
    "manage_secrets",
    "manage",
    "set_quotas",
    "reorder",
    "configure",
]
Subject = (
    Project
    | Job
    | Run
    | TuningJob
    | Host
    | Location
    | User
    | type[Project]
    | type[Job]
    | type[Run]
    | type[Host]
    | type[Location]
    | type[User]
    | type[AuditEntry]
    | type[MachineType]
)
Row = TypeVar("Row", bound=Model)
Projects = QuerySet[Membership, Any] | list[int]

_PROJECT = PartialModel(Project)
_project_by_name = SelectStatement(
    lambda: Project.objects.filter(name=Parameter("name")).order_by().values_list(*_PROJECT.names)
)
# What rights on a job follow from.
_JOB = PartialModel(Job, only=("id", "project", "owner"))
_role_in = SelectStatement(
    lambda: (
        Membership.objects.filter(user=Parameter("user"), project=Parameter("project"))
        .order_by()
        .values_list("role")
    )
)
_job_by_id = SelectStatement(
    lambda: Job.objects.filter(pk=Parameter("job")).order_by().values_list(*_JOB.names)
)
_WHOLE_JOB = PartialModel(Job)
_whole_job = SelectStatement(
    lambda: Job.objects.filter(pk=Parameter("job")).order_by().values_list(*_WHOLE_JOB.names)
)

NO_VERBS: Final[frozenset[Verb]] = frozenset()
VIEWER_VERBS: Final[frozenset[Verb]] = frozenset({"see", "see_log", "see_usage", "see_files"})
OWNER_VERBS: Final[frozenset[Verb]] = frozenset({"cancel", "delete", "shell", "watch_shell", "replay_shell"})
PROJECT_ADMIN_VERBS: Final[frozenset[Verb]] = frozenset(
    {
        *VIEWER_VERBS,
        *OWNER_VERBS,
        "submit",
        "store",
        "prioritize",
        "reorder",
        "see_audit",
        "manage_members",
        "manage_secrets",
        "manage",
    }
)
ALL_VERBS: Final[frozenset[Verb]] = PROJECT_ADMIN_VERBS | {"set_quotas", "configure"}

BY_SCOPE: Final[dict[Scope, frozenset[Verb]]] = {
    Scope.READ: VIEWER_VERBS | {"see_audit"},
    Scope.SUBMIT: VIEWER_VERBS | OWNER_VERBS | {"see_audit", "submit", "store", "prioritize"},
    Scope.ADMIN: ALL_VERBS,
}

# On a project, and on a job of somebody else. Owners of a job also get OWNER_VERBS where they may submit.
BY_ROLE: Final[dict[str, frozenset[Verb]]] = {
    Role.VIEWER: VIEWER_VERBS,
    Role.SUBMITTER: VIEWER_VERBS | {"submit", "store", "watch_shell"},
    Role.ADMIN: PROJECT_ADMIN_VERBS,
}


def can(user: AnyUser, verb: Verb, subject: Subject) -> bool:
    return verb in verbs(user, subject)


def verbs(user: AnyUser, subject: Subject) -> frozenset[Verb]:
    """Everything that this person may do to this object, with one query. For a class: to at least one object of it."""
    if not isinstance(user, User) or not user.is_active:
        return NO_VERBS
    return _of_person(user, subject) & BY_SCOPE[scopes.of(user).scope]


def _of_person(user: User, subject: Subject) -> frozenset[Verb]:
    """The same, whatever the scope of the token is."""
    if is_deployment_admin(user):
        return ALL_VERBS
    if isinstance(subject, User) or subject is User:
        return NO_VERBS
    if isinstance(subject, Host):
        return _on_host(user, subject)
    if isinstance(subject, Location):
        return _on_location(user, subject.pk)
    if subject in (Host, Location, MachineType):
        return frozenset({"see"}) if _roles(user) else NO_VERBS
    if isinstance(subject, Project):
        return _of_role(_role(user, subject.pk))
    if isinstance(subject, Job | TuningJob):
        return _on_job(user, subject)
    if isinstance(subject, Run):
        return _on_job(user, subject.job)
    if subject is AuditEntry:
        return frozenset({"see"}) if Role.ADMIN in _roles(user) else NO_VERBS
    return frozenset().union(*(_of_role(role) | _owned(role) for role in _roles(user)))


def visible(user: AnyUser, rows: QuerySet[Row]) -> QuerySet[Row]:
    """The rows that the person may see, without another query."""
    if not isinstance(user, User) or not user.is_active:
        return rows.none()
    if is_deployment_admin(user):
        return rows
    mine = _projects(user)
    if rows.model in (Host, Location, MachineType):
        if rows.model is Host:
            rows = rows.filter(Q(machine=None) | Q(project_login__project__in=mine))
        path = {Host: "location__in", Location: "pk__in", MachineType: "location__in"}[rows.model]
        return rows.exclude(**{path: _locations_of_others(mine)}) if _is_member(user) else rows.none()
    if rows.model is AuditEntry:
        return rows.filter(project__in=_projects(user, Role.ADMIN))
    path = {Project: "pk__in", Job: "project__in", TuningJob: "project__in", Run: "job__project__in"}[
        rows.model
    ]
    return rows.filter(**{path: mine})


def rights_key(user: User) -> Hashable:
    """A value that is equal for people who may see and do the same, apart from owners on their own jobs."""
    scope = scopes.of(user).scope
    key = "everything" if is_deployment_admin(user) else _roles_by_project(user)
    return key if scope is Scope.ADMIN else (scope, key)


def hosts_key(user: User) -> Hashable:
    """A value that is equal for people who see the same machines and locations, and may do the same to them."""
    scope = scopes.of(user).scope
    if is_deployment_admin(user):
        return "everything" if scope is Scope.ADMIN else (scope, "everything")
    closed = _locations_of_others(_projects(user)).distinct().order_by("location")
    return tuple(closed.values_list("location", flat=True)) if _is_member(user) else None


def jobs_key(user: User) -> Hashable:
    """A value that is equal for people who see the same jobs, whatever they may do to them."""
    if is_deployment_admin(user):
        return "everything"
    return tuple(project for project, _ in _roles_by_project(user))


def is_deployment_admin(user: User) -> bool:
    """Whether the person is an admin of the deployment, and here by no token that is limited to a project."""
    return user.is_superuser and scopes.of(user).project_id is None


def require_account(user: AnyUser, *, change: bool) -> None:
    """Raises PermissionDenied where a token may not see, or may not `change`, what belongs to its owner alone: tokens,
    sessions, secrets, notifications."""
    grant = scopes.of(user) if isinstance(user, User) else scopes.WHOLE
    if grant.project_id is not None:
        raise PermissionDenied(scopes.OF_ACCOUNT)
    if change and grant.scope is not Scope.ADMIN:
        raise PermissionDenied(scopes.missing(Scope.ADMIN, grant.scope))


def projects_allowing(user: AnyUser, verb: Verb) -> list[Project]:
    """The projects in which the person may do this, sorted by name. Archived projects are left out."""
    if not isinstance(user, User) or not user.is_active:
        return []
    if verb not in BY_SCOPE[scopes.of(user).scope]:
        return []
    rows = Project.objects.filter(archived_at=None).order_by("name")
    if not is_deployment_admin(user):
        rows = rows.filter(pk__in=_projects(user, *(role for role in BY_ROLE if verb in BY_ROLE[role])))
    return list(rows)


def jobs_allowing(user: AnyUser, verb: Verb, jobs: Iterable[Job]) -> list[Job]:
    """Those of the jobs to which the person may do this, with one query."""
    if not isinstance(user, User) or not user.is_active:
        return []
    if verb not in BY_SCOPE[scopes.of(user).scope]:
        return []
    if is_deployment_admin(user):
        return list(jobs)
    roles = dict(_roles_by_project(user))
    return [job for job in jobs if verb in _by_role(user, roles.get(job.project_id), job)]


def project_or_404(user: AnyUser, verb: Verb, named: str) -> Project:
    """The project that an address names, by its name or its number."""
    return _allowed(user, verb, _named(named))


def _named(named: str) -> Project:
    if named.isascii() and named.isdecimal():
        try:
            return Project.objects.get(pk=named)
        except (Project.DoesNotExist, ValueError, OverflowError):
            raise Http404 from None
    rows = _project_by_name(name=named)
    if not rows:
        raise Http404
    return _PROJECT.build(rows[0])


def job_or_404(user: AnyUser, verb: Verb, pk: int) -> Job:
    """The job, for code that is called often: of its row only what rights follow from is read."""
    try:
        rows = _job_by_id(job=pk)
    except OverflowError:
        raise Http404 from None
    if not rows:
        raise Http404
    return _allowed(user, verb, _JOB.build(rows[0]))


def job_of_project_or_404(user: AnyUser, verb: Verb, named: str, pk: int) -> Job:
    """The whole job with its project, as an address names them.

    Both are read in one trip to the database: scripts ask for their job again and again.
    """
    try:
        with read_ahead({_project_by_name: {"name": named}, _whole_job: {"job": pk}}):
            project, rows = _named(named), _whole_job(job=pk)
    except OverflowError:
        raise Http404 from None
    job = _WHOLE_JOB.build(rows[0]) if rows else None
    if job is None or job.project_id != project.pk:
        raise Http404
    job.project = project
    return _allowed(user, verb, job)


def get_or_404(user: AnyUser, verb: Verb, rows: QuerySet[Row], **lookup: Any) -> Row:
    """The row. Raises Http404 when the person may not see it, PermissionDenied when they may see it but not do this."""
    try:
        row = rows.get(**lookup)
    except (ObjectDoesNotExist, ValueError, OverflowError):
        raise Http404 from None
    return _allowed(user, verb, row)


def _allowed(user: AnyUser, verb: Verb, row: Row) -> Row:
    _require(user, verb, row)  # type: ignore[arg-type]
    return row


def require(user: AnyUser, verb: Verb, subject: Model | type[Model]) -> None:
    """The same for an object that was read already, or for a whole kind of object (its list, its form): Http404 when
    the person may see none of the kind."""
    _require(user, verb, subject)  # type: ignore[arg-type]


def _require(user: AnyUser, verb: Verb, subject: Subject) -> None:
    allowed = verbs(user, subject)
    if "see" not in allowed:
        raise Http404
    if verb in allowed:
        return
    assert isinstance(user, User)
    given = scopes.of(user).scope
    if verb not in BY_SCOPE[given] and verb in _of_person(user, subject):
        wanted = next(scope for scope in Scope if verb in BY_SCOPE[scope])
        raise PermissionDenied(scopes.missing(wanted, given))
    raise PermissionDenied


def _on_host(user: User, host: Host) -> frozenset[Verb]:
    """A login that serves one project is for the members of that project."""
    if host.machine_id is not None and not _visible_logins(user).filter(host=host.pk).exists():
        return NO_VERBS
    return _on_location(user, host.location_id)


def _visible_logins(user: User) -> QuerySet[ProjectLogin]:
    return ProjectLogin.objects.filter(project__in=_projects(user))


def _on_location(user: User, location_id: int) -> frozenset[Verb]:
    closed = _locations_of_others(_projects(user)).filter(location=location_id)
    return frozenset({"see"}) if _is_member(user) and not closed.exists() else NO_VERBS


def _locations_of_others(mine: Projects) -> QuerySet[LocationBinding, Any]:
    """The locations that are bound to projects, none of which is among these."""
    ours = LocationBinding.objects.filter(project__in=mine).values("location")
    return LocationBinding.objects.exclude(location__in=ours).values("location")


def _on_job(user: User, job: Job | TuningJob) -> frozenset[Verb]:
    return _by_role(user, _role(user, job.project_id), job)


def _by_role(user: User, role: str | None, job: Job | TuningJob) -> frozenset[Verb]:
    return _of_role(role) | (_owned(role) if job.owner_id == user.pk else NO_VERBS)


def _of_role(role: str | None) -> frozenset[Verb]:
    return BY_ROLE[role] if role else NO_VERBS


def _owned(role: str | None) -> frozenset[Verb]:
    """The extra rights of a job's owner. A person who has become a viewer has no such rights on earlier jobs."""
    return OWNER_VERBS if "submit" in _of_role(role) else NO_VERBS


def _role(user: User, project_id: int) -> str | None:
    only = scopes.of(user).project_id
    if only is None:
        return next(iter(_role_in.column(user=user.pk, project=project_id)), None)
    return dict(_roles_by_project(user)).get(project_id)


def _roles(user: User) -> list[str]:
    return [role for _, role in _roles_by_project(user)]


def _roles_by_project(user: User) -> tuple[tuple[int, str], ...]:
    """The projects in which the person may do something here, by their numbers, each with the role.

    Where a token limits an admin of the deployment to one project, the person is an admin of that project.
    """
    only = scopes.of(user).project_id
    if only is not None and user.is_superuser:
        return ((only, Role.ADMIN.value),)
    return tuple(_memberships(user).order_by("project").values_list("project", "role"))


def _projects(user: User, *roles: str) -> Projects:
    """The same projects as a part of a query, or those where the person has one of the roles."""
    only = scopes.of(user).project_id
    if only is not None and user.is_superuser:
        return [only] if not roles or Role.ADMIN in roles else []
    rows = _memberships(user)
    return (rows.filter(role__in=roles) if roles else rows).values("project")


def _is_member(user: User) -> bool:
    is_limited_admin = user.is_superuser and scopes.of(user).project_id is not None
    return is_limited_admin or _memberships(user).exists()


def _memberships(user: User) -> QuerySet[Membership]:
    only = scopes.of(user).project_id
    rows = Membership.objects.filter(user=user)
    return rows if only is None else rows.filter(project=only)
