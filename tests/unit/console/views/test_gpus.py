"""A quarantined GPU on pages and in the API, and what an admin can do about it."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.hosts import gpu_quarantine
from agents.models import Gpu, Host
from console.presenters.live import host_stamp, hosts_stamp
from jobs.models import AuditEntry
from tests.unit.console.views.example_rows import a_host, a_job, a_run

HOSTILE = "<script>alert(1)</script>"
STRANGER = {
    "pid": 4711,
    "ticks": 9,
    "user": "mallory",
    "age_s": 7200,
    "name": HOSTILE,
    "how": "open",
    "run": "",
}


@pytest.fixture
def host(project):
    host = a_host(gpus=2)
    gpu_quarantine.quarantine(host.pk, {host.gpus.first().uuid: [STRANGER]}, "", timezone.now())
    return host


def test_a_quarantined_gpu_shows_its_processes_and_only_admins_get_buttons(browser, host):
    page = browser("root").get(f"/hosts/{host.pk}/").content.decode()
    for words in (
        "Quarantined",
        "4711",
        "mallory",
        "has its device open",
        "Check again",
        "Kill it",
        "Use it anyway",
    ):
        assert words in page, words
    assert HOSTILE not in page
    page = browser("vera").get(f"/hosts/{host.pk}/").content.decode()
    assert "4711" in page and "Check again" not in page
    assert "1 quarantined" in browser("vera").get("/hosts/").content.decode()


def test_a_gpu_is_shown_as_cleaning_until_its_ended_run_is_proved_closed(browser, project, cast):
    host = a_host(gpus=1)
    job = a_job(project, cast.bob)
    a_run(job, job.replicas.get(), host, gpus=[host.gpus.first()], phase="ended")
    [gpu] = browser("vera").get(f"/hosts/{host.pk}/").context["host"].gpus
    assert gpu.badge.word == "Cleaning"


def test_a_change_of_a_gpu_updates_open_host_pages_and_a_mere_contact_does_not(host, cast):
    def stamps():
        return host_stamp(host.pk), hosts_stamp(cast.vera, {})

    before, gpu = stamps(), host.gpus.first()
    Host.objects.filter(pk=host.pk).update(
        mark=host.mark + 5, seen_at=timezone.now(), lease_until=timezone.now()
    )
    assert stamps() == before
    # Another stranger beside the first is no event; that it is free again is one.
    gpu_quarantine.quarantine(host.pk, {gpu.uuid: [STRANGER, {**STRANGER, "pid": 4712}]}, "", timezone.now())
    after = stamps()
    assert after[0] != before[0]
    Gpu.objects.filter(pk=gpu.pk).update(state="ok")
    assert stamps()[1] != after[1]


@pytest.mark.parametrize(
    ("what", "words"), [("recheck", "looked at again"), ("evict", "being killed"), ("use", "in use again")]
)
def test_an_admin_acts_on_a_gpu_from_its_page(browser, host, what, words):
    gpu = host.gpus.first()
    page = browser("root").post(f"/hosts/{host.pk}/gpus/{gpu.pk}/{what}", follow=True).content.decode()
    assert words in page and "root" in page
    gpu.refresh_from_db()
    assert gpu.state == {"recheck": "cleaning", "evict": "quarantined", "use": "ok"}[what]
    assert bool(gpu.evict) is (what == "evict")
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.what) == ("root", f"gpu.{what}") and "4711" in entry.before


def test_a_gpu_of_another_host_and_an_unknown_act_are_not_found(browser, host):
    other = a_host("other", gpus=1).gpus.get()
    root = browser("root")
    assert root.post(f"/hosts/{host.pk}/gpus/{other.pk}/use").status_code == 404
    assert root.post(f"/hosts/{host.pk}/gpus/{host.gpus.first().pk}/explode").status_code == 404


def test_the_api_shows_quarantined_gpus_and_acts_on_them(browser, host):
    path = f"/api/v1/hosts/{host.pk}/gpus"
    root, vera, loner = browser("root"), browser("vera"), browser("loner")
    first, second = vera.get(path).json()["gpus"]
    assert (first["state"], first["holders"][0]["pid"], second["state"]) == ("quarantined", 4711, "ok")
    assert loner.get(path).status_code == 404
    assert vera.post(f"{path}/{first['uuid']}:use").status_code == 403
    assert root.post(f"{path}/{first['uuid']}:use").json()["state"] == "ok"
    assert "in use already" in root.post(f"{path}/{first['uuid']}:use").json()["error"]["message"]
    assert root.post(f"{path}/GPU-none:use").status_code == 404
    assert Gpu.objects.filter(state="ok").count() == 2
