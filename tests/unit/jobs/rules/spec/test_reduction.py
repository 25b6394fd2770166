"""Reduction Server in a document: accepted and refused, what it executes, its variables, and the advice."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from jobs.rules.spec import reduction
from jobs.rules.spec.advice import advice
from jobs.rules.spec.cluster_variables import cluster_environment
from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.image_aliases import Aliases, images_used, with_images
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import parse_custom_job, parse_spec
from jobs.rules.spec.reduction_advice import NO_CARDS, Cards
from jobs.rules.spec.runtime_choice import check_runtimes

PLAIN = {"imageUri": "host", "command": ["/opt/torch/bin/python3", "train.py"]}
REDUCERS = {"replicaCount": "2", "containerSpec": {"imageUri": reduction.IMAGES[0]}}
BY_RUNTIME = {"replicaCount": "2", "trainyard": {"runtime": "reduction-server", "wire": "bf16"}}


def job(third=REDUCERS, task=None, workers="3", machine=None):
    of = {"machineSpec": machine or {}, **(task or {"containerSpec": PLAIN})}
    pools = [of, {**of, "replicaCount": workers}, third]
    return parse_custom_job({"displayName": "reduced", "jobSpec": {"workerPoolSpecs": pools}})


def variables_of(spec, replica):
    addresses = {name: f"10.0.{pool}.{index}:7000" for name, pool, index, _ in spec.replicas()}
    of = {"job_id": "7", "project": "default", "location": "here", "host_name": "h", "gpus": 0}
    return cluster_environment(spec, replica=replica, addresses=addresses, **of)


@pytest.mark.parametrize("image", [*reduction.IMAGES, reduction.IMAGES[1].replace(":latest", ":v2")])
def test_each_regions_image_makes_reducers_of_the_third_pool(image):
    asked = job({"replicaCount": "4", "containerSpec": {"imageUri": image}})
    assert parse_custom_job(to_document(asked)) == asked
    assert reduction.reducers(asked.job_spec).replica_count == 4
    assert images_used(asked.job_spec, Aliases("here", {"us-docker.pkg.dev/*": "host"})) == {}


def test_the_runtime_makes_them_too_and_says_what_travels():
    asked = job(BY_RUNTIME)
    assert parse_spec(to_document(asked.job_spec)) == asked.job_spec
    assert reduction.reducers(asked.job_spec).wire == "bf16"
    assert variables_of(asked.job_spec, "workerpool1-1")["TRAINYARD_REDUCTION_WIRE"] == "bf16"


@pytest.mark.parametrize(
    ("third", "field"),
    [
        (
            {**REDUCERS, "machineSpec": {"acceleratorType": "NVIDIA_L4", "acceleratorCount": 1}},
            "machine_spec.accelerator_count",
        ),
        ({"containerSpec": {"imageUri": reduction.IMAGES[0], "args": ["x"]}}, "container_spec.args"),
        (
            {"containerSpec": {"imageUri": reduction.IMAGES[0], "command": ["a", "b"]}},
            "container_spec.command",
        ),
        ({**BY_RUNTIME, "containerSpec": {"imageUri": "ghcr.io/lab/other"}}, "container_spec.image_uri"),
        ({"trainyard": {"runtime": "reduction-server", "wire": "int8"}}, "trainyard.wire"),
        ({"containerSpec": PLAIN, "trainyard": {"wire": "bf16"}}, "trainyard.wire"),
    ],
)
def test_what_reducers_cannot_have_is_refused_at_its_field(third, field):
    with pytest.raises(InvalidDocument) as refused:
        job(third)
    assert [each.field.rpartition("[2].")[2] for each in refused.value.violations] == [field]


def test_another_pool_is_refused():
    pools = [{"containerSpec": PLAIN}, REDUCERS]
    with pytest.raises(InvalidDocument) as refused:
        parse_custom_job({"displayName": "x", "jobSpec": {"workerPoolSpecs": pools}})
    assert "worker_pool_specs[2]" in refused.value.violations[0].description


@pytest.mark.parametrize(
    ("command", "python"),
    [
        (["/opt/torch/bin/python3.11", "train.py"], "/opt/torch/bin/python3.11"),
        (["/opt/conda/bin/torchrun", "train.py"], "/opt/conda/bin/python3"),
        (["torchrun", "train.py"], "python3"),
        (["bash", "-c", "python train.py"], "python3"),
    ],
)
def test_the_python_of_the_primary_runs_the_reducers(command, python):
    spec = job(task={"containerSpec": {"imageUri": "host", "command": command}}).job_spec
    task = with_images(spec, {}).pools[2].task
    assert task.argv == (python, "-m", reduction.MODULE)
    assert task.image == "host"


def test_its_image_or_its_packages_run_them_too_and_a_named_Python_wins():
    image = job(
        task={"containerSpec": {"imageUri": "ghcr.io/lab/train", "command": ["python", "t.py"]}}
    ).job_spec
    assert (
        with_images(image, {0: "ghcr.io/lab/ours", 1: "ghcr.io/lab/ours"}).pools[2].task.image
        == "ghcr.io/lab/ours"
    )
    package = {
        "executorImageUri": "host",
        "packageUris": ["gs://bucket/t.whl"],
        "pythonModule": "t",
        "args": ["x"],
    }
    packaged = with_images(job(task={"pythonPackageSpec": package}).job_spec, {}).pools[2].task
    assert (packaged.module, packaged.args, packaged.package_uris) == (
        reduction.MODULE,
        (),
        ("gs://bucket/t.whl",),
    )
    named = {"containerSpec": {"imageUri": reduction.IMAGES[0], "command": ["/own/python3"]}}
    executed = with_images(job(named).job_spec, {})
    assert executed.pools[2].task.argv == ("/own/python3", "-m", reduction.MODULE)
    assert with_images(executed, {}) == executed
    check_runtimes(executed)


def test_reducers_are_counted_nowhere_and_only_trainers_are_told_of_them():
    asked = job().job_spec
    for spec in (asked, with_images(asked, {})):
        trainer = variables_of(spec, "workerpool1-2")
        assert (trainer["WORLD_SIZE"], trainer["RANK"], trainer["PET_NNODES"]) == ("4", "3", "4")
        assert trainer["TRAINYARD_REDUCERS"] == "10.0.2.0:7000,10.0.2.1:7000"
        assert (trainer["TRAINYARD_REDUCTION_REPLICA"], trainer["TRAINYARD_REDUCTION_REPLICAS"]) == ("3", "4")
        assert "ps" not in json.loads(trainer["TF_CONFIG"])["cluster"]
        assert len(json.loads(trainer["CLUSTER_SPEC"])["cluster"]["workerpool2"]) == 2
        reducer = variables_of(spec, "workerpool2-1")
        assert reducer["TRAINYARD_REDUCTION_PORT"] == "7000"
        assert {"TF_CONFIG", "WORLD_SIZE", "RANK", "TRAINYARD_REDUCERS"}.isdisjoint(reducer)
    assert reduction.role_of(asked, 0) == reduction.role_of(asked, 1) == reduction.TRAINER
    assert reduction.role_of(asked, 2) == reduction.REDUCER


def texts(cards=NO_CARDS, **options):
    found = advice(job(**options).job_spec, cards=cards)
    return " ".join(each.text for each in found if "educ" in each.text)


def test_advice_says_where_reducers_gain_nothing_or_are_too_few():
    assert "gains nothing with 2 replicas" in texts(workers="1")
    assert "2 reducers for 4 replicas" in texts()
    assert "One reducer for 4 replicas" in texts(third={**REDUCERS, "replicaCount": "1"})
    assert "2 reducers for" not in texts(workers="1")
    assert "for workers with GPUs" in texts()


GOOGLES = "us-docker.pkg.dev/vertex-ai/training"


@pytest.mark.parametrize(
    ("image", "command", "other"),
    [
        ("host", ["-c", "import jax"], True),
        (f"{GOOGLES}/tf-gpu.2-14.py310:latest", ["train.py"], True),
        ("tensorflow/tensorflow:2.16.1-gpu", ["train.py"], True),
        ("nvcr.io/nvidia/jax:24.10-py3", ["train.py"], True),
        (f"{GOOGLES}/pytorch-gpu.2-4.py310:latest", ["train.py"], False),
        ("registry.lab/team-tf-users/trainer:1", ["train.py"], False),
        ("host", ["train.py"], False),
    ],
)
def test_advice_names_programs_that_nothing_hooks_into(image, command, other):
    container = {"containerSpec": {"imageUri": image, "command": ["python3", *command]}}
    assert ("Nothing hooks into TensorFlow and JAX" in texts(task=container)) is other
    if image != "host":
        package = {
            "executorImageUri": image,
            "packageUris": ["gs://staging/a.tar.gz"],
            "pythonModule": "train.task",
        }
        assert (
            "Nothing hooks into TensorFlow and JAX" in texts(task={"pythonPackageSpec": package})
        ) is other


@pytest.mark.parametrize(("reducers", "enough"), [("16", True), ("15", False)])
def test_advice_compares_the_bandwidth_of_googles_machines(reducers, enough):
    """Five machines of 100 Gbit/s against 16, or 15, of 32."""
    eight = {"machineType": "n1-highmem-96", "acceleratorType": "NVIDIA_TESLA_V100", "acceleratorCount": 8}
    third = {**REDUCERS, "replicaCount": reducers, "machineSpec": {"machineType": reduction.MACHINE}}
    found = texts(third=third, machine=eight, workers="4")
    assert ("480 Gbit/s in all" in found) is not enough
    assert ("at least 16 replicas" in found) is not enough


USING = (Path(__file__).parents[5] / "docs" / "using.md").read_text()
SPEC = {
    "cluster": {
        "workerpool0": ["192.0.2.1:41000"],
        "workerpool1": ["192.0.2.2:41000", "192.0.2.3:41000"],
        "workerpool2": ["192.0.2.4:41007", "192.0.2.5:41003"],
    },
    "task": {"type": "workerpool2", "index": 1},
}


def of_the_documents(begin):
    """The indented block that comes after these words."""
    block = USING[USING.index(begin) :].partition("\n\n")[2].partition("\n\n")[0]
    return textwrap.dedent(block)


def test_the_job_with_optcast_in_the_documents_is_accepted_and_has_no_reducers_of_ours():
    pools = json.loads("{" + of_the_documents("At 25 Gbit/s and more") + "}")
    spec = parse_custom_job({"displayName": "optcast", "jobSpec": pools}).job_spec
    assert [pool.replica_count for pool in spec.pools] == [1, 3, 4] and reduction.reducers(spec) is None


@pytest.mark.parametrize(
    ("begin", "program", "said"),
    [
        ("`train.sh` tells", "torchrun", "train.py 192.0.2.4:41007,192.0.2.5:41003"),
        (
            "`serve.sh` listens",
            "optcast-reduction-server",
            "--port 41003 --nrank 3 --count 131072 --data-type f32",
        ),
    ],
)
def test_the_scripts_for_optcast_in_the_documents_find_servers_ports_and_ranks(
    tmp_path, begin, program, said
):
    (tmp_path / program).write_text('#!/bin/sh\necho "$*" $OPTCAST_REDUCTION_SERVERS\n')
    (tmp_path / program).chmod(0o755)
    script = of_the_documents(begin).replace("/opt/optcast", str(tmp_path))
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "CLUSTER_SPEC": json.dumps(SPEC)}
    done = subprocess.run(
        ["sh", "-eu", "-c", f"LD_LIBRARY_PATH=\n{script}"], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == said, done.stderr


def test_advice_counts_with_the_cards_that_were_found():
    ten = Cards(mbit=(10_000, 10_000))
    assert "20 Gbit/s in all, and the 4 replicas that train 40 Gbit/s" in texts(ten)
    assert "Gbit/s" not in texts(ten, third={**REDUCERS, "replicaCount": "4"})
    assert "from 1 to 25 Gbit/s" in texts(Cards(mbit=(1_000, 10_000, 25_000)))


def test_advice_names_the_hosts_with_infiniband():
    assert "InfiniBand on gpu01, gpu02" in texts(Cards(infiniband=("gpu01", "gpu02")))
    assert "InfiniBand" not in texts()
