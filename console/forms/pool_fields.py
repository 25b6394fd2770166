"""The fields of one pool of the new-job form, and the pool's part of the CustomJob document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms import pool_tasks
from console.forms.command_line import question, read_arguments, unclosed_quote, write_arguments
from console.forms.env_lines import read_env_lines
from console.forms.env_rows import EnvField, EnvRow, add_rows
from console.forms.fields import PlainText, area_of_text, line_of_text, read_carried
from console.forms.pool_tasks import COMMAND, IMAGE, KINDS, PACKAGE, TASKS
from jobs.rules.spec import reduction
from jobs.rules.spec.runtime_choice import ENGINES
from jobs.rules.spec.tasks import HOST_IMAGE, WIRES

ROLES = (
    gettext_lazy("Primary"),
    gettext_lazy("Workers"),
    gettext_lazy("Parameter servers"),
    gettext_lazy("Evaluators"),
)
# What of each kind is a command line, or a part of one.
ARGUMENTS = {IMAGE: ("command", "args"), PACKAGE: ("args",)}
# How a person answers the question whether a shell is to run a command.
BY_BASH, BY_WORDS = "bash", "words"
# The value of a field whose text cannot be read.
NO_POOL: dict[str, Any] = {
    "replica_count": None,
    "accelerator_type": "",
    "accelerator_count": None,
    "machine_type": "",
    "kind": "bash",
    "program": "",
    "image": "",
    "command": "",
    "args": "",
    "runtime": "",
    "shm_mb": None,
    "wire": "",
    "packages": "",
    "module": "",
    "executor": HOST_IMAGE,
    "env": (),
    "same": False,
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
    program = PlainText(
        label=gettext_lazy("Program"),
        required=False,
        help_text=gettext_lazy("A command is one line as in a shell, or one argument a line."),
        widget=area_of_text("program", rows=8),
    )
    image = forms.CharField(
        label=gettext_lazy("Image"),
        required=False,
        help_text=gettext_lazy(
            "A tag is looked up when the job starts. The job keeps the digest that it was. An archive of an image, or "
            "a SIF file, is named by its gs:// address, or by artifact: and its SHA-256."
        ),
        widget=line_of_text(placeholder="ghcr.io/lab/train:1.2", spellcheck="false"),
    )
    packages = PlainText(
        label=gettext_lazy("Packages"),
        required=False,
        help_text=gettext_lazy(
            "Wheels or source archives in the project's storage, one gs:// address or artifact:SHA256 a line."
        ),
        widget=area_of_text("lines", rows=2),
    )
    module = forms.CharField(
        label=gettext_lazy("Module"),
        required=False,
        help_text=gettext_lazy("It is run by python3 -m."),
        widget=line_of_text(placeholder="trainer.task", spellcheck="false"),
    )
    command = PlainText(
        label=gettext_lazy("Entrypoint"),
        required=False,
        help_text=gettext_lazy("What is run in the image. Empty: what the image starts by itself."),
        widget=area_of_text("lines", rows=2),
    )
    args = PlainText(
        label=gettext_lazy("Arguments"),
        required=False,
        help_text=gettext_lazy("One line as in a shell, or one argument a line."),
        widget=area_of_text("lines", rows=2),
    )
    runtime = forms.ChoiceField(
        label=gettext_lazy("Engine"),
        required=False,
        choices=[
            ("", gettext_lazy("what the hosts have: podman, Docker, or Apptainer")),
            *((engine, engine) for engine in ENGINES),
        ],
    )
    shm_mb = forms.IntegerField(
        label=gettext_lazy("Shared memory (MB)"),
        required=False,
        help_text=gettext_lazy(
            "The size of /dev/shm in a container. Empty: half of the memory of the machine type, or of the host."
        ),
    )
    wire = forms.ChoiceField(
        label=gettext_lazy("Numbers on the wire"),
        required=False,
        choices=[
            ("", gettext_lazy("as the gradients are")),
            (WIRES[1], gettext_lazy("bf16: half the bytes, sums in float32")),
        ],
        help_text=gettext_lazy("For Reduction Server only."),
    )
    executor = forms.CharField(
        label=gettext_lazy("Python of"),
        required=False,
        initial=HOST_IMAGE,
        help_text=gettext_lazy(
            "“host” is the Python of the host; anything else is an image, whose Python is used."
        ),
        widget=line_of_text(spellcheck="false"),
    )
    same = forms.BooleanField(
        label=gettext_lazy("Same program as the primary"),
        required=False,
        help_text=gettext_lazy("Its program and its environment, also when they change."),
    )
    env = EnvField(label=gettext_lazy("Environment"), required=False)
    env_lines = PlainText(
        label=gettext_lazy("Lines of a .env file"),
        required=False,
        help_text=gettext_lazy("One NAME=value a line. They become rows with the next check or submit."),
        widget=area_of_text("lines", rows=4),
    )
    base = forms.CharField(required=False, widget=forms.HiddenInput)

    number: int

    @property
    def may_be_reducers(self) -> bool:
        """Whether Reduction Server may be in this pool."""
        return self.number == reduction.POOL

    def offer_reducers(self) -> None:
        """The images of Reduction Server and the machine type that Google recommends for it, as suggestions."""
        self.fields["image"].widget.attrs["list"] = "reduction-images"
        self.fields["machine_type"].widget.attrs["list"] = "machine-types-of-reducers"
        self.fields["machine_type"].help_text = _(
            "Empty: one CPU and the requested GPUs. Recommended for Reduction Server: {machine}."
        ).format(machine=reduction.MACHINE)

    @property
    def role(self) -> str:
        return str(ROLES[self.number])

    @property
    def pool_name(self) -> str:
        return f"workerpool{self.number}"

    @property
    def used(self) -> bool:
        """Whether the pool is part of the job. The first pool always is."""
        return self.number == 0 or bool(self["on"].value())

    @property
    def like_primary(self) -> bool:
        """Whether the pool runs what the first pool runs."""
        return self.number > 0 and bool(self["same"].value())

    @property
    def asks_about_shell(self) -> bool:
        """Whether the page has to ask how the command is to be run."""
        return self.is_bound and self.used and not self.like_primary and bool(self._question())

    def clean_base(self) -> dict[str, Any]:
        return read_carried(self.cleaned_data["base"])

    def clean_env_lines(self) -> str:
        """Lines that could be read are rows already (`answered`)."""
        text: str = self.cleaned_data["env_lines"]
        read_env_lines(text)
        return text

    def clean(self) -> dict[str, Any]:
        typed = super().clean() or {}
        if self.like_primary:
            # What is hidden is not checked.
            for name in ("env", "env_lines", "kind", "program", "runtime", "shm_mb"):
                self.errors.pop(name, None)
            return typed
        for name in ARGUMENTS.get(typed.get("kind", ""), ()):
            if problem := pool_tasks.argument_problem(typed.get(name, "")):
                self.add_error(name, problem)
        asked = self._question()
        if asked:
            self.add_error("program", _shell_question(asked))
        elif typed.get("kind") == COMMAND and unclosed_quote(typed.get("program", "")):
            self.add_error("program", pool_tasks.unclosed())
        return typed

    def _question(self) -> str:
        if self["kind"].value() != COMMAND:
            return ""
        return question(str(self["program"].value() or "").replace("\r\n", "\n"))

    def document(
        self, primary: PoolFields | None = None, code: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The pool's part of the document. `primary`: the first pool. `code`: what all pools bring but reducers."""
        typed = {**NO_POOL, **self.cleaned_data}
        machine = {
            "machineType": typed["machine_type"],
            "acceleratorType": typed["accelerator_type"],
            "acceleratorCount": typed["accelerator_count"],
        }
        count = typed["replica_count"]
        task = primary.task() if primary is not None and self.like_primary else self.task()
        brings = {"code": dict(code)} if code and not pool_tasks.are_reducers(task) else {}
        ours = {**task.pop("trainyard", {}), **brings}
        return {
            **{name: value for name, value in typed["base"].items() if name != "trainyard"},
            "machineSpec": {name: value for name, value in machine.items() if value},
            "replicaCount": str(1 if count is None else count),
            **task,
            **({"trainyard": ours} if ours else {}),
        }

    def task(self) -> dict[str, Any]:
        """What the pool runs, as fields of the pool in the document."""
        return pool_tasks.task_of({**NO_POOL, **self.cleaned_data})


def answered(data: QueryDict, prefix: str) -> None:
    """Act on the answer to the question about a shell, and make rows of pasted lines that can be read."""
    program, by = f"{prefix}-program", data.get(f"{prefix}-by")
    if by == BY_BASH:
        data[f"{prefix}-kind"] = "bash"
    elif by == BY_WORDS:
        data[program] = write_arguments(read_arguments(data.get(program, "").replace("\r\n", "\n")))
    try:
        pairs = read_env_lines(data.get(f"{prefix}-env_lines", ""))
    except forms.ValidationError:
        return
    if pairs:
        add_rows(data, f"{prefix}-env", [EnvRow(name, value) for name, value in pairs])
        data[f"{prefix}-env_lines"] = ""


def _shell_question(part: str) -> str:
    if part.split()[1:]:
        text = _("The first line names the program, and “{part}” has blanks. Is bash to run these lines?")
    else:
        text = _("“{part}” means something to a shell only. Is bash to run this line?")
    return text.format(part=part[:60])


def initial(pool: Mapping[str, Any], primary: Mapping[str, Any]) -> dict[str, Any]:
    """The initial values of the fields, from one pool of a job document in its canonical form (spec/custom_job.py), and
    from its first pool."""
    if not pool:
        return {"on": False, "replica_count": 1, "kind": "bash", "same": True, "base": "{}"}
    machine, ours = pool.get("machineSpec", {}), dict(pool.get("trainyard", {}))
    ours.pop("code", None)
    shown = ("machineSpec", *TASKS, "replicaCount", "trainyard")
    base = {name: value for name, value in pool.items() if name not in shown}
    return {
        **pool_tasks.initial(pool),
        "on": True,
        "replica_count": int(pool.get("replicaCount", 1)),
        "machine_type": machine.get("machineType", ""),
        "accelerator_type": machine.get("acceleratorType", ""),
        "accelerator_count": machine.get("acceleratorCount") or None,
        "same": pool_tasks.same_task(pool, primary),
        "base": json.dumps({**base, "trainyard": ours} if ours else base),
    }
