"""Hosts closed to new jobs and opened again: who, when and why is read wherever it matters."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.models import Host, HostEvent
from jobs import schedule
from jobs.models import AuditEntry, Job
from tests.doors.pages.rows import a_host
from tests.doors.pages.test_new_job import FORM


def test_nothing_is_placed_on_a_cordoned_host_and_whoever_waits_reads_why(browser):
    root, bob = browser("root"), browser("bob")
    host = a_host("gpu-03")
    done = root.post(f"/hosts/{host.pk}/cordon", {"message": "new  disk"}, follow=True)
    assert "takes no new jobs" in done.content.decode() and "new disk" in done.content.decode()
    bob.post("/jobs/new", FORM)
    schedule.schedule(timezone.now())
    job = Job.objects.get()
    assert job.state == "QUEUED" and "gpu-03 is closed to new jobs by root: new disk." in job.reason
    assert job.reason in bob.get(f"/jobs/{job.pk}/").content.decode()
    assert "new disk" in bob.get("/hosts/").content.decode()
    assert "new disk" in bob.get(f"/hosts/{host.pk}/").content.decode()
    root.post(f"/hosts/{host.pk}/uncordon")
    schedule.schedule(timezone.now())
    job.refresh_from_db()
    assert job.state == "PENDING" and job.runs.get().host == host
    assert list(AuditEntry.objects.values_list("what", "actor", "subject")) == [
        ("host.uncordon", "root", "gpu-03"),
        ("host.cordon", "root", "gpu-03"),
    ]
    events = HostEvent.objects.filter(host=host, actor="root").order_by("id").values_list("kind", "text")
    assert list(events)[1:] == [("cordoned", "new  disk"), ("uncordoned", "Open to jobs again.")]


def test_where_other_hosts_are_open_the_closed_ones_are_told_beside_the_reason(browser):
    closed = a_host("closed", gpus=8)
    a_host("open", gpus=0)
    browser("root").post(f"/hosts/{closed.pk}/cordon", {})
    browser("bob").post(
        "/jobs/new", {**FORM, "pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "8"}
    )
    schedule.schedule(timezone.now())
    reason = Job.objects.get().reason
    assert reason.startswith("Needs 1 x 8 NVIDIA_L4") and reason.endswith(
        "closed is closed to new jobs by root."
    )


@pytest.mark.parametrize("verb", ["cordon", "uncordon"])
def test_a_removed_host_is_not_found(browser, verb):
    host = a_host(retired_at=timezone.now())
    assert browser("root").post(f"/hosts/{host.pk}/{verb}").status_code == 404
    assert not Host.every.get(pk=host.pk).cordoned
