"""The torch program that trains on hosts trains over two hosts in containers, with GPUs, and as a Python package.

The image has the system's Python and its torch, and comes from the storage: 650 MB.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.behaviour.test_torch import RANK
from tests.flows.test_brought import Storage
from tests.flows.test_containers import none_is_left, pool, submit
from tests.harness import fake_cards
from tests.harness.containers import Podman, give_podman, root_archive
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.reduction import PROGRAMS, PYTHON
from tests.unit.agents.runner.test_environments import wheel

pytestmark = [pytest.mark.needs_namespaces, pytest.mark.exhaustive]

TRAINERS = ("workerpool0-0", "workerpool1-0")
# What a program that trains has loaded: shared libraries, and where Python has found modules.
LOADED = """
import os, sys, torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel
torch.nn.Linear(4, 1)(torch.randn(8, 4)).sum().backward()
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/" in line]
print(*sorted({line for line in lines if ".so" in line}), sep="\\n")
files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if "." not in name]
for file in filter(None, files):
    if "dist-packages" in file:
        print(os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file)
print(os.path.dirname(os.__file__), os.path.realpath(sys.executable), sep="\\n")
"""


def torch_root(place):
    """A root file system with Python and torch of this machine."""
    root_archive(place)
    root = place / "root"
    found = subprocess.run([PYTHON, "-c", LOADED], check=True, capture_output=True, text=True, timeout=300)
    for line in found.stdout.split():
        source, target = Path(line), root / line.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "test", "tests", "*.a", "include")
            shutil.copytree(source, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755)
    # Libraries are looked for where their links are.
    libraries = sorted({str(Path(line).parent) for line in found.stdout.split() if ".so" in line})
    names = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s+(\S+) .* => (\S+)$", names, re.M):
        real = Path(path).resolve()
        copied = root / str(real).removeprefix("/")
        if copied.exists() and not (copied.parent / name).exists():
            (copied.parent / name).symlink_to(copied.name)
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copyfile("/lib64/ld-linux-x86-64.so.2", root / "lib64" / "ld-linux-x86-64.so.2")
    (root / "lib64" / "ld-linux-x86-64.so.2").chmod(0o755)
    python = found.stdout.split()[-1]
    (root / "usr" / "bin").mkdir(exist_ok=True)
    (root / "usr" / "bin" / "python3").symlink_to(python)
    shutil.copyfile(PROGRAMS / "torch_ddp.py", root / "train.py")
    return root, ":".join(libraries)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The archive of the image."""
    place = tmp_path_factory.mktemp("torch")
    root, libraries = torch_root(place)
    (place / "root.tar").unlink()
    subprocess.run(["tar", "-C", str(root), "-cf", str(place / "root.tar"), "."], check=True)
    shutil.rmtree(root)
    podman = Podman(place / "podman")
    try:
        shutil.move(place / "root.tar", podman.place / "torch.tar")
        changes = (f"ENV LD_LIBRARY_PATH={libraries}", 'ENTRYPOINT ["/usr/bin/python3", "/train.py"]')
        words = [word for change in changes for word in ("--change", change)]
        podman("import", *words, str(podman.place / "torch.tar"), "localhost/lab/torch:1")
        (podman.place / "torch.tar").unlink()
        podman("save", "--output", str(place / "image.tar"), "localhost/lab/torch:1")
    finally:
        podman.remove()
    yield place / "image.tar"
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def yard():
    fleet = Fleet(2, disk_mb=3000, cgroups=True).boot()
    product = Product()
    try:
        for host in fleet:
            fake_cards.make_nodes(host)
            give_podman(host, "127.0.0.1:1")
            fake_cards.write_spec(host, host.gpu_uuids())
        yield product.start().with_admin().with_hosts(fleet)
    finally:
        product.close()
        fleet.close()


def trained(client, job):
    """All ranks were one group, on two hosts, and ended with the same weights."""
    client.wait(job, "SUCCEEDED", timeout=600)
    ranks = sorted(match for name in TRAINERS for match in RANK.findall(client.log(job, name).decode()))
    assert [(rank, of) for rank, of, *_ in ranks] == [("0", "2"), ("1", "2")], ranks
    assert len({host for _, _, host, *_ in ranks}) == 2
    assert {total for *_, total, _ in ranks} == {"1"} and len({weights for *_, weights in ranks}) == 1


# With 5 GPUs each, two replicas never share a host.
def test_in_containers(yard, client, image):
    uri = Storage(client).put("torch.tar", image.read_bytes())
    job = submit(yard, *[pool(uri, gpus=5) for _ in TRAINERS], name="torch in containers")
    trained(client, job)
    none_is_left(yard)
    yard.check()


def test_as_a_python_package(yard, client):
    program = (PROGRAMS / "torch_ddp.py").read_text()
    uri = Storage(client).put("trainer-1-py3-none-any.whl", wheel("trainer", "1", program))
    package = {"executorImageUri": "host", "packageUris": [uri], "pythonModule": "trainer"}
    of_package = {**pool("host", gpus=5), "pythonPackageSpec": package}
    del of_package["containerSpec"]
    trained(client, submit(yard, of_package, of_package, name="torch as a package"))
    yard.check()
