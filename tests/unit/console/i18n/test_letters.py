"""Letters in a made-up language (tests/harness/marked_language.py): a person's is in theirs, a project's English."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from agents.infra.texts import said
from agents.models import HostStatus
from console.auth import housekeeping
from console.models import ApiToken
from jobs.notifications import create, digest, email_opt_in, targets
from jobs.notifications.digest import Period
from jobs.rules.notifications import EVENTS
from jobs.rules.scheduling import log_storage
from tests.harness import marked_language
from tests.unit.console.i18n.test_every_text import NAMES, catalogues, offered
from tests.unit.console.views.conftest import cast, project
from tests.unit.console.views.example_rows import a_host, a_job, moved
from tests.unit.jobs.notifications.test_notifications import deliver

__all__ = ["cast", "catalogues", "offered", "project"]


@pytest.fixture
def written(settings, cast, project):
    """The letters about everything that bob, or the project, gets letters about."""
    settings.EMAIL_HOST = "mail.example"
    now = timezone.now()

    def write(owner, language):
        create.create_from_history(now)
        row = targets.add(owner, "mail", "bob@example.org", list(EVENTS), 0.02, "bob", now, language)[0]
        email_opt_in.send_letter(row, "https://console.example/", "bob", now)
        deliver()
        email_opt_in.vouch(row, "root", now)
        job = a_job(
            project,
            cast.bob,
            queued_at=now - timedelta(hours=1),
            state="QUEUED",
            reason=said("Waits to be placed."),
        )
        for state in ("SUCCEEDED", "FAILED", "CANCELLED"):
            moved(job, "RUNNING", state, cause=said("Submitted."))
        row.refresh_from_db()
        create.create_test(row, "root", now)
        create.create_for_waiting(now)
        create.create_for_log_storage(project, 80, log_storage.text("default", 80, 9, 1e-8), now)
        of_token = {"name": "ci", "digest": "x", "created_at": now, "expires_at": now + timedelta(days=1)}
        ApiToken.objects.create(user=cast.bob, **of_token)
        housekeeping.warn_of_tokens(now)
        a_host(status=HostStatus.UNREACHABLE)
        for period in Period:
            digest.send(cast.root if owner == cast.root else cast.bob, period, now, now)
        deliver()
        return mail.outbox

    return write


def test_a_persons_letters_are_in_their_language(written, cast):
    letters = written(cast.bob, marked_language.CODE)
    assert len(letters) >= 7
    for letter in letters:
        for text in (letter.subject, letter.body):
            assert marked_language.not_translated(text, NAMES) == []


def test_a_projects_letters_are_english(written, project):
    for letter in written(project, marked_language.CODE):
        assert marked_language.plain(letter.subject + letter.body) == letter.subject + letter.body
