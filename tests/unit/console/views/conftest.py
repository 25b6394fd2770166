"""The people of the tests. Root is admin of the deployment. In the project, Alice is admin, Bob submits, Vera views."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client
from django.utils import timezone

from agents.ssh import files, pty
from agents.ssh.dial import DialError
from console.auth.login import confirmation
from jobs.models import Membership, Project, Role

PASSWORD = "correct horse battery"


@pytest.fixture
def project(db):
    return make_project()


@pytest.fixture
def cast(project):
    return make_cast(project)


def make_project():
    return Project.objects.get_or_create(name="default", defaults={"created_at": timezone.now()})[0]


def make_cast(project):
    """All people by name. Charlie is a member of another project only."""
    elsewhere = Project.objects.create(name="elsewhere", created_at=timezone.now())
    roles = {"alice": Role.ADMIN, "bob": Role.SUBMITTER, "bella": Role.SUBMITTER, "vera": Role.VIEWER}
    people = {"root": User.objects.create_superuser("root"), "nobody": AnonymousUser()}
    for name in (*roles, "charlie", "gone", "loner"):
        people[name] = User.objects.create_user(name, password=PASSWORD, is_active=name != "gone")
    for name, role in roles.items():
        Membership.objects.create(project=project, user=people[name], role=role)
    Membership.objects.create(project=project, user=people["gone"], role=Role.ADMIN)
    Membership.objects.create(project=elsewhere, user=people["charlie"], role=Role.ADMIN)
    return SimpleNamespace(**people, elsewhere=elsewhere)


@pytest.fixture
def browser(cast):
    """browser("bob") returns a client logged in as Bob, just now; browser() returns one that is not logged in."""

    def open_as(name=None, given_at=None, **options):
        return logged_in(getattr(cast, name), given_at, **options) if name else Client(**options)

    return open_as


def logged_in(person, given_at=None, **options):
    client = Client(**options)
    client.force_login(person)
    session = client.session
    confirmation.mark(session, given_at or timezone.now())
    session.save()
    return client


@pytest.fixture(autouse=True)
def prepared(monkeypatch):
    """The hosts to which a connection would have been made ahead, by name, and whether for a new shell."""
    found = []
    monkeypatch.setattr(pty, "prepare_shell", lambda target, key, is_new: found.append((target.name, is_new)))
    return found


@pytest.fixture
def no_host_answers(monkeypatch):
    def fail(*given):
        raise DialError(files.NO_ANSWER)

    monkeypatch.setattr(files, "list_files", fail)
    monkeypatch.setattr(files, "open_file", fail)
