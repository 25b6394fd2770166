"""The page, REST and the command that change how a host is reached."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from agents.hosts import moving
from agents.hosts.moving import Tried
from agents.infra.refusals import Refused
from agents.models import Host
from tests.unit.console.commands.test_cli import trainyard
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import a_host, one_line

__all__ = ["trainyard"]


@pytest.fixture
def host(db):
    return a_host("gpu-03", address="10.0.0.3", user="gpu", jump="gate")


@pytest.fixture
def tried(monkeypatch):
    """Every way leads to the host; the accepted fingerprints are kept."""
    asked = []

    def try_way(row, way, accepted):
        asked.append(list(accepted))
        if way.address == "10.9.9.9":
            raise Refused("address", "Nothing was changed. 10.9.9.9:22 shows the key <b>SHA256:x</b>.")
        if way.jump == "new" and "SHA256:new" not in accepted:
            raise Refused("jump_key", "Nothing was changed. The jump host new:22 shows the key SHA256:new.")
        return Tried({}, True)

    monkeypatch.setattr(moving, "try_way", try_way)
    return asked


def form(**changes):
    known = {"address": "10.0.0.3", "port": "22", "user": "gpu", "jump": "gate", "location": "default"}
    return {**known, **{f"seen_{name}": value for name, value in known.items()}, **changes}


def test_the_page_shows_how_the_host_is_reached(browser, host):
    page = browser("root").get(f"/hosts/{host.pk}/edit")
    assert (
        page.context["form"]["address"].value() == "10.0.0.3" and 'name="seen_jump"' in page.content.decode()
    )
    assert f"/hosts/{host.pk}/edit" in browser("root").get(f"/hosts/{host.pk}/").content.decode()
    assert f"/hosts/{host.pk}/edit" not in browser("vera").get(f"/hosts/{host.pk}/").content.decode()


def test_a_host_is_changed_from_the_page(browser, host, tried):
    done = browser("root").post(f"/hosts/{host.pk}/edit", form(address="10.0.0.9", jump=""), follow=True)
    assert "gpu-03 is changed" in one_line(done.content.decode())
    host.refresh_from_db()
    assert (host.address, host.jump) == ("10.0.0.9", "")


def test_what_is_found_at_a_wrong_address_is_said_at_the_field(browser, host, tried):
    page = browser("root").post(f"/hosts/{host.pk}/edit", form(address="10.9.9.9"))
    assert "&lt;b&gt;SHA256:x" in page.content.decode()
    assert page.context["form"].errors["address"] and Host.objects.get().address == "10.0.0.3"


def test_an_old_form_changes_nothing(browser, host, tried):
    page = browser("root").post(f"/hosts/{host.pk}/edit", form(seen_address="10.0.0.2", port="2222"))
    assert "was changed meanwhile" in page.content.decode() and Host.objects.get().port == 22


def test_the_key_of_a_new_jump_host_is_asked_for_and_needs_the_password(browser, host, tried):
    root = browser("root")
    assert 'name="jump_key"' not in root.get(f"/hosts/{host.pk}/edit").content.decode()
    asked = root.post(f"/hosts/{host.pk}/edit", form(jump="new"))
    assert 'name="jump_key"' in asked.content.decode() and "SHA256:new" in asked.content.decode()
    late = browser("root", given_at=timezone.now() - timedelta(hours=2))
    page = late.post(f"/hosts/{host.pk}/edit", form(jump="new", jump_key="SHA256:new"))
    assert "accept the key of a jump host" in page.content.decode() and Host.objects.get().jump == "gate"
    root.post(f"/hosts/{host.pk}/edit", form(jump="new", jump_key="SHA256:new"))
    assert Host.objects.get().jump == "new" and tried[-1] == ["SHA256:new"]


def script(cast, elevated=False):
    return Client(headers={"authorization": f"Bearer {token_of(cast.root, elevated)}"})


def patch(client, **body):
    return client.patch("/api/v1/hosts/gpu-03", json.dumps(body), content_type="application/json")


def test_a_script_changes_what_it_names(cast, host, tried):
    answer = patch(script(cast), port=2222, location="lab-c")
    assert answer.status_code == 200
    found = {name: answer.json()[name] for name in ("address", "port", "user", "jump", "location")}
    assert found == {"address": "10.0.0.3", "port": 2222, "user": "gpu", "jump": "gate", "location": "lab-c"}
    assert patch(script(cast), address="10.9.9.9").status_code == 400


def test_a_script_needs_an_elevated_token_to_accept_a_key(cast, host, tried):
    assert patch(script(cast), jump="new", jumpKeys=["SHA256:new"]).status_code == 403
    assert patch(script(cast, elevated=True), jump="new", jumpKeys=["SHA256:new"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"port": 22.5}, "port"),
        ({"port": "22"}, "port"),
        ({"port": 70000}, "port"),
        ({"name": "x"}, "name"),
        ({"jumpKeys": "SHA256:x"}, "jumpKeys"),
        ({"address": 7}, "address"),
    ],
)
def test_a_script_reads_which_field_is_wrong(cast, host, tried, body, field):
    answer = patch(script(cast, elevated=True), **body)
    assert answer.status_code == 400 and field in answer.content.decode()


def test_the_command_changes_what_is_given(trainyard, host, tried):
    assert (
        trainyard("host", "edit", "gpu-03", "--address", "10.0.0.9", "--jump", "").out
        == "gpu-03 is changed.\n"
    )
    host.refresh_from_db()
    assert (host.address, host.jump, host.user) == ("10.0.0.9", "", "gpu")
    assert trainyard("host", "edit", "gpu-03").out == "gpu-03 is so already.\n"
    wrong = trainyard("host", "edit", "gpu-03", "--address", "10.9.9.9")
    assert wrong.code == 1 and "Nothing was changed" in wrong.err
    assert "no host gpu-9" in trainyard("host", "edit", "gpu-9").err
