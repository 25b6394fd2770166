"""A token does no more than its scope and its project allow: on the table of permissions, by REST and by sockets."""

from __future__ import annotations

from itertools import product

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from agents.models import Host, Location
from console.auth import access, scopes, tokens
from console.auth.scopes import Grant, Scope
from console.consumers import credentials
from console.models import ApiToken
from console.parts import registry
from console.parts.part import Place
from jobs.models import AuditEntry, Job, MachineType, Membership, Project, Run
from tests.unit.console import test_permission_matrix as matrix
from tests.unit.console.permission_table import LOOK, MAY, OWN, PEOPLE, VERBS
from tests.unit.console.script_tokens import token_of
from tests.unit.console.test_permission_matrix import _sent, no_host_answers, scene
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "no_host_answers", "project", "scene"]

READ = LOOK | {"see_audit"}
OF_SCOPE = {"read": READ, "submit": READ | OWN | {"submit", "store", "prioritize"}, "admin": set(VERBS)}
KINDS = (Job, Run, Project, Host, Location, User, AuditEntry, MachineType)
# Addresses that read by POST.
READS = {"/v2/entries:list"}
# Each job of a list is judged by itself: the answer is 200 and names the jobs that were refused.
BY_ITEM = {"/api/v1/jobs:batchCancel"}
# For each page with live parts: an address for scripts that tells the same, or needs the same right.
STUDIES = f"{matrix.JOBS}/hyperparameterTuningJobs"
SAME_FOR_SCRIPTS = {
    "jobs": "/api/v1/jobs",
    "queue": "/api/v1/queue",
    "job": "/api/v1/jobs/{job}",
    "log": "/api/v1/jobs/{job}/replicas/workerpool0-0/log",
    "merged-log": "/api/v1/jobs/{job}/log/earlier?until=1",
    "job-metrics": "/api/v1/jobs/{job}/metrics",
    "job-shells": "/api/v1/jobs/{job}/replicas/workerpool0-0/files",
    "job-spec": "/api/v1/jobs/{job}",
    "job-events": "/api/v1/jobs/{job}/events",
    "job-outputs": "/api/v1/jobs/{job}/log/earlier?until=1",
    "studies": STUDIES,
    **dict.fromkeys(
        (
            "study",
            "study-parameters",
            "study-contour",
            "study-curves",
            "study-spec",
            "study-scatter",
            "study-timeline",
        ),
        f"{STUDIES}/{{tuning}}",
    ),
    "hosts": "/api/v1/hosts",
    "host": "/api/v1/hosts/{host}",
    "host-keys": "/api/v1/recovery",
    "gpus": "/api/v1/hosts/{host}/gpus",
    "projects": "/api/v1/projects",
    "project": "/api/v1/projects/default",
    "audit": "/api/v1/audit",
    "people": "/api/v1/people",
    "usage": "/api/v1/usage",
    "account": "/api/v1/tokens",
    "security": "/api/v1/sessions",
    "notifications": "/api/v1/notifications",
    "project-notifications": "/api/v1/projects/default/notifications",
}


@pytest.fixture
def objects(cast, project):
    host = a_host()
    job = a_job(project, cast.bob, host=host)
    things = {"job": job, "run": job.runs.get(), "project": project, "host": host}
    kinds = {kind.__name__: kind for kind in KINDS}
    return {**things, "location": host.location, "user": cast.vera, **kinds}


def by_token(user, scope="admin", project=None):
    """The person as a token with these rights brings them in."""
    fresh = User.objects.get(pk=user.pk)
    scopes.give(fresh, Grant(Scope(scope), project.pk if project else None))
    return fresh


@pytest.mark.parametrize("scope", Scope)
def test_a_token_does_no_more_than_its_scopes(cast, objects, scope):
    for person in PEOPLE:
        if person == "nobody":
            continue
        user = by_token(getattr(cast, person), scope)
        for (name, thing), verb in product(objects.items(), VERBS):
            expected = verb in MAY[person].get(name, ()) and verb in OF_SCOPE[scope]
            assert access.can(user, verb, thing) is expected, (person, verb, name)


@pytest.mark.parametrize("scope", Scope)
def test_lists_of_what_is_allowed_follow_the_scope(cast, objects, scope):
    for person, verb in product(("root", "alice", "bob", "vera", "charlie"), VERBS):
        user = by_token(getattr(cast, person), scope)
        asked = verb in OF_SCOPE[scope]
        usual = access.projects_allowing(getattr(cast, person), verb)
        assert access.projects_allowing(user, verb) == (usual if asked else [])
        jobs = access.jobs_allowing(getattr(cast, person), verb, [objects["job"]])
        assert access.jobs_allowing(user, verb, [objects["job"]]) == (jobs if asked else [])


def test_a_token_for_one_project_sees_nothing_else(cast, objects, project):
    Membership.objects.create(project=cast.elsewhere, user=cast.bob, role="admin")
    other = a_job(cast.elsewhere, cast.bob)
    for person in ("bob", "root"):
        here = by_token(getattr(cast, person), project=project)
        assert access.can(here, "submit", project) and access.can(here, "see", objects["job"])
        assert access.verbs(here, other) == access.verbs(here, cast.elsewhere) == frozenset()
        assert list(access.visible(here, Project.objects.all())) == [project]
        assert list(access.visible(here, Job.objects.all())) == [objects["job"]]
        assert access.projects_allowing(here, "submit") == [project]
        assert access.jobs_allowing(here, "cancel", [objects["job"], other]) == [objects["job"]]
        with pytest.raises(Http404):
            access.project_or_404(here, "see", "elsewhere")
        with pytest.raises(Http404):
            access.require(here, "manage", User)
    stranger = by_token(cast.bella, project=cast.elsewhere)
    assert access.verbs(stranger, objects["job"]) == access.verbs(stranger, project) == frozenset()
    assert access.verbs(stranger, Job) == access.verbs(stranger, objects["host"]) == frozenset()


def test_an_admin_of_the_deployment_with_a_token_for_a_project_is_an_admin_of_that_project(
    cast, objects, project
):
    """They manage no host and no person by it, and see of hosts what members see."""
    root = by_token(cast.root, project=project)
    assert access.verbs(root, project) == access.PROJECT_ADMIN_VERBS
    assert access.verbs(root, objects["host"]) == access.verbs(root, Host) == {"see"}
    assert access.verbs(root, User) == access.verbs(root, cast.vera) == frozenset()
    assert list(access.visible(root, Host.objects.all())) == [objects["host"]]
    AuditEntry.objects.create(at=timezone.now(), actor="x", what="a", subject_kind="b", subject="c")
    mine = AuditEntry.objects.create(
        at=timezone.now(), actor="x", what="a", subject_kind="b", subject="c", project=project
    )
    assert list(access.visible(root, AuditEntry.objects.all())) == [mine]


def test_viewers_with_other_rights_share_no_fragment(cast, objects, project):
    """What is rendered for all with the same key must not show one person the buttons or rows of another."""
    grants = [Grant(scope, only) for scope in Scope for only in (None, project.pk)]
    for person in ("root", "alice"):
        keys = set()
        for grant in grants:
            user = by_token(getattr(cast, person), grant.scope)
            scopes.give(user, grant)
            keys.add(access.rights_key(user))
        own = Membership.objects.filter(user=getattr(cast, person)).count()
        assert len(keys) == (len(grants) if person == "root" or own > 1 else len(Scope))
    assert access.jobs_key(by_token(cast.root, project=project)) != access.jobs_key(cast.root)
    assert access.hosts_key(by_token(cast.root, "read")) != access.hosts_key(cast.root)


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_every_address_for_scripts_keeps_to_the_scope(scene, cast, scope):
    """The table of addresses once more: what the verb of a row does not allow is refused with the scope's name."""
    _, example = scene
    wrong = []
    for person in ("root", "alice", "bob"):
        client = Client(headers={"authorization": f"Bearer {token_of(getattr(cast, person), scope=scope)}"})
        for method, path, need, body in matrix.REST:
            with transaction.atomic():
                given = client.generic(
                    method, path.format(**example), _sent(body, example), content_type="application/json"
                )
                transaction.set_rollback(True)
            expected = matrix.met(person, [need])
            changes = method != "GET" and path not in READS | BY_ITEM
            narrow = need[1] not in OF_SCOPE[scope] if need != matrix.ANYBODY else changes
            if expected == "in" and narrow:
                expected = "refused"
                message = given.json().get("error", {}).get("message", "")
                if "scope" not in message:
                    wrong.append((method, path, person, message))
            if matrix.ANSWERS.get(given.status_code, "in") != expected:
                wrong.append((method, path, person, given.status_code, expected))
    assert wrong == [], "\n".join(map(str, wrong))


@pytest.mark.parametrize(("scope", "status"), [("read", 403), ("submit", 200), ("admin", 200)])
def test_the_refusal_names_the_scope_that_is_missing(scene, cast, scope, status):
    _, example = scene
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob, scope=scope)}"})
    path = f"{matrix.JOBS}/customJobs/{example['job']}:cancel"
    given = client.post(path, {}, content_type="application/json")
    assert given.status_code == status
    if status == 403:
        message = given.json()["error"]["message"]
        assert message.startswith("This token has the scope “read”, and this needs “submit”.")
        assert "trainyard token create NAME --scope submit" in message


def test_a_batch_refuses_each_job_that_the_scope_does_not_allow(scene, cast):
    _, example = scene
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob, scope='read')}"})
    body = {"jobs": [str(example["job"])]}
    client.post("/api/v1/jobs:batchCancel", body, content_type="application/json")
    assert Job.objects.get(pk=example["job"]).cancel_requested_at is None


@pytest.mark.parametrize("path", ["tokens", "sessions", "secrets", "notifications"])
def test_a_token_for_one_project_has_no_part_in_the_account(cast, project, path):
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob, project=project)}"})
    given = client.get(f"/api/v1/{path}")
    assert given.status_code == 403 and "limited to one project" in given.json()["error"]["message"]
    assert resolve(f"/api/v1/{path}")


def test_a_socket_has_the_rights_of_its_token_and_no_more(cast, objects):
    """Shells need the scope `submit`; a log needs `read`."""
    for scope, shell in (("read", False), ("submit", True)):
        token = token_of(cast.bob, scope=scope)
        user = credentials.user({"headers": [(b"authorization", f"Bearer {token}".encode())]})
        assert access.can(user, "see_log", objects["job"])
        assert access.can(user, "shell", objects["run"]) is shell


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("limited", [False, True])
def test_a_socket_tells_a_token_no_more_than_the_addresses_for_scripts(scene, cast, project, scope, limited):
    """Each page with live parts, against the address for scripts that tells the same."""
    _, example = scene
    given = {"job_id": example["job"], "host_id": example["host"], "project": "default"}
    given["tuning_id"] = example["tuning"]
    assert set(SAME_FOR_SCRIPTS) == set(registry.PAGES)
    wrong = []
    for person, (page, path) in product(("root", "alice", "bob", "vera"), SAME_FOR_SCRIPTS.items()):
        token = token_of(getattr(cast, person), scope=scope, project=project if limited else None)
        header = f"Bearer {token}"
        answer = Client(headers={"authorization": header}).get(path.format(**example)).status_code
        user = credentials.user({"headers": [(b"authorization", header.encode())]})
        place = Place.of(page, {**given, "replica": "workerpool0-0"}, "")
        if (told := _told(user, place)) != matrix.ANSWERS.get(answer, "in"):
            wrong.append((person, page, told, answer))
    assert wrong == [], "\n".join(map(str, wrong))


def _told(user, place):
    """The answer to a socket of this page, which has all parts or none."""
    try:
        for part in registry.parts_of(place):
            part.see(user, place)
    except Http404:
        return "absent"
    except PermissionDenied:
        return "refused"
    return "in"


def test_a_script_makes_a_narrower_token(cast, project):
    client = Client(headers={"authorization": f"Bearer {token_of(cast.bob, elevated=True)}"})

    def make(**fields):
        return client.post("/api/v1/tokens", {"name": "ci", **fields}, content_type="application/json")

    made = make(scope="read", project="default").json()
    assert (made["scope"], made["project"]) == ("read", "default")
    row = tokens.valid(made["token"], timezone.now())
    assert scopes.of(row.user) == Grant(Scope.READ, project.pk)
    assert make().json()["scope"] == "admin"
    assert "scope must be one of read, submit, admin" in make(scope="king").json()["error"]["message"]
    assert make(project="elsewhere").status_code == 404
    refused = make(scope="read", elevated=True)
    assert refused.status_code == 400 and "needs the scope “admin”" in refused.json()["error"]["message"]


def test_an_older_token_keeps_all_scopes_and_is_shown_so(cast, browser):
    """The row of a token that was made before there were scopes has what the database fills in."""
    now = timezone.now()
    older = ApiToken(
        user=cast.bob, name="old", digest="x" * 64, created_at=now, expires_at=now.replace(year=2099)
    )
    older.save()
    older.refresh_from_db()
    assert (older.scope, older.project) == ("admin", None)
    assert "everything" in browser("bob").get("/account").content.decode()


def test_the_page_makes_a_token_with_a_scope_for_a_project(cast, browser, project):
    bob = browser("bob")
    page = bob.get("/account").content.decode()
    assert "default</option>" in page and "elsewhere" not in page
    bob.post("/account/tokens", {"name": "ci", "scope": "submit", "project": "default"})
    row = ApiToken.objects.get()
    assert (row.scope, row.project) == ("submit", project)
    shown = bob.get("/account").content.decode()
    assert "read and submit" in shown and "only in default" in shown
    refused = bob.post("/account/tokens", {"name": "x", "scope": "read", "elevated": "on"}).content.decode()
    assert "needs the scope “admin”" in refused and ApiToken.objects.count() == 1
    bob.post("/account/tokens", {"name": "x", "project": "elsewhere"})
    assert ApiToken.objects.count() == 1
