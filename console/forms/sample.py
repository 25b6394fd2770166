"""The sample job, which a new person starts with one click."""

from __future__ import annotations

from jobs.rules.spec import parse
from jobs.rules.spec.tasks import HOST_IMAGE

SAMPLE = {
    "displayName": "hello",
    "jobSpec": {
        "workerPoolSpecs": [
            {
                "replicaCount": "1",
                "machineSpec": {},
                "containerSpec": {
                    "imageUri": HOST_IMAGE,
                    "command": list(
                        parse.script_command(
                            'echo "Hello from $(hostname)."\n'
                            'echo "My GPUs: ${CUDA_VISIBLE_DEVICES:-none asked for}."\n'
                            "for step in $(seq 1 10); do\n"
                            '  echo "step $step of 10"\n'
                            "  sleep 1\n"
                            "done\n"
                            "echo 'Done.'\n",
                            "bash",
                        )
                    ),
                },
            }
        ],
        "scheduling": {"timeout": "600s"},
        "enableWebAccess": True,
    },
}
