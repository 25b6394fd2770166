"""Logins and failed ones are in the audit, folded, and no stranger can flood it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from console.auth.login import login_audit, throttle
from console.models import LoginTally
from jobs.models import AuditEntry
from tests.unit.console.views.conftest import PASSWORD, browser, cast, project

__all__ = ["browser", "cast", "project"]

HOUR = timedelta(hours=1)


def told():
    rows = AuditEntry.objects.filter(what__startswith="login").order_by("id")
    return [(row.actor, row.what, row.subject, row.after) for row in rows]


def enter(name, password=PASSWORD, address="10.0.0.1"):
    return Client(REMOTE_ADDR=address).post("/login", {"username": name, "password": password})


def test_a_login_and_a_failed_one_are_told_with_the_address(cast):
    enter("bob")
    enter("bob", "wrong", "10.0.0.2")
    assert told() == [
        ("bob", "login", "bob", {"from": "10.0.0.1"}),
        ("not logged in", "login.failed", "bob", {"from": "10.0.0.2"}),
    ]


def test_what_was_typed_as_a_name_that_nobody_has_is_written_nowhere(cast):
    enter("my secret passphrase", "x")
    assert [row[2] for row in told()] == ["a name that nobody has"]
    assert "secret passphrase" not in str(list(LoginTally.objects.values()))


def test_repetitions_are_folded_into_one_entry_an_hour(cast):
    now = timezone.now()
    for minute in range(20):
        login_audit.failed("bob", "10.0.0.1", now + timedelta(minutes=minute))
        login_audit.succeeded(cast.bob, "10.0.0.1", now + timedelta(minutes=minute))
    assert len(told()) == 2
    login_audit.fold(now + timedelta(minutes=59))
    assert len(told()) == 2
    login_audit.fold(now + HOUR)
    login_audit.fold(now + HOUR)
    last = (now + timedelta(minutes=19)).isoformat(timespec="seconds")
    folded = {"from": "10.0.0.1", "times": 19, "until": last}
    assert sorted(told()[2:], key=str) == [
        ("bob", "login", "bob", folded),
        ("not logged in", "login.failed", "bob", folded),
    ]
    assert not LoginTally.objects.exists()


def test_a_try_after_the_hour_closes_the_count_without_the_fold(cast):
    now = timezone.now()
    for at in (now, now, now + HOUR + timedelta(seconds=1)):
        login_audit.failed("bob", "10.0.0.1", at)
    assert [after.get("times") for *_, after in told()] == [None, 1, None]


def test_a_clock_that_was_set_back_leaves_no_count_open_for_ever(cast):
    now = timezone.now()
    login_audit.failed("bob", "10.0.0.1", now + timedelta(days=1))
    login_audit.failed("bob", "10.0.0.1", now)
    login_audit.fold(now + HOUR)
    assert not LoginTally.objects.exists() and len(told()) == 2


@pytest.mark.parametrize("known", [True, False])
def test_a_stranger_with_many_addresses_makes_a_bounded_number_of_entries(cast, known):
    """And what is beside the bound is counted: none is lost."""
    now, tries, most = timezone.now(), 300, login_audit.MAX_OPEN[known]
    for number in range(tries):
        login_audit.failed("bob" if known else f"name {number}", f"10.1.{number // 250}.{number % 250}", now)
    assert len(told()) == most + 1
    login_audit.fold(now + HOUR)
    assert len(told()) == most + 2
    assert told()[-1][2:] == (
        login_audit.REST,
        {"times": tries - most - 1, "until": now.isoformat(timespec="seconds")},
    )


def test_names_that_nobody_has_do_not_hide_the_failures_of_a_person(cast):
    now = timezone.now()
    for number in range(100):
        login_audit.failed(f"name {number}", f"10.1.0.{number}", now)
    login_audit.failed("root", "10.2.0.1", now)
    assert told()[-1][2:] == ("root", {"from": "10.2.0.1"})


def test_refused_tries_of_a_locked_pair_are_counted_too(cast):
    for _ in range(throttle.TRIES_OF_PAIR + 3):
        enter("bob", "wrong")
    assert LoginTally.objects.get().more == throttle.TRIES_OF_PAIR + 2


@pytest.mark.django_db(transaction=True)
def test_first_failures_at_the_same_time_make_one_entry(cast):
    crowd = threading.Barrier(6)

    def fail():
        crowd.wait(30)
        try:
            login_audit.failed("bob", "10.0.0.1", timezone.now())
        finally:
            connection.close()

    threads = [threading.Thread(target=fail) for _ in range(crowd.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told()) == 1 and LoginTally.objects.get().more == crowd.parties - 1


def test_the_page_shows_logins_only_where_they_are_asked_for(cast, browser):
    enter("bob", "wrong")
    root = browser("root")
    root.post(f"/admin/people/{cast.bob.pk}/disable")

    def subjects(query):
        return [entry.slug for entry in root.get(f"/audit/{query}").context["page"].entries]

    assert subjects("") == ["user.disable"]
    assert subjects("?what=any") == ["user.disable", "login.failed"]
    assert subjects("?what=login.failed") == ["login.failed"]
    # Logins belong to no project: its admin does not see them.
    assert "login" not in str(browser("alice").get("/audit/?what=any").context["page"].entries)
