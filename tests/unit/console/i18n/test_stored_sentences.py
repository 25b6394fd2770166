"""What workers wrote about a job: pages show it in their language; REST and the database speak English."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils import timezone

from agents.infra.texts import said
from console.presenters import sentences
from jobs.models import Job, Transition
from tests.unit.console.views.conftest import browser, cast, project
from tests.unit.console.views.example_rows import a_job

__all__ = ["browser", "cast", "project"]

ERROR = said("The replica {replica} was lost.", replica="workerpool0-0")
FLAG = said("All its GPUs have been at 0 % since {time}.", time="noon")
CAUSE = said("Started on {host}.", host="gpu-01")
KOREAN = {
    "The replica {replica} was lost.": "복제본 {replica} 손실.",
    "All its GPUs have been at 0 % since {time}.": "{time}부터 모든 GPU 0 %.",
    "Started on {host}.": "{host}에서 시작됨.",
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


def test_a_row_of_before_is_shown_as_it_is(job, browser):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET reason = %s WHERE id = %s", ["Started on {host}.", job.pk])
    job.refresh_from_db()
    assert sentences.shown(job.reason) == "Started on {host}."
