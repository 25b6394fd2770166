"""Advice about how the programs of several trainers are started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.rules.spec.advice import HINT, WARNING, advice
from jobs.rules.spec.tasks import Container
from tests.unit.jobs.rules.views import pool, spec

SHORT = {"timeout_s": 3600.0}


def advice_of(*argv, counts=(1, 2), **options):
    pools = tuple(replace(pool(count), task=Container("host", argv)) if count else None for count in counts)
    of = replace(spec(1, **SHORT, **options), pools=pools)
    return {one.kind: one.text for one in advice(of)}


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("python3", "train.py", "--lr", "0.1"), "python3 -m torch.distributed.run train.py --lr 0.1"),
        (
            ("/env/bin/python", "-u", "-m", "mine.train"),
            "/env/bin/python -u -m torch.distributed.run -m mine.train",
        ),
        (("bash", "-c", "cd ~/work\npython3.11 train.py"), "python3 -m torch.distributed.run train.py"),
        (
            ("python3", "-c", "from accelerate import Accelerator"),
            "python3 -m torch.distributed.run train.py",
        ),
        (("./train.py",), "python3 -m torch.distributed.run train.py"),
    ],
)
def test_programs_without_a_launcher_may_train_separate_models(argv, line):
    text = advice_of(*argv)[WARNING]
    assert "train 3 separate models, and the job succeeds" in text and f": {line} ." in text
    assert "restartJobOnWorkerRestart" in advice_of(*argv)[HINT]


@pytest.mark.parametrize(
    "argv",
    [
        ("torchrun", "train.py"),
        ("python3", "-m", "torch.distributed.run", "train.py"),
        ("bash", "-c", "accelerate launch --num_machines 3 train.py"),
        ("deepspeed", "train.py"),
        ("mpirun", "python3", "train.py"),
        ("python3", "-c", "import torch.distributed as d; d.init_process_group()"),
        ("python3", "-c", "import tensorflow as tf"),
        ("python3", "-c", "import jax"),
        ("train", "--data", "x"),
    ],
)
def test_programs_with_a_launcher_or_that_connect_by_themselves_are_not_warned_about(argv):
    assert WARNING not in advice_of(*argv)


def test_one_replica_and_servers_beside_it_need_no_launcher():
    assert advice_of("python3", "train.py", counts=(1,)) == {}
    assert advice_of("python3", "train.py", counts=(1, 0, 4)) == {}


def test_a_restart_of_all_is_suggested_only_where_it_is_missing_and_helps():
    assert HINT in advice_of("torchrun", "train.py")
    assert HINT not in advice_of("torchrun", "train.py", restart_job_on_worker_restart=True)
    assert HINT not in advice_of("torchrun", "train.py", disable_retries=True)
    assert HINT not in advice_of("python3", "-c", "import tensorflow")


def test_a_long_command_is_cut():
    assert len(advice_of("python3", "train.py", "x" * 5000)[WARNING]) < 900
