"""The fields of one pool of the new-job form, and the pool's part of the CustomJob document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.forms.fields import (
    EnvField,
    PlainText,
    area_of_text,
    line_of_text,
    read_arguments,
    read_carried,
    write_arguments,
)
from jobs.rules.spec import parse
from jobs.rules.spec.custom_job import HOST_IMAGE

ROLES = (
    gettext_lazy("Primary"),
    gettext_lazy("Workers"),
    gettext_lazy("Parameter servers"),
    gettext_lazy("Evaluators"),
)
KINDS = (
    ("bash", gettext_lazy("Bash script")),
    ("python3", gettext_lazy("Python script")),
    ("argv", gettext_lazy("Command, one argument per line")),
)
# The part of `base` with the secret variables, as the document has them.
SECRETS = "secretEnv"
# The value of a field whose text cannot be read.
NO_POOL: dict[str, Any] = {
    "replica_count": None,
    "accelerator_type": "",
    "accelerator_count": None,
    "machine_type": "",
    "kind": "bash",
    "program": "",
    "env": (),
    "base": {},
}


class PoolFields(forms.Form):
    on = forms.BooleanField(label=gettext_lazy("Use this pool"), required=False)
    replica_count = forms.IntegerField(label=gettext_lazy("Replicas"), required=False, initial=1)
    accelerator_type = forms.CharField(
        label=gettext_lazy("GPU type"),
        required=False,
        help_text=gettext_lazy("All GPUs of a replica are on one host. The list says how many are free."),
        widget=line_of_text(list="gpu-types"),
    )
    accelerator_count = forms.IntegerField(label=gettext_lazy("GPUs for each replica"), required=False)
    machine_type = forms.CharField(
        label=gettext_lazy("Machine type"),
        required=False,
        help_text=gettext_lazy("Empty: one CPU and the requested GPUs."),
        widget=line_of_text(list="machine-types", placeholder=gettext_lazy("any host")),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("What runs"), choices=KINDS, widget=forms.RadioSelect, initial="bash"
    )
    program = PlainText(label=gettext_lazy("Program"), required=False, widget=area_of_text("program", rows=8))
    env = EnvField(label=gettext_lazy("Environment"), required=False)
    base = forms.CharField(required=False, widget=forms.HiddenInput)

    number: int

    @property
    def role(self) -> str:
        return str(ROLES[self.number])

    @property
    def used(self) -> bool:
        """Whether the pool is part of the job. The first pool always is."""
        return self.number == 0 or bool(self["on"].value())

    def clean_base(self) -> dict[str, Any]:
        return read_carried(self.cleaned_data["base"])

    def document(self) -> dict[str, Any]:
        typed = {**NO_POOL, **self.cleaned_data}
        kind, program = typed["kind"], typed["program"]
        command = read_arguments(program) if kind == "argv" else _script(kind, program)
        machine = {
            "machineType": typed["machine_type"],
            "acceleratorType": typed["accelerator_type"],
            "acceleratorCount": typed["accelerator_count"],
        }
        count = typed["replica_count"]
        base = dict(typed["base"])
        secrets = base.pop(SECRETS, None)
        env = [{"name": name, "value": value} for name, value in typed["env"]]
        return {
            **base,
            "machineSpec": {name: value for name, value in machine.items() if value},
            "replicaCount": str(1 if count is None else count),
            "containerSpec": {
                "imageUri": HOST_IMAGE,
                "command": command,
                "env": [*env, *(secrets if isinstance(secrets, list) else [])],
            },
        }


def initial(pool: Mapping[str, Any]) -> dict[str, Any]:
    """The initial values of the fields, from one pool of a job document in its canonical form (spec/custom_job.py)."""
    if not pool:
        return {"on": False, "replica_count": 1, "kind": "bash", "base": "{}"}
    machine, container = pool.get("machineSpec", {}), pool.get("containerSpec", {})
    argv = [*container.get("command", []), *container.get("args", [])]
    kind = argv[0] if len(argv) == 3 and argv[1] == "-c" and argv[0] in ("bash", "python3") else "argv"
    shown = ("machineSpec", "containerSpec", "replicaCount")
    env = container.get("env", [])
    base = {name: value for name, value in pool.items() if name not in shown}
    if secrets := [pair for pair in env if is_secret(pair)]:
        base[SECRETS] = secrets
    return {
        "on": True,
        "replica_count": int(pool.get("replicaCount", 1)),
        "machine_type": machine.get("machineType", ""),
        "accelerator_type": machine.get("acceleratorType", ""),
        "accelerator_count": machine.get("acceleratorCount") or None,
        "kind": kind,
        "program": write_arguments(argv) if kind == "argv" else argv[2],
        "env": tuple((pair["name"], pair.get("value", "")) for pair in env if not is_secret(pair)),
        "base": json.dumps(base),
    }


def is_secret(pair: Mapping[str, Any]) -> bool:
    """Return whether an item of `env` is a secret variable (jobs/rules/spec/secret_variables.py)."""
    return bool(pair.get("secret") or pair.get("valueFrom"))


def _script(kind: str, program: str) -> list[str]:
    return list(parse.script_command(program, kind)) if program.strip() else []
