"""The variables that only the host knows: the numbers of its GPUs, and its network interface."""

from __future__ import annotations

import json
import sys

import pytest

from agents.runner.host import networks, probe
from agents.runner.host.cuda import numbers_of
from agents.runner.host.networks import Interface, interfaces, network_variables, route_address
from tests.unit.agents.runner.fake_gpus import FakeGpus

NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRAINYARD_GPU_UUIDS", "GLOO_SOCKET_IFNAME")
SHOW = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {NAMES}}}))"


@pytest.fixture
def gpus(tmp_path, host):
    gpus = FakeGpus(tmp_path / "gpus", 4)
    host.env.update(gpus.env, PATH=f"{gpus.tools}:{host.env['PATH']}", CUDA_VISIBLE_DEVICES="7")
    return gpus


@pytest.fixture
def seen(console):
    def start(run, env=None, **order):
        console.start(run, [sys.executable, "-c", SHOW], env=env or {}, **order)
        console.closed(run)
        return json.loads(console.ended_log(run)[0])

    return start


def test_gpus_are_numbers_in_the_order_of_the_bus_and_uuids_have_a_variable_of_their_own(gpus, seen):
    wanted = [gpus.uuids[2], gpus.uuids[0]]
    found = seen("r1", gpus=wanted)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("2,0", "PCI_BUS_ID")
    assert found["TRAINYARD_GPU_UUIDS"] == ",".join(wanted)
    assert seen("r2")["CUDA_VISIBLE_DEVICES"] == "", "without GPUs, none is visible"


def test_after_a_card_fell_off_those_behind_it_have_other_numbers(gpus, seen):
    assert seen("r1", gpus=gpus.uuids[2:])["CUDA_VISIBLE_DEVICES"] == "2,3"
    gpus.set(gone=[1])
    assert seen("r2", gpus=gpus.uuids[2:])["CUDA_VISIBLE_DEVICES"] == "1,2"


def test_the_jobs_own_env_may_say_otherwise(gpus, seen):
    own = {"CUDA_VISIBLE_DEVICES": "3", "GLOO_SOCKET_IFNAME": "ib0"}
    found = seen("r1", own, gpus=gpus.uuids[:1])
    assert (found["CUDA_VISIBLE_DEVICES"], found["GLOO_SOCKET_IFNAME"]) == ("3", "ib0")
    # Numbers would be those of other cards in any other order.
    found = seen("r2", {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, gpus=gpus.uuids[:1])
    assert found["CUDA_VISIBLE_DEVICES"] == gpus.uuids[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:81:00.0, GPU-b, Disabled\n00000000:07:00.0, GPU-a, [N/A]\n", {"GPU-a": 0, "GPU-b": 1}),
        ("0000:07:00.0, GPU-a\n0000:81:00.0, GPU-b\n", {"GPU-a": 0, "GPU-b": 1}),
        ("0000:07:00.0, [GPU is lost], [GPU is lost]\n0000:81:00.0, GPU-b, [N/A]\n", {"GPU-b": 0}),
        (
            "Unable to determine the device handle for GPU1: Unknown Error\n0:81:0.0, GPU-b, [N/A]\n",
            {"GPU-b": 0},
        ),
        # Nobody knows whether CUDA counts a card whose UUID cannot be read: no number behind it is certain.
        ("0000:07:00.0, [Unknown Error], [N/A]\n0000:81:00.0, GPU-b, [N/A]\n", {}),
        ("0000:07:00.0, GPU-a, Enabled\n0000:81:00.0, GPU-b, Disabled\n", {}),
        ("", {}),
    ],
)
def test_only_cards_that_answer_are_counted_and_none_beside_one_in_mig_mode(text, expected):
    assert numbers_of(text) == expected


def test_a_card_that_the_driver_does_not_list_is_named_by_its_uuid(gpus, seen):
    gpus.set(gone=[1])
    assert seen("r1", gpus=gpus.uuids[:2])["CUDA_VISIBLE_DEVICES"] == ",".join(gpus.uuids[:2])


LAN = [
    Interface("lo", "127.0.0.1"),
    Interface("eth1", "10.0.0.7"),
    Interface("eth10", "10.1.0.7"),
    Interface("eth1", "fd00::7"),
]


@pytest.mark.parametrize(
    ("address", "gloo", "nccl"),
    [
        ("10.0.0.7", "eth1", "=eth1"),
        ("fd00::7", "eth1", "=eth1"),
        ("10.1.0.7", "eth10", "eth10"),
        ("203.0.113.9", "eth10", "eth10"),
        ("gpu-1.lab", "eth10", "eth10"),
        ("", "eth10", "eth10"),
        ("127.0.0.1", "lo", "lo"),
    ],
)
def test_the_interface_is_the_one_with_the_hosts_address_or_with_the_way_to_others(
    monkeypatch, address, gloo, nccl
):
    monkeypatch.setattr(networks, "interfaces", lambda: LAN)
    monkeypatch.setattr(networks, "route_address", lambda: "10.1.0.7")
    assert network_variables(address) == {
        "GLOO_SOCKET_IFNAME": gloo,
        "NCCL_SOCKET_IFNAME": nccl,
        "TP_SOCKET_IFNAME": gloo,
    }
    monkeypatch.setattr(networks, "interfaces", list)
    assert network_variables(address) == {}


def test_the_kernel_tells_the_interfaces_of_this_machine():
    assert Interface("lo", "127.0.0.1") in interfaces()
    assert not route_address() or route_address() in {each.address for each in interfaces()}


def test_the_speed_of_a_card_and_an_active_infiniband_port_are_found(tmp_path):
    for name, speed in (("eth0", "10000"), ("down", "-1"), ("odd", "fast")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    cards = ("eth0", "down", "odd", "absent")
    assert [probe.mbit_of(name, str(tmp_path)) for name in cards] == [10_000, None, None, None]
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for layer, state, expected in (
        ("InfiniBand", "4: ACTIVE", True),
        ("InfiniBand", "1: DOWN", False),
        ("Ethernet", "4: ACTIVE", False),
    ):
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "state").write_text(f"{state}\n")
        assert probe.has_infiniband(str(tmp_path)) is expected
    assert not probe.has_infiniband(str(tmp_path / "absent"))


def test_the_login_may_name_the_interface(host):
    """An admin who set it for the login knows the network better."""
    host.env["GLOO_SOCKET_IFNAME"] = "bond0"
    console = host.connect()
    console.hello()
    console.start("r1", [sys.executable, "-c", SHOW])
    console.closed("r1")
    assert json.loads(console.ended_log("r1")[0])["GLOO_SOCKET_IFNAME"] == "bond0"
