"""A person sees where they are logged in, and ends one session or all of them, with their sockets and shells."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.auth import session_list, tokens
from console.auth.session_store import SEEN_EVERY, stored_key
from console.consumers import credentials
from console.models import ApiToken, Session
from console.presenters.people import sessions as presenter
from jobs import shells
from jobs.models import AuditEntry, ShellSession
from tests.unit.console.api.conftest import script
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project
from tests.unit.console.views.example_rows import a_host, a_job

__all__ = ["browser", "cast", "project", "script"]

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
PHONE = (
    "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Mobile Safari/537.36"
)


def logged_in(name="bob", agent=FIREFOX, address="192.0.2.7"):
    client = Client(headers={"user-agent": agent}, REMOTE_ADDR=address)
    assert client.post("/login", {"username": name, "password": PASSWORD}).status_code == 302
    return client


def is_in(client):
    return client.get("/account").status_code == 200


def key_of(client):
    return client.session.session_key


def row_of(client):
    return Session.objects.get(pk=stored_key(key_of(client)))


def test_a_session_knows_when_where_and_how_it_began(cast):
    before = timezone.now()
    row = row_of(logged_in())
    assert before <= row.made_at <= timezone.now() and row.seen_at >= row.made_at
    assert (row.address, row.agent, row.way) == ("192.0.2.7", FIREFOX, "password")


def test_the_last_use_is_written_every_five_minutes_and_when_the_address_changes(
    cast, django_assert_num_queries
):
    client = logged_in()
    key = stored_key(key_of(client))
    late = timezone.now() - SEEN_EVERY - timedelta(seconds=1)
    Session.objects.filter(pk=key).update(seen_at=late)
    client.get("/account")
    seen = Session.objects.get(pk=key).seen_at
    assert seen > late
    client.get("/account")
    assert Session.objects.get(pk=key).seen_at == seen
    client.get("/account", REMOTE_ADDR="198.51.100.9")
    moved = Session.objects.get(pk=key)
    assert moved.address == "198.51.100.9" and moved.seen_at > seen and moved.made_at


def test_what_is_written_down_outlives_a_change_of_the_session(cast):
    client = logged_in()
    client.get("/account", REMOTE_ADDR="198.51.100.9")
    made_at = row_of(client).made_at
    session = client.session
    session["anything"] = 1
    session.save()
    row = row_of(client)
    assert (row.made_at, row.address, row.agent, row.way) == (made_at, "198.51.100.9", FIREFOX, "password")


def test_the_page_shows_each_session_and_marks_this_one(cast):
    old = logged_in(agent=PHONE, address="203.0.113.5")
    here = logged_in()
    logged_in("bella")
    page = here.get("/account/security").content.decode()
    assert (
        page.count("this browser</span>") == 1 and page.count("Log out Chrome on Android at 203.0.113.5") == 1
    )
    assert page.index("Firefox on Linux") < page.index("Chrome on Android")
    assert key_of(old) not in page and key_of(here) not in page


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (PHONE, "Chrome on Android"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/142.0.0.0 Safari/537.36 Edg/142.0", "Edge on Windows"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0) Version/19.0 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/19.0 Safari/605.1.15", "Safari on macOS"),
        ("<script>alert(1)</script>", "unknown browser"),
        ("", "unknown browser"),
    ],
)
def test_a_browser_is_named_in_words(agent, words):
    assert presenter.browser_of(agent) == words


def test_one_session_is_ended_and_no_other(cast):
    lost, here = logged_in(agent=PHONE), logged_in()
    ended = here.post(f"/account/sessions/{session_list.id_of(row_of(lost))}/end", follow=True)
    assert "That browser is logged out." in ended.content.decode()
    assert not is_in(lost) and is_in(here)
    entry = AuditEntry.objects.get(what="session.end")
    assert (entry.actor, entry.subject, entry.before["from"]) == ("bob", "bob", "192.0.2.7")


def test_the_session_of_another_person_is_absent(cast, script):
    theirs, mine = logged_in("bella"), logged_in()
    wanted = session_list.id_of(row_of(theirs))
    assert mine.post(f"/account/sessions/{wanted}/end").status_code == 404
    assert script("bob").delete(f"/api/v1/sessions/{wanted}").status_code == 404
    assert is_in(theirs)


def test_log_out_everywhere_ends_sockets_and_shells(cast, project):
    """Sockets ask `credentials.user` every 3.5 s; the host ends a shell whose end is wanted (shell_guard)."""
    lost, here = logged_in(agent=PHONE), logged_in()
    run = a_job(project, cast.bob, host=a_host(gpus=1)).runs.get()
    kept = {
        client: shells.record_kept(
            run, cast.bob, "", shells.Kept(key * 32, 60, tokens.digest(key_of(client))), timezone.now()
        )
        for key, client in (("a", lost), ("b", here))
    }
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in lost.cookies.items())
    socket = {"headers": [(b"cookie", cookie.encode())]}
    assert credentials.user(socket) == cast.bob
    said = here.post("/account/sessions/end", follow=True).content.decode()
    assert "You are logged out everywhere else. 1 session ended." in said
    assert not is_in(lost) and is_in(here) and credentials.user(socket) is None
    ending = ShellSession.objects.get(pk=kept[lost].pk)
    assert ending.close_wanted_at and ending.close_reason == "Its owner is logged out."
    assert ShellSession.objects.get(pk=kept[here].pk).close_wanted_at is None
    assert AuditEntry.objects.get(what="session.end_all").after == {"sessions": 1}


def test_scripts_and_this_browser_go_too_where_that_is_wanted(cast):
    lost, here = logged_in(agent=PHONE), logged_in()
    _, token = tokens.create(cast.bob, "ci", timezone.now())
    here.post("/account/sessions/end")
    assert tokens.owner(token, timezone.now()) == cast.bob
    assert here.post("/account/sessions/end", {"here": "on", "tokens": "on"})["Location"] == "/login"
    assert not is_in(lost) and not is_in(here) and tokens.owner(token, timezone.now()) is None
    assert not Session.objects.filter(user=cast.bob).exists()


def test_a_script_lists_and_ends_sessions(cast, script):
    first, second = logged_in(agent=PHONE), logged_in()
    bob = script("bob")
    shown = bob.get("/api/v1/sessions").json()["sessions"]
    assert {row["userAgent"] for row in shown} == {PHONE, FIREFOX}
    assert set(shown[0]) == {"id", "address", "userAgent", "way", "createTime", "lastUseTime", "expireTime"}
    wanted = next(row["id"] for row in shown if row["userAgent"] == PHONE)
    assert bob.delete(f"/api/v1/sessions/{wanted}").status_code == 200
    assert not is_in(first) and is_in(second)
    answer = bob.post("/api/v1/sessions:endAll", {}, content_type="application/json").json()
    assert answer == {"sessionsEnded": 1, "tokensRevoked": 0} and not is_in(second)
    answer = bob.post("/api/v1/sessions:endAll", {"tokens": True}, content_type="application/json").json()
    assert answer["tokensRevoked"] == 1 and not ApiToken.objects.filter(revoked_at=None).exists()
