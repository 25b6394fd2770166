"""The pages of projects, limits, people, usage and the audit."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.auth import accounts, tokens
from console.models import Invitation
from jobs.lifecycle import claims
from jobs.models import AuditEntry, Job, Membership, Project, Quota, Run
from tests.unit.console.views.conftest import PASSWORD
from tests.unit.console.views.example_rows import a_host, a_job

NEW = "a fine long password"
HERE = "/projects/default/"


def text(answer):
    return re.sub(r"\s+", " ", answer.content.decode())


def test_a_project_is_created_gets_members_and_runs_jobs(browser, cast):
    root = browser("root")
    made = root.post("/projects/new", {"name": "vision", "title": "Vision"}, follow=True)
    assert made.redirect_chain == [("/projects/vision/", 302)] and "No members yet." in text(made)
    root.post("/projects/vision/members", {"user": "charlie", "role": "submitter"})
    charlie = browser("charlie")
    assert "vision" in text(charlie.get("/projects/")) and "default" not in text(charlie.get("/projects/"))
    assert 'value="vision" selected' in text(charlie.get("/jobs/new?project=vision"))
    form = charlie.get("/jobs/new?project=vision").content.decode()
    (select,) = re.findall(r'<select name="project".*?</select>', form, re.DOTALL)
    assert re.findall(r'value="(\w+)"', select) == ["elsewhere", "vision"]


@pytest.mark.parametrize(
    ("path", "typed", "kept", "complaint"),
    [
        ("/projects/new", {"name": "No Good", "title": "Kept"}, "No Good", "begins with a letter"),
        ("/projects/new", {"name": "default", "title": "Kept"}, "Kept", "The name default is taken"),
        (f"{HERE}settings", {"name": "fine", "title": "x", "weight": "-2"}, 'value="-2"', "from 0.01"),
        (
            f"{HERE}members",
            {"user": "nobody-known", "role": "viewer"},
            "nobody-known",
            "There is nobody named",
        ),
        (
            f"{HERE}quotas",
            {"whose": ":project", "metric": "gpus", "accelerator_type": "an H100", "limit": "3"},
            "an H100",
            "is not an accelerator type",
        ),
        (
            f"{HERE}quotas",
            {"whose": "bob", "metric": "running", "limit": "-1"},
            '<option value="bob" selected>',
            "The limit must be a whole number",
        ),
        ("/admin/quotas/", {"whose": "*", "metric": "queued", "limit": "0.5"}, 'value="0.5"', "whole number"),
        ("/admin/people/add", {"username": "a b"}, "a b", "Enter a valid username"),
        ("/admin/people/add", {"username": "zoe", "password": "short"}, "zoe", "too short"),
    ],
)
def test_errors_are_shown_beside_the_typed_values(browser, path, typed, kept, complaint):
    answer = browser("root").post(path, typed)
    assert answer.status_code == 200 and kept in text(answer) and complaint in text(answer)
    assert not AuditEntry.objects.exists() and not Quota.objects.exists()


def test_limits_are_set_shown_with_their_use_and_removed(browser, cast, project):
    a_job(project, cast.bob, host=a_host())
    limit = {"whose": ":project", "metric": "running", "limit": "1"}
    page = text(browser("root").post(f"{HERE}quotas", limit, follow=True))
    assert (
        "1 of 1" in page
        and 'class="chip">full' in page
        and "project default, running jobs: at most 1." in page
    )
    alice = browser("alice")
    refused = alice.post(f"{HERE}quotas", limit)  # of the project as a whole: not hers
    assert "is not one of the available choices" in text(refused)
    assert "This field is required" in text(alice.post(f"{HERE}quotas", {**limit, "whose": ""}))
    own = {"whose": "bob", "metric": "gpus", "accelerator_type": "NVIDIA_L4", "limit": "2"}
    assert "NVIDIA_L4: 0 of 2" in text(alice.post(f"{HERE}quotas", own, follow=True))
    assert ">Change<" not in text(browser("vera").get(HERE)) and "1 of 1" in text(browser("vera").get(HERE))
    alice.post(f"{HERE}quotas", {**own, "limit": ""})
    assert list(Quota.objects.values_list("metric", flat=True)) == ["running"]
    assert Job.objects.get().state == "RUNNING"


def test_a_full_queue_is_reported_and_the_form_keeps_its_values(browser, cast, project):
    Quota.objects.create(project=project, metric="queued", value=0)
    form = {
        "mode": "form",
        "display_name": "my-own-name",
        "project": "default",
        "location": "default",
        "pool0-kind": "bash",
        "pool0-program": "echo mine",
        "action": "submit",
    }
    answer = browser("bob").post("/jobs/new", form)
    assert answer.status_code == 429 and "which may have 0" in text(answer)
    assert "my-own-name" in text(answer) and "echo mine" in text(answer) and not Job.objects.exists()


def test_the_preview_says_that_a_job_would_wait_for_quota(browser, cast, project):
    a_host()
    Quota.objects.create(project=project, metric="running", value=0, each=True)
    form = {
        "mode": "form",
        "display_name": "mine",
        "project": "default",
        "location": "default",
        "pool0-kind": "bash",
        "pool0-program": "echo mine",
        "action": "check",
    }
    assert "Bob in project default runs 0 of 0 jobs." in text(browser("bob").post("/jobs/new", form))


def test_the_job_list_is_filtered_by_project(browser, cast, project):
    a_job(project, cast.bob, name="mine")
    a_job(cast.elsewhere, cast.charlie, name="theirs")
    root = browser("root")
    assert "theirs" in text(root.get("/jobs/")) and "mine" in text(root.get("/jobs/"))
    narrowed = text(root.get("/jobs/?project=elsewhere"))
    assert "theirs" in narrowed and ">mine<" not in narrowed
    assert ">theirs<" not in text(browser("bob").get("/jobs/?project=elsewhere"))
    assert 'id="project"' not in text(browser("bob").get("/jobs/"))


def test_a_project_is_archived_and_restored(browser, cast, project):
    root = browser("root")
    assert "It takes no new jobs" in text(root.post(f"{HERE}archive", follow=True))
    assert browser("bob").get("/jobs/new").status_code == 403
    assert browser("bob").get(HERE).status_code == 200
    root.post(f"{HERE}archive", {"undo": "1"})
    assert browser("bob").get("/jobs/new").status_code == 200


def test_a_renamed_project_is_found_under_its_new_name_and_its_number(browser, cast, project):
    root = browser("root")
    answer = root.post(f"{HERE}settings", {"name": "lab", "title": "Lab", "weight": "2"})
    assert answer["Location"] == "/projects/lab/" and root.get(HERE).status_code == 404
    assert root.get(f"/projects/{project.pk}/").status_code == 200
    project.refresh_from_db()
    assert (project.name, project.title, project.weight) == ("lab", "Lab", 2.0)
    assert project.highest_priority == "normal"
    root.post("/projects/lab/settings", {"name": "lab", "weight": "2", "highest_priority": "high"})
    project.refresh_from_db()
    assert project.highest_priority == "high"
    changed = AuditEntry.objects.latest("id")
    assert (changed.before["highest_priority"], changed.after["highest_priority"]) == ("normal", "high")
    assert '<option value="high" selected>' in root.get("/projects/lab/").content.decode()


def test_an_invitation_link_works_once(browser, cast):
    answer = browser("root").post("/admin/people/add", {"username": "zoe", "member": "on"})
    assert "no-store" in answer["Cache-Control"]
    link = re.search(r"/invited/[\w-]+", answer.content.decode())[0]
    assert link.rsplit("/")[-1] not in str(list(Invitation.objects.values()))
    visitor = Client()
    assert "Welcome, zoe" in text(visitor.get(link))
    assert "too short" in text(visitor.post(link, {"password": "short", "again": "short"}))
    assert "two passwords differ" in text(visitor.post(link, {"password": NEW, "again": NEW + "x"}))
    assert visitor.post(link, {"password": NEW, "again": NEW}).status_code == 302
    assert visitor.get("/jobs/").status_code == 200 and Membership.objects.get(user__username="zoe")
    for again in (visitor.get(link), Client().post(link, {"password": NEW, "again": NEW})):
        assert again.status_code == 404 and "does not work any more" in text(again)
    assert User.objects.get(username="zoe").check_password(NEW)
    browser("root").post("/admin/people/add", {"username": "max"})
    assert not Membership.objects.filter(user__username="max").exists()


def test_an_invitation_link_ends_when_it_expires_is_replaced_or_its_person_is_disabled(browser, cast):
    now = timezone.now()
    older, token = (accounts.invite(cast.bob, "root", now) for _ in range(2))
    assert accounts.invited_user(older, now) is None and accounts.invited_user(token, now) == cast.bob
    assert accounts.invited_user(token, now + accounts.INVITED_FOR) is None
    browser("root").post(f"/admin/people/{cast.bob.pk}/disable")
    assert accounts.invited_user(token, now) is None and Client().get(f"/invited/{token}").status_code == 404


def test_a_disabled_person_is_logged_out_and_the_last_admin_cannot_be_disabled(browser, cast):
    root, bob = browser("root"), browser("bob")
    token = tokens.create(cast.bob, "ci", timezone.now())[1]
    root.post(f"/admin/people/{cast.bob.pk}/disable")
    assert bob.get("/jobs/").status_code == 302 and tokens.owner(token, timezone.now()) is None
    root.post(f"/admin/people/{cast.bob.pk}/enable")
    assert Client().login(username="bob", password=PASSWORD)
    for act in ("disable", "admin"):
        assert "is the last admin" in text(root.post(f"/admin/people/{cast.root.pk}/{act}", follow=True))
    root.post(f"/admin/people/{cast.alice.pk}/admin", {"admin": "1"})
    root.post(f"/admin/people/{cast.root.pk}/admin", {"admin": "0"})
    assert (
        root.get("/admin/people/").status_code == 404
        and browser("alice").get("/admin/people/").status_code == 200
    )
    assert set(AuditEntry.objects.values_list("what", flat=True)) == {
        "token.make",
        "token.revoke",
        "user.disable",
        "user.enable",
        "user.admin",
    }


def test_the_report_of_a_month_and_its_csv(browser, cast, project):
    job = a_job(project, cast.bob, host=a_host())
    month = timezone.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    Run.objects.update(created_at=month - timedelta(hours=3), cpus=2)
    claims.release([Run.objects.get().pk], month + timedelta(hours=1))
    before = f"{month - timedelta(days=1):%Y-%m}"
    page = text(browser("vera").get(f"/usage/?month={before}&project=default"))
    assert "bob" in page and "6.00" in page and "CPUs only" in page
    answer = browser("root").get(f"/usage/report.csv?month={before}")
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert (row["job"], float(row["cpu_seconds"])) == (str(job.pk), 6 * 3600)
    assert "bob" not in text(browser("charlie").get("/usage/"))
    assert browser("charlie").get("/usage/?project=default").status_code == 404
    assert browser("root").get("/usage/?month=2026-13").status_code == 404


def test_the_audit_shows_who_changed_what_with_old_and_new_value(browser, cast, project):
    root = browser("root")
    for limit in ("4", "2"):
        root.post(f"{HERE}quotas", {"whose": ":project", "metric": "running", "limit": limit})
    root.post(f"{HERE}settings", {"name": "default", "title": "Ours", "weight": "1"})
    page = text(root.get("/audit/?subject=running"))
    assert "project default: running jobs" in page and '<td data-label="From">4</td>' in page
    assert "Ours" not in page and "Title: Ours" in text(root.get("/audit/?what=project.change"))
    assert "running jobs" in text(browser("alice").get("/audit/"))
    assert "running jobs" not in text(browser("charlie").get("/audit/"))
    assert "Nothing fits" in text(root.get("/audit/?actor=nobody"))


def test_the_number_of_queries_does_not_grow_with_the_projects(browser, cast, django_assert_max_num_queries):
    for number in range(20):
        row = Project.objects.create(name=f"p{number}", created_at=timezone.now())
        a_job(row, cast.bob)
    root = browser("root")
    with django_assert_max_num_queries(13):
        assert root.get("/projects/").status_code == 200
