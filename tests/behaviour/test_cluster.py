"""Cluster variables of a job with all four pools, and what stays the same after a restart."""

from __future__ import annotations

import json
import re

import pytest

from tests.behaviour.observed_job import ObservedJob, finish, host_of, kill_replica, nothing_lives

POOLS = ("workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool2-0", "workerpool3-0")
RESTARTED = ("workerpool0-0", "workerpool1-1", "workerpool2-0", "workerpool3-0")
ADDRESS = re.compile(r"[\w.\[\]:-]+:\d+")
MARKER = "finish-cluster"
DISK = {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}


class Four:
    """A chief, two workers, a parameter server, an evaluator. One of each pool is killed, then the chief ends."""

    def __init__(self, yard):
        command = ["cluster-member", "--until", f"~/{MARKER}"]
        base = f"{yard.fleet[0].home}/out-cluster"
        self.observed = ObservedJob(
            yard,
            {"command": command, "gpus": 5},
            {"command": command, "gpus": 6, "replicas": 2},
            {"command": [*command], "machine": "custom-1-256"},
            {"command": command, "env": {"MINE": "evaluator"}, "disk": DISK},
            name="four pools",
            baseOutputDirectory={"outputUriPrefix": base},
        ).running()
        self.first = {name: self.observed.environment(name) for name in POOLS}
        self.before = {name: self.observed.run(name) for name in POOLS}
        self.gpu_claims = []
        for name in RESTARTED:
            kill_replica(yard, self.before[name], "cluster-member")
        self.again = {name: self.observed.environment(name, self.newer(name)["id"]) for name in RESTARTED}
        self.starts = {name: self.observed.log(name, self.newer(name)["id"]) for name in RESTARTED}
        self.while_running = self.observed.job
        finish(yard, MARKER)
        self.observed.over("SUCCEEDED")
        self.job, self.ours = self.observed.job, self.observed.ours

    def newer(self, name):
        self.observed.wait_for_line("environment", name, f"{self.observed.id}-{name}-a1-r1")
        return self.observed.run(name)

    def clusters(self, variable):
        return {name: json.loads(environment[variable]) for name, environment in self.first.items()}


@pytest.fixture(scope="module")
def small(yard):
    """A job of one replica, and one without the pool of workers."""
    alone = ObservedJob(yard, ["cluster-member"], name="alone")
    skipped = ObservedJob(yard, ["cluster-member"], {}, ["cluster-member"], {}, name="a pool skipped")
    return alone.over("SUCCEEDED"), skipped.over("SUCCEEDED")


@pytest.fixture(scope="module")
def four(yard, small):
    return Four(yard)


def test_S4_01_S4_41_S4_53_both_variables_are_json_with_these_keys(four):
    for name in POOLS:
        spec, config = (json.loads(four.first[name][each]) for each in ("CLUSTER_SPEC", "TF_CONFIG"))
        assert set(spec) == set(config) == {"cluster", "environment", "task", "job"}
        assert spec["cluster"]["workerpool1"] == config["cluster"]["worker"]
        assert (spec["task"]["type"], config["task"]["type"]) != (config["task"]["type"],) * 2


def test_S4_02_S3_07_replicas_of_one_job_have_gpus_on_several_hosts(four):
    runs = [four.before[name] for name in POOLS[:3]]
    assert len({run["host"] for run in runs}) == 3
    assert [len(run["gpus"]) for run in runs] == [5, 6, 6]
    for name, run in zip(POOLS, runs, strict=False):
        assert sorted(four.first[name]["TRAINYARD_GPU_UUIDS"].split(",")) == sorted(run["gpus"])
        # The cards of a test host have their numbers in their UUIDs.
        numbers = [int(uuid[-12:], 16) for uuid in four.first[name]["TRAINYARD_GPU_UUIDS"].split(",")]
        assert four.first[name]["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, numbers))
        assert four.first[name]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_S4_04_S4_08_S4_09_S4_11_S4_13_replicas_are_told_by_pool(four):
    replicas = [(each["name"], each["pool"], each["index"]) for each in four.ours["replicas"]]
    assert replicas == [(name, int(name[10]), int(name[12])) for name in POOLS]


def test_S4_37_pools_have_different_machines_and_counts(four):
    """Images follow with containers."""
    pools = four.job["jobSpec"]["workerPoolSpecs"]
    assert len({json.dumps(pool["machineSpec"]) for pool in pools}) == 4
    assert [pool["replicaCount"] for pool in pools] == ["1", "2", "1", "1"]
    held = {name: (run["gpus"], run["host"]) for name, run in four.before.items()}
    assert [len(held[name][0]) for name in POOLS] == [5, 6, 6, 0, 0]


def test_S4_05_S4_46_S4_47_each_replica_has_one_task_of_its_own(four):
    tasks = [spec["task"] for spec in four.clusters("CLUSTER_SPEC").values()]
    assert [f"{task['type']}-{task['index']}" for task in tasks] == list(POOLS)


def test_S4_14_S4_15_S4_16_S4_17_S4_57_S4_58_S4_59_position_is_role_in_tensorflows_words(four):
    tasks = [config["task"] for config in four.clusters("TF_CONFIG").values()]
    roles = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    assert [(task["type"], task["index"]) for task in tasks] == roles


def test_S4_38_S4_39_S4_42_S4_43_every_replica_is_in_every_cluster_spec_once(four):
    specs = list(four.clusters("CLUSTER_SPEC").values())
    assert all(spec["cluster"] == specs[0]["cluster"] for spec in specs)
    assert {pool: len(hosts) for pool, hosts in specs[0]["cluster"].items()} == {
        "workerpool0": 1,
        "workerpool1": 2,
        "workerpool2": 1,
        "workerpool3": 1,
    }
    addresses = [address for hosts in specs[0]["cluster"].values() for address in hosts]
    assert len(set(addresses)) == 5 and all(ADDRESS.fullmatch(address) for address in addresses)


def test_S4_45_S4_49_S4_62_the_job_in_both_is_what_was_submitted(four):
    for variable in ("CLUSTER_SPEC", "TF_CONFIG"):
        for cluster in four.clusters(variable).values():
            assert cluster["environment"] == "cloud"
            assert cluster["job"] == four.job["jobSpec"]


def test_S4_50_S4_64_every_replica_reaches_every_address_of_the_cluster(four):
    for name in POOLS:
        assert "met 5" in four.observed.log(name, four.before[name]["id"])


def test_S4_51_S4_55_S4_56_tf_config_names_the_same_cluster_everywhere_and_no_evaluator(four):
    configs = list(four.clusters("TF_CONFIG").values())
    assert [set(config["cluster"]) for config in configs] == [{"chief", "worker", "ps"}] * 5
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)


def test_S4_60_S4_61_no_trial_without_tuning(four):
    for variable in ("CLUSTER_SPEC", "TF_CONFIG"):
        assert all("trial" not in cluster["task"] for cluster in four.clusters(variable).values())


def test_S4_20_a_pool_comes_back_as_it_was_sent(four):
    sent = four.observed.document["jobSpec"]["workerPoolSpecs"]
    for pool, back in zip(sent, four.job["jobSpec"]["workerPoolSpecs"], strict=True):
        assert back["replicaCount"] == pool["replicaCount"]
        assert back["machineSpec"] == pool["machineSpec"]
        assert back.get("diskSpec") == pool.get("diskSpec")
        given = {name: value for name, value in pool["containerSpec"].items() if value}
        assert back["containerSpec"] == given


def shared_by_runs(environment):
    """All but the file in which each run reports its own metrics."""
    own = "CLOUD_ML_HP_METRIC_FILE"
    assert own in environment
    return {name: value for name, value in environment.items() if name != own}


def test_S0_10_S0_12_a_killed_replica_of_any_pool_comes_back_in_its_place(four):
    """Same host, same name, same address and port, same variables, same GPUs, same work directory."""
    for name in RESTARTED:
        old, new = four.before[name], four.observed.run(name)
        assert (new["host"], new["gpus"], new["number"]) == (old["host"], old["gpus"], 1)
        assert shared_by_runs(four.again[name]) == shared_by_runs(four.first[name])
        assert "starts here: 2" in four.starts[name]
        assert "SIGKILL" in str(four.observed.moves(name))
        assert four.observed.replica(name)["restarts"] == 1
    assert four.observed.replica("workerpool1-0")["restarts"] == 0


def test_S0_10_gpus_were_not_given_up_in_between(four, yard):
    """A claim moves to the next run in the transaction that ends the old one."""
    rows = yard.query(
        "SELECT c.gpu_id, c.run_id, c.released_at, r.created_at, r.number FROM jobs_gpuclaim c"
        f" JOIN jobs_run r ON r.id = c.run_id WHERE r.id LIKE '{four.observed.id}-workerpool0-0-%'"
    )
    given_up = {row["gpu_id"]: row["released_at"] for row in rows if row["number"] == 0}
    taken = {row["gpu_id"]: row["created_at"] for row in rows if row["number"] == 1}
    assert len(taken) == 5 and given_up == taken


def test_S0_15_the_job_stayed_running_through_its_restarts(four):
    assert four.while_running["state"] == "JOB_STATE_RUNNING"
    assert four.observed.states() == ["QUEUED", "PENDING", "RUNNING", "SUCCEEDED"]


def test_S0_21_S0_22_S4_07_the_primarys_end_is_the_jobs_end(four, yard):
    assert four.job["state"] == "JOB_STATE_SUCCEEDED" and "error" not in four.job
    assert nothing_lives(yard, four.observed.id)
    held = yard.query(f"SELECT id FROM jobs_run WHERE job_id = {four.observed.id} AND released_at IS NULL")
    assert held == []


def test_S3_32_nodes_are_called_by_pool_and_index(four):
    assert [replica["name"] for replica in four.ours["replicas"]] == list(POOLS)


def test_S4_21_S4_52_one_replica_has_a_cluster_spec_and_no_tf_config(small):
    alone, _ = small
    environment = alone.environment()
    assert json.loads(environment["CLUSTER_SPEC"])["cluster"].keys() == {"workerpool0"}
    assert "TF_CONFIG" not in environment
    assert (environment["WORLD_SIZE"], environment["RANK"], environment["PET_NNODES"]) == ("1", "0", "1")


def test_only_the_primary_and_the_workers_have_a_rank(four):
    ranks = [four.first[name].get("RANK") for name in POOLS]
    assert ranks == ["0", "1", "2", None, None]
    assert {four.first[name]["WORLD_SIZE"] for name in POOLS[:3]} == {"3"}
    assert [four.first[name]["PET_RDZV_CONF"] for name in POOLS[:2]] == ["is_host=true", "is_host=false"]


def test_S4_22_S4_23_S4_24_S4_44_a_skipped_pool_is_named_nowhere_and_renumbers_nothing(small):
    _, skipped = small
    environment = skipped.environment("workerpool2-0")
    assert [replica["name"] for replica in skipped.ours["replicas"]] == ["workerpool0-0", "workerpool2-0"]
    assert set(json.loads(environment["CLUSTER_SPEC"])["cluster"]) == {"workerpool0", "workerpool2"}
    assert json.loads(environment["TF_CONFIG"])["task"].items() >= {"type": "ps", "index": 0}.items()
    assert skipped.job["jobSpec"]["workerPoolSpecs"][1] == {}


def test_S0_10_the_host_of_a_replica_is_the_one_that_it_is_told(four, yard):
    for name in POOLS[:3]:
        address = json.loads(four.first[name]["CLUSTER_SPEC"])["cluster"][name[:11]][int(name[12])]
        assert address.rpartition(":")[0] == host_of(yard, four.before[name]).address
