"""The `trainyard` commands about projects: project, quota, user invite, usage."""

from __future__ import annotations

import csv
import io
import re

import pytest
from django.utils import timezone

from agents import time_doubt
from agents.models import ClockJump
from console.auth import accounts
from jobs.artifacts import buckets
from jobs.models import AuditEntry, Project, Quota
from tests.unit.console.commands.test_cli import PASSWORD, trainyard

__all__ = ["trainyard"]


def test_a_project_is_created_weighted_renamed_and_archived(trainyard):
    assert trainyard("project", "add", "vision", "--title", "Vision lab").code == 0
    done = trainyard(
        "project", "set", "vision", "--weight", "2", "--rename", "sight", "--highest-priority", "high"
    )
    assert (done.code, done.out) == (
        0,
        "Project sight: title 'Vision lab', weight 2, priority high at most.\n",
    )
    assert trainyard("project", "archive", "sight").code == 0
    assert "sight\tarchived\tweight 2\tVision lab\n" in trainyard("project", "list").out
    assert trainyard("project", "archive", "sight", "--undo").code == 0
    assert "sight\tactive" in trainyard("project", "list").out
    assert set(AuditEntry.objects.values_list("actor", flat=True)) == {"command line"}


def test_limits_are_set_and_listed_for_a_project_each_member_and_one_member(trainyard):
    trainyard("user", "add", "ada", "--password-stdin", stdin=PASSWORD)
    assert trainyard("quota", "set", "NVIDIA_L4", "8").out == "project default: NVIDIA_L4 at most 8.\n"
    assert trainyard("quota", "set", "gpu-hours", "12.5", "--each-member").code == 0
    assert trainyard("quota", "set", "running", "3", "--member", "ada").code == 0
    assert trainyard("quota", "set", "queued", "50", "--new-projects").code == 0
    assert trainyard("quota", "list").out == "NVIDIA_L4\t8\tused 0\n"
    assert trainyard("quota", "list", "--each-member").out == "gpu-hours\t12.5\n"
    assert trainyard("quota", "list", "--member", "ada").out == "running\t3\n"
    trainyard("project", "add", "vision")
    assert trainyard("quota", "list", "--project", "vision").out == "queued\t50\tused 0\n"
    assert "without a limit" in trainyard("quota", "set", "NVIDIA_L4", "none").out
    assert trainyard("quota", "list").out == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("project", "add", "Not Good"), "begins with a letter"),
        (("project", "add", "default"), "The name default is taken"),
        (("project", "set", "moon", "--weight", "1"), "There is no project 'moon'"),
        (("project", "set", "default", "--weight", "0"), "from 0.01"),
        (("quota", "set", "an H100", "1"), "is not an accelerator type"),
        (("quota", "set", "running", "some"), "'some' is not a number"),
        (("quota", "set", "running", "0.5"), "whole number"),
        (("quota", "set", "running", "1", "--member", "bob"), "There is no user 'bob'"),
        (("usage", "--month", "November"), "is not a month"),
        (("user", "invite", "bob"), "There is no user 'bob'"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(trainyard, words, reason):
    done = trainyard(*words)
    assert (done.code, done.out) == (1, "") and reason in done.err
    assert not AuditEntry.objects.exists() and not Quota.objects.exists() and Project.objects.count() == 1


def test_a_person_is_invited_with_a_link_that_works(trainyard):
    done = trainyard("user", "add", "eva", "--invite")
    token = re.search(r"/invited/([\w-]+)", done.out)[1]
    now = timezone.now()
    assert done.code == 0
    accounts.accept(accounts.invited_user(token, now), token, PASSWORD, now)
    again = re.search(r"/invited/([\w-]+)", trainyard("user", "invite", "eva").out)[1]
    assert accounts.invited_user(token, now) is None and accounts.invited_user(again, now).username == "eva"
    trainyard("user", "disable", "eva")
    assert "is disabled" in trainyard("user", "invite", "eva").err


def test_the_usage_of_a_month_is_csv_on_stdout(trainyard):
    done = trainyard("usage", "--month", "2026-01", "--project", "default")
    assert (done.code, done.err) == (0, "") and list(csv.DictReader(io.StringIO(done.out))) == []
    assert done.out.startswith("month,project,user,job,")


def test_a_bucket_is_told_for_how_many_days_it_keeps_objects(trainyard):
    made = buckets.create(Project.objects.get(name="default"), "ours", "ada", timezone.now())
    assert trainyard("bucket", "keep", "ours", "30").out == "Bucket ours keeps objects for 30 days.\n"
    made.refresh_from_db()
    assert made.keep_days == 30
    assert trainyard("bucket", "keep", "ours", "none").out == "Bucket ours keeps objects for ever.\n"
    waits = "Nothing is deleted by its age at this moment. Trainyard's time was set at "
    ClockJump.objects.create(at=timezone.now(), clock=time_doubt.OWN, seconds=60)
    assert waits in trainyard("bucket", "keep", "ours", "7").out
    assert waits not in trainyard("bucket", "keep", "ours", "none").out
    assert waits in trainyard("clock", "show").out
    ClockJump.objects.all().delete()
    for words in (("ours", "soon"), ("ours", "0"), ("theirs", "3")):
        refused = trainyard("bucket", "keep", *words)
        assert refused.code == 1 and refused.err
    told = AuditEntry.objects.filter(what="bucket.keep").order_by("pk")
    assert [(row.actor, row.after) for row in told] == [
        ("command line", days) for days in (30, None, 7, None)
    ]
