"""Jobs in containers on real hosts: by podman without root, from a registry that asks for a password."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import subprocess

import bcrypt
import pytest

from tests.flows.test_brought import Storage
from tests.harness.containers import REGISTRIES, Podman, give_podman
from tests.harness.hosts import Fleet
from tests.harness.hosts.disk import UID
from tests.harness.hosts.network import GATEWAY
from tests.harness.product import Product
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.runner.test_environments import wheel
from tests.unit.agents.runner.test_pulls import LOCKED, PASSWORD, REGISTRY, answers

pytestmark = pytest.mark.needs_namespaces

# What a program learns of its job: all of it, but what is the replica's own.
TOLD = ("CLUSTER_SPEC", "TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "AIP_MODEL_DIR",
        "CLOUD_ML_JOB_ID")  # fmt: skip
TASK = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {TOLD!r}}}), flush=True)"


class Registry:
    """A registry in the network of the hosts, which gives its images to Ada alone."""

    def __init__(self, place):
        with socket.socket() as free:
            free.bind((GATEWAY, 0))
            self.address = f"{GATEWAY}:{free.getsockname()[1]}"
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (place / "people").write_text(f"ada:{hashed}\n")
        config = REGISTRY.format(place=place / "data", port=0) + LOCKED.format(place=place)
        (place / "config.yml").write_text(config.replace("127.0.0.1:0", self.address))
        program = [shutil.which("docker-registry"), "serve", str(place / "config.yml")]
        self.server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (place / "registries.conf").write_text(REGISTRIES.format(registry=self.address))
        self.podman = Podman(place / "podman")
        self.podman.env["CONTAINERS_REGISTRIES_CONF"] = str(place / "registries.conf")
        wait_for(lambda: answers(self.address), "the registry")

    def push(self, name, *changes):
        image = f"{self.address}/lab/{name}"
        self.podman.make_image(image, *changes)
        self.podman("push", "--creds", f"ada:{PASSWORD}", image)
        return image

    def saved(self, name, *changes, kind="docker-archive"):
        """The bytes of an archive of an image."""
        image, path = f"localhost/lab/{name}", self.podman.place / "saved.tar"
        path.unlink(missing_ok=True)
        self.podman.make_image(image, *changes)
        self.podman("save", "--format", kind, "--output", str(path), image)
        return path.read_bytes()

    def close(self):
        self.podman.remove()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(30)


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("registry"))
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def yard(registry):
    fleet = Fleet(2, disk_mb=400, cgroups=True).boot()
    product = Product()
    try:
        for host in fleet:
            give_podman(host, registry.address)
        product.start().with_admin().with_hosts(fleet)
        url = f"{product.url}/api/v1/projects/default/imageRegistries/{registry.address}"
        product.client.call("PUT", url, json={"username": "ada", "password": PASSWORD})
        yield product
    finally:
        product.close()
        fleet.close()


def pool(image, *program, gpus=0, replicas=1, **more):
    machine = {"machineType": "host"}
    if gpus:
        machine.update(acceleratorType="NVIDIA_H100_80GB", acceleratorCount=gpus)
    container = {"imageUri": image, **({"command": ["sh", "-c", *program]} if program else {})}
    return {"machineSpec": machine, "replicaCount": str(replicas), "containerSpec": container, **more}


def submit(yard, *pools, name, **more):
    return yard.submit({"displayName": name, "jobSpec": {"workerPoolSpecs": list(pools), **more}})


def containers(host):
    return host.run_inside(*podman_of(host, "ps", "--all", "--format", "{{.Names}}")).stdout.split()


def podman_of(host, *words):
    drop = ["setpriv", f"--reuid={host.user}", f"--regid={host.user}", "--clear-groups"]
    return [*drop, "env", f"HOME={host.home}", "sh", "-c", 'cd && exec podman "$@"', "sh", *words]


def none_is_left(yard):
    wait_for(lambda: not any(containers(host) for host in yard.fleet), "no container to be left", 120)


def test_three_pools_run_three_images_of_a_private_registry(yard, registry, client):
    images = [registry.push(f"small:{number}", f"ENV WHICH=image-{number}") for number in range(3)]
    program = 'echo "$WHICH"; sleep 600'
    job = submit(yard, *(pool(image, program) for image in images), name="three images")
    for number in range(3):
        line = client.wait_for_log(job, "\n", f"workerpool{number}-0", timeout=300)
        assert line == f"image-{number}\n".encode()
    client.cancel(job)
    client.wait(job, "CANCELLED")
    none_is_left(yard)
    yard.check()


@pytest.mark.parametrize("kind", ["docker-archive", pytest.param("oci-archive", marks=pytest.mark.slow)])
def test_an_image_of_the_storage_is_shipped_to_two_hosts_and_runs_as_it_was_when_the_job_was_submitted(
    yard, registry, client, kind
):
    storage = Storage(client)
    uri = storage.put(f"images/{kind}.tar", registry.saved("kept:1", f"ENV WHICH={kind}", kind=kind))
    program = 'echo "$WHICH of $RANK"; sleep 600'
    job = submit(yard, pool(uri, program), pool(uri, program), name=kind)
    storage.put(f"images/{kind}.tar", b"no image any more")
    for number in range(2):
        line = client.wait_for_log(job, "\n", f"workerpool{number}-0", timeout=300)
        assert line == f"{kind} of {number}\n".encode()
    client.cancel(job)
    client.wait(job, "CANCELLED")
    broken = submit(yard, pool(uri, program), name="broken")
    client.wait(broken, "FAILED", timeout=200)
    events = client.call("GET", f"{client.url}/api/v1/jobs/{broken}/events").text
    assert f"the image {uri}: the archive holds no image" in events
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_a_container_and_a_package_learn_the_same_of_their_cluster(yard, registry, client):
    image = registry.push("small:1", "ENV WHICH=image")
    uri = Storage(client).put("trainer-1-py3-none-any.whl", wheel("trainer", "1", TASK), bucket="trainer")
    shown = "; ".join(f'echo "{name}=${name}"' for name in TOLD)
    package = {"executorImageUri": "host", "packageUris": [uri], "pythonModule": "trainer"}
    of_package = {"machineSpec": {"machineType": "host"}, "replicaCount": "1", "pythonPackageSpec": package}
    job = submit(yard, pool(image, f"{shown}; sleep 600"), of_package, name="the same",
                 baseOutputDirectory={"outputUriPrefix": "gs://lab/same"})  # fmt: skip
    in_container = client.wait_for_log(job, "CLOUD_ML_JOB_ID=", timeout=300).decode()
    found = dict(line.split("=", 1) for line in in_container.splitlines())
    # What pip printed comes before.
    by_package = json.loads(client.wait_for_log(job, "}\n", "workerpool1-0", timeout=400).splitlines()[-1])
    client.cancel(job)
    assert json.loads(found["CLUSTER_SPEC"])["cluster"] == json.loads(by_package["CLUSTER_SPEC"])["cluster"]
    assert json.loads(found["TF_CONFIG"])["cluster"] == json.loads(by_package["TF_CONFIG"])["cluster"]
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "CLOUD_ML_JOB_ID"):
        assert found[name] == (by_package[name] or ""), name
    assert (found["RANK"], by_package["RANK"]) == ("0", "1")
    assert found["AIP_MODEL_DIR"] == "/gcs/lab/same/model/" and by_package["AIP_MODEL_DIR"].endswith(
        "/model/"
    )


@pytest.mark.slow
def test_an_image_does_the_same_locally_and_as_a_job(yard, registry, client):
    """With the variables that docs/using.md names, a program needs no service around it."""
    program = (
        'echo "epochs $0 into $AIP_MODEL_DIR"; echo weights > "$AIP_MODEL_DIR/w" && cat "$AIP_MODEL_DIR/w"'
    )
    image = registry.push("train:1", f"ENTRYPOINT {json.dumps(['sh', '-c', program])}", 'CMD ["3"]')
    local = registry.podman(
        "run", "--rm", "--network=host", "--tmpfs", "/gcs/lab/local/model",
        "--env", "AIP_MODEL_DIR=/gcs/lab/local/model/", image,
    )  # fmt: skip
    job = submit(yard, pool(image), name="local", baseOutputDirectory={"outputUriPrefix": "gs://lab/local"})
    client.wait(job, "SUCCEEDED", timeout=300)
    assert local == "epochs 3 into /gcs/lab/local/model/\nweights\n"
    assert client.log(job, "workerpool0-0").decode() == local
    yard.check()


@pytest.mark.slow
def test_a_user_of_an_image_writes_where_only_the_login_may(yard, registry, client):
    """Into the work directory, TMPDIR and a bucket. What it wrote reaches the storage, and is removed from the host."""
    image = registry.push("ada:1", "USER ada")
    places = '"$TRAINYARD_WORK" "$TMPDIR" /gcs/lab/ada "$AIP_MODEL_DIR"'
    program = f'id -u; for d in {places}; do echo it > "$d/x" || exit 1; done'
    job = submit(
        yard, pool(image, program), name="ada", baseOutputDirectory={"outputUriPrefix": "gs://lab/ada"}
    )
    client.wait(job, "SUCCEEDED", timeout=300)
    assert client.log(job, "workerpool0-0") == b"1234\n"
    for name in ("ada%2Fx", "ada%2Fmodel%2Fx"):
        url = f"{client.url}/storage/v1/b/lab/o/{name}"
        wait_for(lambda url=url: stored(client, url) == b"it\n", f"{name} to be stored", 120, dump=yard.tail)
    none_is_left(yard)
    yard.check()


@pytest.mark.parametrize(("user", "number"), [("ada", b"1234\n"), ("root", b"0\n")])
@pytest.mark.slow
def test_a_bucket_on_shared_storage_is_mounted_for_each_user_of_an_image(
    yard, registry, client, user, number
):
    """All hosts of the location have it. What a replica wrote belongs to the login, and the next job finds it."""
    image = registry.push(f"bucket-{user}:1", f"USER {user}")
    location = f"{client.url}/api/v1/locations/default"
    client.call("PATCH", location, json={"storage": {"models": "/mnt/shared/models"}})
    shared = yard.fleet.shared_dir / "models"
    shared.mkdir(exist_ok=True)
    shutil.chown(shared, UID, UID)
    path = f"/gcs/models/{user}"
    write = f"id -u; mkdir -p {path} && echo kept > {path}/w && cat {path}/w"
    write += ' && echo "$AIP_MODEL_DIR" > "$AIP_MODEL_DIR/m"'
    base = {"baseOutputDirectory": {"outputUriPrefix": f"gs://models/{user}"}}
    try:
        job = submit(yard, pool(image, write), name=f"writes as {user}", **base)
        client.wait(job, "SUCCEEDED", timeout=300)
        assert client.log(job, "workerpool0-0") == number + b"kept\n"
        assert (shared / user / "w").read_text() == "kept\n"
        assert (shared / user / "model" / "m").read_text() == f"/gcs/models/{user}/model/\n"
        assert {(shared / user / name).stat().st_uid for name in ("w", "model/m")} == {UID}
        again = submit(yard, pool(image, f"cat {path}/w"), name=f"reads as {user}", **base)
        client.wait(again, "SUCCEEDED", timeout=300)
        assert client.log(again, "workerpool0-0") == b"kept\n"
    finally:
        client.call("PATCH", location, json={"storage": {}})
    none_is_left(yard)
    yard.check()


def stored(client, url):
    answer = client.session.get(url, params={"alt": "media"}, timeout=60)
    return answer.content if answer.status_code == 200 else None


@pytest.mark.slow
def test_a_container_leaves_a_drained_host(yard, registry, client):
    image = registry.push("small:1", "ENV WHICH=image")
    job = submit(yard, pool(image, 'echo "on $(hostname)"; sleep 600'), name="drained")
    client.wait_for_log(job, "on ", timeout=300)
    here, there = list(yard.fleet) if containers(yard.fleet[0]) else list(yard.fleet)[::-1]
    yard.command("host", "drain", here.name, "--message", "new disk")
    wait_for(lambda: containers(there), "the container on the other host", 300, dump=yard.tail)
    wait_for(lambda: not containers(here), "the drained host to be without containers", 120)
    yard.command("host", "uncordon", here.name)
    client.cancel(job)
    client.wait(job, "CANCELLED")
    none_is_left(yard)
    yard.check()


@pytest.mark.slow
def test_a_host_reboots_under_a_container(yard, registry, client):
    """The run is lost with the host and its replica starts anew, once. What podman kept of the container is removed."""
    image = registry.push("small:1", "ENV WHICH=image")
    program = 'echo "run $TRAINYARD_RUN on $(hostname)"; sleep 600'
    job = submit(yard, pool(image, program), name="reboot")
    client.wait_for_log(job, " on ", timeout=300)
    host = next(each for each in yard.fleet if containers(each))
    (before,), (first,) = containers(host), yard.runs(job)
    host.reboot()
    wait_for(lambda: len(yard.runs(job)) == 2, "a new run", 300, dump=yard.tail)
    old, new = yard.runs(job)
    assert (old["id"], old["why"], old["exit_code"]) == (first["id"], "reboot", None)
    wait_for(lambda: f"run {new['id']} on".encode() in client.log(job), "its output", 300, dump=yard.tail)
    wait_for(lambda: before not in containers(host), "what podman kept of the container to be removed", 200)
    assert sum(len(containers(each)) for each in yard.fleet) == 1
    client.cancel(job)
    client.wait(job, "CANCELLED")
    none_is_left(yard)
    yard.check("after a reboot under a container")


@pytest.mark.slow
def test_a_pull_onto_a_full_disk_fails_and_says_so_and_the_next_one_succeeds(yard, registry, client):
    """In the words of the engine, or in ours where it was stopped before."""
    noise = registry.podman.place / "root" / "noise"
    registry.podman.make_image()
    noise.write_bytes(random.Random(7).randbytes(60 << 20))  # noqa: S311
    (registry.podman.place / "root.tar").unlink()
    subprocess.run(
        ["tar", "-C", str(noise.parent), "-cf", str(registry.podman.place / "root.tar"), "."], check=True
    )
    image = registry.push("large:1", "ENV WHICH=large")
    for host in yard.fleet:
        host.fill_disk(30 << 10)
    job = submit(yard, pool(image, "true"), name="full disk")
    client.wait(job, "FAILED", timeout=200)
    events = client.call("GET", f"{client.url}/api/v1/jobs/{job}/events").json()
    told = json.dumps(events)
    assert "no space left on device" in told or "disk of this host is nearly full" in told, events
    for host in yard.fleet:
        host.free_disk()
    again = submit(yard, pool(image, 'echo "$WHICH"'), name="room again")
    client.wait(again, "SUCCEEDED", timeout=400)
    assert client.log(again, "workerpool0-0") == b"large\n"
    none_is_left(yard)
    yard.check()
