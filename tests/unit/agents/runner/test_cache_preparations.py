"""What a job brings, through the whole runner: shipped, prepared, and run with."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile

import pytest

from agents.runner.preparations.left_processes import of_preparation, sweep
from agents.runner.processes import all_processes, marked
from agents.runner.wire import encode
from tests.unit.agents.runner.hostile_archives import REFUSED, tar
from tests.unit.agents.runner.protocol_client import PYTHON, RUNNER, wait_for
from tests.unit.agents.runner.test_environments import source_archive, wheel

KEY = "a" * 64
CODE = gzip.compress(tar(("train.py", {"data": b"print('trained by the archive')\n"})))


def blob(data):
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def put(host, data, cut_at=None):
    """Ship as the console does. `cut_at`: the connection ends there."""
    line = json.dumps({"deployment": "dep", **blob(data)}).encode() + b"\n"
    done = subprocess.run(
        [PYTHON, str(RUNNER), "put"], input=line + data[:cut_at], env=host.env, stdout=subprocess.PIPE,
        timeout=60, check=False,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def prepare(console, kind, key=KEY, asked=1, **what):
    document = json.dumps({"key": key, **what}).encode()
    console.write(encode({"t": "prepare", "kind": kind, "key": key, "asked": asked}, document))


def hear(console, state):
    return console.hear("prepared", lambda m: m["state"] == state)


def printed(host, run):
    return (host.home / ".trainyard" / "dep" / "runs" / run / "log").read_text()


def test_a_job_runs_with_its_archive(host, console):
    prepare(console, "tree", blob=blob(CODE)["sha256"], blobs=[blob(CODE)])
    assert hear(console, "WORKING")["kind"] == "tree"
    assert put(host, CODE) == {"ok": True}
    hear(console, "READY")
    console.start("r1", [sys.executable, "train.py"], code={"tree": KEY})
    assert console.closed("r1")["exit_code"] == 0
    assert printed(host, "r1") == "trained by the archive\n"


def test_a_preparation_outlives_its_connection_and_tells_the_next_one(host, console):
    prepare(console, "tree", blob=blob(CODE)["sha256"], blobs=[blob(CODE)])
    hear(console, "WORKING")
    console.drop()
    later = host.connect()
    later.hello()
    hear(later, "WORKING")
    put(host, CODE)
    hear(later, "READY")


def test_a_hostile_archive_fails_by_the_users_fault(host, console):
    data = REFUSED["up"][0]()
    put(host, data)
    prepare(console, "tree", blob=blob(data)["sha256"], blobs=[blob(data)])
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "leads out" in failed["message"]


def test_a_killed_preparation_is_lost_and_can_be_asked_for_again(host, console):
    prepare(console, "tree", blob=blob(CODE)["sha256"], blobs=[blob(CODE)])
    hear(console, "WORKING")
    pid = host.home / ".trainyard/dep/preparations" / f"tree-{KEY}" / "pid"
    wait_for(lambda: pid.exists() and pid.read_text(), "the process to say its pid")
    os.kill(int(pid.read_text()), signal.SIGKILL)
    hear(console, "LOST")
    put(host, CODE)
    prepare(console, "tree", asked=2, blob=blob(CODE)["sha256"], blobs=[blob(CODE)])
    hear(console, "READY")


PACKAGES = {
    "trainer-0.1.tar.gz": source_archive(
        "import helper, os, sys; print(helper.ANSWER, sys.argv[1:], os.environ['A'])"
    ),
    "helper-1.2-py3-none-any.whl": wheel("helper", "1.2", "ANSWER = 42"),
}
ENVIRONMENT = {
    "packages": [{"sha256": blob(data)["sha256"], "name": name} for name, data in PACKAGES.items()],
    "blobs": [blob(data) for data in PACKAGES.values()],
    "index": "none",
}


@pytest.fixture
def environment(host, console):
    """An environment of a Python package, as a preparation made it. Returns what was told of it."""
    host.env["PATH"] = "/usr/bin:/bin"
    console = host.connect()
    console.hello()
    for data in PACKAGES.values():
        put(host, data)
    prepare(console, "environment", **ENVIRONMENT)
    return console, hear(console, "READY")


def test_a_module_of_a_package_runs_in_its_environment(host, environment):
    console, told = environment
    assert "helper==1.2" in told["result"]["installed"] and "Successfully installed" in told["tail"]
    command = ["python3", "-m", "aiplatform_custom_trainer_script.task", "--epochs", "3"]
    console.start(
        "r1", command, runtime={"kind": "python", "environment": KEY}, env={"A": "b", "PATH": "/usr/bin"}
    )
    assert console.closed("r1")["exit_code"] == 0
    line, rest = printed(host, "r1").split("\n", 1)
    assert line.startswith("trainyard: the packages were installed on this host for an earlier start, at 20")
    assert "helper==1.2" in line and rest == "42 ['--epochs', '3'] b\n"


OUTPUT = ["sh", "-c", "printf 'of the program'"]


def test_the_log_of_a_run_that_waited_for_pip_begins_with_what_pip_printed(host, environment):
    console, told = environment
    console.start("r1", OUTPUT, runtime={"kind": "python", "environment": KEY}, install_log=True)
    console.closed("r1")
    log, digest = console.ended_log("r1")
    assert log == printed(host, "r1").encode() and digest == "sha256:" + hashlib.sha256(log).hexdigest()
    head, _, rest = log.rpartition(b"\n")
    assert head.startswith(b"Looking in links: ") and rest == b"of the program"
    assert b"Successfully installed" in head and b"TRAINYARD-PYTHON" not in head and b"==" not in head


def test_what_pip_printed_stands_in_a_log_once_whenever_a_keeper_is_killed(host, environment):
    console, _ = environment
    for point in ("after_order", "before_gate", "after_gate", "before_started", "before_ended"):
        host.arm(point)
        console.start(point, OUTPUT, runtime={"kind": "python", "environment": KEY}, install_log=True)
        facts = console.closed(point)
        assert host.fired(point)
        log, _ = console.ended_log(point)
        assert log.count(b"Successfully installed helper-1.2") == 1, point
        assert log.endswith(b"of the program") is (facts["exit_code"] == 0), point


def test_an_environment_is_kept_while_a_process_of_a_run_lives(host, environment):
    console, _ = environment
    console.start("r1", ["sleep", "600"], runtime={"kind": "python", "environment": KEY})
    console.running("r1")
    lock = host.home / f".trainyard/dep/cache/environments/{KEY}.lock"
    assert "free" not in try_lock(lock)
    console.stop("r1")
    console.closed("r1")
    wait_for(lambda: "free" in try_lock(lock), "the lock to be free")


def try_lock(path):
    done = subprocess.run(
        ["flock", "-n", str(path), "echo", "free"], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout


def test_a_start_waits_for_one_who_has_its_environment_alone_for_a_moment(host, environment):
    console, _ = environment
    lock = host.home / f".trainyard/dep/cache/environments/{KEY}.lock"
    alone = ["flock", str(lock), "sh", "-c", "echo alone; exec sleep 1"]
    with subprocess.Popen(alone, stdout=subprocess.PIPE) as looking:
        assert looking.stdout.readline() == b"alone\n"
        console.start("r1", ["true"], runtime={"kind": "python", "environment": KEY})
        assert console.closed("r1")["exit_code"] == 0


def test_a_run_whose_environment_is_gone_is_refused(console):
    console.start("r1", ["python3", "-c", "1"], runtime={"kind": "python", "environment": "b" * 64})
    facts = console.closed("r1")
    assert facts["refusal"] == "unprepared" and "is not on this host any more" in facts["message"]


def test_pip_that_fails_tells_its_last_lines(host):
    host.env["PATH"] = "/usr/bin:/bin"
    console = host.connect()
    console.hello()
    data = source_archive("", "no-such-package>=7")
    put(host, data)
    packages = [{"sha256": blob(data)["sha256"], "name": "trainer-0.1.tar.gz"}]
    prepare(console, "environment", packages=packages, blobs=[blob(data)], index="none")
    failed = hear(console, "FAILED")
    assert failed["fault"] == "user" and "no-such-package>=7" in failed["message"]
    assert "no-such-package" in failed["tail"]


# It leaves a daemon, and kills the process that prepares.
HOSTILE = """#!{python}
import os, signal, subprocess
with open("{place}/env", "w") as file:
    file.write("".join("%s=%s\\n" % each for each in os.environ.items()))
away = subprocess.DEVNULL
daemon = subprocess.Popen(["sleep", "3600"], stdin=away, stdout=away, stderr=away, start_new_session=True)
with open("{place}/daemon", "w") as file:
    file.write(str(daemon.pid))
pid = os.getppid()
while not open("/proc/%d/cmdline" % pid).read().endswith("prepare\\0"):
    pid = int(open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[1])
os.kill(pid, signal.SIGKILL)
"""
OF_THE_JOB = {"TRAINYARD_MARK": "a mark of its own", "CUDA_VISIBLE_DEVICES": "0,1"}


def name_as_python(host, console, place, code):
    """As the Python of the job's reducers."""
    program = place / "python3"
    program.write_text(code)
    program.chmod(0o700)
    prepare(console, "numpy", python=str(program), env=OF_THE_JOB)


def bring_as_setup(host, console, place, code):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo("hostile-0.1/setup.py")
        info.size = len(code)
        archive.addfile(info, io.BytesIO(code.encode()))
    data = file.getvalue()
    put(host, data)
    packages = [{"sha256": blob(data)["sha256"], "name": "hostile-0.1.tar.gz"}]
    prepare(console, "environment", packages=packages, blobs=[blob(data)], index="none")


@pytest.mark.parametrize("bring", [name_as_python, bring_as_setup])
def test_nothing_lives_on_of_code_that_kills_the_process_which_prepares(host, tmp_path, bring):
    host.env["PATH"] = "/usr/bin:/bin"
    console = host.connect()
    console.hello()
    bring(host, console, tmp_path, HOSTILE.format(python=sys.executable, place=tmp_path))
    hear(console, "LOST")
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["TRAINYARD_MARK"].startswith("prepares:")
    daemon = int((tmp_path / "daemon").read_text())
    wait_for(lambda: console.read(0.1) or daemon not in living(), "the daemon to be swept")
    wait_for(lambda: not marked(env["TRAINYARD_MARK"], all_processes()), "all that has the mark to be gone")


def test_a_sweep_leaves_what_a_living_process_prepares(monkeypatch):
    for name, value in of_preparation().items():
        monkeypatch.setenv(name, value)
    with subprocess.Popen(["sleep", "3600"]) as mine:
        assert sweep() == 0 and mine.poll() is None
        mine.kill()


def living():
    return {process.pid for process in all_processes().values() if process.state not in "ZX"}
