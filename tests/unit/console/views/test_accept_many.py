"""The keys of many hosts, accepted beside a pasted text: page and REST."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Host, HostStatus
from agents.ssh.host_keys import fingerprint
from jobs.models import AuditEntry
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views.example_rows import KEY, OTHER_KEY, a_host, one_line

OURS, OTHER = fingerprint(KEY), fingerprint(OTHER_KEY)
ADDRESS = "/api/v1/hosts:acceptKeys"


def waiting(name, key=KEY, **changes):
    changes = {"pinned_key": "", "status": HostStatus.NEW, "offered_key": key, **changes}
    return a_host(name, **changes)


def changed(name, key=KEY):
    return waiting(name, key, pinned_key=OTHER_KEY, status=HostStatus.BLOCKED)


@pytest.fixture
def hosts(db):
    """gpu-01 and gpu-02 are new; gpu-03 shows another key than before."""
    return (
        waiting("gpu-01", address="10.0.0.1"),
        waiting("gpu-02", OTHER_KEY, address="10.0.0.2"),
        changed("gpu-03"),
    )


def pinned():
    return dict(Host.objects.exclude(pinned_key="").order_by("name").values_list("name", "pinned_key"))


def script(cast, elevated=True):
    token = token_of(cast.root, elevated)
    return Client(headers={"authorization": f"Bearer {token}"})


def post(client, **body):
    return client.post(ADDRESS, json.dumps(body), content_type="application/json")


def test_keys_that_equal_the_pasted_list_are_accepted_together(browser, hosts):
    text = f"gpu-01 {KEY}\ngpu-02 {OTHER_KEY}\ngpu-03 {KEY}"
    root = browser("root")
    page = root.post("/hosts/keys/compare", {"keys": text})
    assert [row.verdict for row in page.context["page"].keys] == ["equal"] * 3
    seen = one_line(page.content.decode())
    # A changed key is not ticked by itself.
    assert seen.count("checked") == 2 and f"Accepted before: {OTHER}" in seen
    ticked = [f"{host.pk} {fingerprint(host.offered_key)}" for host in hosts[:2]]
    answer = root.post("/hosts/keys/accept", {"keys": text, "host": ticked}, follow=True)
    assert "The keys of 2 hosts are accepted" in one_line(answer.content.decode())
    assert pinned() == {"gpu-01": KEY, "gpu-02": OTHER_KEY, "gpu-03": OTHER_KEY}
    noted = AuditEntry.objects.filter(what="host.accept_key").order_by("id")
    assert [(row.actor, row.subject, row.after["key"]) for row in noted] == [
        ("root", "gpu-01", OURS),
        ("root", "gpu-02", OTHER),
    ]
    assert Host.objects.get(name="gpu-01").status == HostStatus.CHECKING


def test_one_that_differs_is_not_and_is_shown(browser, hosts):
    text = f"gpu-01 {OTHER_KEY}\ngpu-02 {OTHER_KEY}"
    page = browser("root").post("/hosts/keys/compare", {"keys": text})
    assert [row.verdict for row in page.context["page"].keys] == ["differs", "equal", "missing"]
    assert "Something else may answer at its address" in one_line(page.content.decode())
    forged = [f"{host.pk} {fingerprint(host.offered_key)}" for host in hosts]
    browser("root").post("/hosts/keys/accept", {"keys": text, "host": forged})
    assert pinned() == {"gpu-02": OTHER_KEY, "gpu-03": OTHER_KEY}


def test_a_key_that_changed_between_is_not_accepted(browser, hosts):
    ticked = [f"{hosts[0].pk} {OURS}"]
    Host.objects.filter(pk=hosts[0].pk).update(offered_key=OTHER_KEY)
    text = f"gpu-01 {KEY}\ngpu-01 {OTHER_KEY}"
    answer = browser("root").post("/hosts/keys/accept", {"keys": text, "host": ticked})
    assert "Nothing was accepted" in one_line(answer.content.decode()) and "gpu-01" not in pinned()


def test_a_changed_key_is_accepted_when_it_is_ticked(browser, hosts):
    ticked = {"keys": f"gpu-03 {KEY}", "host": f"{hosts[2].pk} {OURS}"}
    browser("root").post("/hosts/keys/accept", ticked)
    assert pinned() == {"gpu-03": KEY}
    assert AuditEntry.objects.get(what="host.accept_key").before == {"machine": "10.0.0.11", "key": OTHER}


def test_the_password_is_asked_for_as_for_one_key(browser, hosts):
    late = browser("root", given_at=timezone.now() - timedelta(hours=2))
    answer = late.post("/hosts/keys/accept", {"keys": KEY + " gpu-01", "host": f"{hosts[0].pk} {OURS}"})
    assert "accept the key of 1 host" in one_line(answer.content.decode()) and "gpu-01" not in pinned()
    assert f'name="host" value="{hosts[0].pk} {OURS}"' in answer.content.decode()


def test_a_wrong_text_stays_in_the_form(browser, hosts):
    answer = browser("root").post("/hosts/keys/compare", {"keys": "<b>no key</b>"})
    page = answer.content.decode()
    assert "The text holds no key" in page and "&lt;b&gt;no key" in page and "<b>no" not in page


def test_the_key_of_a_jump_host_is_named_by_its_own_address(browser, db):
    host = waiting("gpu-01", offered_at="gate:2200", pinned_key="")
    page = browser("root").post("/hosts/keys/compare", {"keys": f"[gate]:2200 {KEY}\ngpu-01 {OTHER_KEY}"})
    (row,) = page.context["page"].keys
    assert row.verdict == "equal"
    browser("root").post("/hosts/keys/accept", {"keys": KEY, "host": row.value})
    host.refresh_from_db()
    assert host.jump_keys == {"gate:2200": KEY} and not host.pinned_key


def test_the_list_of_hosts_leads_admins_to_the_keys_that_wait(browser, hosts):
    assert "3 hosts wait until their keys are accepted" in one_line(
        browser("root").get("/hosts/").content.decode()
    )
    assert "/hosts/keys" not in browser("vera").get("/hosts/").content.decode()


@pytest.mark.parametrize("number", [1, 40])
def test_the_comparison_of_any_number_of_hosts_makes_the_same_queries(browser, number):
    for each in range(number):
        waiting(f"node-{each}", address=f"10.0.1.{each}")
    root = browser("root")
    root.get("/hosts/keys")
    with CaptureQueriesContext(
        connection,
    ) as made:
        root.post("/hosts/keys/compare", {"keys": KEY})
    assert len(made) <= 16


def test_scripts_accept_what_is_equal_and_name_a_changed_key(cast, hosts):
    root, text = script(cast), f"gpu-01 {KEY}\ngpu-02 {KEY}\ngpu-03 {KEY}\n{OTHER}\nnoise"
    looked = post(root, keys=text, validateOnly=True).json()
    assert not pinned().keys() - {"gpu-03"} and not any(key["accepted"] for key in looked["keys"])
    done = post(root, keys=text).json()
    found = {key["host"]: (key["verdict"], key["accepted"]) for key in done["keys"]}
    assert found == {
        "gpu-01": ("equal", True),
        "gpu-02": ("ambiguous", False),
        "gpu-03": ("equal", False),
    }
    assert done["problems"] and done["keys"][2]["acceptedBefore"] == OTHER
    assert post(root, keys=text, changed=["gpu-03"]).json()["keys"][1]["accepted"]
    assert pinned() == {"gpu-01": KEY, "gpu-03": KEY}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"keys": ""}, "keys"),
        ({}, "keys"),
        ({"keys": KEY, "changed": ["gpu-01"]}, "changed"),
        ({"keys": KEY, "changed": "gpu-03"}, "changed"),
        ({"keys": KEY, "force": True}, "force"),
    ],
)
def test_scripts_read_which_field_is_wrong(cast, hosts, body, field):
    answer = post(script(cast), **body)
    assert answer.status_code == 400 and field in answer.content.decode()


def test_a_script_needs_a_token_that_may_do_what_asks_for_the_password(cast, hosts):
    answer = post(script(cast, elevated=False), keys=f"gpu-01 {KEY}")
    assert answer.status_code == 403 and "elevated" in answer.content.decode() and "gpu-01" not in pinned()
