"""Which GPUs the CDI specs of a host name, and how each engine is asked for them."""

from __future__ import annotations

import json
import resource

import pytest

from agents.runner.host import cdi
from agents.runner.runs.orders import Refused, parse_order
from agents.runner.runtimes import containers, devices
from agents.runner.runtimes.apptainer_options import DESCRIPTION, command_of
from agents.runner.runtimes.engine_commands import DOCKER, PODMAN

UUIDS = ["GPU-11111111-0000-4000-8000-000000000000", "GPU-22222222-0000-4000-8000-000000000000"]
# As nvidia-ctk 1.17 writes it.
YAML = f"""---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: {UUIDS[0]}
- name: '{UUIDS[1]}'
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
kind: nvidia.com/gpu
"""


def test_the_names_of_a_spec_are_read():
    assert cdi.names_in(YAML) == {"0", *UUIDS}
    assert cdi.names_in(YAML.replace("kind: nvidia.com/gpu", 'kind: "nvidia.com/gpu"')) == {"0", *UUIDS}
    document = {"kind": "nvidia.com/gpu", "devices": [{"name": uuid} for uuid in UUIDS]}
    assert cdi.names_in(json.dumps(document)) == set(UUIDS)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("devices:\n", "devices:\n# of this host\n"),
        ("devices:\n", "devices: # of this host\n"),
        (f"- name: '{UUIDS[1]}'", f"# the second\n- name: '{UUIDS[1]}' # of two"),
        ("kind: nvidia.com/gpu", "kind: nvidia.com/gpu # cards"),
        ("kind: nvidia.com/gpu", 'kind: "nvidia.com/gpu"\t # cards'),
        ("\n", "\r\n"),
    ],
)
def test_comments_hide_no_names(words, instead):
    assert words in YAML and cdi.names_in(YAML.replace(words, instead)) == {"0", *UUIDS}


def test_what_a_comment_names_is_not_named():
    commented = YAML.replace(f"- name: '{UUIDS[1]}'", f"# name: {UUIDS[1]}\n- name: other")
    assert cdi.names_in(commented) == {"0", UUIDS[0], "other"}
    assert cdi.names_in(YAML.replace("kind: nvidia.com/gpu", "kind: nvidia.com/gpu#x")) == set()


@pytest.mark.parametrize(
    "text",
    [
        "",
        100_000 * '{"a":',
        "{",
        "[]",
        '{"kind": "nvidia.com/gpu"}',
        '{"kind": "nvidia.com/gpu", "devices": 7}',
        '{"kind": "nvidia.com/gpu", "devices": [7]}',
        f'{{"kind": "nvidia.com/gds", "devices": [{{"name": "{UUIDS[0]}"}}]}}',
        YAML.replace("nvidia.com/gpu", "nvidia.com/gds"),
        f"kind: nvidia.com/gpu\n# {UUIDS[0]}\n",
        f"kind: nvidia.com/gpu\nannotations:\n  name: {UUIDS[0]}\n",
    ],
)
def test_a_spec_of_other_devices_or_a_damaged_one_names_none(text):
    assert cdi.names_in(text) == set()


@pytest.fixture
def specs(monkeypatch, tmp_path):
    monkeypatch.setattr(cdi, "PLACES", (str(tmp_path), str(tmp_path / "none")))
    return tmp_path


def test_files_that_engines_do_not_read_do_not_count(specs):
    (specs / "a.yaml.old").write_text(YAML)
    (specs / "b.yaml").mkdir()
    assert cdi.cdi_names() == set()
    (specs / "c.yaml").write_text(YAML)
    assert cdi.cdi_names() == {"0", *UUIDS}


def test_gpus_are_asked_for_by_name_where_a_spec_names_all_of_them(specs, monkeypatch):
    monkeypatch.setattr(devices, "gpu_minors", lambda: {UUIDS[1]: 5})
    (specs / "c.json").write_text(json.dumps({"kind": cdi.KIND, "devices": [{"name": UUIDS[1]}]}))
    for known in ({"kind": PODMAN}, {"kind": DOCKER, "cdi": "yes"}):
        assert devices.device_options(UUIDS[1:], known) == ["--device", f"nvidia.com/gpu={UUIDS[1]}"]
    nodes = devices.device_options(UUIDS[1:], {"kind": DOCKER, "cdi": ""})
    assert nodes[:2] == ["--device", "/dev/nvidia5:/dev/nvidia5"]
    with pytest.raises(Refused, match="generate a CDI spec"):
        devices.device_options(UUIDS, {"kind": PODMAN})


def test_docker_is_asked_by_uuid_where_nvidias_toolkit_is(specs, monkeypatch):
    monkeypatch.setattr(devices, "has_nvidia_hook", lambda: True)
    found = devices.device_options(UUIDS, {"kind": DOCKER, "cdi": "yes"})
    assert found == ["--gpus", f'"device={",".join(UUIDS)}"']
    assert devices.device_options([], {"kind": DOCKER, "cdi": "yes"}) == []


@pytest.fixture
def infiniband(monkeypatch, tmp_path):
    """Two cards, one of which this login may not open. Root may open everything: the answer is that of the system."""
    for name in ("uverbs0", "uverbs1", "rdma_cm", "umad0", "issm0"):
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "INFINIBAND", str(tmp_path))
    monkeypatch.setattr(devices.os, "access", lambda path, mode: not path.endswith("uverbs1"))
    return tmp_path


def test_containers_with_gpus_get_the_cards_of_infiniband_and_may_lock_memory(infiniband, monkeypatch):
    nodes = ["--device", f"{infiniband}/rdma_cm", "--device", f"{infiniband}/uverbs0"]
    any_size = ["--ulimit", "memlock=-1:-1"]
    monkeypatch.setattr(devices, "may_raise_limits", lambda: True)
    assert devices.network_options(UUIDS, {"kind": PODMAN}) == [*nodes, *any_size]
    assert devices.network_options(UUIDS, {"kind": DOCKER}) == [*nodes, *any_size]
    assert devices.network_options(UUIDS, {"kind": DOCKER, "rootless": "yes"}) == nodes
    assert devices.network_options([], {"kind": PODMAN}) == []
    (infiniband / "rdma_cm").unlink()
    (infiniband / "uverbs0").unlink()
    assert devices.network_options(UUIDS, {"kind": PODMAN}) == [], "there is no card for this login"


def test_a_login_asks_for_no_more_locked_memory_than_it_has(infiniband, monkeypatch):
    """podman would start nothing: only root may raise a limit."""
    monkeypatch.setattr(devices, "may_raise_limits", lambda: False)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (65536, 1 << 20))
    assert devices.network_options(UUIDS, {"kind": PODMAN})[-1] == "memlock=1048576:1048576"


@pytest.mark.parametrize(
    ("users", "capabilities", "may"),
    [
        ("         0          0 4294967295\n", "000001ffffffffff", True),
        ("         0          0 4294967295\n", "0000000000000000", False),
        ("         0       1000          1\n", "000001ffffffffff", False),
    ],
)
def test_only_root_of_the_host_may_raise_limits(tmp_path, users, capabilities, may):
    (tmp_path / "uid_map").write_text(users)
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\nSeccomp:\t0\n")
    assert devices.may_raise_limits(str(tmp_path)) is may
    assert not devices.may_raise_limits(str(tmp_path / "none"))


def test_a_container_is_made_with_the_cards_of_its_network(infiniband, monkeypatch, tmp_path):
    monkeypatch.setattr(containers, "device_options", lambda gpus, known: ["GPUS"])
    monkeypatch.setattr(containers, "network_options", lambda gpus, known: ["CARDS", *gpus])
    monkeypatch.setattr(containers, "user_of_image", lambda *given: "0:0")
    monkeypatch.setattr(containers, "python_path_of_image", lambda *given: "")
    monkeypatch.setattr(containers, "give", lambda *given: None)
    directory = tmp_path / "dep" / "runs" / "r"
    directory.mkdir(parents=True)
    runtime = {"kind": PODMAN, "image": "x", "args": []}
    order = parse_order({"command": ["true"], "gpus": UUIDS, "runtime": runtime})
    known = {**runtime, "program": "podman", "name": "n", "place": str(directory), "limits": "pids"}
    facts = {"host_env": {}, "tmp": "", "mark": "m", "runtime": known}
    words, _ = containers.command_of(order, str(directory), "r", str(tmp_path / "work"), facts)
    assert words[words.index("GPUS") :][:4] == ["GPUS", "CARDS", *UUIDS]
    assert "--pids-limit=-1" in words


@pytest.mark.parametrize("gpus", [[], UUIDS])
def test_apptainer_brings_the_driver_for_runs_with_gpus_and_for_no_others(tmp_path, gpus):
    """That CUDA finds the cards by it cannot be seen without one."""
    directory = tmp_path / "runs" / "r"
    directory.mkdir(parents=True)
    (tmp_path / DESCRIPTION).write_text('{"entrypoint": ["/x"]}')
    runtime = {"kind": "apptainer", "image": "x"}
    order = parse_order({"command": ["true"], "gpus": gpus, "runtime": runtime})
    known = {"program": "apptainer", "root": str(tmp_path / "root"), "image": "x"}
    facts = {
        "host_env": {"CUDA_VISIBLE_DEVICES": "2,5"} if gpus else {},
        "tmp": "",
        "mark": "a:b",
        "runtime": known,
    }
    words, env = command_of(order, str(directory), "/work", facts)
    assert (words.count("--nv"), words[-2:]) == (bool(gpus), [known["root"], "/x"])
    assert env["CUDA_VISIBLE_DEVICES"] == ("2,5" if gpus else "")
