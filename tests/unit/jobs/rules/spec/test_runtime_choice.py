"""What no runtime can execute is refused with its field, before anything is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.runtime_choice import Offer, check_runtimes, choose_engine, runtime_order, with_engine
from jobs.rules.spec.tasks import Code, Container, PythonPackage
from tests.unit.jobs.rules.views import pool, spec

POOL = "job_spec.worker_pool_specs[1]"


def test_programs_of_the_host_are_executed():
    one = spec(1)
    check_runtimes(one)
    check_runtimes(replace(one, pools=(replace(pool(), runtime="process"), None)))
    check_runtimes(replace(one, pools=(replace(pool(), code=Code(archive_uri="gs://a/b")),)))
    package = PythonPackage("host", ("gs://a/b.whl",), "m")
    for runtime in ("", "python"):
        check_runtimes(replace(one, pools=(replace(pool(), task=package, runtime=runtime),)))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": Container("ghcr.io/lab/train"), "runtime": "process"}, f"{POOL}.trainyard.runtime"),
        (
            {"task": PythonPackage("gcr.io/x/pytorch", ("gs://a/b",), "m"), "runtime": "python"},
            f"{POOL}.trainyard.runtime",
        ),
        (
            {"task": PythonPackage("host", ("gs://a/b",), "m"), "runtime": "podman"},
            f"{POOL}.trainyard.runtime",
        ),
        ({"runtime": "podman"}, f"{POOL}.trainyard.runtime"),
        ({"runtime": "python"}, f"{POOL}.trainyard.runtime"),
    ],
)
def test_what_cannot_be_executed_is_refused(changes, field):
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(replace(spec(1), pools=(pool(), replace(pool(), **changes))))
    assert [each.field for each in refused.value.violations] == [field]


@pytest.mark.parametrize("engine", ["podman", "docker", "apptainer"])
def test_a_pool_names_its_engine(engine):
    named = replace(pool(), task=Container("ghcr.io/lab/train"), runtime=engine)
    job = replace(spec(1), pools=(named, None))
    check_runtimes(job, Offer({"h1": frozenset({engine})}))
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(job, Offer({"h1": frozenset()}))
    assert f"Install {engine} there" in refused.value.violations[0].description
    assert runtime_order(named)["kind"] == engine


def test_images_run_where_any_host_has_the_engine():
    image = replace(pool(), task=Container("ghcr.io/lab/train", ("python",), ("-m", "x")))
    job = replace(spec(1), pools=(image, None))
    check_runtimes(job)
    check_runtimes(job, Offer({"h1": frozenset({"podman", "docker"})}))
    check_runtimes(job, Offer({"h1": frozenset({"podman"}), "h2": frozenset({"docker"})}))
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(job, Offer({"h2": frozenset({"docker"}), "h3": frozenset()}))
    (violation,) = refused.value.violations
    assert violation.field == "job_spec.worker_pool_specs[0].container_spec.image_uri"
    assert "h2, h3" in violation.description and "Install podman" in violation.description
    assert runtime_order(image) == {
        "kind": "podman",
        "image": "ghcr.io/lab/train",
        "entrypoint": ["python"],
        "args": ["-m", "x"],
    }
    assert runtime_order(pool()) == {}


def test_a_pool_that_names_docker_runs_where_docker_is():
    image = replace(pool(), task=Container("ghcr.io/lab/train"), runtime="docker")
    job = replace(spec(1), pools=(image, None))
    check_runtimes(job, Offer({"h1": frozenset({"podman"}), "h2": frozenset({"docker"})}))
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(job, Offer({"h1": frozenset({"podman"})}))
    assert "Install docker there" in refused.value.violations[0].description
    assert runtime_order(image)["kind"] == "docker"


def test_a_container_with_code_starts_where_the_code_is():
    image = replace(pool(), task=Container("ghcr.io/lab/train", ("python", "train.py")))
    assert "workdir" not in runtime_order(image)
    assert runtime_order(replace(image, code=Code(archive_uri="gs://a/b")))["workdir"] is True


def test_packages_run_in_an_image_where_an_engine_is():
    task = PythonPackage("ghcr.io/lab/torch", ("gs://a/b",), "trainer.task", ("--epochs=3",))
    packages = replace(pool(), task=task)
    job = replace(spec(1), pools=(packages, None))
    check_runtimes(job, Offer({"h1": frozenset({"podman"})}))
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(job, Offer({"h1": frozenset()}))
    (violation,) = refused.value.violations
    assert violation.field == "job_spec.worker_pool_specs[0].python_package_spec.executor_image_uri"
    assert "Install podman there" in violation.description
    assert runtime_order(packages) == {
        "kind": "podman",
        "image": "ghcr.io/lab/torch",
        "entrypoint": ["python3", "-m", "trainer.task"],
        "args": ["--epochs=3"],
        "workdir": True,
    }
    assert with_engine(packages, "apptainer").runtime == "apptainer"


@pytest.mark.parametrize(
    ("hosts", "engine"),
    [
        ({}, ""),
        ({"h1": ()}, ""),
        ({"h1": ("apptainer",), "h2": ("podman",)}, ""),
        ({"h1": ("apptainer",), "h2": ("docker",)}, "docker"),
        ({"h1": (), "h2": ("apptainer",)}, "apptainer"),
    ],
)
def test_the_first_engine_that_hosts_have_is_chosen(hosts, engine):
    assert choose_engine(Offer({name: frozenset(each) for name, each in hosts.items()})) == engine


def test_an_engine_is_chosen_for_pools_with_an_image_that_name_none():
    image = replace(pool(), task=Container("ghcr.io/lab/train"))
    assert with_engine(image, "apptainer").runtime == "apptainer"
    assert with_engine(replace(image, runtime="docker"), "apptainer").runtime == "docker"
    assert with_engine(pool(), "apptainer") == pool()
    package = replace(pool(), task=PythonPackage("host", ("gs://a/b.whl",), "m"))
    assert with_engine(package, "apptainer") == package


@pytest.mark.parametrize(("task", "engine", "fits"), [
    (Container("ghcr.io/lab/train"), "podman", True),
    (PythonPackage("ghcr.io/lab/train", ("gs://a/b.whl",), "m"), "docker", True),
    (Container("ghcr.io/lab/train"), "apptainer", False),
    (Container("host", ("true",)), "", False),
    (PythonPackage("host", ("gs://a/b.whl",), "m"), "", False),
])  # fmt: skip
def test_only_containers_with_shared_memory_of_their_own_are_given_its_size(task, engine, fits):
    named = replace(pool(), task=task, runtime=engine, shm_mb=2048)
    job = replace(spec(1), pools=(pool(), named))
    if fits:
        check_runtimes(job)
        assert runtime_order(named)["shm_mb"] == 2048
        assert "shm_mb" not in runtime_order(replace(named, shm_mb=0))
        return
    with pytest.raises(InvalidDocument) as refused:
        check_runtimes(job)
    assert [each.field for each in refused.value.violations] == [f"{POOL}.trainyard.shm_mb"]
