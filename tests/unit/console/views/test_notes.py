"""The notes above every page: a changed host key is shown to all who see the host, and can be accepted by admins."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.infra.shared_answers import forget_all
from agents.models import HostStatus, MachineClock
from agents.ssh.host_keys import fingerprint
from console.presenters import notes
from tests.unit.agents.hosts.test_enrolment import GOOD, judged
from tests.unit.console.views.example_rows import KEY, OTHER_KEY, a_host, a_job, one_line
from tests.unit.jobs.conftest import kept_time

__all__ = ["kept_time"]

EVERYWHERE = (
    "/jobs/",
    "/hosts/",
    "/hosts/gpus",
    "/projects/",
    "/usage/",
    "/account",
    "/help/training",
    "/machines/",
)


@pytest.fixture
def changed(project):
    return a_host("gpu-a", status=HostStatus.BLOCKED, offered_key=OTHER_KEY, key_accepted_by="alice")


@pytest.mark.parametrize("page", EVERYWHERE)
def test_a_changed_host_key_is_above_every_page_with_both_fingerprints(browser, changed, page):
    for who, way in (("root", True), ("bob", False), ("vera", False)):
        shown = one_line(browser(who).get(page).text)
        assert "has changed </strong>" in shown and "Accepted by alice" in shown, who
        assert fingerprint(KEY) in shown and fingerprint(OTHER_KEY) in shown
        assert (f'formaction="/hosts/{changed.pk}/accept"' in shown) is way
        assert shown.index(fingerprint(OTHER_KEY)) < shown.index("<h1")


def test_people_who_may_not_see_the_host_are_told_nothing(browser, changed):
    for who in ("loner", None):
        for page in ("/account", "/login", "/help/training"):
            assert fingerprint(OTHER_KEY) not in browser(who).get(page, follow=True).text


def test_a_new_host_is_no_changed_key(browser, project):
    a_host("fresh", status=HostStatus.BLOCKED, pinned_key="", offered_key=OTHER_KEY)
    assert fingerprint(OTHER_KEY) not in browser("root").get("/jobs/").text


def test_a_changed_key_of_a_jump_host_names_the_jump_host(browser, project):
    jump = {"jump": "gate", "jump_keys": {"gate:22": OTHER_KEY}}
    a_host("behind", offered_key=KEY, offered_at="gate:22", **jump)
    (found,) = browser("root").get("/jobs/").context["notes"].keys
    assert (found.pinned, found.offered) == (fingerprint(OTHER_KEY), fingerprint(KEY))
    assert "by gate:22" in browser("root").get("/jobs/").text


def test_many_changed_keys_are_counted_with_as_many_queries_as_one(
    browser, cast, project, django_assert_num_queries
):
    a_host("host-0", offered_key=OTHER_KEY)
    with CaptureQueriesContext(connection) as few:
        notes.notes(cast.bob)
    for number in range(1, 6):
        a_host(f"host-{number}", offered_key=OTHER_KEY)
    with django_assert_num_queries(len(few)):
        found = notes.notes(cast.bob)
    assert [key.name for key in found.keys] == ["host-0", "host-1", "host-2"] and found.more_keys == 3
    assert "3 more hosts" in one_line(browser("bob").get("/jobs/").text)


def test_the_note_accepts_the_key(browser, changed):
    answer = browser("root").post(
        f"/hosts/{changed.pk}/accept", {"fingerprint": fingerprint(OTHER_KEY)}, follow=True
    )
    changed.refresh_from_db()
    assert changed.pinned_key == OTHER_KEY and "has changed" not in answer.text


@pytest.mark.parametrize("change", [{}, {"local": False}, {"writable": False}, {"free_mb": 60}])
def test_no_number_is_said_twice_on_the_page_of_a_host(browser, project, change):
    """The checklist keeps the texts of the last check. The free disk of then is nowhere beside that of now."""
    checked = judged(disk={**GOOD["disk"], "free_mb": 70 * 1024, "total_mb": 100 * 1024, **change})
    lines = [item.as_row() for item in checked.values()]
    host = a_host("gpu-b", checklist=lines, memory_mb=2048, cpus=8, free_disk_mb=58 * 1024)
    page = one_line(browser("root").get(f"/hosts/{host.pk}/").text)
    frozen = checked["Disk"].text.partition(" of ")[0]
    assert "58 GiB of 100.0 GiB free" in page and "<dd>58 GiB</dd>" in page and f"{frozen} of" not in page
    for name, known in (("CPUs", "8"), ("Memory", "2.0 GiB")):
        assert known in checked[name].text and f"<dd>{known}</dd>" in page


def test_a_small_disk_has_the_unit_of_its_size(browser, project):
    """253 MiB of 0.2 GiB would be more than there is."""
    checked = judged(
        disk={**GOOD["disk"], "free_mb": 253, "total_mb": 256, "fstype": "ext4", "path": "/home"}
    )
    assert checked["Disk"].text == "253 MiB of 256 MiB free, ext4 at /home"
    lines = [item.as_row() for item in checked.values()]
    page = one_line(browser("root").get(f"/hosts/{a_host('s', checklist=lines, free_disk_mb=99).pk}/").text)
    assert "99 MiB of 256 MiB free" in page


def test_an_older_checklist_and_one_of_an_unreached_host_keep_their_text(browser, project):
    then = {
        "text": "70.0 GiB of 100.0 GiB free, ext4 at /home",
        "now": "{free disk} of 100.0 GiB free, ext4 at /home",
    }
    older = {"name": "Disk", "ok": True, "fix": "", "text": then["text"]}
    for name, line, free in (("old", older, 58 * 1024), ("unreached", {**older, **then}, None)):
        host = a_host(name, checklist=[line], free_disk_mb=free)
        page = browser("root").get(f"/hosts/{host.pk}/").text
        assert "70.0 GiB of 100.0 GiB free" in page and "{free disk}" not in page


def test_a_running_job_is_not_disturbed_by_a_note(browser, changed, project, cast):
    job = a_job(project, cast.bob, host=changed)
    assert one_line(browser("bob").get(f"/jobs/{job.pk}/").text).count("has changed </strong>") == 1


@pytest.mark.usefixtures("project")
def test_admins_are_told_that_nothing_is_deleted_by_its_age(browser, kept_time):
    """It may last for ever, and disks fill meanwhile."""
    said = "Nothing is deleted by its age at this moment."
    assert said not in browser("root").get("/jobs/").text
    forget_all()
    MachineClock.objects.update(database_s=7200.0)
    shown = one_line(browser("root").get("/jobs/").text)
    assert said in shown and "trainyard clock set-right" in shown
    for who in ("bob", "vera", "loner"):
        assert said not in browser(who).get("/jobs/", follow=True).text
