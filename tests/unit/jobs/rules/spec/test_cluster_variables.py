"""The variables that describe the cluster to a replica, one by one."""

from __future__ import annotations

import json
from dataclasses import replace

from jobs.rules.spec.cluster_variables import MAX_VARIABLE_BYTES, cluster_environment
from jobs.rules.spec.custom_job import to_document
from jobs.rules.spec.tasks import Container
from tests.unit.jobs.rules.views import pool, spec

# How the names of the variables begin that only trainers get.
TRAINER = ("MASTER_", "WORLD_SIZE", "RANK", "NODE_RANK", "PET_", "JAX_")


def variables_of(of, replica="workerpool0-0", gpus=0):
    addresses = {name: f"10.0.0.{pool}:{23000 + index}" for name, pool, index, _ in of.replicas()}
    return cluster_environment(
        of,
        job_id="77",
        project="default",
        location="lab-a",
        replica=replica,
        addresses=addresses,
        host_name="gpu01",
        gpus=gpus,
    )


def test_a_single_replica_gets_the_variables_of_its_cluster_only():
    variables = variables_of(spec(1))
    trainer = {name for name in variables if name.startswith(TRAINER)}
    others = {name: value for name, value in variables.items() if name not in trainer}
    assert {name: value for name, value in others.items() if name != "CLUSTER_SPEC"} == {
        "CLOUD_ML_PROJECT_ID": "default",
        "CLOUD_ML_JOB_ID": "77",
        "CLOUD_ML_REGION": "lab-a",
        "HOSTNAME": "gpu01",
    }
    # A program that torchrun starts needs no other line on one host than on many.
    assert (variables["WORLD_SIZE"], variables["RANK"], variables["PET_NNODES"]) == ("1", "0", "1")
    assert variables["MASTER_ADDR"] == "10.0.0.0"
    assert variables_of(spec(1), gpus=2)["PET_NPROC_PER_NODE"] == "2"
    assert json.loads(variables["CLUSTER_SPEC"]) == {
        "cluster": {"workerpool0": ["10.0.0.0:23000"]},
        "environment": "cloud",
        "task": {"type": "workerpool0", "index": 0},
        "job": to_document(spec(1)),
    }


def test_each_replica_of_four_pools_gets_its_own_task_and_the_same_cluster():
    of = spec(1, 2, 1, 1)
    seen = {name: variables_of(of, name) for name, *_ in of.replicas()}
    clusters = [json.loads(variables["CLUSTER_SPEC"])["cluster"] for variables in seen.values()]
    assert clusters == [clusters[0]] * 5
    assert clusters[0]["workerpool1"] == ["10.0.0.1:23000", "10.0.0.1:23001"]
    tf = {name: json.loads(variables["TF_CONFIG"]) for name, variables in seen.items()}
    assert [(config["task"]["type"], config["task"]["index"]) for config in tf.values()] == [
        ("chief", 0),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
        ("evaluator", 0),
    ]
    assert all(set(config["cluster"]) == {"chief", "worker", "ps"} for config in tf.values())
    assert all(
        config["job"] == to_document(of) and config["environment"] == "cloud" for config in tf.values()
    )


def test_a_skipped_pool_is_named_nowhere_and_renumbers_nothing():
    variables = variables_of(spec(1, 0, 1), "workerpool2-0")
    cluster_spec = json.loads(variables["CLUSTER_SPEC"])
    assert (list(cluster_spec["cluster"]), cluster_spec["task"]["type"]) == (
        ["workerpool0", "workerpool2"],
        "workerpool2",
    )
    assert list(json.loads(variables["TF_CONFIG"])["cluster"]) == ["chief", "ps"]


def test_torch_finds_its_group():
    variables = variables_of(spec(1, 2), "workerpool1-1")
    expected = {"MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "23000", "WORLD_SIZE": "3", "RANK": "2"}
    assert {name: variables[name] for name in expected} == expected
    assert {name: value for name, value in variables.items() if name.startswith("PET_")} == {
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_MASTER_ADDR": "10.0.0.0",
        "PET_MASTER_PORT": "23000",
        "PET_RDZV_ENDPOINT": "10.0.0.0:23000",
        "PET_RDZV_ID": "77",
        "PET_RDZV_CONF": "is_host=false",
        "PET_LOCAL_ADDR": "10.0.0.1",
    }
    assert variables_of(spec(1, 2))["PET_RDZV_CONF"] == "is_host=true"
    addresses = {"workerpool0-0": "[fd00::1]:5", "workerpool1-0": "[fd00::2]:5"}
    six = cluster_environment(
        spec(1, 1),
        job_id="7",
        project="p",
        location="l",
        replica="workerpool0-0",
        addresses=addresses,
        host_name="h",
        gpus=0,
    )
    assert six["MASTER_ADDR"] == six["PET_LOCAL_ADDR"] == "fd00::1"
    assert six["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:5"


def test_parameter_servers_evaluators_and_reducers_have_no_rank_and_are_not_counted():
    of = spec(1, 4, 8, 8)
    seen = {name: variables_of(of, name) for name, *_ in of.replicas()}
    trainers = [name for name in seen if name[10] in "01"]
    sizes = [
        seen[name][key] for name in trainers for key in ("WORLD_SIZE", "PET_NNODES", "JAX_NUM_PROCESSES")
    ]
    assert sizes == ["5"] * 15
    for key in ("RANK", "NODE_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID"):
        assert [seen[name][key] for name in trainers] == ["0", "1", "2", "3", "4"]
    others = [name for name in seen if name not in trainers]
    assert len(others) == 16
    assert not [key for name in others for key in seen[name] if key.startswith(TRAINER)]


def test_jax_and_lightning_find_their_group():
    variables = variables_of(spec(1, 2), "workerpool1-0")
    assert variables["JAX_COORDINATOR_ADDRESS"] == "10.0.0.0:23000"
    assert (variables["JAX_NUM_PROCESSES"], variables["JAX_PROCESS_ID"]) == ("3", "1")
    assert variables["NODE_RANK"] == "1"


def test_torchrun_starts_a_process_for_each_gpu():
    assert variables_of(spec(1, 1), "workerpool1-0", gpus=4)["PET_NPROC_PER_NODE"] == "4"
    assert "PET_NPROC_PER_NODE" not in variables_of(spec(1, 1))


def test_directories_end_in_a_slash_and_are_there_only_with_a_base():
    assert "AIP_MODEL_DIR" not in variables_of(spec(1))
    for base in ("/shared/out", "/shared/out/"):
        variables = variables_of(spec(1, base_output_directory=base))
        assert variables["AIP_MODEL_DIR"] == "/shared/out/model/"
        assert variables["AIP_CHECKPOINT_DIR"] == "/shared/out/checkpoints/"
        assert variables["AIP_TENSORBOARD_LOG_DIR"] == "/shared/out/logs/"


def test_the_users_own_variables_come_on_top():
    mine = replace(pool(), task=Container("host", ("a",), (), (("RANK", "mine"), ("X", ""))))
    variables = variables_of(replace(spec(1), pools=(mine, pool())))
    assert (variables["RANK"], variables["X"]) == ("mine", "")


def test_a_job_too_long_for_one_variable_is_left_out_of_it():
    long = replace(pool(), task=Container("host", ("x" * MAX_VARIABLE_BYTES,)))
    for name in ("CLUSTER_SPEC", "TF_CONFIG"):
        value = variables_of(replace(spec(1), pools=(long, pool())))[name]
        assert len(value) < 1000 and "job" not in json.loads(value)
