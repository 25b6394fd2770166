"""The line of the checklist about engines: what is there, whether podman works, and what helps."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from django.utils import timezone

from agents.hosts import enrolment
from agents.hosts.adding import add_host
from agents.models import Host
from tests.unit.agents.hosts.test_enrolment import GOOD, facts, judged

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


SILENT = {
    **WORKS,
    "answered": False,
    "works": False,
    "error": "podman did not answer within 8 s",
    "cgroup": "",
}


@pytest.fixture
def found(db, monkeypatch):
    """found(*answers): the runtimes that are stored after checks in which podman said this, and the last one's line."""
    now = timezone.now()
    monkeypatch.setattr(enrolment.install_runner, "put_runner", lambda transport: "")
    monkeypatch.setattr(enrolment.install_runner, "command", lambda sha, mode: mode)

    def check(*answers):
        host = add_host(f"gpu-{Host.objects.count()}", "10.0.0.7", 22, "gpu", "", "", "ada", now)
        for answer in answers:
            said = json.dumps({**GOOD, "gpus": [], "podman": answer, "runtimes": PODMAN}).encode()
            result = SimpleNamespace(stdout=said, stderr=b"")
            monkeypatch.setattr(enrolment, "run_command", lambda *_, result=result, **__: result)
            items = enrolment._probe(Host.objects.get(pk=host.pk), None, now)
        lines = {item.name: item for item in items}
        return Host.objects.get(pk=host.pk).facts["runtimes"], lines["Runtimes"]

    return check


def test_a_podman_that_is_slow_once_stays_what_it_was_known_to_be(found):
    runtimes, seen = found(WORKS, SILENT, SILENT)
    assert runtimes == ["podman 4.3.1"]
    assert seen.ok is None and "cgroup v2, as the last check found: this time it did not answer" in seen.text
    assert "Look what makes “podman info” slow for the login gpu" in seen.fix
    runtimes, seen = found(WORKS, SILENT, WORKS)
    assert seen.ok is True and "did not answer" not in seen.text


def test_a_podman_that_never_answered_runs_no_jobs(found):
    broken = {**WORKS, "works": False, "error": "cannot find newuidmap"}
    for answers in ([SILENT], [SILENT, SILENT], [broken, SILENT], [None, SILENT]):
        runtimes, seen = found(*answers)
        assert runtimes == [] and seen.ok is False, answers
    assert "podman does not work: cannot find newuidmap" in found(broken, SILENT)[1].text
    assert "podman does not work: podman did not answer within 8 s" in found(SILENT)[1].text


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


DOCKER = [{"name": "docker", "version": "20.10.24"}]


def docker_line(docker=WORKS, runtimes=(*PODMAN, *DOCKER)):
    return judged(podman=WORKS, docker=docker, runtimes=list(runtimes))["Runtimes"]


def test_the_line_says_how_docker_runs_where_it_is():
    assert "docker" not in docker_line(runtimes=PODMAN).text
    seen = docker_line()
    assert seen.ok is True and seen.fix == ""
    assert seen.text == (
        "host, podman 4.3.1, docker 20.10.24; podman runs without root, cgroup v2; docker runs without root, cgroup v2"
    )
    assert facts(docker=WORKS, runtimes=DOCKER).runtimes == ("docker 20.10.24",)


def test_a_docker_that_the_login_does_not_reach_runs_no_jobs_and_is_no_fault_of_the_host():
    broken = {**WORKS, "works": False, "error": "permission denied", "missing": []}
    seen = docker_line(broken)
    assert seen.ok is True and seen.text.endswith("; docker cannot be used: permission denied")
    assert "“docker info” must work for the login gpu" in seen.fix
    assert facts(docker=broken, runtimes=DOCKER).runtimes == ()
    assert facts(docker=broken, runtimes=[*PODMAN, *DOCKER], podman=WORKS).runtimes == ("podman 4.3.1",)


def test_an_old_docker_runs_no_jobs():
    old = [{"name": "docker", "version": "19.03.5"}]
    assert "too old" in docker_line(runtimes=old).text and facts(docker=WORKS, runtimes=old).runtimes == ()


@pytest.mark.parametrize(("engine", "program"), [("podman", "catatonit"), ("docker", "docker-init (tini)")])
def test_an_engine_without_an_init_is_told_what_programs_lack(engine, program):
    found = {**WORKS, "missing": ["init"]}
    seen = line(found) if engine == "podman" else docker_line(found)
    assert (
        seen.ok is (None if engine == "podman" else True)
        and "process 1 of its container" in seen.fix
        and program in seen.fix
    )


APPTAINER = [{"name": "apptainer", "version": "1.4.5"}]


def apptainer_line(apptainer=WORKS, runtimes=(*PODMAN, *APPTAINER)):
    return judged(podman=WORKS, apptainer=apptainer, runtimes=list(runtimes))["Runtimes"]


def test_the_line_says_whether_apptainer_works_where_it_is():
    assert "apptainer" not in apptainer_line(runtimes=PODMAN).text
    seen = apptainer_line()
    assert seen.ok is True and seen.fix == "" and seen.text.endswith("; apptainer works")
    assert facts(apptainer=WORKS, runtimes=APPTAINER).runtimes == ("apptainer 1.4.5",)


def test_an_apptainer_that_does_not_work_runs_no_jobs_and_is_no_fault_of_the_host():
    broken = {**WORKS, "works": False, "error": "Failed to create user namespace"}
    seen = apptainer_line(broken)
    assert seen.ok is True
    assert seen.text.endswith("; apptainer cannot be used: Failed to create user namespace")
    assert "user.max_user_namespaces above 0" in seen.fix and "The login gpu" in seen.fix
    assert facts(apptainer=broken, runtimes=APPTAINER).runtimes == ()
    silent = {**broken, "answered": False}
    assert facts(apptainer=silent, runtimes=APPTAINER).runtimes == ()


def test_an_old_apptainer_runs_no_jobs():
    old = [{"name": "apptainer", "version": "1.0.3"}]
    assert "too old" in apptainer_line(runtimes=old).text
    assert facts(apptainer=WORKS, runtimes=old).runtimes == ()


def test_all_engines_stand_in_one_line():
    found = judged(podman=WORKS, docker=WORKS, apptainer=WORKS, runtimes=[*PODMAN, *DOCKER, *APPTAINER])
    assert found["Runtimes"].text.count(";") == 3


@pytest.mark.parametrize("name", ["docker", "apptainer"])
def test_a_host_without_podman_is_right_where_another_engine_works(name):
    there = [{"name": name, "version": {"docker": "24.0", "apptainer": "1.4.5"}[name]}]
    seen = judged(podman=None, runtimes=there, gpus=[], **{name: WORKS})["Runtimes"]
    assert seen.ok is True and seen.fix == ""
    broken = {**WORKS, "works": False, "error": "no"}
    seen = judged(podman=None, runtimes=there, gpus=[], **{name: broken})["Runtimes"]
    assert seen.ok is None and "install podman" in seen.fix and "or where the hosts have n" in seen.fix
    old = [{"name": name, "version": "1.0"}]
    assert judged(podman=None, runtimes=old, gpus=[], **{name: WORKS})["Runtimes"].ok is None


UUIDS = [gpu["uuid"] for gpu in GOOD["gpus"]]


def test_a_spec_that_names_all_gpus_is_right():
    seen = judged(podman=WORKS, runtimes=PODMAN, cdi=[*UUIDS, "0", "1", "all"])["Runtimes"]
    assert (seen.ok, seen.fix) == (True, "") and "CDI" not in seen.text
    assert "CDI" not in judged(podman=WORKS, runtimes=PODMAN)["Runtimes"].text, "a runner that is too old"
    assert "CDI" not in judged(podman=None, runtimes=[], cdi=[])["Runtimes"].text, "nothing could use one"
    docker = alone({**WORKS, "cdi": True})
    assert "CDI" not in judged(**docker, cdi=[], nvidia_hook=True)["Runtimes"].text
    assert "no CDI spec names its GPUs" in judged(**docker, cdi=[])["Runtimes"].text
    assert judged(**docker, cdi=UUIDS)["Runtimes"].ok is True


NO_SPECS = {**WORKS, "cdi": False}


def alone(docker):
    return {"podman": None, "docker": docker, "runtimes": [{"name": "docker", "version": "28.3"}]}


@pytest.mark.parametrize(("nodes", "until_then"), [(True, "device nodes alone"), (False, "are refused here")])
def test_a_docker_that_takes_no_specs_is_not_cured_by_one(nodes, until_then):
    """Runs use a spec only where `docker info` says that Docker takes them."""
    for named in ([], UUIDS, [UUIDS[0]]):
        seen = judged(**alone(NO_SPECS), cdi=named, gpu_nodes=nodes)["Runtimes"]
        assert seen.ok is None and seen.text.endswith("docker cannot give containers GPUs by their names")
        assert "install NVIDIA's Container Toolkit" in seen.fix and '"features": {"cdi": true}' in seen.fix
        assert "nvidia-ctk" not in seen.fix and until_then in seen.fix
    assert judged(**alone(NO_SPECS), cdi=[], nvidia_hook=True)["Runtimes"].ok is True
    assert judged(**alone(NO_SPECS), cdi=[], gpus=[])["Runtimes"].ok is True


def test_a_docker_beside_podman_makes_no_host_wrong_that_takes_no_specs():
    both = {"podman": WORKS, "docker": NO_SPECS, "runtimes": [*PODMAN, *DOCKER]}
    seen = judged(**both, cdi=UUIDS)["Runtimes"]
    assert seen.ok is True and "docker cannot give containers GPUs by their names" in seen.text
    assert "its CDI spec" not in seen.text and "Container Toolkit" in seen.fix
    seen = judged(**both, cdi=[])["Runtimes"]
    assert seen.ok is None and "no CDI spec names its GPUs" in seen.text and "nvidia-ctk" in seen.fix


@pytest.mark.parametrize(
    ("named", "nodes", "text", "cure"),
    [
        ([], True, "no CDI spec names its GPUs", "device nodes alone"),
        ([], False, "no CDI spec names its GPUs", "are refused here"),
        (["0", "all"], True, f"does not name {', '.join(UUIDS[:3])}", "--device-name-strategy=uuid"),
        ([*UUIDS, "GPU-old"], True, "names GPU-old, which nvidia-smi does not list", "write the spec again"),
    ],
)
def test_a_spec_that_names_other_gpus_than_the_driver_is_told(named, nodes, text, cure):
    seen = judged(podman=WORKS, runtimes=PODMAN, cdi=named, gpu_nodes=nodes)["Runtimes"]
    assert seen.ok is None and text in seen.text and cure in seen.fix


@pytest.mark.parametrize("uuid", ["GPU-b", ""])
@pytest.mark.parametrize("why", ["mig", "reset", "lost"])
def test_a_card_that_is_out_of_use_was_not_changed_for_another(why, uuid):
    """The line about GPUs tells of it, with its cure. A card without a name may be any that a spec names."""
    out = [{"index": 8, "uuid": uuid, "why": why, "text": ""}]
    found = judged(podman=WORKS, runtimes=PODMAN, cdi=[*UUIDS, "GPU-b"], gpus_out=out)
    assert (found["Runtimes"].ok, found["Runtimes"].fix) == (True, "") and "CDI" not in found["Runtimes"].text
    assert found["GPUs"].ok is None
    other = judged(
        podman=WORKS, runtimes=PODMAN, cdi=[*UUIDS, "GPU-old"], gpus_out=[{**out[0], "uuid": "GPU-b"}]
    )
    assert "names GPU-old, which nvidia-smi does not list" in other["Runtimes"].text
