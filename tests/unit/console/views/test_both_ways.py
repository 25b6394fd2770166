"""Lists with the newest first are read in both directions: who follows Next finds a Previous that leads back."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from console.presenters import trained_models
from console.presenters.projects import audit as audit_page
from console.presenters.studies import study_list
from jobs.projects import audit
from tests.unit.console.views.example_rows import a_job, a_pipeline, a_tuning_job

SIZE = 3
# The page, and what stands in each of its rows.
LISTS = {
    "/jobs/pipelines/": r"row-(\d) job-pipeline",
    "/jobs/models/": r">shown-(\d)<",
    "/audit/": r"subject-(\d)",
    "/studies/": r">row-(\d) job-study<",
}


@pytest.fixture
def rows(project, cast, monkeypatch):
    monkeypatch.setattr(trained_models, "PAGE", SIZE)
    for each in (audit_page, study_list):
        monkeypatch.setattr(each, "SIZE", SIZE)
    for number in range(8):
        job = a_job(project, cast.bob, name=f"row-{number} job")
        a_pipeline(job, f"shown-{number}")
        a_tuning_job(job)
        audit.record("root", "quota.set", "quota", f"subject-{number}", None, {"limit": 1}, timezone.now())


def address(page, rel):
    found = re.search(rf'href="([^"]*)"\s+rel="{rel}"', page)
    return found[1].replace("&amp;", "&") if found else ""


@pytest.mark.parametrize("path", LISTS)
def test_whoever_goes_on_can_go_back_to_the_same_rows(browser, rows, path):
    client = browser("root")

    def read(where):
        page = client.get(where if where.startswith("/") else path + where).text
        return list(dict.fromkeys(re.findall(LISTS[path], page))), page

    first, page = read(path)
    assert len(first) == SIZE and address(page, "prev") == ""
    forward = [first]
    while following := address(page, "next"):
        shown, page = read(following)
        forward.append(shown)
    assert [number for shown in forward for number in shown] == list("76543210")
    for expected in reversed(forward[:-1]):
        shown, page = read(address(page, "prev"))
        assert shown == expected
    assert address(page, "prev") == "" and address(page, "next")
    before = "after" if path == "/studies/" else "before"
    # Of rows that are gone, or that nobody ever had: the first page.
    assert (
        read(f"?{before}=1")[0] == read("?ahead=9000000000000000000")[0] == read(f"?{before}=x")[0] == first
    )
