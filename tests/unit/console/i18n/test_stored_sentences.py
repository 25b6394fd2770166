"""What workers wrote about a job: pages show it in their language; REST and the database speak English."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.utils import timezone

from agents.hosts import checklist, host_history
from agents.infra import sentences
from agents.infra.texts import join, moment, said
from agents.models import Host
from jobs.models import Job, Transition
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "project"]

NOON = datetime(2026, 11, 22, 12, 1, tzinfo=UTC)
ERROR = said("The replica {replica} was lost.", replica="workerpool0-0")
FLAG = said("All its GPUs have been at 0 % since {time}.", time="noon")
CAUSE = said("Started on {host}.", host="gpu-01")
KOREAN = {
    "The replica {replica} was lost.": "복제본 {replica} 손실.",
    "All its GPUs have been at 0 % since {time}.": "{time}부터 모든 GPU 0 %.",
    "Started on {host}.": "{host}에서 시작됨.",
    "{free} of {total} free, {place}": "{place}: {total} 중 {free}",
    "Open to jobs again.": "작업에 다시 열림.",
    "The name {name} is taken. Choose another.": "{name}: 이미 사용 중",
}


class Korean:
    def gettext(self, message):
        return KOREAN.get(message, message)


@pytest.fixture
def job(project, cast, monkeypatch):
    flags = [{"flag": "IDLE", "since": timezone.now().isoformat(), "text": FLAG}]
    found = a_job(project, cast.bob, state="FAILED", outcome="FAILED", error_message=ERROR, flags=flags)
    Transition.objects.create(
        job=found,
        at=timezone.now(),
        subject="job",
        to_state="FAILED",
        attempt=0,
        cause=CAUSE,
        actor="trainyard",
    )
    monkeypatch.setattr(sentences, "translation", Korean())
    return found


def test_pages_show_sentences_in_their_language(job, browser):
    page = browser("bob").get(f"/jobs/{job.pk}/").content.decode()
    history = browser("bob").get(f"/jobs/{job.pk}/events").content.decode()
    listed = browser("bob").get("/jobs/").content.decode()
    assert "복제본 workerpool0-0 손실." in page and "noon부터 모든 GPU 0 %." in page
    assert "gpu-01에서 시작됨." in history
    assert "복제본 workerpool0-0 손실. noon부터 모든 GPU 0 %." in listed
    for text in (ERROR, FLAG, CAUSE):
        assert text not in page + history + listed


def test_moments_of_sentences_are_times_of_the_page(job, cast, browser):
    """frame/times.js shows them in the zone of the reader, in whichever part of the page."""
    names = ("<b>a</b>", "\x1e2026-11-22T00:00:00Z\x1ewrong\x1e")
    quiet = [said("{name} since {time}", name=name, time=moment(NOON)) for name in names]
    flags = [{"flag": "STALLED", "since": NOON.isoformat(), "text": join(", ", quiet)}]
    reason = said("No answer since {time}.", time=moment(NOON))
    waits = a_job(job.project, cast.bob, state="QUEUED", reason=reason, flags=flags)
    cause = said("until {time}", time=moment(NOON))
    Transition.objects.create(
        job=waits, at=NOON, subject="job", to_state="QUEUED", attempt=0, cause=cause, actor="trainyard"
    )
    time = '<span data-when="2026-11-22T12:01:00Z">2026-11-22 12:01:00 UTC</span>'
    for path in (f"/jobs/{waits.pk}/", "/jobs/"):
        page = browser("bob").get(path).text
        assert f"&lt;b&gt;a&lt;/b&gt; since {time}, " in page and f"wrong\x1e since {time}" in page
        assert f"No answer since {time}." in page and 'data-when="2026-11-22T00:00' not in page
    assert f"until {time}" in browser("bob").get(f"/jobs/{waits.pk}/events").text
    compared = browser("bob").get(f"/jobs/compare?job={waits.pk}&job={job.pk}").text
    assert f'><span data-when="{waits.created_at:%Y-%m-%dT%H:%M:%SZ}">' in compared
    assert "since 2026-11-22 12:01:00 UTC" in browser("bob").get(f"/api/v1/jobs/{waits.pk}").text


def test_programs_read_english(job, browser):
    found = browser("bob").get(f"/api/v1/jobs/{job.pk}").content.decode()
    events = browser("bob").get(f"/api/v1/jobs/{job.pk}/events").content.decode()
    assert str(FLAG) in found and str(CAUSE) in events
    assert "\\u001f" not in found + events and "{replica}" not in found + events


def test_the_english_stands_first_in_the_database(job):
    with connection.cursor() as cursor:
        cursor.execute("SELECT error_message FROM jobs_job WHERE id = %s", [job.pk])
        assert cursor.fetchone()[0].startswith("The replica workerpool0-0 was lost.\x1f")


def test_a_sentence_is_found_by_its_words(job):
    assert Job.objects.filter(error_message__contains="workerpool0-0 was lost.").get() == job
    assert Job.objects.get().error_message == ERROR


def test_the_page_of_a_host_shows_sentences_in_its_language(cast, browser, monkeypatch):
    host = a_host("gpu-01")
    free = said("{free} of {total} free, {place}", free="70.0 GiB", total="100.0 GiB", place="ext4 at /home")
    now = said(
        "{free} of {total} free, {place}", free=checklist.FREE_DISK, total="100.0 GiB", place="ext4 at /home"
    )
    item = checklist.CheckItem("Disk", True, free, now=now)
    Host.objects.filter(pk=host.pk).update(checklist=[item.as_row()], free_disk_mb=58 * 1024)
    host_history.record(host.pk, "uncordoned", said("Open to jobs again."), "root", timezone.now())
    monkeypatch.setattr(sentences, "translation", Korean())
    page = browser("root").get(f"/hosts/{host.pk}/").content.decode()
    assert "100.0 GiB 중 58" in page and "작업에 다시 열림." in page and "Open to jobs again." not in page


def test_a_refusal_is_in_the_language_of_the_page_and_of_rest_in_english(cast, project, browser, monkeypatch):
    monkeypatch.setattr(sentences, "translation", Korean())
    typed = {"name": "default", "title": "", "weight": "1", "highest_priority": "high"}
    page = browser("root").post("/projects/new", typed).content.decode()
    found = browser("root").post("/api/v1/projects", {"name": "default"}, content_type="application/json")
    assert "default: 이미 사용 중" in page
    assert "The name default is taken. Choose another." in found.content.decode()


def test_a_row_of_before_is_shown_as_it_is(job, browser):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET reason = %s WHERE id = %s", ["Started on {host}.", job.pk])
    job.refresh_from_db()
    assert sentences.shown(job.reason) == "Started on {host}."
