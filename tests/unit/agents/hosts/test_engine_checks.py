"""The line of the checklist about engines: what is there, whether podman works, and what helps."""

from __future__ import annotations

import pytest

from tests.unit.agents.hosts.test_enrolment import facts, judged

WORKS = {"works": True, "error": "", "rootless": True, "cgroup": "v2", "missing": []}
PODMAN = [{"name": "podman", "version": "4.3.1"}]


def line(podman=WORKS, runtimes=PODMAN):
    return judged(podman=podman, runtimes=runtimes)["Runtimes"]


def test_a_podman_that_works_is_right():
    seen = line()
    assert seen.ok is True and seen.fix == ""
    assert seen.text == "host, podman 4.3.1; podman runs without root, cgroup v2"
    assert "as root, cgroup v1" in line({**WORKS, "rootless": False, "cgroup": "v1"}).text


def test_a_host_without_podman_is_fine_and_told_what_images_need():
    seen = line(podman=None, runtimes=[{"name": "docker", "version": "24.0"}])
    assert seen.ok is None and seen.text == "host, docker 24.0" and "install podman 4.3 or newer" in seen.fix


@pytest.mark.parametrize(
    ("missing", "cure"),
    [
        ("newuidmap", "install uidmap"),
        ("subuid", "add gpu:100000:65536 to /etc/subuid and /etc/subgid"),
        ("cgroup", "cgroup v2 with the memory controller"),
    ],
)
def test_what_is_missing_has_a_cure(missing, cure):
    seen = line({**WORKS, "missing": [missing]})
    assert seen.ok is None and cure in seen.fix


def test_a_podman_that_does_not_work_is_wrong_in_its_own_words_and_runs_no_jobs():
    broken = {**WORKS, "works": False, "error": "cannot find newuidmap", "missing": ["newuidmap"]}
    seen = line(broken)
    assert seen.ok is False and "podman does not work: cannot find newuidmap" in seen.text
    assert "install uidmap" in seen.fix and "“podman info” must work for the login gpu" in seen.fix
    known = facts(podman=broken, runtimes=PODMAN)
    assert known.runtimes == () and known.installed == ("podman 4.3.1",)
    assert facts(podman=WORKS, runtimes=PODMAN).runtimes == ("podman 4.3.1",)


def test_an_old_podman_runs_no_jobs():
    old = [{"name": "podman", "version": "3.4.4"}]
    seen = line(runtimes=old)
    assert seen.ok is False and "3.4.4 is too old" in seen.text and facts(runtimes=old).runtimes == ()


def test_a_runner_that_does_not_tell_is_believed():
    known = facts(runtimes=PODMAN)
    assert known.engine is None and known.runtimes == ("podman 4.3.1",)
    assert judged(runtimes=PODMAN)["Runtimes"].ok is None


@pytest.mark.parametrize(
    "value", [7, "x", [], {"works": "yes", "missing": "cgroup", "error": 5, "cgroup": None}]
)
def test_nonsense_is_no_podman_that_works(value):
    engine = facts(podman=value, runtimes=PODMAN).engine
    assert engine is None or (not engine.works and not engine.missing)
