"""Images from a real registry, by a real podman: pulled once, and what goes wrong is told in the engine's words."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import urllib.request

import pytest

from tests.harness.containers import Podman
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.test_preparations import hear, leftovers, prepare

REGISTRY = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {place}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """The address of a registry on loopback, which has one image, and the podman that put it there."""
    place = tmp_path_factory.mktemp("registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (place / "config.yml").write_text(REGISTRY.format(place=place / "data", port=port))
    program = shutil.which("docker-registry")
    server = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"127.0.0.1:{port}"
    (place / "registries.conf").write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    podman = Podman(place / "podman")
    podman.env["CONTAINERS_REGISTRIES_CONF"] = str(place / "registries.conf")
    try:
        wait_for(lambda: answers(address), "the registry")
        podman.make_image(f"{address}/lab/small:1")
        podman("push", f"{address}/lab/small:1")
        podman("rmi", f"{address}/lab/small:1")
        yield address, podman
    finally:
        podman.remove()
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def answers(address):
    try:
        return urllib.request.urlopen(f"http://{address}/v2/", timeout=2).status == 200
    except OSError:
        return False


@pytest.fixture
def console(host, registry):
    host.env.update(registry[1].env)
    console = host.connect()
    console.hello()
    return console


def test_an_image_is_pulled_and_its_digest_told(console, registry):
    address, podman = registry
    prepare(console, f"{address}/lab/small:1")
    ready = hear(console, "READY")
    assert ready["result"]["digest"].startswith("sha256:") and len(ready["result"]["id"]) == 64
    assert "Trying to pull" in ready["tail"] and "\x1b" not in ready["tail"]
    assert f"{address}/lab/small" in podman("images", "--format", "{{.Repository}}")


def test_a_name_that_the_registry_does_not_know_is_the_users_fault(console, registry):
    prepare(console, f"{registry[0]}/lab/none:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "unknown" in failed["message"], failed["message"]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_user(console):
    prepare(console, "127.0.0.1:9/lab/small:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "host" and "refused" in failed["message"], failed["message"]


def test_a_pull_that_was_killed_is_begun_again(console, host, registry):
    address, podman = registry
    podman("rmi", "--force", f"{address}/lab/small:1", check=False)
    prepare(console, f"{address}/lab/small:1", key="k2")
    for pid in leftovers(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    over = console.hear("prepared", lambda m: m["key"] == "k2" and m["state"] in ("READY", "FAILED", "LOST"))
    prepare(console, f"{address}/lab/small:1", key="k2", asked=2)
    assert over["state"] == "READY" or hear(console, "READY", key="k2")["asked"] == 2
