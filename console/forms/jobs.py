"""The new-job form: the job's own fields and four pools, to and from the CustomJob document.

What a job may be is decided by jobs.rules.spec alone. The form only writes the document, and puts every violation back
to the field it is about. Parts of a document that the form does not show are carried along untouched in `base`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from console.forms.fields import (
    DurationText,
    EnvField,
    LabelLines,
    PlainText,
    duration_text,
    read_arguments,
    write_arguments,
)
from jobs.rules import spec
from jobs.rules.customjob import HOST_IMAGE
from jobs.rules.order import LABEL, PRIORITIES
from jobs.rules.spec import Violation

POOLS = 4
ROLES = ("Primary", "Workers", "Parameter servers", "Evaluators")
KINDS = (("bash", "Bash script"), ("python3", "Python script"), ("argv", "Command, one argument a line"))
NORMAL, SPOT = "normal", "SPOT"
SHOWN_IN_SPEC = ("workerPoolSpecs", "scheduling", "baseOutputDirectory", "enableWebAccess")

# Where the parts of a violation's path are in the form.
JOB_FIELDS = {
    "display_name": "display_name",
    "location": "location",
    "labels": "labels",
    f"labels.{LABEL}": "priority",
    "job_spec.scheduling.strategy": "spot",
    "job_spec.scheduling.timeout": "timeout",
    "job_spec.scheduling.disable_retries": "disable_retries",
    "job_spec.scheduling.restart_job_on_worker_restart": "restart_job_on_worker_restart",
    "job_spec.base_output_directory": "base_output_directory",
    "job_spec.enable_web_access": "web_access",
}
POOL_FIELDS = {
    "replica_count": "replica_count",
    "machine_spec.machine_type": "machine_type",
    "machine_spec.accelerator_type": "accelerator_type",
    "machine_spec.accelerator_count": "accelerator_count",
    "container_spec.env": "env",
    "container_spec": "program",
}
# What a field counts for while what is typed in it cannot be read.
NO_JOB: dict[str, Any] = {
    "display_name": "",
    "timeout": None,
    "labels": {},
    "priority": NORMAL,
    "spot": False,
    "web_access": False,
    "disable_retries": False,
    "restart_job_on_worker_restart": False,
    "base_output_directory": "",
    "base": {},
}
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
_POOL = re.compile(r"job_spec\.worker_pool_specs\[(\d)\]\.?(.*)")
_ENV = re.compile(r"container_spec\.env\[(\d+)\](?:\.(\w+))?")


def _text(**attrs: object) -> forms.TextInput:
    return forms.TextInput(attrs={"autocapitalize": "none", "autocomplete": "off", **attrs})


def _area(kind: str, rows: int) -> forms.Textarea:
    return forms.Textarea(
        attrs={"class": kind, "rows": rows, "spellcheck": "false", "autocapitalize": "none"}
    )


class JobFields(forms.Form):
    display_name = forms.CharField(
        label="Name", required=False, strip=False, widget=_text(maxlength=128, required=True)
    )
    project = forms.ChoiceField(label="Project")
    location = forms.ChoiceField(label="Location")
    timeout = DurationText(
        label="Time limit",
        required=False,
        help_text="After it the job is cancelled. 90m, 12h; 7d when left empty.",
    )
    labels = LabelLines(
        label="Labels",
        required=False,
        help_text="key=value, one a line",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    priority = forms.ChoiceField(
        label="Priority",
        required=False,
        choices=[(word, word.capitalize()) for word in PRIORITIES],
        initial=NORMAL,
        help_text="Who is served first. High is for admins of the project.",
    )
    spot = forms.BooleanField(label="Make room for others (SPOT)", required=False)
    web_access = forms.BooleanField(label="Allow shells", required=False)
    disable_retries = forms.BooleanField(label="Never run it again", required=False)
    restart_job_on_worker_restart = forms.BooleanField(
        label="Restart all replicas when one restarts", required=False
    )
    base_output_directory = forms.CharField(
        label="Output directory",
        required=False,
        help_text="The training code finds it in AIP_MODEL_DIR and the like.",
    )
    base = forms.CharField(required=False, widget=forms.HiddenInput)
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)

    def clean_base(self) -> dict[str, Any]:
        return _carried(self.cleaned_data["base"])

    def clean(self) -> dict[str, Any]:
        """The priority is a label: it may be written as one too, but not as two."""
        typed = super().clean() or {}
        labels, chosen = typed.get("labels") or {}, typed.get("priority") or NORMAL
        if LABEL in labels and chosen not in (NORMAL, labels[LABEL]):
            self.add_error("priority", f"Labels say {LABEL}={labels[LABEL][:64]}. Say it in one place.")
        return typed


class PoolFields(forms.Form):
    on = forms.BooleanField(label="Use this pool", required=False)
    replica_count = forms.IntegerField(label="Replicas", required=False, initial=1)
    accelerator_type = forms.CharField(label="GPU type", required=False, widget=_text(list="gpu-types"))
    accelerator_count = forms.IntegerField(label="GPUs for each replica", required=False)
    machine_type = forms.CharField(
        label="Machine type", required=False, widget=_text(list="machine-types", placeholder="any host")
    )
    kind = forms.ChoiceField(label="What runs", choices=KINDS, widget=forms.RadioSelect, initial="bash")
    program = PlainText(label="Program", required=False, widget=_area("program", rows=8))
    env = EnvField(label="Environment", required=False)
    base = forms.CharField(required=False, widget=forms.HiddenInput)

    number: int

    @property
    def role(self) -> str:
        return ROLES[self.number]

    @property
    def used(self) -> bool:
        """Whether the pool is part of the job: the first always is."""
        return self.number == 0 or bool(self["on"].value())

    def clean_base(self) -> dict[str, Any]:
        return _carried(self.cleaned_data["base"])

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
        return {
            **typed["base"],
            "machineSpec": {name: value for name, value in machine.items() if value},
            "replicaCount": str(1 if count is None else count),
            "containerSpec": {
                "imageUri": HOST_IMAGE,
                "command": command,
                "env": [{"name": name, "value": value} for name, value in typed["env"]],
            },
        }


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is said beside the document: whose job it is, where it runs, and the name under which it is sent once."""

    project: str
    location: str
    request_id: str

    @classmethod
    def cleaned(cls, typed: Mapping[str, Any]) -> Chosen:
        return cls(typed["project"], typed["location"], typed["request_id"])


class Draft:
    """The whole form, fresh from a document or as it was sent. Nothing that was typed is ever lost."""

    mode = "form"

    def __init__(self, job: JobFields, pools: list[PoolFields]) -> None:
        self.job = job
        self.pools = pools
        for number, pool in enumerate(pools):
            pool.number = number

    @classmethod
    def sent(cls, data: QueryDict) -> Draft:
        return cls(JobFields(data), [PoolFields(data, prefix=f"pool{number}") for number in range(POOLS)])

    @classmethod
    def of(cls, document: Mapping[str, Any], chosen: Chosen) -> Draft:
        """A document that spec.parse has read and written, shown as a form."""
        pools = list(document.get("jobSpec", {}).get("workerPoolSpecs", []))
        pools += [{}] * (POOLS - len(pools))
        job = JobFields(initial={**_job_initial(document), **asdict(chosen)})
        initial = [_pool_initial(pool) for pool in pools]
        return cls(job, [PoolFields(prefix=f"pool{n}", initial=values) for n, values in enumerate(initial)])

    @property
    def chosen(self) -> Chosen:
        return Chosen.cleaned(self.job.cleaned_data)

    @property
    def location(self) -> str:
        """Where it is to run, if that can be read."""
        return str(self.job.cleaned_data.get("location", ""))

    def offer(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        offer(self.job, projects, locations)

    def is_valid(self) -> bool:
        """Only the pools in use are looked at; all of them are, so that every complaint is told at once."""
        return all([self.job.is_valid(), *[pool.is_valid() for pool in self.pools if pool.used]])

    def document(self) -> dict[str, Any]:
        """What is typed; where that is wrong, as if nothing were."""
        typed = {**NO_JOB, **self.job.cleaned_data}
        used = [pool.document() if pool.used else {} for pool in self.pools]
        while used and not used[-1]:
            used.pop()
        base = typed["base"]
        priority = typed["priority"] or NORMAL
        scheduling = {
            **_object(base.get("scheduling")),
            **({"strategy": SPOT} if typed["spot"] else {}),
            "disableRetries": typed["disable_retries"],
            "restartJobOnWorkerRestart": typed["restart_job_on_worker_restart"],
        }
        if typed["timeout"] is not None:
            scheduling["timeout"] = f"{typed['timeout']:.9f}".rstrip("0").rstrip(".") + "s"
        output = typed["base_output_directory"]
        return {
            "displayName": typed["display_name"],
            "labels": {**({} if priority == NORMAL else {LABEL: priority}), **typed["labels"]},
            "jobSpec": {
                **{name: value for name, value in base.items() if name not in SHOWN_IN_SPEC},
                "workerPoolSpecs": used,
                "scheduling": scheduling,
                "baseOutputDirectory": {"outputUriPrefix": output} if output else {},
                "enableWebAccess": typed["web_access"],
            },
        }

    def complain(self, violations: Iterable[Violation]) -> None:
        """Beside what the form has found out by itself: of a field that is wrong already nothing more is told."""
        wrong = {
            (id(form), name) for form in (self.job, *self.pools) if form.is_bound for name in form.errors
        }
        for violation in violations:
            form, field = self._place(violation.field)
            if field is None:
                form.add_error(None, _sentence(violation))
            elif (id(form), field) not in wrong:
                form.add_error(field, _words(form[field], violation))

    def _place(self, path: str) -> tuple[forms.Form, str | None]:
        in_pool = _POOL.match(path)
        if in_pool and int(in_pool[1]) < POOLS:
            pool = self.pools[int(in_pool[1])]
            return (pool, _longest(in_pool[2], POOL_FIELDS)) if pool.used else (self.job, None)
        return self.job, _longest(path, JOB_FIELDS)


class JsonDraft(forms.Form):
    """The document itself, for those who have one."""

    mode = "json"
    project = forms.ChoiceField(label="Project")
    location = forms.ChoiceField(label="Location")
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)
    text = PlainText(label="CustomJob", widget=_area("program", rows=24))
    violations: Sequence[Violation] = ()

    @classmethod
    def sent(cls, data: QueryDict) -> JsonDraft:
        return cls(data)

    @classmethod
    def of(cls, document: Mapping[str, Any], chosen: Chosen) -> JsonDraft:
        return cls(initial={"text": json.dumps(document, indent=2, ensure_ascii=False), **asdict(chosen)})

    @property
    def chosen(self) -> Chosen:
        return Chosen.cleaned(self.cleaned_data)

    @property
    def job(self) -> JsonDraft:
        """The form that holds what is said beside the document, as Draft has one."""
        return self

    def offer(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        offer(self, projects, locations)

    def clean_text(self) -> dict[str, Any]:
        try:
            document = json.loads(self.cleaned_data["text"])
        except RecursionError:
            raise forms.ValidationError("This is nested too deeply.") from None
        except ValueError as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from None
        if not isinstance(document, dict):
            raise forms.ValidationError("A CustomJob is a JSON object: { … }.")
        return document

    def document(self) -> dict[str, Any]:
        return dict(self.cleaned_data["text"])

    def complain(self, violations: Iterable[Violation]) -> None:
        """A form that was never sent has no errors of Django's; those of a fresh document are kept beside it."""
        self.violations = list(violations)


AnyDraft = Draft | JsonDraft


def offer(form: forms.Form, projects: Iterable[str], locations: Iterable[str]) -> None:
    """What may be chosen; the first of each is chosen already."""
    for name, names in (("project", list(projects)), ("location", list(locations))):
        field = form.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(word, word) for word in names]
        # A select shows its first choice by itself; a hidden input does not.
        if names and form.initial.get(name) not in names:
            form.initial[name] = names[0]


def _job_initial(document: Mapping[str, Any]) -> dict[str, Any]:
    job_spec = document.get("jobSpec", {})
    scheduling = dict(job_spec.get("scheduling", {}))
    timeout = scheduling.pop("timeout", "")
    base = {name: value for name, value in job_spec.items() if name not in SHOWN_IN_SPEC}
    shown = ("disableRetries", "restartJobOnWorkerRestart")
    spot = scheduling.get("strategy") == SPOT
    rest = {
        name: value
        for name, value in scheduling.items()
        if name not in shown and not (spot and name == "strategy")
    }
    labels = dict(document.get("labels", {}))
    priority = labels.pop(LABEL) if labels.get(LABEL) in PRIORITIES else NORMAL
    return {
        "display_name": document.get("displayName", ""),
        "timeout": duration_text(float(timeout[:-1])) if timeout else "",
        "labels": "\n".join(f"{key}={value}" for key, value in labels.items()),
        "priority": priority,
        "spot": spot,
        "web_access": job_spec.get("enableWebAccess", False),
        "disable_retries": scheduling.get("disableRetries", False),
        "restart_job_on_worker_restart": scheduling.get("restartJobOnWorkerRestart", False),
        "base_output_directory": job_spec.get("baseOutputDirectory", {}).get("outputUriPrefix", ""),
        "base": json.dumps({**base, "scheduling": rest} if rest else base),
    }


def _pool_initial(pool: Mapping[str, Any]) -> dict[str, Any]:
    if not pool:
        return {"on": False, "replica_count": 1, "kind": "bash", "base": "{}"}
    machine, container = pool.get("machineSpec", {}), pool.get("containerSpec", {})
    argv = [*container.get("command", []), *container.get("args", [])]
    kind = argv[0] if len(argv) == 3 and argv[1] == "-c" and argv[0] in ("bash", "python3") else "argv"
    shown = ("machineSpec", "containerSpec", "replicaCount")
    return {
        "on": True,
        "replica_count": int(pool.get("replicaCount", 1)),
        "machine_type": machine.get("machineType", ""),
        "accelerator_type": machine.get("acceleratorType", ""),
        "accelerator_count": machine.get("acceleratorCount") or None,
        "kind": kind,
        "program": write_arguments(argv) if kind == "argv" else argv[2],
        "env": tuple((pair["name"], pair.get("value", "")) for pair in container.get("env", [])),
        "base": json.dumps({name: value for name, value in pool.items() if name not in shown}),
    }


def _carried(text: str) -> dict[str, Any]:
    """The hidden field is the browser's to change: anything may come back in it."""
    try:
        return _object(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _script(kind: str, program: str) -> list[str]:
    return list(spec.script_command(program, kind)) if program.strip() else []


def _longest(path: str, fields: Mapping[str, str]) -> str | None:
    """The field of the longest prefix of the path that the form has."""
    for prefix in sorted(fields, key=len, reverse=True):
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return fields[prefix]
    return None


def _sentence(violation: Violation) -> str:
    """For what the form has no field for: with its path, unless it is about the job as a whole."""
    whole = violation.field == "job_spec.worker_pool_specs"
    return violation.description if whole else f"{violation.field}: {violation.description}"


def _words(field: forms.BoundField, violation: Violation) -> str:
    row = _ENV.search(violation.field)
    if row:
        return f"Row {int(row[1]) + 1}: the {row[2] or 'variable'} {violation.description}"
    if field.name == "program" and not str(field.value() or "").strip():
        return f"{field.label} is required."
    whole_sentence = violation.description[:1].isupper()
    return violation.description if whole_sentence else f"{field.label} {violation.description}"
