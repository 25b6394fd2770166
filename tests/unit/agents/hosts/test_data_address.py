"""The address at which replicas of other hosts reach those of a host: found by a check, or chosen by an admin."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from agents.hosts import checklist, probe
from agents.hosts.data_address import address_for_data, choices, found_address, mbit, refuse_unknown
from agents.infra.refusals import Refused
from agents.models import Host
from tests.unit.agents.hosts.test_enrolment import GOOD, facts, judged, network

EMPTY = {"interfaces": [], "ssh": "", "route": "", "name": None}


@pytest.mark.parametrize(
    ("dialled", "changes", "expected"),
    [
        ("10.0.0.7", {}, "10.0.0.7"),
        # A name, which the host itself may resolve to 127.0.1.1.
        ("gpu-1.lab", {}, "10.0.0.7"),
        # Behind a jump host or a tunnel: the end of the tunnel is no address of the host for others.
        ("gpu-1.lab", {"ssh": "127.0.0.1"}, "10.0.0.7"),
        ("gpu-1.lab", {"ssh": "127.0.0.1", "route": ""}, ""),
        # Behind a translated address, the host's own one is used.
        ("203.0.113.9", {}, "10.0.0.7"),
        ("10.9.0.7", {"ssh": ""}, "10.9.0.7"),
        ("10.9.0.7", {"ssh": "10.9.0.7"}, "10.9.0.7"),
        # This machine itself: nobody knows whether others are to reach it.
        ("127.0.0.1", {"ssh": "127.0.0.1"}, ""),
        ("localhost", {}, ""),
        # What a host reports about itself must be among its interfaces.
        ("gpu-1.lab", {"ssh": "10.0.0.8", "route": "10.0.0.9"}, ""),
        ("gpu-1.lab", EMPTY, ""),
    ],
)
def test_a_check_finds_the_hosts_own_address(dialled, changes, expected):
    assert found_address(dialled, facts(**network(**changes)).network) == expected


def test_a_runner_that_is_too_old_finds_none_and_the_dialled_address_is_used():
    old = {name: value for name, value in GOOD.items() if name != "network"}
    assert probe._facts(old, {}).network is None and found_address("10.0.0.7", None) == ""
    assert address_for_data(Host(address="gpu-1")) == "gpu-1"
    assert address_for_data(Host(address="gpu-1", found_address="10.0.0.7")) == "10.0.0.7"
    chosen = Host(address="gpu-1", found_address="10.0.0.7", data_address="10.9.0.7")
    assert address_for_data(chosen) == "10.9.0.7"


def test_the_card_of_the_data_address_has_a_speed_that_makes_sense():
    rows = [{"name": "eth0", "address": "10.0.0.7", "mbit": 1_000}, {"name": "ib0", "address": "10.9.0.7"}]
    found = facts(network={**GOOD["network"], "interfaces": rows, "infiniband": True}).network
    assert ([each.mbit for each in found.interfaces], found.infiniband) == ([1_000, 0], True)
    host = Host(address="10.0.0.7", facts={"network": asdict(found)})
    assert mbit(host) == 1_000
    host.data_address = "10.9.0.7"
    assert mbit(host) == 0 == mbit(Host(address="10.0.0.7"))
    for wrong in (-1, "fast", 1e12, None, True):
        lying = facts(network={"interfaces": [{**rows[0], "mbit": wrong}], "infiniband": 1}).network
        assert (lying.interfaces[0].mbit, lying.infiniband) == (0, False)


@pytest.mark.parametrize(
    "wrong", [None, [], "x", {"interfaces": 7, "name": 7}, {"interfaces": [{"name": 7, "address": "$(id)"}]}]
)
def test_a_network_that_makes_no_sense_is_unknown(wrong):
    found = facts(network=wrong).network
    assert found is None or (found.interfaces, found.ssh, found.name) == ((), "", None)


def test_only_an_address_of_the_host_can_be_chosen():
    host = Host(name="gpu-1", address="203.0.113.9", facts={"network": GOOD["network"]})
    assert choices(host) == [("eth0", "10.0.0.7"), ("ib0", "10.9.0.7"), ("", "203.0.113.9")]
    for address in ("", "10.9.0.7", "203.0.113.9"):
        refuse_unknown(host, address)
    with pytest.raises(Refused) as refused:
        refuse_unknown(host, "10.9.0.8")
    assert refused.value.field == "data_address"
    for words in ("gpu-1", "10.9.0.8", "10.0.0.7, 10.9.0.7", "check the host again"):
        assert words in refused.value.message


@pytest.mark.parametrize(
    ("name", "ok", "words"),
    [
        (["10.0.0.7"], True, "gpu01, resolves to 10.0.0.7"),
        (["10.9.0.7"], True, "resolves to 10.9.0.7"),
        (["127.0.1.1"], None, "resolves to 127.0.1.1"),
        ([], None, "resolves to nothing"),
        (None, None, "is not known"),
    ],
)
def test_the_checklist_says_what_the_hosts_own_name_resolves_to(name, ok, words):
    row = judged(**network(name=name))["Network"]
    assert row.ok is ok and words in row.text and "10.0.0.7 (eth0)" in row.text
    wrong = name is not None and not ok
    assert ("10.0.0.7 in /etc/hosts" in row.fix) == wrong


def test_the_checklist_says_that_an_address_is_on_no_interface():
    [row] = [each for each in checklist.check_facts(facts(), 0.0, "203.0.113.9") if each.name == "Network"]
    assert row.ok is None and "203.0.113.9, which is on no interface" in row.text
