"""`import hypertune` for programs whose Python does not have cloudml-hypertune: a module that writes what it writes.

Its directory comes last on PYTHONPATH. That is before the installed packages, so it steps back when the real one is
there. (The runner's own file may be replaced while runs go on, so the module is a file of its own.)
"""

from __future__ import annotations

import contextlib
import os

from agents.runner.files import read_plain, write_file

NAME = "hypertune.py"
SOURCE = b'''"""Reports metrics to Trainyard, as cloudml-hypertune does, which is used instead where it is installed."""

import importlib.machinery
import importlib.util
import json
import os
import sys
import time


class HyperTune(object):
    def __init__(self):
        self.metric_path = os.environ.get("CLOUD_ML_HP_METRIC_FILE", "/tmp/hypertune/output.metrics")
        self.trial_id = os.environ.get("CLOUD_ML_TRIAL_ID", 0)
        directory = os.path.dirname(self.metric_path)
        if directory and not os.path.isdir(directory):
            os.makedirs(directory)

    def report_hyperparameter_tuning_metric(
        self, hyperparameter_metric_tag, metric_value, global_step=None, checkpoint_path=""
    ):
        report = {
            "timestamp": time.time(),
            "trial": str(self.trial_id),
            hyperparameter_metric_tag or "training/hptuning/metric": str(float(metric_value)),
            "global_step": str(int(global_step) if global_step else 0),
            "checkpoint_path": checkpoint_path,
        }
        with open(self.metric_path, "a") as file:
            file.write(json.dumps(report, sort_keys=True) + "\\n")


def _step_back():
    here = os.path.dirname(os.path.abspath(__file__))
    path = [each for each in sys.path if os.path.abspath(each or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


_step_back()
'''


def put_module(directory: str) -> None:
    """Make the directory with the module. Nobody may depend on it: a full disk costs it, and nothing else."""
    path = os.path.join(directory, NAME)
    with contextlib.suppress(OSError):
        if not _is_there(path):
            os.makedirs(directory, 0o700, exist_ok=True)
            write_file(path, SOURCE)
        # Containers are given the directory, and an image may have a user of its own.
        os.chmod(path, 0o644)
        os.chmod(directory, 0o755)


def _is_there(path: str) -> bool:
    with contextlib.suppress(OSError):
        return read_plain(path, len(SOURCE) + 1) == SOURCE
    return False
