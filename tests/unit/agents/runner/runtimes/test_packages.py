"""Python packages in an image: its own Python installs them before the program, without the internet.

The image is the small one, in which the Python of this machine is mounted. The tests run over Apptainer too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from agents.runner.cache.store import BLOBS, TREES, Cache
from agents.runner.cache.trees import make_tree
from agents.runner.home import Home
from agents.runner.preparations.long_programs import Unprepared
from agents.runner.runtimes import install_packages
from agents.runner.runtimes.install_packages import Output
from tests.unit.agents.runner.protocol_client import wait_for
from tests.unit.agents.runner.runtimes.container_runs import start
from tests.unit.agents.runner.test_environments import source_archive, wheel

KEY = "b" * 64
PROGRAM = """import sys, trainyard_test_helper
print(sys.version_info[0], sys.argv[1:], trainyard_test_helper.WORD, sys.prefix != sys.base_prefix)
sys.exit(7)
"""
PYTHON = [[path, path, "ro"] for path in ("/usr", "/lib", "/lib64")]
OLD_INDEX = "http://ada:hunter2@127.0.0.1:9/simple"


def cache_of(host):
    home = Home("dep")
    home.base = str(host.home / ".trainyard" / "dep")
    cache = Cache(home)
    Path(home.base).mkdir(parents=True, exist_ok=True)
    cache.make(BLOBS)
    cache.make(TREES)
    return cache


def ship(host, packages):
    """Let the host have the tree of these packages ({name: bytes})."""
    cache, shipped = cache_of(host), []
    for name, data in packages.items():
        sha = hashlib.sha256(data).hexdigest()
        Path(cache.path(BLOBS, sha)).write_bytes(data)
        shipped.append({"sha256": sha, "name": name})
    make_tree(cache, KEY, {"packages": shipped}, "", "", lambda *_: None)


HELPER = {"trainyard_test_helper-1-py3-none-any.whl": wheel("trainyard_test_helper", "1", "WORD = 'found'")}
TRAINER = {"trainer-1-py3-none-any.whl": wheel("trainer", "1", PROGRAM)}


def run(console, name="r1", index="none", mounts=(), **order):
    runtime = {
        "entrypoint": ["python3", "-m", "trainer"],
        "args": ["--epochs=3"],
        "workdir": True,
        "mounts": [*PYTHON, *mounts],
    }
    start(console, name, runtime=runtime, packages={"tree": KEY, "index": index}, **order)


def packages_directory(host, name="r1"):
    return host.home / ".trainyard" / "dep" / "runs" / name / "packages"


def test_the_python_of_the_image_installs_the_packages_and_runs_their_module(host, console):
    ship(host, {**TRAINER, **HELPER})
    run(console)
    facts = console.closed("r1")
    log = console.ended_log("r1")[0].decode()
    assert facts["exit_code"] == 7, (facts, log)
    assert "Successfully installed trainer-1 trainyard-test-helper-1" in log, log
    assert log.splitlines()[-1] == "3 ['--epochs=3'] found True"
    wait_for(lambda: not packages_directory(host).exists(), "the packages of the run to be deleted")
    blobs = Path(cache_of(host).base) / BLOBS
    assert sorted(each.read_bytes() for each in blobs.iterdir() if each.suffix != ".lock") == sorted(
        [*TRAINER.values(), *HELPER.values()]
    )


def test_a_source_archive_is_built_in_the_image(host, console):
    ship(host, {"from_script-0.1.tar.gz": source_archive(PROGRAM, "trainyard_test_helper"), **HELPER})
    runtime = {"entrypoint": ["python3", "-m", "aiplatform_custom_trainer_script.task"], "args": []}
    runtime["mounts"] = PYTHON
    start(console, "r1", runtime=runtime, packages={"tree": KEY, "index": "none"})
    facts = console.closed("r1")
    assert facts["exit_code"] == 7, console.ended_log("r1")[0].decode()


def test_what_cannot_be_had_is_said_in_words_with_the_cure(host, console):
    lacking = {"from_script-0.1.tar.gz": source_archive(PROGRAM, "trainyard_has_no_such_package")}
    ship(host, lacking)
    run(console)
    facts = console.closed("r1")
    assert (facts["exit_code"], facts["why"]) == (1, "exit")
    assert "the packages cannot be installed in the image" in facts["message"], facts["message"]
    assert "trainyard_has_no_such_package" in facts["message"]
    assert "add its wheels to the packages of the job" in facts["message"]
    assert facts["message"].splitlines()[-1] in console.ended_log("r1")[0].decode()


def test_an_image_without_python_is_refused_in_words(host, console):
    ship(host, TRAINER)
    runtime = {"entrypoint": ["python3", "-m", "trainer"], "args": []}
    start(console, "r1", runtime=runtime, packages={"tree": KEY})
    facts = console.closed("r1")
    # With an init of its own, the container is started, and it is the init that cannot execute the program.
    assert facts["refusal"] == "exec_failed" or facts["exit_code"] in (1, 127)
    assert facts["message"].startswith("the image has no python3 (3.7 or newer)"), facts["message"]


@pytest.fixture
def without_pip(tmp_path):
    """Mounts by which the Python in the container has no pip."""
    (tmp_path / "empty").mkdir()
    hidden = ["/usr/lib/python3/dist-packages/pip", "/usr/lib/python3.11/ensurepip"]
    return [[str(tmp_path / "empty"), path, "ro"] for path in hidden if Path(path).is_dir()]


def test_an_image_without_pip_is_told_in_words(host, console, without_pip):
    ship(host, TRAINER)
    run(console, mounts=without_pip)
    facts = console.closed("r1")
    assert facts["exit_code"] == 1
    assert "has neither pip nor ensurepip" in facts["message"], facts["message"]


def test_a_password_of_the_index_is_in_no_log_and_not_there_for_the_program(host, console):
    program = "import os, pathlib, sys; place = pathlib.Path(os.environ['VIRTUAL_ENV']).parent\n"
    program += "print(sorted(each.name for each in place.iterdir()), 'PIP_INDEX_URL' in os.environ)"
    ship(host, {"trainer-1-py3-none-any.whl": wheel("trainer", "1", program)})
    run(console, index=OLD_INDEX)
    facts = console.closed("r1")
    log = console.ended_log("r1")[0].decode()
    assert facts["exit_code"] == 0, log
    assert log.splitlines()[-1] == "['environment', 'install.py'] False"
    assert "127.0.0.1:9" in log and "hunter2" not in log


def test_what_is_secret_is_not_printed(capfdbinary, monkeypatch):
    # Only where it is executed as a program does it import this.
    monkeypatch.setattr(install_packages, "subprocess", subprocess, raising=False)
    said = Output(["hunter2", ""])
    assert (
        said.run([sys.executable, "-c", "print('x ada:hunter2@index'); exit(3)"], dict(os.environ), "/") == 3
    )
    assert said.tail() == "x ada:*******@index" and b"hunter2" not in capfdbinary.readouterr().out


def test_what_is_installed_cannot_change_the_packages_of_others(host, console):
    evil = (
        "import os, sys; place = os.path.join(os.path.dirname(sys.prefix), 'files', '0', 'evil-0.1.tar.gz')\n"
    )
    evil += "open(place, 'ab').write(b'changed'); sys.exit('changed it')\n"
    data = archive_of(evil)
    ship(host, {"evil-0.1.tar.gz": data})
    run(console)
    console.closed("r1")
    assert "changed it" in console.ended_log("r1")[0].decode()
    assert (Path(cache_of(host).base) / BLOBS / hashlib.sha256(data).hexdigest()).read_bytes() == data
    assert (Path(cache_of(host).base) / TREES / KEY / "0" / "evil-0.1.tar.gz").read_bytes() == data


def test_a_stop_while_packages_are_installed_is_heard(host, console):
    ship(host, {"slow-0.1.tar.gz": archive_of("import time\ntime.sleep(600)\n")})
    run(console)
    console.text("r1", "Preparing metadata")
    began = time.monotonic()
    console.stop("r1", 60)
    facts = console.closed("r1")
    assert facts["why"] == "stop" and time.monotonic() - began < 30, facts


def archive_of(setup):
    """A source archive of a package with this setup.py alone."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("slow-0.1/setup.py")
        info.size = len(setup)
        archive.addfile(info, io.BytesIO(setup.encode()))
    return file.getvalue()


def test_a_run_whose_packages_were_thrown_away_is_refused(host, console):
    run(console)
    facts = console.closed("r1")
    assert facts["refusal"] == "unprepared" and "is" in facts["message"], facts
    assert not packages_directory(host).exists()


def test_the_name_of_a_package_cannot_lead_elsewhere(host, tmp_path):
    for name in ("../evil.whl", "a/b.whl", "--index-url.whl", "a;b.whl", "x.exe"):
        with pytest.raises(Unprepared, match="is not the name of a wheel"):
            ship(host, {name: b"x"})
    assert not cache_of(host).has(TREES, KEY)


def test_an_order_for_packages_is_checked(console):
    for packages in ("x", {}, {"tree": "../x"}, {"tree": KEY, "index": 3}):
        name = "r" + hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:8]
        start(console, name, "true", packages=packages)
        facts = console.closed(name)
        assert facts["refusal"] == "bad_order" and "packages" in facts["message"]
