"""Who may open a socket, and which open sockets are closed again."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from console.auth import tokens
from console.consumers import socket_lifecycle
from console.models import Session
from console.runtime.database_threads import in_database_thread
from jobs.models import Job, Membership
from jobs.services import delete
from tests.harness import marked_language
from tests.harness.marked_language import CODE, wide

PEOPLE = ("root", "alice", "bob", "bella", "vera", "charlie", "loner", "gone", None)
NEW_SHELL = f"/ws/shells/{'f' * 32}?run={{run}}"
MAY = {
    "/ws/live?at=/jobs/": {"root", "alice", "bob", "bella", "vera", "charlie", "loner"},
    "/ws/live?at=/jobs/1/": set(),
    "/ws/live?at=/nowhere": set(),
    "/ws/jobs": {"root", "alice", "bob", "bella", "vera", "charlie", "loner"},
    "/ws/jobs/{job}": {"root", "alice", "bob", "bella", "vera"},
    "/ws/jobs/{job}/log": {"root", "alice", "bob", "bella", "vera"},
    "/ws/jobs/{job}/log/workerpool0-0": {"root", "alice", "bob", "bella", "vera"},
    "/ws/hosts": {"root", "alice", "bob", "bella", "vera", "charlie"},
    "/ws/hosts/{host}": {"root", "alice", "bob", "bella", "vera", "charlie"},
    "/ws/shell/{run}": {"root", "alice", "bob"},
    NEW_SHELL: {"root", "alice", "bob"},
    "/ws/jobs/{job}/log/workerpool7-7": set(),
    "/ws/jobs/{job}/log/workerpool0-0?run=nothing": set(),
    "/ws/jobs/1": set(),
    "/ws/jobs/9999999999999999999": set(),
    "/ws/shell/nothing": set(),
    "/ws/nowhere": set(),
}


@pytest.mark.parametrize("path", MAY)
async def test_only_a_person_with_permission_gets_in(visit, job, run, path):
    path = path.format(job=job.pk, run=run.pk, host=run.host_id)
    let_in = set()
    for who in PEOPLE:
        visitor = await visit(path, who)
        if visitor.accepted:
            let_in.add(who)
            await visitor.leave()
    assert (
        let_in
        == MAY[next(known for known in MAY if known.format(job=job.pk, run=run.pk, host=run.host_id) == path)]
    )


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [
        ("http://testserver", True),
        ("http://evil.example", False),
        ("http://testserver:81", False),
        ("http://testserver.evil.example", False),
        ("null", False),
        ("", False),
    ],
)
async def test_a_page_of_another_site_is_refused(visit, job, origin, accepted):
    visitor = await visit(f"/ws/jobs/{job.pk}", "vera", page=True, origin=origin)
    assert visitor.accepted is accepted
    if accepted:
        await visitor.leave()


async def test_a_nul_character_is_refused_before_any_query(visit, job):
    for path in ("/ws/jobs?text=a%00b", f"/ws/jobs/{job.pk}/log/workerpool0-0?run=%00"):
        assert not (await visit(path, "vera")).accepted
    viewer = await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0", "vera")
    await viewer.tell(**{"from": 0, "run": "\0"})
    assert (await viewer.until_closed())[0] == 4400


def log_out(vera):
    Session.objects.all().delete()


def change_password(vera):
    vera.set_password("another good one")
    vera.save()


def disable(vera):
    User.objects.filter(pk=vera.pk).update(is_active=False)


def leave_project(vera):
    Membership.objects.filter(user=vera).delete()


def delete_user(vera):
    vera.delete()


@pytest.mark.parametrize("loss", [log_out, change_password, disable, leave_project, delete_user])
async def test_a_lost_permission_ends_an_open_socket(visit, cast, job, monkeypatch, loss):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    page = await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0", "vera", page=True)
    await page.tell(tail=1)
    await page.until(lambda v: v.told)
    await in_database_thread(loss, cast.vera)
    code, reason = await page.until_closed()
    assert code in (4403, 4404) and reason


async def test_a_person_reads_the_reason_in_their_language_and_a_script_in_english(
    visit, cast, job, monkeypatch, settings, tmp_path
):
    marked_language.write(tmp_path)
    settings.LANGUAGES, settings.LOCALE_PATHS = [("en", "English"), (CODE, "Wide")], [tmp_path]
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    path, english = f"/ws/jobs/{job.pk}/log/workerpool0-0", "You are logged out."
    page, script = await visit(path, page=True, accepts=CODE), await visit(path, accepts=CODE)
    for each in (page, script):
        await each.tell(tail=1)
        await each.until(lambda v: v.told)
    await in_database_thread(disable, cast.vera)
    assert await page.until_closed() == (4403, wide(english)) and page.told[-1] == {"closed": wide(english)}
    assert await script.until_closed() == (4403, english)


async def test_a_revoked_token_and_a_deleted_job_end_a_socket(visit, cast, job, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.05)
    script, page = await visit(f"/ws/jobs/{job.pk}", "bella"), await visit(f"/ws/jobs/{job.pk}", "vera")
    await in_database_thread(
        lambda: [tokens.revoke(cast.bella, token.pk, job.created_at) for token in cast.bella.api_tokens.all()]
    )
    assert (await script.until_closed())[0] == 4403
    assert page.closed is None
    await in_database_thread(lambda: Job.objects.filter(pk=job.pk).update(state="FAILED", outcome="FAILED"))
    await in_database_thread(lambda: job.runs.update(phase="closed"))
    await in_database_thread(delete, job, "root", job.created_at)
    assert (await page.until_closed())[0] == 4404


def test_rights_are_checked_again_within_five_seconds():
    assert socket_lifecycle.RECHECK_S < 5


async def test_a_short_outage_of_the_database_ends_no_socket(visit, job, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.02)
    page = await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0")
    asked = []

    def away(self, question):
        asked.append(question)
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(socket_lifecycle.Socket, "_with_user", away)
    while len(asked) < 5:
        assert await page.quiet(0.05)
    monkeypatch.setattr(socket_lifecycle, "DATABASE_PATIENCE_S", 0.05)
    assert await page.until_closed() == (1013, "The database does not answer at the moment.")


async def test_the_limit_of_a_database_outage_is_measured_by_the_clock(visit, job, monkeypatch):
    monkeypatch.setattr(socket_lifecycle, "RECHECK_S", 0.001)
    monkeypatch.setattr(socket_lifecycle, "DATABASE_PATIENCE_S", 1.0)
    page = await visit(f"/ws/jobs/{job.pk}/log/workerpool0-0")

    def away(self, question):
        time.sleep(0.7)
        raise OperationalError("no connection within 20 s")

    monkeypatch.setattr(socket_lifecycle.Socket, "_with_user", away)
    assert (await page.until_closed())[0] == 1013
