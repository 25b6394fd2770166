"""Images for a real Apptainer, from a real registry and from archives: unpacked into the cache of the host, once."""

from __future__ import annotations

import contextlib
import errno
import http.server
import json
import os
import signal
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request

import bcrypt
import pytest

from agents.runner.cache.images import find_image, key_of
from agents.runner.cache.store import IMAGES, UNUSED_S, Cache
from agents.runner.home import Home
from agents.runner.preparations import registry as registry_module
from agents.runner.preparations.apptainer_images import Fetching, move_tree, read_config
from agents.runner.preparations.registry import KINDS, digest_of, is_near, is_this_host, split_name
from agents.runner.preparations.report import Failed, Report
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import (
    connect,
    start,
)
from tests.unit.agents.runner.test_preparations import hear, leftovers
from tests.unit.agents.runner.test_pulls import LOCKED, PASSWORD, Seen, ask, serving


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("registry"), kind="apptainer") as found:
        yield found


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    place = tmp_path_factory.mktemp("locked")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (place / "people").write_text(f"ada:{hashed}\n")
    with serving(place, LOCKED, f"ada:{PASSWORD}", "apptainer") as found:
        yield found


@pytest.fixture
def console(host, registry):
    registry[1].make_image()
    return connect(host, registry[1])


@pytest.fixture
def outside(host, locked):
    locked[1].make_image()
    return connect(host, locked[1])


def cache_of(host):
    home = Home("dep")
    home.base = str(host.home / ".trainyard" / "dep")
    return Cache(home)


def told_by(address, name="small", tag="1"):
    request = urllib.request.Request(
        f"http://{address}/v2/lab/{name}/manifests/{tag}", headers={"Accept": KINDS}
    )
    with urllib.request.urlopen(request) as answer:
        return answer.headers["Docker-Content-Digest"], json.load(answer)


def test_an_image_is_pulled_once_and_what_it_is_is_what_its_registry_says(host, console, registry):
    image = f"{registry[0]}/lab/small:1"
    digest, manifest = told_by(registry[0])
    ask(console, image, always=True)
    ready = hear(console, "READY")
    expected = {"id": manifest["config"]["digest"].removeprefix("sha256:"), "digest": digest}
    assert ready["result"] == expected and "\x1b" not in ready["tail"]
    assert "Extracting OCI image" in ready["tail"]
    # Nothing but the image and its name is kept.
    images = host.home / ".trainyard" / "dep" / "cache" / "images"
    assert not list(images.glob("*.part"))
    before = (images / expected["id"] / "root").stat().st_ino
    for key, more in (("k2", {"always": True}), ("k3", {}), ("k4", {"id": expected["id"]})):
        ask(console, image, key=key, **more)
        ready = hear(console, "READY", key=key)
        assert ready["result"] == expected and ready["tail"] == "", "it is here"
    assert (images / expected["id"] / "root").stat().st_ino == before
    start(console, "r1", "echo ran", image=expected["id"])
    assert console.closed("r1")["exit_code"] == 0
    start(console, "r2", "echo ran", image=f"{registry[0]}/lab/small@{digest}")
    assert console.closed("r2")["refusal"] == "unprepared", "nobody has prepared it by this name"


def test_a_tag_that_was_moved_is_fetched_again(host, console, registry, tmp_path_factory):
    address = registry[0]
    image = f"{address}/lab/small:1"
    ask(console, image, key="k1", always=True)
    first = hear(console, "READY", key="k1")["result"]
    digest, manifest = told_by(address)
    manifest["annotations"] = {"moved": "yes"}
    kind = manifest.get("mediaType", "application/vnd.oci.image.manifest.v1+json")
    data = json.dumps(manifest).encode()
    put = urllib.request.Request(
        f"http://{address}/v2/lab/small/manifests/1", data, {"Content-Type": kind}, method="PUT"
    )
    urllib.request.urlopen(put).close()
    ask(console, image, key="k2", always=True)
    second = hear(console, "READY", key="k2")["result"]
    assert second["id"] == first["id"] and second["digest"] == told_by(address)[0] != digest


def test_an_image_of_the_host_is_looked_for_nowhere_else(console):
    ask(console, "localhost/lab/none:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "is not on this host" in failed["message"]


def test_a_name_that_the_registry_does_not_know_is_the_users_fault(host, console, registry):
    ask(console, f"{registry[0]}/lab/none:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "manifest unknown" in failed["message"], failed["message"]
    assert not list((host.home / ".trainyard").rglob("*.part")), "nothing is left of it"


def test_a_registry_that_does_not_answer_is_no_fault_of_the_user(console):
    ask(console, "127.0.0.1:9/lab/small:1")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "host" and "refused" in failed["message"], failed["message"]


def test_a_registry_that_does_not_answer_leaves_the_image_that_is_here(console, registry):
    ask(console, "localhost/trainyard/small:1", always=True)
    assert len(hear(console, "READY")["result"]["id"]) == 64


@pytest.mark.parametrize("password", [None, "a wrong one"])
def test_a_registry_that_wants_to_know_who_asks_refuses_in_the_engines_words(outside, locked, password):
    known = {"credentials": {"registry": locked[0], "username": "ada", "password": password}}
    ask(outside, f"{locked[0]}/lab/small:1", **(known if password else {}))
    failed = hear(outside, "FAILED")
    assert failed["fault"] == "user" and "authentication required" in failed["message"], failed["message"]


def test_a_credential_is_used_for_its_pull_and_then_gone(host, outside, locked):
    who = {"registry": locked[0], "username": "ada", "password": PASSWORD}
    with Seen(host) as seen:
        ask(outside, f"{locked[0]}/lab/small:1", key="k2", always=True, credentials=who)
        hear(outside, "READY", key="k2")
    commands = " ".join(seen.commands)
    assert "build" in commands and PASSWORD not in commands
    files = [path for path in host.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    ask(outside, f"{locked[0]}/lab/small:1", key="k3", always=True, credentials=who)
    ready = hear(outside, "READY", key="k3")
    assert ready["tail"] == "", "the registry was asked with the password, and nothing was fetched"


def test_a_pull_that_was_killed_is_begun_again(host, console, registry):
    image = f"{registry[0]}/lab/small:1"
    ask(console, image, key="k2", always=True)
    for pid in leftovers(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    over = console.hear("prepared", lambda m: m["key"] == "k2" and m["state"] in ("READY", "FAILED", "LOST"))
    ask(console, image, key="k2", asked=2)
    assert over["state"] == "READY" or hear(console, "READY", key="k2")["asked"] == 2


def test_what_a_killed_pull_has_left_is_thrown_away_with_its_name(host, console, registry):
    cache = cache_of(host)
    name = "ghcr.io/lab/killed:1"
    with cache.locked(IMAGES, key_of(name)):
        os.makedirs(cache.path(IMAGES, key_of(name)) + ".part/root/bin")
    gone = cache.throw_away(time.time() + UNUSED_S + 60)
    assert f"images/{key_of(name)}" in gone and not list((host.home / ".trainyard").rglob("*.part"))


def test_an_image_that_nothing_uses_is_thrown_away_and_its_name_means_nothing(host, console):
    cache = cache_of(host)
    start(console, "r1", "true")
    console.closed("r1")
    key = find_image(cache, "localhost/trainyard/small:1")
    assert key

    def thrown_away():  # its keepers hold it until they have ended
        cache.throw_away(time.time() + UNUSED_S + 60)
        return not find_image(cache, key)

    wait_for(thrown_away, "the image to be thrown away")
    assert not find_image(cache, "localhost/trainyard/small:1")
    start(console, "r2", "true")
    assert console.closed("r2")["refusal"] == "unprepared"


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("train", ("registry-1.docker.io", "library/train", "latest")),
        ("lab/train:2", ("registry-1.docker.io", "lab/train", "2")),
        ("docker.io/lab/train", ("registry-1.docker.io", "lab/train", "latest")),
        ("ghcr.io/lab/train:1.2", ("ghcr.io", "lab/train", "1.2")),
        ("127.0.0.1:5000/a/b/c:d", ("127.0.0.1:5000", "a/b/c", "d")),
    ],
)
def test_a_name_is_read_as_engines_read_it(image, parts):
    assert split_name(image) == parts


def test_only_a_registry_nearby_is_asked_without_tls():
    assert is_near("127.0.0.1:5000") and is_near("10.1.2.3") and is_near("localhost:5000")
    assert not is_near("ghcr.io") and not is_near("8.8.8.8:443")


class Hub(http.server.BaseHTTPRequestHandler):
    """A registry that sends whoever asks for a token to another server, which wants the password."""

    seen: list = []
    realm = ""
    token = b'{"token": "t0ken"}'

    def do_HEAD(self):  # noqa: N802
        self.seen.append((self.path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") == "Bearer t0ken":
            self.send_response(200)
            self.send_header("Docker-Content-Digest", "sha256:" + "a" * 64)
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", f'Bearer realm="{self.realm}",service="hub",scope="x"')
        self.end_headers()

    def do_GET(self):  # noqa: N802
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.token)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(Hub, "seen", [])
    monkeypatch.setattr(Hub, "realm", f"http://{address}/token")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address
    server.shutdown()
    server.server_close()


def test_a_token_is_asked_for_where_the_registry_says(hub):
    who = {"username": "ada", "password": "secret"}
    assert digest_of(f"{hub}/lab/train:1", who) == "sha256:" + "a" * 64
    token = next(path for path, _ in Hub.seen if path.startswith("/token"))
    assert token == "/token?service=hub&scope=repository%3Alab%2Ftrain%3Apull"
    assert dict(Hub.seen)[token] == "Basic YWRhOnNlY3JldA=="
    assert digest_of(f"{hub}/lab/train@sha256:{'b' * 64}", who) == "", "it says itself what it is"


@pytest.mark.parametrize("realm", ["file:///etc/passwd", "ftp://x/y", ""])
def test_a_password_goes_to_no_other_kind_of_server(hub, monkeypatch, realm):
    monkeypatch.setattr(Hub, "realm", realm)
    assert digest_of(f"{hub}/lab/train:1", {"username": "ada", "password": "secret"}) == ""
    assert not [who for _, who in Hub.seen if who]


def test_a_password_goes_over_tls_alone_if_the_registry_was_asked_over_tls(monkeypatch):
    with pytest.raises(ValueError, match="no token is asked for"):
        registry_module._authorization("https://ghcr.io", "a/b", 'Bearer realm="http://x/y"', {})


def test_a_password_goes_to_no_other_host_without_tls(hub, monkeypatch):
    monkeypatch.setattr(registry_module, "is_this_host", lambda host: False)
    assert digest_of(f"{hub}/lab/train:1", {"username": "ada", "password": "secret"}) == "sha256:" + "a" * 64
    assert not [who for _, who in Hub.seen if who and who.startswith("Basic")]


def test_only_addresses_of_this_host_are_its_own():
    assert is_this_host("127.0.0.1:5000") and is_this_host("localhost:5000") and is_this_host("[::1]:5000")
    assert not is_this_host("10.1.2.3:5000") and not is_this_host("ghcr.io")


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.HTTPError("", 403, "Forbidden", None, None),
        urllib.error.HTTPError("", 500, "Trouble", None, None),
        urllib.error.URLError(ssl.SSLCertVerificationError(1, "self-signed")),
        urllib.error.URLError(TimeoutError()),
    ],
)
def test_a_registry_with_tls_is_not_asked_without(monkeypatch, error):
    asked = []

    def answer(address, authorization):
        asked.append(address)
        raise error

    monkeypatch.setattr(registry_module, "_head", answer)
    assert digest_of("127.0.0.1:5000/lab/train:1", {"username": "ada", "password": "secret"}) == ""
    assert asked == ["https://127.0.0.1:5000/v2/lab/train/manifests/1"]


@pytest.mark.parametrize("answer", [b"[]", b'"t0ken"', b'{"token": 7}', b"{}", b"nonsense"])
def test_an_answer_that_holds_no_token_is_none(hub, monkeypatch, answer):
    monkeypatch.setattr(Hub, "token", answer)
    assert digest_of(f"{hub}/lab/train:1", {}) == ""


@pytest.mark.parametrize(
    "config", [[], "x", {"Env": "PATH=/bin"}, {"Entrypoint": {"a": 1}}, {"Cmd": [["sh"]]}, {"Env": [7]}]
)
def test_an_image_whose_configuration_is_nonsense_is_the_makers_fault(config):
    with pytest.raises(Failed) as failed:
        read_config(config)
    assert failed.value.fault == "user"


@pytest.mark.parametrize("disk", ["the same", "another"])
def test_an_image_that_its_owner_may_not_write_is_moved(tmp_path, monkeypatch, disk):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "sh").symlink_to("/nowhere")
    (source / "bin").chmod(0o555)
    source.chmod(0o555)

    def across(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if disk == "another":
        monkeypatch.setattr(os, "rename", across)
    move_tree(str(source), str(target))
    assert os.readlink(target / "bin" / "sh") == "/nowhere" and target.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("letter", ["'", '"', ";", "`", "&", "(", "|", "<", "\n"])
def test_a_directory_that_a_shell_would_misread_is_made_elsewhere_and_goes(tmp_path, monkeypatch, letter):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    home = Home("dep")
    home.base = str(tmp_path / f"a{letter}b")
    found = Fetching(Cache(home), {"image": "ghcr.io/lab/x:1"}, "apptainer", Report(str(tmp_path)), None)
    os.makedirs(found.part)
    found.make_tmp()
    assert found.tmp.startswith(str(tmp_path / "tmp")) and os.path.isdir(found.tmp)
    # As one that was killed: another begins with what it has left.
    Fetching(Cache(home), {"image": "ghcr.io/lab/x:1"}, "apptainer", Report(str(tmp_path)), None).clean()
    assert not os.listdir(tmp_path / "tmp") and not os.path.lexists(found.part)
