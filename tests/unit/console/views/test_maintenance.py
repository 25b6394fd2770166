"""Cordon and uncordon of hosts: the pages that concern it show who did it, when and why."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Host, HostEvent
from jobs.models import AuditEntry, HostMaintenance, Job, Run
from jobs.scheduling import scheduler
from tests.unit.console.views.example_rows import TWO_NETWORKS, a_host, a_job
from tests.unit.console.views.test_new_job import FORM


def test_no_job_is_placed_on_a_cordoned_host_and_waiting_jobs_show_why(browser):
    root, bob = browser("root"), browser("bob")
    host = a_host("gpu-03")
    done = root.post(f"/hosts/{host.pk}/cordon", {"message": "new  disk"}, follow=True)
    assert "takes no new jobs" in done.content.decode() and "new disk" in done.content.decode()
    bob.post("/jobs/new", FORM)
    scheduler.schedule(timezone.now())
    job = Job.objects.get()
    assert job.state == "QUEUED" and "gpu-03 is closed to new jobs by root: new disk." in job.reason
    assert job.reason in bob.get(f"/jobs/{job.pk}/").content.decode()
    assert "new disk" in bob.get("/hosts/").content.decode()
    assert "new disk" in bob.get(f"/hosts/{host.pk}/").content.decode()
    root.post(f"/hosts/{host.pk}/uncordon")
    scheduler.schedule(timezone.now())
    job.refresh_from_db()
    assert job.state == "PENDING" and job.runs.get().host == host
    assert list(AuditEntry.objects.values_list("what", "actor", "subject")) == [
        ("host.uncordon", "root", "gpu-03"),
        ("host.cordon", "root", "gpu-03"),
    ]
    events = HostEvent.objects.filter(host=host, actor="root").order_by("id").values_list("kind", "text")
    assert list(events)[1:] == [("cordoned", "new  disk"), ("uncordoned", "Open to jobs again.")]


def test_a_wait_reason_also_names_the_cordoned_hosts(browser):
    closed = a_host("closed", gpus=8)
    a_host("open", gpus=0)
    browser("root").post(f"/hosts/{closed.pk}/cordon", {})
    browser("bob").post(
        "/jobs/new", {**FORM, "pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "8"}
    )
    scheduler.schedule(timezone.now())
    reason = Job.objects.get().reason
    assert reason.startswith("Needs 1 x 8 NVIDIA_L4") and reason.endswith(
        "closed is closed to new jobs by root."
    )


@pytest.mark.parametrize("verb", ["cordon", "uncordon"])
def test_a_removed_host_is_not_found(browser, verb):
    host = a_host(retired_at=timezone.now())
    assert browser("root").post(f"/hosts/{host.pk}/{verb}").status_code == 404
    assert not HostMaintenance.objects.filter(cordoned=True).exists()


def test_a_host_is_drained_and_its_page_shows_the_progress(browser, project, cast):
    root, host = browser("root"), a_host("gpu-03")
    job = a_job(project, cast.bob, host=host, replicas=2)
    refused = root.post(f"/hosts/{host.pk}/drain", {"message": "disk", "force": "on"})
    assert "By force needs a deadline" in refused.context["drain"].errors["deadline"][0]
    assert refused.context["drain"]["message"].value() == "disk"
    page = root.post(
        f"/hosts/{host.pk}/drain", {"message": "disk", "deadline": "2h", "force": "on"}, follow=True
    )
    words = page.content.decode()
    assert "Being drained" in words and "0 of 2 replicas have left." in words
    assert "then the remaining jobs go back to the queue" in words
    HostMaintenance.objects.filter(pk=host.pk).update(drain_until=timezone.now() - timedelta(minutes=1))
    assert f"waits for job {job.pk}" in root.get(f"/hosts/{host.pk}/").content.decode()
    theirs = browser("charlie").get(f"/hosts/{host.pk}/").content.decode()
    assert "waits for 1 job of a project that is not yours" in theirs and str(job.pk) not in theirs
    job.runs.update(released_at=timezone.now())
    words = root.get(f"/hosts/{host.pk}/").content.decode()
    assert "Drained: nothing runs here" in words and "2 of 2 replicas have left." in words
    assert "drained: nothing runs here" in browser("bob").get("/hosts/").content.decode()


def test_a_deadline_that_is_too_far_is_refused_at_its_field(browser):
    host = a_host("gpu-03")
    for typed in ("9999999999d", "9" * 400 + "h"):
        page = browser("root").post(f"/hosts/{host.pk}/drain", {"message": "disk", "deadline": typed})
        assert "longer than a hundred years" in page.context["drain"].errors["deadline"][0]
    assert not HostMaintenance.objects.exists()


def test_only_an_unreachable_host_is_declared_gone_and_only_by_its_typed_name(browser, project, cast):
    root, host = browser("root"), a_host("gpu-03")
    job = a_job(project, cast.bob, host=host)
    assert "Declare the host gone" not in root.get(f"/hosts/{host.pk}/maintenance").content.decode()
    refused = root.post(f"/hosts/{host.pk}/gone", {"name": "gpu-03"})
    assert "has not been lost" in refused.content.decode()
    Host.objects.filter(pk=host.pk).update(status="unreachable")
    assert "Declare the host gone" in root.get(f"/hosts/{host.pk}/maintenance").content.decode()
    refused = root.post(f"/hosts/{host.pk}/gone", {"name": "gpu-3"})
    assert "Type the name of the host, gpu-03" in refused.context["gone"].errors["name"][0]
    assert job.runs.get().released_at is None
    page = root.post(f"/hosts/{host.pk}/gone", {"name": "gpu-03"}, follow=True).content.decode()
    assert "Declared gone by root" in page and job.runs.get().released_at


def test_pid_namespaces_are_enabled_only_where_the_host_supports_them_and_sent_with_the_run(browser):
    root, host = (
        browser("root"),
        a_host("gpu-03", facts={"pid_namespace": False, "pid_namespace_why": "EPERM"}),
    )
    url = f"/hosts/{host.pk}/contain"
    refused = root.post(url, {"pid_namespaces": "on"}).content.decode()
    assert "gpu-03 does not allow PID namespaces: EPERM." in refused and "checked" in refused
    Host.every.filter(pk=host.pk).update(facts={})
    assert "Check it again first" in root.post(url, {"pid_namespaces": "on"}).content.decode()
    orders = {}
    for facts, sent in (({"pid_namespace": True}, {"pid_namespaces": "on"}), ({}, {})):
        Host.every.filter(pk=host.pk).update(facts=facts)
        assert root.post(url, sent).status_code == 302
        assert root.post(url, sent).status_code == 302  # said again, nothing changes
        browser("bob").post("/jobs/new", FORM)
        scheduler.schedule(timezone.now())
        run = Run.objects.latest("created_at")
        orders[run.order["pid_namespace"]] = run.host
        shown = "a PID namespace for each run" in root.get(f"/hosts/{host.pk}/").content.decode()
        assert shown is run.order["pid_namespace"]
    assert orders == {True: host, False: host}
    noted = AuditEntry.objects.filter(what="host.contain").order_by("id")
    assert [(each.actor, each.after["pid_namespaces"]) for each in noted] == [("root", True), ("root", False)]
    assert HostEvent.objects.filter(host=host, kind="contained").count() == 2


def test_the_address_for_data_is_chosen_on_a_page_and_told_to_replicas(browser):
    root, host = browser("root"), a_host("gpu-03", found_address="10.0.0.7", facts=TWO_NETWORKS)
    page = root.get(f"/hosts/{host.pk}/maintenance").content.decode()
    assert "The one that the check finds: 10.0.0.7" in page and "10.9.0.7 (ib0)" in page
    assert root.post(f"/hosts/{host.pk}/network", {"data_address": "10.9.0.8"}).status_code == 200
    for sent, expected in ((None, "10.0.0.7"), ("10.9.0.7", "10.9.0.7"), ("", "10.0.0.7")):
        if sent is not None:
            assert root.post(f"/hosts/{host.pk}/network", {"data_address": sent}).status_code == 302
        assert expected in root.get(f"/hosts/{host.pk}/").content.decode()
        browser("bob").post("/jobs/new", FORM)
        scheduler.schedule(timezone.now())
        order = Run.objects.latest("created_at").order
        assert order["address"] == order["env"]["MASTER_ADDR"] == order["env"]["PET_LOCAL_ADDR"] == expected
        assert f'"{expected}:' in order["env"]["CLUSTER_SPEC"]
