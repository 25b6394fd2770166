"""The fields of the new-job form that are about the job as a whole, and their parts of the CustomJob document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.forms.fields import DurationText, LabelLines, duration_text, line_of_text, read_carried
from jobs.rules.scheduling.order import LABEL, PRIORITIES

NORMAL = "normal"
SHOWN_IN_SPEC = ("workerPoolSpecs", "scheduling", "baseOutputDirectory", "enableWebAccess")
SHOWN_IN_SCHEDULING = ("timeout", "maxWaitDuration", "disableRetries", "restartJobOnWorkerRestart")
# ON_DEMAND, LOW_COST and STANDARD mean the same here. The form keeps the one that the document names.
STRATEGIES = (
    ("", gettext_lazy("Standard: once the job runs, no other job can stop it")),
    ("SPOT", gettext_lazy("SPOT: runs on capacity that no other job needs, and makes room for others")),
    ("FLEX_START", gettext_lazy("Flex start: fails when it has waited for too long")),
)
PRIORITY_WORDS = {
    "low": gettext_lazy("Low"),
    "normal": gettext_lazy("Normal"),
    "high": gettext_lazy("High"),
}
CHOSEN_STRATEGIES = frozenset(value for value, _words in STRATEGIES if value)
SAME_BYTES, NEW_BYTES = "same", "new"
BYTES = (
    (SAME_BYTES, gettext_lazy("The same bytes, wherever the same names stand below")),
    (NEW_BYTES, gettext_lazy("What the names mean now: tags, branches and files are looked up again")),
)
RESTARTS = ("disable_retries", "restart_job_on_worker_restart")
# The value of a field whose text cannot be read.
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


def bytes_of_a_clone() -> forms.ChoiceField:
    """What a clone brings where its document names the same. Left out of a form, it is the same bytes."""
    return forms.ChoiceField(
        label=gettext_lazy("What the clone brings"),
        required=False,
        choices=BYTES,
        widget=forms.RadioSelect,
        initial=SAME_BYTES,
    )


class JobFields(forms.Form):
    display_name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        strip=False,
        widget=line_of_text(maxlength=128, required=True),
    )
    project = forms.ChoiceField(label=gettext_lazy("Project"))
    location = forms.ChoiceField(label=gettext_lazy("Location"))
    timeout = DurationText(
        label=gettext_lazy("Time limit"),
        required=False,
        help_text=gettext_lazy(
            "Counted from the moment when all replicas run. The job is cancelled when the limit is reached. "
            "For example 90m or 12h. Empty: 7d."
        ),
        widget=line_of_text(list="time-limits"),
    )
    max_wait_duration = DurationText(
        label=gettext_lazy("Longest wait for capacity"),
        required=False,
        help_text=gettext_lazy(
            "For one try. After three more tries the job fails. Waiting for quota does not count. "
            "Empty: no limit, or 24h with flex start."
        ),
    )
    labels = LabelLines(
        label=gettext_lazy("Labels"),
        required=False,
        help_text=gettext_lazy("One key=value per line."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    priority = forms.ChoiceField(
        label=gettext_lazy("Priority"),
        required=False,
        choices=[(word, PRIORITY_WORDS.get(word, word.capitalize())) for word in PRIORITIES],
        initial=NORMAL,
        help_text=gettext_lazy(
            "Jobs of a higher priority are placed first. High needs an admin of a project that allows it."
        ),
    )
    strategy = forms.ChoiceField(label=gettext_lazy("Strategy"), required=False, choices=STRATEGIES)
    web_access = forms.BooleanField(label=gettext_lazy("Allow shells in running replicas"), required=False)
    disable_retries = forms.BooleanField(
        label=gettext_lazy("Never run the whole job again"),
        required=False,
        help_text=gettext_lazy(
            "Otherwise the job runs again after a crash (SIGSEGV, SIGABRT) and after a failure that is not the "
            "fault of its code."
        ),
    )
    restart_job_on_worker_restart = forms.BooleanField(
        label=gettext_lazy("Restart all replicas when one restarts"),
        required=False,
        help_text=gettext_lazy("For frameworks whose ranks cannot rejoin, such as torch.distributed."),
    )
    base_output_directory = forms.CharField(
        label=gettext_lazy("Output directory"),
        required=False,
        help_text=gettext_lazy(
            "A bucket, such as gs://bucket/runs/7: its files are stored and shown. Or a directory on the hosts. The "
            "training code finds it in AIP_MODEL_DIR and similar variables."
        ),
    )
    base = forms.CharField(required=False, widget=forms.HiddenInput)
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)
    cloned_from = forms.CharField(required=False, widget=forms.HiddenInput, max_length=19)
    brings = bytes_of_a_clone()

    def clean_base(self) -> dict[str, Any]:
        return read_carried(self.cleaned_data["base"])

    def clean(self) -> dict[str, Any]:
        """Refuse two different priorities. The priority is a label, so it can be chosen or written as a label."""
        typed = super().clean() or {}
        labels, chosen = typed.get("labels") or {}, typed.get("priority") or NORMAL
        if LABEL in labels and chosen not in (NORMAL, labels[LABEL]):
            self.add_error(
                "priority",
                _("The labels say {label}. Set it in one place only.").format(
                    label=f"{LABEL}={labels[LABEL][:64]}"
                ),
            )
        return typed

    def changed(self, *names: str) -> bool:
        """Return whether a field has an error or is not at its default. Then the page does not fold the fields away."""
        return any(self[name].errors or self[name].value() not in ("", None, False, NORMAL) for name in names)

    @property
    def scheduling_shown(self) -> bool:
        return self.changed("priority", "strategy", "max_wait_duration", *RESTARTS)

    @property
    def more_shown(self) -> bool:
        return self.changed("labels", "base_output_directory")

    def document(self, pools: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the document that the fields describe. A field with an error counts as empty."""
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
    """The initial values of the fields, from a job document in its canonical form (spec/custom_job.py)."""
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
