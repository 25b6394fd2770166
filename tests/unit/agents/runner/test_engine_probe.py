"""What the probe finds out about engines: whether they work for this login, and what they lack."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
import sys
import time

import pytest

from agents.hosts.engine_checks import ANSWER_S
from agents.hosts.enrolment import PROBE_TIMEOUT_S
from agents.runner.host import engine_probe

INFO = '{{"host": {{"cgroupVersion": "v2", "cgroupControllers": [{controllers}]}}}}'


@pytest.fixture
def podman(monkeypatch, tmp_path):
    """podman(prints, status): a podman of this test on the PATH."""

    def make(prints, status=0, errors="", does="pass"):
        program = tmp_path / "podman"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['info', '--format', 'json']\n"
            f"{does}\nprint({prints!r}); print({errors!r}, file=sys.stderr); sys.exit({status})\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


@pytest.fixture
def docker(monkeypatch, tmp_path):
    """docker(prints, status, errors): a Docker of this test, with an init."""

    def make(prints, status=0, errors=""):
        program = tmp_path / "docker"
        program.write_text(f"#!{sys.executable}\nimport sys\n"
                           f"print({prints!r}); print({errors!r}, file=sys.stderr); sys.exit({status})\n")  # fmt: skip
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(engine_probe, "DOCKER_INIT_PLACES", (str(program),))

    return make


DAEMON = (
    '{"ServerVersion": "20.10.24", "CgroupVersion": "2", "MemoryLimit": true, '
    '"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}'
)


def test_docker_says_whether_its_daemon_works(docker, monkeypatch):
    docker(DAEMON)
    found = engine_probe.probe_docker()
    assert found == {
        "answered": True, "works": True, "error": "", "rootless": True, "cgroup": "v2", "missing": [],
        "cdi": False,
    }  # fmt: skip
    monkeypatch.setattr(engine_probe, "DOCKER_INIT_PLACES", ("/nowhere",))
    docker(DAEMON.replace("true", "false"))
    monkeypatch.setattr(engine_probe, "DOCKER_INIT_PLACES", ("/nowhere",))
    assert engine_probe.probe_docker()["missing"] == ["cgroup", "init"]


def test_docker_says_whether_it_takes_cdi_specs(docker):
    """As Docker 25 and newer do, with the directories of specs, if they take them."""
    docker(DAEMON.replace("{", '{"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"], ', 1))
    assert engine_probe.probe_docker()["cdi"] is True
    docker(DAEMON.replace("{", '{"CDISpecDirs": [], ', 1))
    assert engine_probe.probe_docker()["cdi"] is False


@pytest.mark.parametrize(
    ("prints", "status", "errors"),
    [
        ('{"ServerErrors": ["permission denied"], "ClientInfo": {}}', 0, ""),
        ('{"ServerVersion": "", "MemoryLimit": false}', 1, "permission denied"),
        ("nonsense", 1, "permission denied"),
    ],
)
def test_a_daemon_that_the_login_does_not_reach_is_told_in_the_words_of_the_client(
    docker, prints, status, errors
):
    docker(prints, status, errors)
    found = engine_probe.probe_docker()
    assert (found["works"], found["error"], found["answered"]) == (False, "permission denied", True), found


@pytest.fixture
def login(monkeypatch, tmp_path):
    """A login without root: with newuidmap, and with ranges of ids as the test writes them."""
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(engine_probe.pwd, "getpwuid", lambda uid: me)
    monkeypatch.setattr(engine_probe.os, "getuid", lambda: 1234)
    monkeypatch.setattr(engine_probe.shutil, "which", lambda name: f"/usr/bin/{name}")
    ranges = tmp_path / "subuid"
    ranges.write_text(f"other:1:65536\n{me.pw_name}:100000:65536\n")
    monkeypatch.setattr(engine_probe, "_RANGES", (str(ranges),))
    return me, ranges


def test_podman_says_whether_it_works(podman):
    podman(INFO.format(controllers='"memory", "pids"'))
    found = engine_probe.probe_podman()
    assert (found["works"], found["error"], found["cgroup"]) == (True, "", "v2")
    assert "cgroup" not in found["missing"] and found["answered"] is True


@pytest.mark.parametrize("prints", ["", "no JSON", "[]", '{"host": 7}'])
def test_one_that_answers_nonsense_does_not_work(podman, prints):
    podman(prints)
    found = engine_probe.probe_podman()
    assert found["works"] is False and found["answered"] is True


def test_one_that_fails_is_told_in_its_own_words(podman):
    podman("", 125, "WARN x\nError: cannot set up namespace")
    found = engine_probe.probe_podman()
    assert not found["works"] and found["answered"] and found["error"] == "Error: cannot set up namespace"


@pytest.mark.parametrize(
    "does",
    [
        "import time; time.sleep(60)",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_one_that_hangs_or_is_killed_has_not_answered(podman, monkeypatch, does):
    podman(INFO.format(controllers=""), does=does)
    monkeypatch.setattr(engine_probe, "TIMEOUT_S", 0.5)
    assert engine_probe.probe_podman()["answered"] is False


def test_the_checklist_tells_how_long_the_probe_waits():
    """Slow programs of the host may need all of the probe's other time."""
    assert engine_probe.TIMEOUT_S == ANSWER_S < PROBE_TIMEOUT_S / 3


def test_a_host_without_it_says_nothing(monkeypatch):
    monkeypatch.setattr(engine_probe, "find_engine", lambda name: None)
    assert engine_probe.probe_podman() is None


def test_a_login_with_all_parts_lacks_none(login):
    assert engine_probe.missing_parts(["memory"]) == [] and engine_probe.missing_parts(None) == []


@pytest.mark.parametrize("line", ["", "{name}x:100000:65536", "{name}:100000:0", "{uid}1:100000:65536"])
def test_a_login_without_ids_of_its_own_lacks_them(login, line):
    me, ranges = login
    ranges.write_text(line.format(name=me.pw_name, uid=me.pw_uid) + "\n")
    assert engine_probe.missing_parts(["memory"]) == ["subuid"]


def test_a_login_may_have_its_ids_by_its_number(login):
    me, ranges = login
    ranges.write_text(f"{me.pw_uid}:100000:65536\n")
    assert engine_probe.missing_parts(["memory"]) == []


def test_what_is_not_installed_or_not_delegated_is_missing(login, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(engine_probe, "INIT_PLACES", ("/nowhere/catatonit",))
    assert engine_probe.missing_parts(["cpu", "pids"]) == ["newuidmap", "cgroup", "init"]


def test_a_real_apptainer_works(tmp_path, monkeypatch):
    """A container is made as a run makes one, where images are kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".trainyard").mkdir()
    found = engine_probe.probe_apptainer()
    assert found == {
        "answered": True, "works": True, "error": "", "rootless": os.getuid() != 0, "cgroup": "",
        "missing": [] if shutil.which("unsquashfs") else ["squashfs"],
    }  # fmt: skip
    assert not list((tmp_path / ".trainyard").iterdir())


@pytest.fixture
def apptainer(monkeypatch, tmp_path):
    """apptainer(shell): an Apptainer of this test on the PATH."""

    def make(text):
        program = tmp_path / "apptainer"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("FATAL:   container creation failed: no overlay", "container creation failed: no overlay"),
        ("\x1b[91mERROR  : Failed to create user namespace\n\x1b[0m", "Failed to create user namespace"),
        ("something else", "something else"),
    ],
)
def test_an_apptainer_that_does_not_work_is_told_in_its_own_words(apptainer, said, words):
    apptainer(f"printf '%s' '{said}' >&2; exit 255")
    found = engine_probe.probe_apptainer()
    assert (found["works"], found["answered"], found["error"]) == (False, True, words)


def test_an_apptainer_that_hangs_has_not_answered(apptainer, monkeypatch):
    apptainer("exec sleep 60")
    monkeypatch.setattr(engine_probe, "TIMEOUT_S", 0.5)
    assert engine_probe.probe_apptainer()["answered"] is False


def test_engines_that_hang_are_waited_for_side_by_side(monkeypatch, tmp_path):
    for name in ("podman", "docker", "apptainer"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(engine_probe, "TIMEOUT_S", 3.0)
    began = time.monotonic()
    found = engine_probe.probe_engines()
    assert [each["answered"] for each in found.values()] == [False] * 3 and time.monotonic() - began < 7
    assert list(found) == ["podman", "docker", "apptainer"]


def test_an_apptainer_on_a_full_disk_does_not_work_and_the_rest_is_told(apptainer, monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device", "/home/ada/.trainyard/x")

    apptainer("exit 0")
    monkeypatch.setattr(engine_probe.tempfile, "TemporaryDirectory", full)
    found = engine_probe.probe_apptainer()
    assert (found["works"], found["answered"]) == (False, True) and "No space left" in found["error"]


def test_a_host_without_apptainer_says_nothing_of_it(monkeypatch):
    monkeypatch.setattr(engine_probe, "find_engine", lambda name: None)
    assert engine_probe.probe_apptainer() is None
