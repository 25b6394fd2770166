"""Images that the console ships, by real engines: archives of docker and of OCI, packed or not, and SIF files."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from agents.runner.cache.store import UNUSED_S
from agents.runner.home import Home
from agents.runner.preparations import images
from agents.runner.preparations.image_archives import check_archive
from agents.runner.preparations.report import USER, Failed
from agents.runner.preparations.tasks import is_free
from agents.runner.runtimes.engine_commands import say_storage
from agents.runner.runtimes.loaded_images import OURS
from tests.harness.containers import ENGINES, Podman
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import connect, start
from tests.unit.agents.runner.test_preparations import hear, leftovers, prepare

OWN = ('ENTRYPOINT ["echo", "from"]', 'CMD ["archive"]')


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The bytes of archives of one image, by what they are."""
    place = tmp_path_factory.mktemp("archives")
    podman, found = Podman(place / "podman"), {}
    try:
        podman.make_image("localhost/lab/made:1", *OWN)
        podman.make_image("localhost/lab/other:1", "ENV OTHER=1")
        for kind in ("docker-archive", "oci-archive"):
            podman("save", "--format", kind, "--output", str(place / kind), "localhost/lab/made:1")
            found[kind] = (place / kind).read_bytes()
        both = ["localhost/lab/made:1", "localhost/lab/other:1"]
        podman("save", "--multi-image-archive", "--output", str(place / "both"), *both)
        found["both"] = (place / "both").read_bytes()
    finally:
        podman.remove()
    found["packed"] = gzip.compress(found["docker-archive"], 1)
    nothing = io.BytesIO()
    with tarfile.open(fileobj=nothing, mode="w") as file:
        file.addfile(tarfile.TarInfo("train.py"))
    return {
        **found,
        "tree": nothing.getvalue(),
        "noise": b"nonsense" * 1000,
        "empty": b"",
        "torn": found["packed"][:5000],
    }


@pytest.fixture(scope="module", params=["podman", "docker", "apptainer"])
def engine(request, tmp_path_factory):
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    engine.make_image()
    yield engine
    engine.remove()


@pytest.fixture
def console(host, engine):
    return connect(host, engine)


def name_of(data):
    return f"{OURS}:{hashlib.sha256(data).hexdigest()}"


def ask(console, data, **more):
    sha = hashlib.sha256(data).hexdigest()
    blobs = [{"sha256": sha, "size": len(data)}]
    prepare(console, name_of(data), engine=console.engine, archive=sha, blobs=blobs, **more)


def ship(host, data):
    """As the shipper has put it there."""
    place = host.home / ".trainyard" / "dep" / "cache" / "blobs"
    place.mkdir(parents=True, exist_ok=True)
    (place / "here").write_bytes(data)
    (place / "here").rename(place / hashlib.sha256(data).hexdigest())
    return place


@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive", "packed"])
def test_an_archive_is_waited_for_loaded_and_run(host, console, engine, made, kind):
    data = made[kind]
    if (engine.kind, kind) == ("docker", "oci-archive"):
        ship(host, data)
        ask(console, data)
        failed = hear(console, "FAILED")
        assert failed["fault"] == "user" and "save it by docker save" in failed["message"]
        return
    ask(console, data)
    assert hear(console, "WORKING")["total"] in (None, len(data))
    place = ship(host, data)
    result = hear(console, "READY")["result"]
    assert len(result["id"]) == 64
    # It is here: neither is the archive needed again, nor the engine asked to load it.
    shutil.rmtree(place)
    ask(console, data, key="k2")
    again = hear(console, "READY", key="k2")
    assert again["result"]["id"] == result["id"] and not again["tail"]
    start(console, "r1", image=name_of(data), runtime={"entrypoint": None, "args": ["archive"]})
    assert console.closed("r1")["exit_code"] == 0
    assert console.ended_log("r1")[0] == b"from archive\n"


OF_DAEMONS = pytest.mark.parametrize("engine", ["podman", "docker"], indirect=True)


@OF_DAEMONS
def test_the_names_in_an_archive_are_given_to_no_image(host, console, engine, made):
    """A user's image keeps its name, and a name that was nobody's is nobody's again."""
    data, own = made["docker-archive"], "localhost/lab/made:1"
    before = id_of(engine, own)
    ship(host, data)
    ask(console, data)
    result = hear(console, "READY")["result"]
    assert id_of(engine, own) == before != result["id"] == id_of(engine, name_of(data))
    engine.make_image(own, "ENV A=user")
    engine("image", "rm", name_of(data))
    kept = id_of(engine, own)
    ask(console, data, key="k2")
    hear(console, "READY", key="k2")
    assert id_of(engine, own) == kept != result["id"] == id_of(engine, name_of(data))
    engine("image", "rm", own)


# In the place of the engine: does `act` at its first call of this kind.
MEDDLING = """#!/bin/sh
real={real}
if [ "$1" = {verb} ] && mkdir {place}/done 2>/dev/null; then {act}; exit 1; fi
exec $real "$@"
"""


def meddle(host, engine, place, verb, act):
    place.mkdir()
    program = place / engine.kind
    program.write_text(MEDDLING.format(real=shutil.which(engine.kind), place=place, verb=verb, act=act))
    program.chmod(0o755)
    return connect(host, engine, PATH=f"{place}:{host.env['PATH']}")


@pytest.fixture
def users(engine, made):
    """A user's image that has the name which the archive gives to its own, and no archive is loaded yet."""
    for name in (name_of(made["docker-archive"]), OWN_NAME):
        engine("image", "rm", "--force", name, check=False)
    engine.make_image(OWN_NAME, "ENV A=user")
    yield id_of(engine, OWN_NAME)
    engine("image", "rm", OWN_NAME, check=False)


OWN_NAME = "localhost/lab/made:1"
KILL = "kill -9 $PPID"


@OF_DAEMONS
@pytest.mark.parametrize(
    ("verb", "act"),
    [("load", f'$real "$@"; {KILL}'), ("tag", KILL), ("tag", f'$real "$@"; {KILL}')],
    ids=["loaded", "noted", "tagged"],
)
def test_names_come_back_though_the_preparation_was_killed(host, engine, made, users, tmp_path, verb, act):
    data = made["docker-archive"]
    console = meddle(host, engine, tmp_path / "meddling", verb, act)
    ship(host, data)
    ask(console, data)
    hear(console, "LOST")
    assert id_of(engine, OWN_NAME) != users
    ask(console, data, asked=2)
    result = console.hear("prepared", lambda told: (told["asked"], told["state"]) == (2, "READY"))["result"]
    assert id_of(engine, OWN_NAME) == users != result["id"] == id_of(engine, name_of(data))
    assert not list((host.home / ".trainyard" / "loaded_images").glob("*.names"))


@OF_DAEMONS
@pytest.mark.parametrize(
    ("verb", "act"), [("load", f'$real "$@"; {KILL}'), ("tag", KILL)], ids=["loaded", "noted"]
)
def test_names_come_back_when_the_runner_starts_after_a_kill(host, engine, made, users, tmp_path, verb, act):
    """Nobody asks for that archive again: a reboot, for example, while the job was cancelled."""
    data = made["docker-archive"]
    console = meddle(host, engine, tmp_path / "meddling", verb, act)
    ship(host, data)
    ask(console, data)
    hear(console, "LOST")
    assert id_of(engine, OWN_NAME) != users
    connect(host, engine)
    wait_for(lambda: id_of(engine, OWN_NAME) == users, "the name to mean the user's image")
    notes = host.home / ".trainyard" / "loaded_images"
    wait_for(lambda: not list(notes.glob("*.names")), "the note to be gone")


@OF_DAEMONS
def test_names_come_back_before_another_image_is_prepared(host, engine, made, users, tmp_path):
    """The one that is asked for may be that of the user, by the name that was taken from it."""
    data = made["docker-archive"]
    console = meddle(host, engine, tmp_path / "meddling", "load", f'$real "$@"; {KILL}')
    ship(host, data)
    ask(console, data)
    hear(console, "LOST")
    prepare(console, OWN_NAME, key="k2", engine=engine.kind)
    assert hear(console, "READY", key="k2")["result"]["id"] == users == id_of(engine, OWN_NAME)


@OF_DAEMONS
def test_a_name_that_somebody_has_given_since_the_kill_stays(host, engine, made, users, tmp_path):
    data = made["docker-archive"]
    console = meddle(host, engine, tmp_path / "meddling", "tag", KILL)
    ship(host, data)
    ask(console, data)
    hear(console, "LOST")
    engine.make_image(OWN_NAME, "ENV A=newer")
    newer = id_of(engine, OWN_NAME)
    ask(console, data, asked=2)
    console.hear("prepared", lambda told: (told["asked"], told["state"]) == (2, "READY"))
    assert id_of(engine, OWN_NAME) == newer != users


@OF_DAEMONS
def test_names_come_back_though_the_image_cannot_get_ours(host, engine, made, users, tmp_path):
    data = made["docker-archive"]
    console = meddle(host, engine, tmp_path / "meddling", "tag", "echo Error: no >&2")
    ship(host, data)
    ask(console, data)
    failed = hear(console, "FAILED")
    assert (failed["fault"], failed["message"]) == ("host", "Error: no")
    assert id_of(engine, OWN_NAME) == users and not id_of(engine, name_of(data))


@OF_DAEMONS
def test_nothing_is_loaded_while_the_names_cannot_be_listed(host, engine, made, users, tmp_path):
    """Names that are not known would be taken from the images of users."""
    data = made["docker-archive"]
    act = 'case "$2" in ls) echo Error: no >&2;; *) rmdir {place}/done; exec $real "$@";; esac'
    console = meddle(host, engine, tmp_path / "meddling", "image", act.format(place=tmp_path / "meddling"))
    ship(host, data)
    ask(console, data)
    failed = hear(console, "FAILED")
    assert failed["fault"] == "host" and "cannot be listed: Error: no" in failed["message"]
    assert id_of(engine, OWN_NAME) == users
    directory = host.home / ".trainyard" / "dep" / "preparations" / "image-k1"
    wait_for(lambda: is_free(str(directory)), "its process to end: before that, no order begins another")
    ask(console, data, asked=2)
    console.hear("prepared", lambda told: (told["asked"], told["state"]) == (2, "READY"))
    assert id_of(engine, OWN_NAME) == users


def id_of(engine, name):
    form = "{{.Id}}"
    return engine("image", "inspect", "--format", form, name, check=False).strip().rpartition(":")[2]


@OF_DAEMONS
def test_an_engine_says_where_its_images_are(engine):
    """On another disk than the home, perhaps, which is not short of room then."""
    root = engine(*say_storage(engine.kind, engine.kind)[1:]).strip()
    assert os.path.isdir(root) and root.startswith(str(engine.place))


@OF_DAEMONS
def test_a_loaded_image_that_nothing_uses_is_thrown_away_and_loaded_again_for_the_next_run(
    host, console, engine, made
):
    """Never one of which there is a container, and never another image than those that were loaded."""
    data, others = made["docker-archive"], engine.make_image("localhost/lab/kept:1", "ENV KEPT=1")
    # Another archive of the same image would be another name of it.
    for name in engine("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split():
        if name.startswith(f"{OURS}:"):
            engine("image", "rm", name)
    note = host.home / ".trainyard" / "loaded_images" / f"{engine.kind}-{name_of(data)[-64:]}"
    ship(host, data)
    ask(console, data)
    hear(console, "READY")
    runtime = {"entrypoint": ["sleep"], "args": ["600"]}
    start(console, "r1", image=name_of(data), runtime=runtime)
    console.running("r1")
    old = time.time() - UNUSED_S - 3600
    os.utime(note, (old, old))
    later = connect(host, engine)
    wait_for(lambda: note.stat().st_mtime > old + 3600, "somebody to have looked at it")
    assert id_of(engine, name_of(data)), "a container is made of it"
    later.stop("r1")
    later.closed("r1")
    os.utime(note, (old, old))
    last = connect(host, engine)
    wait_for(lambda: not note.exists(), "the image to be thrown away")
    assert not id_of(engine, name_of(data)) and id_of(engine, others)
    start(last, "r2", image=name_of(data), runtime=runtime)
    assert last.closed("r2")["refusal"] == "unprepared"
    ask(last, data, asked=2)
    last.hear("prepared", lambda told: (told["asked"], told["state"]) == (2, "READY"))
    start(last, "r3", image=name_of(data), runtime={"entrypoint": ["true"], "args": []})
    assert last.closed("r3")["exit_code"] == 0
    assert note.stat().st_mtime > time.time() - 600


@pytest.mark.parametrize("kind", ["noise", "tree", "empty", "torn", "both"])
def test_what_holds_no_image_or_several_is_the_users_fault(host, console, engine, made, kind):
    ship(host, made[kind])
    ask(console, made[kind])
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user", failed
    words = "holds 2 images: save one alone" if kind == "both" else "the archive holds no image"
    assert words in failed["message"], failed["message"]


def test_a_sif_file_for_an_engine_that_reads_none_is_told_of_the_one_that_does(tmp_path):
    """Those of Apptainer run in flows/test_apptainer.py."""
    (tmp_path / "x").write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0")
    for engine in ("podman", "docker"):
        with pytest.raises(Failed, match="apptainer alone runs: name it as the runtime") as failed:
            check_archive(str(tmp_path / "x"), engine)
        assert failed.value.fault == USER


def test_nothing_is_left_but_the_image(host, console, engine, made):
    ship(host, made["packed"])
    ask(console, made["packed"])
    hear(console, "READY")
    assert not list((host.home / ".trainyard" / "dep" / "cache").glob("*/*.part"))
    assert not list((host.home / ".trainyard" / "dep" / "preparations").glob("*/image.tar"))
    assert leftovers(host) == []


def archive(path, *files, mode="w", **more):
    """An archive with these files: (name, document or bytes)."""
    with tarfile.open(path, mode, **more) as file:
        for name, what in files:
            data = what if isinstance(what, bytes) else json.dumps(what).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return str(path)


IMAGE = {"Config": "c.json", "RepoTags": ["lab/train:7"], "Layers": []}
OF_ANOTHER = f"localhost/trainyard/archive:{'a' * 64}"


@pytest.mark.parametrize(
    ("files", "more", "words"),
    [
        ([("manifest.json", [{**IMAGE, "RepoTags": ["lab/train:7", OF_ANOTHER]}])], {}, "names other bytes"),
        (
            [
                ("manifest.json", [IMAGE]),
                (
                    "index.json",
                    {"manifests": [{"annotations": {"org.opencontainers.image.ref.name": OF_ANOTHER}}]},
                ),
            ],
            {},
            "names other bytes",
        ),
        ([("manifest.json", [IMAGE]), ("./manifest.json", [IMAGE])], {}, "manifest.json twice"),
        ([("manifest.json", b"[" * 200_000)], {}, "damaged"),
        ([(f"{number}", b"") for number in range(10_001)], {}, "more than 10000 entries"),
        ([("n" * (1 << 21), b"")], {"format": tarfile.PAX_FORMAT}, "header"),
        ([("manifest.json", [IMAGE])], {"mode": "w:xz"}, "does not begin as one"),
    ],
)
def test_what_an_archive_says_is_read_in_bounds_and_not_believed(tmp_path, files, more, words):
    with pytest.raises(Failed, match=words) as failed:
        check_archive(archive(tmp_path / "x", *files, **more), "podman")
    assert failed.value.fault == USER


def test_a_list_of_images_that_is_a_link_is_refused(tmp_path):
    """podman follows it, also where the other list is a file that names nothing."""
    path = archive(tmp_path / "x", ("index.json", {"manifests": [{}]}))
    with tarfile.open(path, "a") as file:
        link = tarfile.TarInfo("manifest.json")
        link.type, link.linkname = tarfile.SYMTYPE, "other.json"
        file.addfile(link)
    with pytest.raises(Failed, match=r"manifest\.json is no plain file"):
        check_archive(path, "podman")


def test_an_archive_with_one_image_is_taken(tmp_path):
    check_archive(archive(tmp_path / "x", ("manifest.json", [IMAGE]), ("l/layer.tar", b"1" * 1000)), "docker")


def test_archives_that_give_their_images_one_name_are_loaded_one_at_a_time(tmp_path, monkeypatch):
    """The one that is loaded is tagged by that name: another one must not take it in between."""
    under_way, most = [], []

    def load(*given):
        under_way.append(given)
        most.append(len(under_way))
        time.sleep(0.1)
        under_way.pop()

    @contextlib.contextmanager
    def here(*_):
        yield "path"

    monkeypatch.setattr(images, "load", load)
    monkeypatch.setattr(images, "shipped_archive", here)
    monkeypatch.setattr(images, "look_up", lambda *_: {})
    home = Home("dep")
    home.base = home.root = str(tmp_path)
    said = SimpleNamespace(message=lambda text: None)
    with ThreadPoolExecutor(3) as threads:
        asked = [{"image": f"i{number}", "archive": "x"} for number in range(3)]
        list(threads.map(lambda what: images.fetch(what, "podman", None, {}, said, home), asked))
    assert most == [1, 1, 1]
