"""Recordings of shells for scripts: where they are named, and which projects make them."""

from __future__ import annotations

import pytest

from jobs.models import Run
from tests.unit.console.views.example_rows import a_host, a_job, a_recording, a_shell

KEY = "0123456789abcdef" * 2


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host("gpu-7"))


@pytest.fixture
def session(job, cast):
    return a_shell(job.runs.get(), cast.bob)


def test_the_list_of_scripts_names_recordings(script, session, job):
    a_recording(session)
    (told,) = script("bob").get(f"/api/v1/jobs/{job.pk}/shells").json()["shells"]
    assert told["recorded"] and told["recordingState"] == "COMING"
    assert told["recording"] == f"http://testserver/api/v1/jobs/{job.pk}/shells/{KEY}/recording"
    (told,) = script("bella").get(f"/api/v1/jobs/{job.pk}/shells").json()["shells"]
    assert "recording" not in told and told["recorded"]


def test_the_project_says_whether_shells_are_recorded(script, job, cast):
    path = "/api/v1/projects/default"
    assert script("root").get(path).json()["recordShells"] is None
    changed = script("root").patch(path, {"recordShells": False}, "application/json")
    assert changed.json()["recordShells"] is False
    assert a_shell(Run.objects.get(job=job), cast.bob).recording == ""
    for wrong in (1, "no"):
        answer = script("root").patch(path, {"recordShells": wrong}, "application/json")
        assert answer.status_code == 400 and "recordShells" in answer.content.decode()
    assert script("alice").patch(path, {"recordShells": True}, "application/json").status_code == 403
