"""Rows that all tests of a file share: made once, in a transaction around all of them. Each test is undone by itself.

A file imports these fixtures instead of `addresses` of page_addresses.py and `browser` of conftest.py: the rows and the
logins cost more than a page does.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.db import transaction
from django.test import Client

from tests.unit.console.views.conftest import logged_in, make_cast, make_project
from tests.unit.console.views.page_addresses import example_values, filled_with

PEOPLE = ("root", "alice", "bob", "bella", "vera", "charlie", "loner")


@pytest.fixture(scope="module")
def stored(django_db_setup, django_db_blocker):
    """The rows, and a session of each person."""
    with django_db_blocker.unblock(), transaction.atomic():
        project = make_project()
        cast = make_cast(project)
        sessions = {name: logged_in(getattr(cast, name)).cookies for name in PEOPLE}
        yield SimpleNamespace(values=example_values(project, cast), sessions=sessions)
        transaction.set_rollback(True)


@pytest.fixture
def addresses(stored, db, no_host_answers):
    return filled_with(stored.values)


@pytest.fixture
def browser(stored, db):
    """browser("bob") returns a client with Bob's session, as it was before all tests; browser() one without."""

    def open_as(name=None, **options):
        client = Client(**options)
        client.cookies.update(stored.sessions[name] if name else {})
        return client

    return open_as
