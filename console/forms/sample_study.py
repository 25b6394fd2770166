"""The study that the new-study form begins with, and the sample, which a new person can submit as it is."""

from __future__ import annotations

from typing import Any

from jobs.rules.spec.tasks import HOST_IMAGE

# Reports whatever metrics the study asks for, over whatever parameters it has: an empty form needs only these.
_ANY_PROGRAM = """import json, math, os, sys
given = dict(each[2:].split("=", 1) for each in sys.argv[1:])
print("Parameters of this trial:", given)
def cost(text):
    try:
        return abs(math.log10(abs(float(text)) + 1e-9))
    except ValueError:
        return len(text) / 10
with open(os.environ["TRAINYARD_METRICS"], "a") as out:
    for step in range(1, 6):
        value = sum(map(cost, given.values())) + 1 / step
        for name in os.environ["TRAINYARD_LOG_METRICS"].split(","):
            print(json.dumps({name: value, "step": step}), file=out, flush=True)
"""
# They report by the file that TRAINYARD_METRICS names, so they need no package.
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
            "containerSpec": {"imageUri": HOST_IMAGE, "command": ["python3", "-c", _ANY_PROGRAM]},
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
