"""Logins of projects on a host: set by an admin, shown to members, each with a page and a checklist of its own."""

from __future__ import annotations

import json
import shlex

import pytest
from django.utils import timezone

from agents.infra import shared_answers
from agents.models import Host, HostStatus
from console.auth import tokens
from jobs.maintenance import logins
from tests.unit.console.commands.test_cli import trainyard
from tests.unit.console.views.example_rows import a_host, a_job, one_line

__all__ = ["trainyard"]

TEMPLATE = "train-{project}"


@pytest.fixture
def machine(project, cast):
    """A host with a login for the project default, and one for elsewhere (Charlie's)."""
    host = a_host("gpu-7", gpus=1)
    logins.set_template(host, TEMPLATE, "root", timezone.now())
    return host


def login(machine, user):
    return Host.objects.get(machine=machine, user=user)


def test_an_admin_gives_a_host_logins_and_sees_how_to_make_them(browser, project):
    host, root = a_host("gpu-7"), browser("root")
    url = f"/hosts/{host.pk}/logins"
    refused = root.post(url, {"template": "train"})
    assert "A template has {project} or {id} in it once." in one_line(refused.content.decode())
    page = root.post(url, {"template": TEMPLATE}, follow=True).content.decode()
    assert "Each project has a login of its own on gpu-7." in page
    assert "train-default" in page and "train-elsewhere" in page
    command = root.get(f"/hosts/{host.pk}/").context["host"].make_logins
    assert "for u in train-default train-elsewhere; do" in command and "ssh-ed25519" in command
    assert shlex.split(command), "a shell can read it"
    Host.objects.filter(machine=host).update(status=HostStatus.UP)
    assert root.get(f"/hosts/{host.pk}/").context["host"].make_logins == ""
    assert f'value="{TEMPLATE}"' in root.get(f"/hosts/{host.pk}/maintenance").content.decode()


def test_the_add_page_says_that_the_lock_of_a_gpu_is_each_logins_own(browser, project):
    page = one_line(browser("root").get("/hosts/add").content.decode())
    assert "The lock of a GPU does not hold between logins" in page


def test_a_login_has_a_page_with_its_checklist_and_no_maintenance(browser, machine):
    row = login(machine, "train-default")
    page = browser("root").get(f"/hosts/{row.pk}/")
    assert "The login of project default on" in one_line(page.content.decode())
    assert "Separation" in [check.name for check in page.context["host"].checks]
    machine_page = browser("root").get(f"/hosts/{machine.pk}/")
    assert "Separation" not in [check.name for check in machine_page.context["host"].checks]


def test_a_member_sees_the_login_of_their_project_only(browser, machine):
    bob, ours, theirs = (
        browser("bob"),
        login(machine, "train-default"),
        login(machine, "train-elsewhere"),
    )
    assert bob.get(f"/hosts/{ours.pk}/").status_code == 200
    assert bob.get(f"/hosts/{theirs.pk}/").status_code == 404
    page = bob.get(f"/hosts/{machine.pk}/").content.decode()
    assert "train-default" in page and "train-elsewhere" not in page and "useradd" not in page


def test_logins_are_no_hosts_in_lists_and_their_runs_count_for_the_machine(browser, cast, project, machine):
    a_job(project, cast.bob, host=login(machine, "train-default"))
    root = browser("root")
    found = root.get("/hosts/").context["list"]
    assert [(row.name, row.runs) for row in found.rows] == [("gpu-7", 1)]
    assert root.get(f"/hosts/{machine.pk}/").context["host"].running == 1
    assert root.get("/hosts/gpus").content.decode().count("gpu-7") >= 1


def test_a_host_is_added_with_logins_for_projects(browser, project):
    typed = {
        "name": "gpu-8",
        "address": "10.0.0.8",
        "user": "train",
        "port": "22",
        "location": "default",
        "jump": "",
    }
    root = browser("root")
    refused = root.post("/hosts/add", {**typed, "login_template": "train"})
    assert refused.context["form"].errors["login_template"] and not Host.objects.exists()
    assert root.post("/hosts/add", {**typed, "login_template": TEMPLATE}).status_code == 302
    host = Host.machines.get()
    assert logins.template_of(host) == TEMPLATE
    assert not Host.objects.filter(machine=host).exists(), "nobody has accepted its key yet"
    Host.objects.filter(pk=host.pk).update(pinned_key="ssh-ed25519 AAAA")
    logins.make_all_missing(timezone.now())
    assert Host.objects.filter(machine=host).count() == 2


def test_scripts_set_and_read_logins(client, cast, project):
    host = a_host("gpu-7")
    headers = {"authorization": f"Bearer {tokens.create(cast.root, 'test', timezone.now())[1]}"}
    url = f"/api/v1/hosts/{host.name}"

    def act(template):
        body = json.dumps({"template": template})
        return client.post(f"{url}:setLogins", body, content_type="application/json", headers=headers)

    assert act("train").status_code == 400
    assert act(TEMPLATE).json()["loginTemplate"] == TEMPLATE
    found = client.get(url, headers=headers).json()["logins"]
    assert [(each["project"], each["user"], each["status"]) for each in found] == [
        ("default", "train-default", "checking"),
        ("elsewhere", "train-elsewhere", "checking"),
    ]
    assert len(client.get("/api/v1/hosts", headers=headers).json()["hosts"]) == 1
    assert act("").json()["logins"] == []


def test_the_command_line_sets_and_lists_logins(trainyard):
    trainyard("project", "list")
    a_host("gpu-7")
    done = trainyard("host", "logins", "gpu-7", "--template", TEMPLATE)
    assert (done.code, done.out) == (0, "gpu-7: train-{project}\ndefault\ttrain-default\tchecking\t\n")
    assert trainyard("host", "logins", "gpu-7").out == done.out
    assert trainyard("host", "logins", "gpu-7", "--template", "x").code == 1
    assert trainyard("host", "logins", "gpu-7", "--one").out == "gpu-7: one login for all projects\n"


def test_a_lost_login_is_named_on_the_command_line(machine, trainyard):
    Host.objects.filter(machine=machine, user="train-default").update(status=HostStatus.AUTH_FAILED)
    unknown = trainyard("host", "declare-gone", "gpu-7/train-nobody")
    assert unknown.code == 1 and "gpu-7/train-default, gpu-7/train-elsewhere" in unknown.err
    unconfirmed = trainyard("host", "declare-gone", "gpu-7/train-default", "--confirm", "gpu-8")
    assert unconfirmed.code == 1 and "--confirm gpu-7/train-default" in unconfirmed.err
    named = ("host", "declare-gone", "gpu-7/train-default", "--confirm", "gpu-7/train-default")
    assert trainyard(*named).out.startswith("gpu-7/train-default is declared gone.")
    assert not Host.objects.filter(maintenance__gone_at__isnull=False, machine=None).exists()
    elsewhere = ("host", "declare-gone", "gpu-7", "--project", "elsewhere", "--confirm", "gpu-7")
    answered = trainyard(*elsewhere)
    assert answered.code == 1 and "has not been lost" in answered.err


def test_hosts_without_a_login_for_the_project_do_not_count_for_machine_types(machine, browser):
    """Charlie's project elsewhere has a login on gpu-7 that is not up; the project default has one that is."""
    Host.objects.filter(pk=machine.pk).update(status=HostStatus.UP)
    login_of = Host.objects.filter(machine=machine, user="train-default")

    def fits():
        shared_answers.forget_all()
        offers = browser("bob").get("/jobs/new").context["machines"]
        return {(offer.ever, offer.now) for offer in offers}

    login_of.update(status=HostStatus.CHECKING)
    assert fits() == {(1, 0)}
    login_of.update(status=HostStatus.UP)
    assert fits() == {(1, 1)}
    login_of.update(retired_at=timezone.now())
    assert fits() == set()
    told = browser("root").get("/api/v1/machineTypes").json()["machineTypes"]
    assert any(one["hosts"] == 1 for one in told), told[:2]
