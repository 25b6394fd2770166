"""The advice about a valid job."""

from __future__ import annotations

from dataclasses import replace

from jobs.rules.spec.advice import HINT, WARNING, advice
from jobs.rules.spec.cluster_variables import SET_FOR_REPLICAS, cluster_environment
from jobs.rules.spec.custom_job import Disk
from jobs.rules.spec.secret_variables import SecretVariable
from jobs.scheduling.output_directories import holder
from tests.unit.jobs.rules.views import pool, spec

SHORT = {"timeout_s": 3600.0}
NFS = "nfs4 filer:/home"


def advice_of(of, storage=None):
    return [(one.kind, one.text) for one in advice(of, storage)]


def test_a_small_job_needs_no_advice():
    assert advice_of(spec(1, 2, 1, 1, **SHORT)) == []


def test_different_numbers_of_gpus_for_chief_and_workers():
    def gpus(count):
        return {"accelerator_type": "NVIDIA_L4", "accelerator_count": count}

    of = replace(spec(1, 1, **SHORT), pools=(pool(1, **gpus(1)), pool(2, **gpus(2))))
    [(kind, text)] = advice_of(of)
    assert kind == WARNING and "1 and 2 GPUs" in text and "MultiWorkerMirroredStrategy" in text
    assert advice_of(replace(of, pools=(pool(1, **gpus(2)), pool(2, **gpus(2))))) == []
    assert advice_of(replace(of, pools=(pool(1, **gpus(2)), None, pool(2)))) == []


def test_more_than_one_evaluator():
    [(kind, text)] = advice_of(spec(1, 0, 0, 2, **SHORT))
    assert kind == WARNING and "at most one evaluator" in text


def with_container(**changes):
    one = pool(1)
    return replace(spec(1, **SHORT), pools=(replace(one, task=replace(one.task, **changes)),))


def test_a_whole_command_line_in_one_string():
    """It fails on the host: no program has that name. Words of their own, or a shell, are what was meant."""
    [(kind, text)] = advice_of(with_container(command=("torchrun --nproc-per-node 8 train.py",)))
    assert kind == WARNING and 'the string "torchrun --nproc-per-node 8 train.py"' in text and '"-c"' in text
    [(_, text)] = advice_of(with_container(command=("python " + "x" * 999,)))
    assert len(text) < 500
    for command in (("torchrun", "a b"), ("bash", "-c", "a && b"), ("./run.sh",)):
        assert advice_of(with_container(command=command)) == []


def test_variables_that_we_set_are_warned_about():
    env = (("LR", "1"), ("RANK", "0"), ("WORLD_SIZE", "2"))
    [(kind, text)] = advice_of(with_container(env=env))
    assert kind == WARNING and "Trainyard sets RANK, WORLD_SIZE for each replica" in text and "LR" not in text
    [(_, text)] = advice_of(with_container(env=(("CUDA_VISIBLE_DEVICES", "0"),)))
    assert "GPUs of other jobs" in text and "It can be left out" in text
    [(_, text)] = advice_of(with_container(secrets=(SecretVariable("MASTER_ADDR"),)))
    assert "MASTER_ADDR" in text
    assert advice_of(with_container(env=(("NCCL_SOCKET_IFNAME", "ib0"), ("PET_NPROC_PER_NODE", "2")))) == []


def test_all_variables_of_the_cluster_are_known_to_the_advice():
    """Except those that a person may well want to set."""
    variables = cluster_environment(
        spec(1, 1, **SHORT),
        job_id="7",
        project="p",
        location="l",
        replica="workerpool1-0",
        addresses={"workerpool0-0": "10.0.0.1:1", "workerpool1-0": "10.0.0.2:2"},
        host_name="h",
        gpus=8,
        trial="1",
    )
    assert set(variables) - {"PET_NPROC_PER_NODE"} == SET_FOR_REPLICAS - {"CUDA_VISIBLE_DEVICES"}


def test_more_than_four_hours():
    [(kind, text)] = advice_of(spec(1))
    assert kind == HINT and "at least every 4 hours" in text and "AIP_CHECKPOINT_DIR is not set" in text
    [(_, text)] = advice_of(spec(1, base_output_directory="gs://bucket/x"))
    assert "in AIP_CHECKPOINT_DIR at least" in text and "not set" not in text


def test_where_the_directory_is():
    of = spec(1, base_output_directory="/out/7", **SHORT)
    assert advice_of(of) == advice_of(of, {}) == []
    [(kind, text)] = advice_of(of, {"a": NFS, "b": NFS})
    assert kind == HINT and f"shared storage ({NFS})" in text
    [(kind, text)] = advice_of(of, {"a": "", "b": ""})
    assert kind == WARNING and "each host's own disk (a, b)" in text
    [(kind, text)] = advice_of(of, {"a": ""})
    assert kind == HINT and "the disk of a" in text
    [(kind, text)] = advice_of(of, {"a": NFS, "b": ""})
    assert kind == WARNING and NFS in text and "a disk of its own on b" in text
    here = {
        "path": "/out",
        "fstype": "ext4",
        "source": "/dev/sda1",
        "network": False,
        "root": "/srv",
        "device": "8:1",
    }
    one, same, other = (holder("/out/7", [here], boot) for boot in ("boot-1", "boot-1", "boot-2"))
    [(kind, text)] = advice_of(of, {"a": one, "b": same})
    assert kind == HINT and "shared storage (the directory /srv/7 on 8:1" in text, "two hosts on one machine"
    for unsure in ({"a": one, "b": other}, {"a": one, "b": ""}, {"a": one}):
        [(kind, text)] = advice_of(of, unsure)
        assert kind == HINT and "is not known" in text and "own disk" not in text
    assert advice_of(spec(1, base_output_directory="gs://bucket/x", **SHORT), {"a": ""}) == []


def test_the_longest_mount_above_a_path_holds_it():
    home = {"path": "/home", "fstype": "nfs4", "source": "filer:/home", "network": True}
    scratch = {"path": "/home/scratch", "fstype": "ext4", "source": "/dev/sdb", "network": False}
    assert holder("/home/ada/runs", [home, scratch]) == f"{NFS}/ada/runs"
    assert holder("/home", [home, scratch]) == NFS
    assert holder("/home/scratch/runs", [home, scratch]) == ""
    assert holder("/homes/ada", [home, scratch]) == ""


def test_one_storage_has_one_name_wherever_it_is_mounted():
    whole = {"path": "/mnt", "fstype": "nfs4", "source": "filer:/home", "network": True, "root": "/"}
    part = {"path": "/mnt/out", "fstype": "nfs4", "source": "filer:/home/out", "network": True, "root": "/"}
    other = {"path": "/mnt", "fstype": "cifs", "source": "//filer/x", "network": True, "root": "/sub"}
    assert holder("/mnt/out/7", [whole]) == holder("/mnt/out/7", [part]) == f"{NFS}/out/7"
    assert holder("/mnt/out/7", [other]) == "cifs //filer/x/sub/out/7"


def test_a_bucket_that_the_project_does_not_have_is_named():
    one = pool(1)
    words = {"args": ("--data=/gcs/lost/x", "gs://here/y"), "env": (("DATA", "/data/gcs/other/x"),)}
    of = spec(1, base_output_directory="gs://bucket/runs/7", **SHORT)
    of = replace(of, pools=(replace(one, task=replace(one.task, **words)),))
    [(kind, text)] = [
        (found.kind, found.text) for found in advice(of, None, missing={"lost"}, apart={"bucket"})
    ]
    assert kind == WARNING and text.startswith("gs://lost/x is named, and the project has no bucket lost")


def test_replicas_on_several_hosts_have_files_of_their_own():
    of = spec(2, base_output_directory="gs://bucket/runs/7", **SHORT)
    told = [found.text for found in advice(of, None, apart={"bucket"}) if "files of its own" in found.text]
    assert len(told) == 1 and "gs://bucket/runs/7" in told[0]
    assert not [found for found in advice(of, None) if "files of its own" in found.text], "on shared storage"


def test_fields_that_are_kept_without_effect_are_named():
    of = spec(
        1,
        **SHORT,
        kept=(("service_account", "train@x"), ("tensorboard", "t/1")),
        enable_dashboard_access=True,
    )
    of = replace(of, pools=(replace(of.pools[0], disk=Disk("pd-ssd", 100)),))
    [(kind, text)] = advice_of(of)
    assert kind == HINT and text == (
        "Kept and shown, but without effect on hosts of your own: serviceAccount (train@x), tensorboard (t/1), "
        "enableDashboardAccess (true), workerPoolSpecs[0].diskSpec.bootDiskType (pd-ssd), "
        "workerPoolSpecs[0].diskSpec.bootDiskSizeGb (100)."
    )
