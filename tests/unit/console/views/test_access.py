"""Every role × verb × object: the one access table of pages, API and sockets."""

from __future__ import annotations

from itertools import product

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone

from agents.models import Host, Location
from console.auth import access
from jobs.models import AuditEntry, Job, MachineType, Project, Run
from jobs.projects import members
from tests.unit.console.permission_table import LOOK, MAY, PEOPLE, VERBS
from tests.unit.console.views.example_rows import a_host, a_job


@pytest.fixture
def objects(cast, project):
    host = a_host()
    job = a_job(project, cast.bob, host=host)
    things = {
        "job": job,
        "run": job.runs.get(),
        "project": project,
        "host": host,
        "location": host.location,
        "user": cast.vera,
    }
    return {
        **things,
        **{
            kind.__name__: kind for kind in (Job, Run, Project, Host, Location, User, AuditEntry, MachineType)
        },
    }


def test_every_role_has_exactly_its_verbs(cast, objects):
    for person, (name, thing), verb in product(PEOPLE, objects.items(), VERBS):
        expected = verb in MAY[person].get(name, ())
        assert access.can(getattr(cast, person), verb, thing) is expected, (person, verb, name)


def test_what_is_submitted_in_a_name_later_follows_the_same_table(cast, project):
    for person in PEOPLE:
        user = getattr(cast, person)
        if isinstance(user, User):
            assert members.may_submit(project, user) is access.can(user, "submit", project), person
            assert members.may_prioritize(project, user) is access.can(user, "prioritize", project), person
    User.objects.filter(pk=cast.root.pk).update(is_active=False)
    cast.root.refresh_from_db()
    assert not members.may_submit(project, cast.root)


def test_a_former_submitter_has_no_rights_on_their_old_jobs(cast, objects):
    cast.bob.memberships.update(role="viewer")
    assert access.verbs(cast.bob, objects["job"]) == LOOK


@pytest.mark.parametrize("person", PEOPLE)
def test_lists_contain_exactly_the_visible_objects(cast, objects, person):
    user = getattr(cast, person)
    for name in ("job", "run", "project", "host", "location"):
        thing = objects[name]
        listed = access.visible(user, type(thing).objects.filter(pk=thing.pk)).exists()
        assert listed is access.can(user, "see", thing), name


@pytest.mark.parametrize("person", PEOPLE)
def test_get_or_404_answers_404_to_outsiders_and_403_to_members_without_the_verb(cast, objects, person):
    user, job = getattr(cast, person), objects["job"]
    for verb in VERBS:
        if access.can(user, verb, job):
            assert access.get_or_404(user, verb, Job.objects.all(), pk=job.pk) == job
            assert access.job_or_404(user, verb, job.pk) == job
        else:
            refused = PermissionDenied if access.can(user, "see", job) else Http404
            with pytest.raises(refused):
                access.get_or_404(user, verb, Job.objects.all(), pk=job.pk)
            with pytest.raises(refused):
                access.job_or_404(user, verb, job.pk)


@pytest.mark.parametrize("key", ["x", "1" * 30, "", "\0"])
def test_invalid_ids_are_not_found(cast, db, key):
    with pytest.raises(Http404):
        access.get_or_404(cast.root, "see", Job.objects.all(), pk=key)


def test_projects_allowing_returns_the_projects_of_a_verb(cast, project):
    names = {
        person: [p.name for p in access.projects_allowing(getattr(cast, person), "submit")]
        for person in PEOPLE
    }
    assert names["root"] == ["default", "elsewhere"]
    assert names["alice"] == names["bob"] == ["default"]
    assert names["charlie"] == ["elsewhere"]
    assert names["vera"] == names["loner"] == names["gone"] == names["nobody"] == []


@pytest.mark.parametrize("number", ["9" * 18, "9" * 30, "9" * 5_000])
def test_a_project_with_a_number_that_nothing_has_is_not_found(cast, project, number):
    """Python itself refuses to read more than 4,300 digits."""
    with pytest.raises(Http404):
        access.project_or_404(cast.bob, "see", number)


def test_a_permission_check_costs_one_query(cast, objects, django_assert_num_queries):
    job = Job.objects.get(pk=objects["job"].pk)
    with django_assert_num_queries(1):
        access.verbs(cast.bob, job)
    with django_assert_num_queries(0):
        access.verbs(cast.root, job)


def test_a_job_that_is_deleted_or_never_was_is_not_found_by_its_number(cast, objects):
    job = objects["job"]
    Job.objects.filter(pk=job.pk).update(deleted_at=timezone.now())
    for number in (job.pk, job.pk + 1, 2**62, 2**80):
        with pytest.raises(Http404):
            access.job_or_404(cast.root, "see_log", number)


@pytest.mark.parametrize("person", ["root", "vera"])
def test_the_right_to_a_log_is_read_without_the_rest_of_its_job(
    person, cast, objects, django_assert_num_queries
):
    with django_assert_num_queries(1 if person == "root" else 2):
        access.job_or_404(getattr(cast, person), "see_log", objects["job"].pk)
