"""Images from a real registry, by a real podman and a real Docker: what goes wrong is told in the engine's words."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import bcrypt
import pytest

from tests.harness.containers import ENGINES, Podman
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import (
    connect,
)
from tests.unit.agents.runner.test_preparations import hear, leftovers, prepare, say, words_of

REGISTRY = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {place}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
LOCKED = 'auth: {{htpasswd: {{realm: "lab", path: "{place}/people"}}}}\n'
# Docker says the second, if it has nothing to say who asks.
NOT_GIVEN = re.compile("authentication required|no basic auth credentials")
PASSWORD = "canary-of-the-registry"  # noqa: S105


@pytest.fixture(scope="module", params=["podman", "docker"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def registry(kind, tmp_path_factory):
    """The address of a registry on loopback, which has one image, and an engine that has not."""
    with serving(tmp_path_factory.mktemp("registry"), kind=kind) as found:
        yield found


@pytest.fixture(scope="module")
def locked(kind, tmp_path_factory):
    """One that gives its image only to Ada."""
    place = tmp_path_factory.mktemp("locked")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (place / "people").write_text(f"ada:{hashed}\n")
    with serving(place, LOCKED, f"ada:{PASSWORD}", kind) as found:
        yield found


@contextlib.contextmanager
def serving(place, more="", login="", kind="podman"):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = REGISTRY.format(place=place / "data", port=port) + more.format(place=place)
    (place / "config.yml").write_text(config)
    program = shutil.which("docker-registry")
    server = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"127.0.0.1:{port}"
    (place / "registries.conf").write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    podman = Podman(place / "podman")
    podman.env["CONTAINERS_REGISTRIES_CONF"] = str(place / "registries.conf")
    engine = None
    try:
        wait_for(lambda: answers(address), "the registry")
        podman.make_image(f"{address}/lab/small:1")
        podman("push", *(["--creds", login] if login else []), f"{address}/lab/small:1")
        podman("rmi", f"{address}/lab/small:1")
        engine = podman if kind == "podman" else ENGINES[kind](place / kind)
        engine.podman = podman
        yield address, engine
    finally:
        podman.remove()
        if engine not in (None, podman):
            engine.remove()
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def answers(address):
    try:
        return urllib.request.urlopen(f"http://{address}/v2/", timeout=2).status == 200
    except urllib.error.HTTPError as refused:
        return refused.code == 401
    except OSError:
        return False


def ask(console, image, **more):
    prepare(console, image, engine=console.engine, **more)


@pytest.fixture
def console(host, registry):
    return connect(host, registry[1])


def test_an_image_is_pulled_and_its_digest_told(console, registry, kind):
    address, engine = registry
    ask(console, f"{address}/lab/small:1")
    ready = hear(console, "READY")
    assert ready["result"]["digest"].startswith("sha256:") and len(ready["result"]["id"]) == 64
    words = "Trying to pull" if kind == "podman" else "Pulling from lab/small"
    assert words in ready["tail"] and "\x1b" not in ready["tail"]
    assert f"{address}/lab/small" in engine("images", "--format", "{{.Repository}}")


def test_an_image_that_was_pulled_is_kept_and_goes_when_an_admin_asks(console, registry):
    address, engine = registry
    if f"{address}/lab/small" in engine("images", "--format", "{{.Repository}}"):
        engine("rmi", f"{address}/lab/small:1")
    ask(console, f"{address}/lab/small:1")
    image = hear(console, "READY")["result"]["id"]
    console.say("watch", gpus=[], kept=True)
    kept = console.hear("kept", lambda told: told["kept"], patience=30)["kept"]
    assert [line[:2] for line in kept] == [[console.engine, image]] and kept[0][2] > 0
    say(console, "discard", kind=console.engine, key=image)
    assert console.hear("discarded", patience=60)["why"] == ""
    assert f"{address}/lab/small" not in engine("images", "--format", "{{.Repository}}")


def test_an_image_stays_whose_only_name_a_person_gave_it(console, registry):
    """The name of the pull has moved on since: engines take the one that is left, whoever gave it."""
    address, engine = registry
    if f"{address}/lab/small" in engine("images", "--format", "{{.Repository}}"):
        engine("rmi", f"{address}/lab/small:1")
    ask(console, f"{address}/lab/small:1")
    image = hear(console, "READY")["result"]["id"]
    engine("tag", image, "localhost/mine:v1")
    engine("rmi", f"{address}/lab/small:1")
    console.say("watch", gpus=[], kept=True)
    console.hear("kept", lambda told: told["kept"], patience=30)
    say(console, "discard", kind=console.engine, key=image)
    assert "no pull of a job gave it" in console.hear("discarded", patience=60)["why"]
    assert "localhost/mine" in engine("images", "--format", "{{.Repository}}")
    engine("rmi", "localhost/mine:v1")


def test_an_image_that_was_here_before_is_not_ours(host, console, registry):
    """A person has pulled it: it is taken anew for the job, and stays when the job is over."""
    address, engine = registry
    engine("pull", f"{address}/lab/small:1")
    ask(console, f"{address}/lab/small:1", always=True)
    hear(console, "READY")
    assert not (host.home / ".trainyard" / "loaded_images").exists()
    engine("rmi", f"{address}/lab/small:1")


def test_a_name_that_the_registry_does_not_know_is_the_users_fault(console, registry):
    ask(console, f"{registry[0]}/lab/none:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "unknown" in failed["message"], failed["message"]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_user(console):
    ask(console, "127.0.0.1:9/lab/small:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "host" and "refused" in failed["message"], failed["message"]


@pytest.fixture
def outside(host, locked):
    """A host whose login has no credential of the locked registry."""
    return connect(host, locked[1])


@pytest.mark.parametrize("password", [None, "a wrong one"])
def test_a_registry_that_wants_to_know_who_asks_refuses_in_the_engines_words(outside, locked, password):
    known = {"credentials": {"registry": locked[0], "username": "ada", "password": password}}
    ask(outside, f"{locked[0]}/lab/small:1", **(known if password else {}))
    failed = hear(outside, "FAILED")
    assert failed["fault"] == "user" and NOT_GIVEN.search(failed["message"]), failed["message"]


def test_a_credential_is_used_for_its_pull_and_then_gone(outside, host, locked):
    address, engine = locked
    who = {"registry": address, "username": "ada", "password": PASSWORD}
    seen = Seen(host)
    with seen:
        ask(outside, f"{address}/lab/small:1", key="k2", credentials=who)
        hear(outside, "READY", key="k2")
    assert f"{address}/lab/small" in engine("images", "--format", "{{.Repository}}")
    assert seen.modes == {0o600} and seen.commands and not any(PASSWORD in each for each in seen.commands)
    encoded = base64.b64encode(f"ada:{PASSWORD}".encode())
    files = [path for path in host.home.rglob("*") if path.is_file()]
    assert not [
        path for path in files if PASSWORD.encode() in path.read_bytes() or encoded in path.read_bytes()
    ]
    engine("rmi", "--force", f"{address}/lab/small:1")
    ask(outside, f"{address}/lab/small:1", key="k3")
    assert NOT_GIVEN.search(hear(outside, "FAILED", key="k3")["message"]), "nothing was kept"


class Seen(threading.Thread):
    """Watches a host while it pulls: the command lines of its processes, and the modes of credential files."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.host, self.over = host, threading.Event()
        self.commands, self.modes = set(), set()

    def run(self):
        while not self.over.wait(0.005):
            for pid in self.host.processes():
                self.commands.add(b" ".join(words_of(pid)).decode(errors="replace"))
            with contextlib.suppress(FileNotFoundError):  # what the pull makes goes away under the search
                for path in self.host.home.rglob("credentials/config.json"):
                    self.modes.add(path.stat().st_mode & 0o777)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def test_a_pull_that_was_killed_is_begun_again(console, host, registry):
    address, engine = registry
    engine("rmi", "--force", f"{address}/lab/small:1", check=False)
    ask(console, f"{address}/lab/small:1", key="k2")
    for pid in leftovers(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    over = console.hear("prepared", lambda m: m["key"] == "k2" and m["state"] in ("READY", "FAILED", "LOST"))
    ask(console, f"{address}/lab/small:1", key="k2", asked=2)
    assert over["state"] == "READY" or hear(console, "READY", key="k2")["asked"] == 2
