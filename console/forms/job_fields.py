"""The job's own fields of the new-job form, to and from their parts of the CustomJob document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from console.forms.fields import DurationText, LabelLines, carried, duration_text, line_of_text
from jobs.rules.scheduling.order import LABEL, PRIORITIES

NORMAL = "normal"
SHOWN_IN_SPEC = ("workerPoolSpecs", "scheduling", "baseOutputDirectory", "enableWebAccess")
SHOWN_IN_SCHEDULING = ("timeout", "maxWaitDuration", "disableRetries", "restartJobOnWorkerRestart")
# ON_DEMAND, LOW_COST and STANDARD are all the same here; which of them a document says is carried along.
STRATEGIES = (
    ("", "Standard: once it runs, nobody may stop it"),
    ("SPOT", "SPOT: runs where nobody else wants to, and makes room for others"),
    ("FLEX_START", "Flex start: gives up when it has waited for too long"),
)
CHOSEN_STRATEGIES = frozenset(value for value, _ in STRATEGIES if value)
RESTARTS = ("disable_retries", "restart_job_on_worker_restart")
# What a field counts for while what is typed in it cannot be read.
NO_JOB: dict[str, Any] = {
    "display_name": "",
    "timeout": None,
    "max_wait_duration": None,
    "labels": {},
    "priority": NORMAL,
    "strategy": "",
    "web_access": False,
    "disable_retries": False,
    "restart_job_on_worker_restart": False,
    "base_output_directory": "",
    "base": {},
}


class JobFields(forms.Form):
    display_name = forms.CharField(
        label="Name", required=False, strip=False, widget=line_of_text(maxlength=128, required=True)
    )
    project = forms.ChoiceField(label="Project")
    location = forms.ChoiceField(label="Location")
    timeout = DurationText(
        label="Time limit",
        required=False,
        help_text="Counted from when all replicas are up; after it the job is cancelled. 90m, 12h; empty: 7d.",
    )
    max_wait_duration = DurationText(
        label="Longest wait for room",
        required=False,
        help_text="Of one try; after 3 more it fails. Waiting for quota does not count. "
        "Empty: for ever, or 24h with flex start.",
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
        help_text="Who is served first. High is for admins of a project that may.",
    )
    strategy = forms.ChoiceField(label="Strategy", required=False, choices=STRATEGIES)
    web_access = forms.BooleanField(label="Allow shells in its running replicas", required=False)
    disable_retries = forms.BooleanField(
        label="Never run the whole job again",
        required=False,
        help_text="Otherwise a crash (SIGSEGV, SIGABRT) and what is no fault of the code are tried again.",
    )
    restart_job_on_worker_restart = forms.BooleanField(
        label="Restart all replicas when one restarts",
        required=False,
        help_text="For frameworks whose ranks cannot rejoin, such as torch.distributed.",
    )
    base_output_directory = forms.CharField(
        label="Output directory",
        required=False,
        help_text="The training code finds it in AIP_MODEL_DIR and the like.",
    )
    base = forms.CharField(required=False, widget=forms.HiddenInput)
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)

    def clean_base(self) -> dict[str, Any]:
        return carried(self.cleaned_data["base"])

    def clean(self) -> dict[str, Any]:
        """The priority is a label: it may be written as one too, but not as two."""
        typed = super().clean() or {}
        labels, chosen = typed.get("labels") or {}, typed.get("priority") or NORMAL
        if LABEL in labels and chosen not in (NORMAL, labels[LABEL]):
            self.add_error("priority", f"Labels say {LABEL}={labels[LABEL][:64]}. Say it in one place.")
        return typed

    def changed(self, *names: str) -> bool:
        """Is anything but the default, or wrong, in one of these fields? Then they are not folded away."""
        return any(self[name].errors or self[name].value() not in ("", None, False, NORMAL) for name in names)

    @property
    def scheduling_shown(self) -> bool:
        return self.changed("priority", "strategy", "max_wait_duration", *RESTARTS)

    @property
    def more_shown(self) -> bool:
        return self.changed("labels", "base_output_directory")

    def document(self, pools: list[dict[str, Any]]) -> dict[str, Any]:
        """What is typed; where that is wrong, as if nothing were."""
        typed = {**NO_JOB, **self.cleaned_data}
        base = typed["base"]
        priority = typed["priority"] or NORMAL
        output = typed["base_output_directory"]
        return {
            "displayName": typed["display_name"],
            "labels": {**({} if priority == NORMAL else {LABEL: priority}), **typed["labels"]},
            "jobSpec": {
                **{name: value for name, value in base.items() if name not in SHOWN_IN_SPEC},
                "workerPoolSpecs": pools,
                "scheduling": _scheduling(typed),
                "baseOutputDirectory": {"outputUriPrefix": output} if output else {},
                "enableWebAccess": typed["web_access"],
            },
        }


def initial(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a document that spec.parse has read and written."""
    job_spec = document.get("jobSpec", {})
    scheduling = job_spec.get("scheduling", {})
    strategy = scheduling.get("strategy", "")
    shown = (*SHOWN_IN_SCHEDULING, *(["strategy"] if strategy in CHOSEN_STRATEGIES else []))
    rest = {name: value for name, value in scheduling.items() if name not in shown}
    base = {name: value for name, value in job_spec.items() if name not in SHOWN_IN_SPEC}
    labels = dict(document.get("labels", {}))
    priority = labels.pop(LABEL) if labels.get(LABEL) in PRIORITIES else NORMAL
    return {
        "display_name": document.get("displayName", ""),
        "timeout": _written(scheduling.get("timeout", "")),
        "max_wait_duration": _written(scheduling.get("maxWaitDuration", "")),
        "labels": "\n".join(f"{key}={value}" for key, value in labels.items()),
        "priority": priority,
        "strategy": strategy if strategy in CHOSEN_STRATEGIES else "",
        "web_access": job_spec.get("enableWebAccess", False),
        "disable_retries": scheduling.get("disableRetries", False),
        "restart_job_on_worker_restart": scheduling.get("restartJobOnWorkerRestart", False),
        "base_output_directory": job_spec.get("baseOutputDirectory", {}).get("outputUriPrefix", ""),
        "base": json.dumps({**base, "scheduling": rest} if rest else base),
    }


def _scheduling(typed: Mapping[str, Any]) -> dict[str, Any]:
    rest = typed["base"].get("scheduling")
    times = {"timeout": typed["timeout"], "maxWaitDuration": typed["max_wait_duration"]}
    return {
        **(rest if isinstance(rest, dict) else {}),
        **({"strategy": typed["strategy"]} if typed["strategy"] else {}),
        "disableRetries": typed["disable_retries"],
        "restartJobOnWorkerRestart": typed["restart_job_on_worker_restart"],
        **{name: _seconds(value) for name, value in times.items() if value is not None},
    }


def _seconds(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"


def _written(seconds: str) -> str:
    return duration_text(float(seconds[:-1])) if seconds else ""
