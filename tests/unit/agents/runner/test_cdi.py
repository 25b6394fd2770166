"""Which GPUs the CDI specs of a host name, and how each engine is asked for them."""

from __future__ import annotations

import json

import pytest

from agents.runner.host import cdi
from agents.runner.runs.orders import Refused, parse_order
from agents.runner.runtimes import devices
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
