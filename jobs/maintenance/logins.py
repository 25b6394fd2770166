"""A login of its own for each project on a machine. The caller has checked that the person may manage hosts.

All jobs of one login can read each other's environment, files and logs. So a machine may be given a template of login
names, such as `train-{project}`: from then on, new jobs of a project run there under the login of the project only.
Each login is a row of hosts, with its own check, link and runner (agents/models.py). An admin of the machine makes the
login itself, and puts Trainyard's public key into it.
"""

from __future__ import annotations

import re
from datetime import datetime

from django.db import IntegrityError, transaction

from agents.hosts import host_history
from agents.infra.refusals import Refused
from agents.infra.texts import said, said_of
from agents.models import Host, HostStatus
from agents.ssh.targets import USER, explicit_jumps
from jobs.maintenance.remove_host import remove_host
from jobs.models import HostMaintenance, LoginTemplate, Project, ProjectLogin, Run
from jobs.projects import audit, locations
from jobs.scheduling import pass_lock
from jobs.wake import announce, hints

TRAINYARD = "trainyard"
EXAMPLE = "train-{project}"
MAX_USER = 32
_PLACEHOLDER = re.compile(r"\{(project|id)\}")
_COPIED = (
    "name",
    "location_id",
    "address",
    "port",
    "data_address",
    "found_address",
    "pinned_key",
    "jump_keys",
    "key_accepted_by",
    "key_accepted_at",
    "pid_namespaces",
)


def set_template(host: Host, template: str, actor: str, now: datetime) -> None:
    """Give each project a login of its own on this machine. An empty template: one login for all again."""
    template = template.strip()
    with transaction.atomic():
        pass_lock.lock_pass()
        row = Host.every.select_for_update(no_key=True).select_related("location").get(pk=host.pk)
        if row.machine_id is not None or row.retired_at is not None:
            raise Refused(
                "template",
                said("{host} is not a machine in service. Change its machine instead.", host=row.name),
            )
        before = template_of(row)
        if template:
            _check_template(row, template)
            LoginTemplate.objects.update_or_create(host=row, defaults={"template": template})
        else:
            _check_unused(row)
            LoginTemplate.objects.filter(host=row).delete()
        if template != before:
            audit.record(actor, "host.logins", "host", row.name, before, template, now)
            text = (
                said("Each project has a login of its own here: {template}.", template=template)
                if template
                else said("One login for all.")
            )
            host_history.record(row.pk, "logins", text, actor, now)
        if template:
            make_missing(row, actor, now)
        else:
            for login in row.logins.filter(retired_at=None):
                remove_host(login, actor, now)
        hints.schedule()
        announce.hints(["hosts", f"host:{row.pk}"])


def template_of(host: Host) -> str:
    """The template of the machine; empty: one login serves all projects."""
    return LoginTemplate.objects.filter(host=host).values_list("template", flat=True).first() or ""


def make_all_missing(now: datetime) -> None:
    """Make logins for projects that were created, or bound to a location, since the last look."""
    with_template = LoginTemplate.objects.filter(host__retired_at=None).order_by("host")
    for pk in with_template.values_list("host", flat=True):
        with transaction.atomic():
            # Locked, and read again: the machine or its template may be removed at this moment.
            locked = Host.objects.select_for_update(no_key=True, of=("self",)).select_related("location")
            machine = locked.filter(pk=pk).first()
            if machine is not None:
                make_missing(machine, TRAINYARD, now)


def make_missing(machine: Host, actor: str, now: datetime) -> None:
    """Make the rows of the logins that projects of the machine's location do not have yet. A machine whose key nobody
    has accepted gets none: the logins have the same key. The caller holds the lock of the machine's row."""
    template = template_of(machine)
    if not template or not machine.pinned_key:
        return
    there = set(
        ProjectLogin.objects.filter(host__machine=machine, host__retired_at=None).values_list(
            "project", flat=True
        )
    )
    for project in _served(machine):
        if project.pk not in there:
            _make_login(machine, project, user_name(template, project), actor, now)


def user_name(template: str, project: Project) -> str:
    """The login of a project on a machine with this template."""
    return template.replace("{project}", project.name).replace("{id}", str(project.pk))


def _make_login(machine: Host, project: Project, user: str, actor: str, now: datetime) -> None:
    """Make the row of one login. A login that served another project, ever, is not given to this one: the files of the
    other project lie there."""
    problem = _why_not(machine, project, user)
    if problem:
        host_history.record_once_a_day(machine.pk, "login_refused", problem, TRAINYARD, now)
        return
    copied = {name: getattr(machine, name) for name in _COPIED}
    try:
        with transaction.atomic():
            login = Host.every.create(
                **copied,
                machine=machine,
                user=user,
                jump=explicit_jumps(machine.jump, machine.user),
                created_at=now,
                added_by=actor,
                status=HostStatus.CHECKING,
                status_since=now,
                due_at=now,
            )
            ProjectLogin.objects.create(host=login, project=project)
            _copy_maintenance(machine, login)
    except IntegrityError:
        return  # another process has made it at this moment
    host_history.record(
        login.pk,
        "added",
        said(
            "{login}@{address}, for project {project}",
            login=user,
            address=machine.address,
            project=project.name,
        ),
        actor,
        now,
    )
    announce.hints(["hosts", f"host:{machine.pk}"])
    hints.enrol(login.pk)


def _why_not(machine: Host, project: Project, user: str) -> str:
    taken = Host.every.filter(machine=machine, user=user).exclude(project_login__project=project)
    if taken.exists():
        return said(
            "Project {project} gets no login here: {login} has served another project.",
            project=project.name,
            login=user,
        )
    if user == machine.user:
        return said(
            "Project {project} gets no login here: {login} is the login of the machine itself.",
            project=project.name,
            login=user,
        )
    if len(user) > MAX_USER or not USER.match(user):
        return said(
            "Project {project} gets no login here: {login} cannot be the name of a login.",
            project=project.name,
            login=repr(user),
        )
    return ""


def _copy_maintenance(machine: Host, login: Host) -> None:
    row = HostMaintenance.objects.filter(host=machine).first()
    if row is not None:
        row.pk = login.pk
        row._state.adding = True
        row.save()


def _served(machine: Host) -> list[Project]:
    bindings = locations.read_bindings()
    active = Project.objects.filter(archived_at=None).order_by("name")
    return [project for project in active if bindings.serves(machine.location.name, project.pk)]


def _check_template(machine: Host, template: str) -> None:
    """Raises Refused unless the template makes a login name for each project, and another one for each."""
    if len(_PLACEHOLDER.findall(template)) != 1:
        raise Refused(
            "template",
            said("A template has {{project}} or {{id}} in it once. For example: {example}", example=EXAMPLE),
        )
    if not USER.match(_PLACEHOLDER.sub("x", template)):
        raise Refused(
            "template",
            said(
                "{template} does not make login names. For example: {example}",
                template=repr(template),
                example=EXAMPLE,
            ),
        )
    for project in _served(machine):
        problem = _why_not(machine, project, user_name(template, project))
        if problem:
            raise Refused(
                "template", said("{problem} A shorter template, or {{id}}, may help.", problem=problem)
            )


def _check_unused(machine: Host) -> None:
    held = Run.objects.filter(host__machine=machine, released_at=None).count()
    if held:
        raise Refused(
            "template",
            said_of(
                held,
                "{number} run holds logins of {host}. Drain it first, or cancel their jobs.",
                "{number} runs hold logins of {host}. Drain it first, or cancel their jobs.",
                host=machine.name,
            ),
        )
