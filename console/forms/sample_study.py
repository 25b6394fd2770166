"""The study that the new-study form begins with, and the sample, which a new person can submit as it is."""

from __future__ import annotations

from typing import Any

from jobs.rules.spec.tasks import HOST_IMAGE

# It reports by the file that TRAINYARD_METRICS names, so it needs no package.
_PROGRAM = """import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--layers", type=int)
args = parser.parse_args()
with open(os.environ["TRAINYARD_METRICS"], "a") as out:
    for step in range(1, 6):
        loss = (args.learning_rate - 0.01) ** 2 + abs(args.layers - 3) / step
        print(json.dumps({"loss": loss, "step": step}), file=out, flush=True)
"""
TRIAL_JOB: dict[str, Any] = {
    "workerPoolSpecs": [
        {
            "machineSpec": {},
            "replicaCount": "1",
            "containerSpec": {"imageUri": HOST_IMAGE, "command": ["python3", "train.py"]},
        }
    ],
    "scheduling": {"timeout": "3600s"},
}
EMPTY_STUDY: dict[str, Any] = {
    "studySpec": {"metrics": [{"goal": "MAXIMIZE"}], "parameters": []},
    "maxTrialCount": 20,
    "parallelTrialCount": 2,
    "trialJobSpec": TRIAL_JOB,
}
SAMPLE_STUDY: dict[str, Any] = {
    "displayName": "hello-study",
    "studySpec": {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
        "parameters": [
            {
                "parameterId": "learning_rate",
                "doubleValueSpec": {"minValue": 0.0001, "maxValue": 1.0},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "layers", "integerValueSpec": {"minValue": "1", "maxValue": "8"}},
        ],
    },
    "maxTrialCount": 8,
    "parallelTrialCount": 2,
    "trialJobSpec": {
        "workerPoolSpecs": [
            {
                "machineSpec": {},
                "replicaCount": "1",
                "containerSpec": {"imageUri": HOST_IMAGE, "command": ["python3", "-c", _PROGRAM]},
            }
        ],
        "scheduling": {"timeout": "600s"},
    },
}
