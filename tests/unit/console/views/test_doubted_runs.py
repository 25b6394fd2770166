"""Runs that a host reports without the seal of Trainyard: who sees them, and what an admin can do with them."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from agents.hosts import recovery
from console.auth import tokens
from console.presenters.hosts import recovery_page
from jobs.models import Proof, Stray
from tests.unit.console.views.example_rows import a_doubted_run, a_host

pytestmark = pytest.mark.django_db


@pytest.fixture
def script(cast):
    return Client(headers={"authorization": f"Bearer {tokens.create(cast.root, 'test', timezone.now())[1]}"})


def test_an_admin_sees_stray_runs_on_the_page_of_a_host_and_ends_or_dismisses_them(browser, cast, project):
    root, host = browser("root"), a_host("gpu-03")
    bare, false = a_doubted_run(host), a_doubted_run(host, Proof.FALSE)
    ours = a_doubted_run(host, Proof.SEALED)
    words = root.get(f"/hosts/{host.pk}/").content.decode()
    assert "3 runs that this database does not know" in words and "it is ours, and was lost" in words
    assert "it carries no seal of ours" in words and "its seal is not ours for this run on this host" in words
    assert bare.run not in browser("bob").get(f"/hosts/{host.pk}/").content.decode()
    words = root.post(f"/hosts/{host.pk}/strays/{bare.pk}/stop", follow=True).content.decode()
    assert "being ended for root" in words
    words = root.post(f"/hosts/{host.pk}/strays/{false.pk}/dismiss", follow=True).content.decode()
    assert "2 runs that this database does not know" in words and false.run not in words
    other = a_host("gpu-04")
    assert root.post(f"/hosts/{other.pk}/strays/{bare.pk}/stop").status_code == 404
    words = root.post(f"/hosts/{host.pk}/strays/{ours.pk}/dismiss", follow=True).content.decode()
    assert "was started by this deployment" in words and ours.run in words
    Stray.objects.filter(pk=ours.pk).update(phase="closed")
    assert ours.run not in root.get(f"/hosts/{host.pk}/").content.decode()
    assert root.post(f"/hosts/{host.pk}/strays/{bare.pk}/adopt").status_code == 404


def test_the_api_lists_ends_and_dismisses_stray_runs(script):
    host = a_host("gpu-03")
    bare = a_doubted_run(host)
    [told] = script.get("/api/v1/recovery").json()["doubted"]
    assert told == {"run": bare.run, "host": "gpu-03", "phase": "running", "proof": "unsealed"}
    act = "/api/v1/hosts/gpu-03:{}".format
    answer = script.post(act("stopRun"), {"run": "x"}, content_type="application/json")
    [field] = answer.json()["error"]["details"][0]["fieldViolations"]
    assert answer.status_code == 400 and field["field"] == "run" and "has no run x" in field["description"]
    for verb in ("stopRun", "dismissRun"):
        assert script.post(act(verb), {"run": bare.run}, content_type="application/json").status_code == 200
    row = Stray.objects.get()
    assert (row.stop_by, row.dismissed_by) == ("root", "root")
    assert script.get("/api/v1/recovery").json()["doubted"] == []


def test_an_admin_begins_recovery_mode_by_hand_with_a_reason(browser, cast, script):
    root = browser("root")
    page = root.post("/recovery/begin", {"why": "x" * 501})
    assert page.context["begin"].errors["why"] and page.context["begin"]["why"].value() == "x" * 501
    assert not recovery.in_recovery_mode()
    words = root.post("/recovery/begin", {"why": "restored from Friday"}, follow=True).content.decode()
    assert recovery.in_recovery_mode() and "root says: restored from Friday" in words
    answer = script.post("/api/v1/recovery:begin", {"why": "again"}, content_type="application/json")
    assert answer.status_code == 400 and "already" in answer.json()["error"]["message"]


def test_the_page_of_recovery_shows_every_run_that_can_be_stopped_and_not_all_that_are_over(
    browser, cast, monkeypatch
):
    monkeypatch.setattr(recovery_page, "SHOWN", 2)
    host = a_host("gpu-1")
    for number in range(4):
        a_doubted_run(host, proof="sealed")
        Stray.objects.create(
            host=host, run=f"over-{number}", phase="closed", proof="sealed", found_at=timezone.now()
        )
    found = browser("root").get("/recovery/").context["found"]
    assert [row.phase for row in found.strays.rows] == ["running"] * 4 and found.strays.more == 4
    assert "And 4 more" in browser("root").get("/recovery/").text
