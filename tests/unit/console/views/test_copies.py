"""Copies of a job: run again with one click, clone and edit, and the difference between the two."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from jobs import services
from jobs.models import Job, Membership, Project, Role
from tests.unit.console.views.example_rows import document
from tests.unit.console.views.test_new_job import FORM, SECRET_ROWS, posted

pytestmark = pytest.mark.django_db


def submitted(project, user, name="train", script="echo hi", **changes):
    return services.submit(project, user, document(name, script, **changes), "default", None, timezone.now())


def test_a_job_is_run_again_with_one_click(browser, cast, project):
    job = submitted(project, cast.bob)
    answer = browser("bob").post(f"/jobs/{job.pk}/rerun")
    again = Job.objects.exclude(pk=job.pk).get()
    assert answer["Location"] == f"/jobs/{again.pk}/"
    assert (again.cloned_from, again.spec, again.display_name) == (job.pk, job.spec, job.display_name)
    page = browser("bella").get(f"/jobs/{job.pk}/").content.decode()
    assert f"/jobs/{job.pk}/rerun" in page
    assert f"/jobs/{job.pk}/rerun" not in browser("vera").get(f"/jobs/{job.pk}/").content.decode()


def test_two_clicks_on_one_page_submit_one_copy(browser, cast, project):
    job = submitted(project, cast.bob)
    bob = browser("bob")
    page = bob.get(f"/jobs/{job.pk}/").content.decode()
    request = re.search(r'name="request_id" value="(form-[^"]+)"', page)[1]
    first = bob.post(f"/jobs/{job.pk}/rerun", {"request_id": request})
    second = bob.post(f"/jobs/{job.pk}/rerun", {"request_id": request})
    assert first["Location"] == second["Location"] and Job.objects.count() == 2
    assert "This was submitted already" in bob.get(second["Location"]).content.decode()
    assert request not in bob.get(f"/jobs/{job.pk}/").content.decode(), (
        "a page that is loaded again submits again"
    )


def test_the_form_begins_with_the_project_that_the_person_works_in(browser, cast, project):
    other = Project.objects.create(name="another", created_at=timezone.now())
    Membership.objects.create(project=other, user=cast.bob, role=Role.SUBMITTER)
    bob = browser("bob")
    for name in ("another", "default"):
        bob.cookies["project"] = name
        assert bob.get("/jobs/new").context["draft"].job["project"].value() == name
    assert bob.get("/jobs/new?project=another").context["draft"].job["project"].value() == "another"
    bob.cookies["project"] = "elsewhere"
    page = bob.get("/jobs/new").content.decode()
    assert '<option value="elsewhere"' not in page and '<option value="default"' in page


def test_run_again_asks_for_secret_values_in_the_form(browser, cast, project):
    bob = browser("bob")
    rows = {name: (value[:1] if isinstance(value, list) else value) for name, value in SECRET_ROWS.items()}
    bob.post("/jobs/new", {**FORM, **rows})
    job = Job.objects.get()
    answer = bob.post(f"/jobs/{job.pk}/rerun", follow=True)
    page = answer.content.decode()
    assert answer.redirect_chain[-1][0] == f"/jobs/{job.pk}/clone" and Job.objects.count() == 1
    assert "Not submitted yet. is required: the value of HF_TOKEN is secret" in page


def test_a_clone_knows_what_it_was_made_from(browser, cast, project):
    job = submitted(project, cast.bob)
    bob = browser("bob")
    copy = posted(bob.get(f"/jobs/{job.pk}/clone").context["draft"])
    copy["pool0-program"] = "echo hi\necho two"
    bob.post("/jobs/new", dict(copy.lists()))
    made = Job.objects.exclude(pk=job.pk).get()
    assert made.cloned_from == job.pk
    page = bob.get(f"/jobs/{made.pk}/diff").content.decode()
    assert "<ins>" in page and "echo two" in page and f"/jobs/{job.pk}/" in page
    same = bob.get(f"/jobs/{made.pk}/diff", {"with": made.pk}).content.decode()
    assert "The two jobs ask for the same." in same and "<ins>" not in same
    # A number that was typed into the form by hand names no job that the person may not see.
    theirs = submitted(cast.elsewhere, cast.charlie)
    copy["cloned_from"], copy["request_id"] = str(theirs.pk), "another"
    bob.post("/jobs/new", dict(copy.lists()))
    assert Job.objects.get(request_id="another").cloned_from is None


def test_the_difference_is_for_those_who_see_both_jobs(browser, cast, project):
    mine, theirs = submitted(project, cast.bob), submitted(cast.elsewhere, cast.charlie, "theirs")
    bob = browser("bob")
    assert bob.get(f"/jobs/{mine.pk}/diff", {"with": theirs.pk}).status_code == 404
    assert bob.get(f"/jobs/{mine.pk}/diff", {"with": "x"}).status_code == 404
    assert bob.get(f"/jobs/{mine.pk}/diff", {"with": "9" * 30}).status_code == 404
    assert "not a copy of a job" in bob.get(f"/jobs/{mine.pk}/diff").content.decode()
    Job.objects.filter(pk=mine.pk).update(cloned_from=theirs.pk)
    assert "theirs" not in bob.get(f"/jobs/{mine.pk}/diff").content.decode()


def test_each_changed_line_of_a_program_is_shown_and_hostile_text_stays_text(browser, cast, project):
    first = submitted(project, cast.bob, script="a\nb\nc")
    second = submitted(project, cast.bob, script="a\n<script>x</script>\nc")
    page = browser("bob").get(f"/jobs/{second.pk}/diff", {"with": first.pk}).content.decode()
    assert page.count("<ins>") == page.count("<del>") == 1 and "&lt;script&gt;x" in page
