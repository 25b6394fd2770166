"""Recordings of shells: who replays them, what their page and their list say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import shells
from jobs.models import AuditEntry, RecordingState, ShellSession
from jobs.recordings import store
from tests.unit.console.views.example_rows import a_host, a_job, a_recording, a_shell, one_line

KEY = "0123456789abcdef" * 2


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host("gpu-7"))


@pytest.fixture
def session(job, cast):
    return a_shell(job.runs.get(), cast.bob)


@pytest.fixture(params=["", "/api/v1"])
def address(request, job):
    return f"{request.param}/jobs/{job.pk}/shells/{KEY}/recording"


@pytest.fixture
def tab(browser, job):
    return lambda name: one_line(browser(name).get(f"/jobs/{job.pk}/shells/").content.decode())


def got(response):
    return b"".join(response.streaming_content)


def test_a_recording_is_a_download_and_in_the_audit(browser, session, address, job):
    data = a_recording(session)
    answer = browser("bob").get(address)
    assert got(answer) == data and json.loads(data.splitlines()[1])[1] == "o"
    assert (
        answer["Content-Type"] == "application/x-asciicast" and answer["Cache-Control"] == "private, no-store"
    )
    assert answer["Content-Disposition"] == (
        f'attachment; filename="job-{job.pk}-workerpool0-0-01234567.cast"'
    )
    assert answer["X-Content-Type-Options"] == "nosniff"
    told = AuditEntry.objects.get(what="shell.replay")
    assert (told.actor, told.subject) == ("bob", f"{job.pk}/workerpool0-0")
    assert told.after == {"shell": KEY, "owner": "bob"}
    html = browser("root").get("/audit/?what=shell.replay").content.decode()
    assert "Recording of a shell replayed" in html


def test_who_may_replay(browser, session, address):
    a_recording(session)
    ShellSession.objects.update(shared=True)
    found = {
        name: browser(name).get(address).status_code
        for name in ("root", "alice", "bob", "bella", "vera", "charlie")
    }
    assert found == {"root": 200, "alice": 200, "bob": 200, "bella": 403, "vera": 403, "charlie": 404}
    assert AuditEntry.objects.filter(what="shell.replay").count() == 3


def test_there_is_nothing_to_replay_without_a_recording(browser, session, address, job):
    page = f"/jobs/{job.pk}/shells/{KEY}/replay"
    for at in (address, address.replace(KEY, "e" * 32), page):
        assert browser("bob").get(at).status_code == 404, "nothing has come"
    a_recording(session)
    assert browser("bob").get(page).status_code == 200
    store.purge([session.run_id])
    assert browser("bob").get(page).status_code == 404


def test_the_page_says_what_the_recording_is(browser, session, job):
    a_recording(session)
    page = f"/jobs/{job.pk}/shells/{KEY}/replay"
    html = one_line(browser("bob").get(page).content.decode())
    assert f'data-recording="/jobs/{job.pk}/shells/{KEY}/recording"' in html
    assert "still on its host" in html and "with values of secrets masked" in html
    assert "<noscript>" in html and "Download" in html
    for state, words in [("cut", "Its end is missing"), ("differs", "another digest")]:
        ShellSession.objects.update(recording_state=state)
        assert words in one_line(browser("bob").get(page).content.decode())
    ShellSession.objects.update(recording_state="whole")
    html = browser("bob").get(page).content.decode()
    assert "still on its host" not in html and "shell-notice" not in html


def test_the_tab_lists_recordings(tab, session):
    replay = f'href="/jobs/{session.run.job_id}/shells/{KEY}/replay"'
    assert "recorded" in tab("bob") and replay not in tab("bob")
    a_recording(session)
    assert replay in tab("bob") and replay not in tab("bella") and "recorded" in tab("bella")
    shells.record_closed(session, "over", timezone.now())
    assert "is fetched from its host" in tab("bob")
    for state, words in [("whole", "kept"), ("deleted", "its time was over"), ("none", "its host has none")]:
        stored = 0 if state in ("deleted", "none") else session.recording_stored
        ShellSession.objects.update(recording_state=state, recording_stored=stored)
        assert words in tab("bella")
    ShellSession.objects.update(recording_state="", recording="")
    assert "not recorded" in tab("bob")


def test_the_page_of_a_shell_tells_for_how_long(browser, session, job, settings):
    settings.TRAINYARD = replace(settings.TRAINYARD, shell_recording_days=7)
    html = one_line(browser("bob").get(f"/jobs/{job.pk}/shell/{session.run_id}").content.decode())
    assert "recorded and kept for 7 days, with values of secrets masked. Keys are not recorded." in html


def test_the_settings_of_a_project_say_whether_shells_are_recorded(browser, project):
    form = {"name": "default", "title": "", "weight": "1", "record_shells": "no"}
    browser("root").post("/projects/default/settings", form)
    project.refresh_from_db()
    assert project.record_shells is False
    browser("root").post("/projects/default/settings", {**form, "record_shells": ""})
    project.refresh_from_db()
    assert project.record_shells is False, "an older page did not send it"
    browser("root").post("/projects/default/settings", {**form, "record_shells": "deployment"})
    project.refresh_from_db()
    assert project.record_shells is None
    html = browser("root").get("/projects/default", follow=True).content.decode()
    assert 'value="deployment" selected' in html


def test_an_expired_recording_is_said(tab, session):
    a_recording(session)
    shells.record_closed(session, "over", timezone.now() - timedelta(days=60))
    store.expire(timezone.now())
    assert "its time was over" in tab("bob")
    assert ShellSession.objects.get().recording_state == RecordingState.DELETED
