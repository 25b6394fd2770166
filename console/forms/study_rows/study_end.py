"""When a study itself ends, as fields: `studyStoppingConfig` of the StudySpec, and how noisy its measurements are.

A bound at a moment (endTime) has no field: such a document stays JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.forms.fields import DurationText, duration_text, line_of_text
from jobs.rules.spec.json_fields import duration
from jobs.rules.tuning.study import NOISES

CONFIG, NOISE = "studyStoppingConfig", "observationNoise"
_DURATION = "maxDuration"
# The fields with whole numbers and those with durations, by their names in the document.
COUNTS = {
    "minNumTrials": "end_min_trials",
    "maxNumTrials": "end_max_trials",
    "maxNumTrialsNoProgress": "end_no_progress",
}
RUNTIMES = {"minimumRuntimeConstraint": "end_min_time", "maximumRuntimeConstraint": "end_max_time"}
NO_PROGRESS, ASAP = "maxDurationNoProgress", "shouldStopAsap"
# By the paths of the document, as errors name them.
PATH = "study_spec.study_stopping_config"
END_FIELDS = {
    f"{PATH}.minimum_runtime_constraint": "end_min_time",
    f"{PATH}.maximum_runtime_constraint": "end_max_time",
    f"{PATH}.min_num_trials": "end_min_trials",
    f"{PATH}.max_num_trials": "end_max_trials",
    f"{PATH}.max_num_trials_no_progress": "end_no_progress",
    f"{PATH}.max_duration_no_progress": "end_no_progress_time",
    PATH: "end_asap",
    "study_spec.observation_noise": "noise",
}
NOISE_CHOICES = (
    ("", gettext_lazy("not known")),
    (NOISES[1], gettext_lazy("low: a second trial of a point would measure the same")),
    (NOISES[2], gettext_lazy("high: a point may be tried again")),
)


def _time(label: Any, help_text: Any = "") -> DurationText:
    return DurationText(
        label=label, help_text=help_text, required=False, widget=line_of_text(placeholder="12h", maxlength=40)
    )


class StudyEnd(forms.Form):
    """The fields, for the form of a study."""

    noise = forms.ChoiceField(
        label=gettext_lazy("Noise of the measurements"), required=False, choices=NOISE_CHOICES
    )
    end_max_trials = forms.IntegerField(
        label=gettext_lazy("End after so many trials"),
        required=False,
        help_text=gettext_lazy("Fewer than the trials above, where another rule may end it sooner."),
    )
    end_no_progress = forms.IntegerField(
        label=gettext_lazy("End after so many trials without a better one"), required=False
    )
    end_no_progress_time = _time(gettext_lazy("End after so long without a better one"))
    end_max_time = _time(
        gettext_lazy("End after"),
        gettext_lazy("Counted from the start of the first trial. Such as 12h or 7d."),
    )
    end_min_trials = forms.IntegerField(label=gettext_lazy("Not before so many trials"), required=False)
    end_min_time = _time(gettext_lazy("Not before"))
    end_asap = forms.BooleanField(
        label=gettext_lazy("Cancel the running trials when it ends"), required=False
    )

    @property
    def has_end(self) -> bool:
        """Whether the page shows these fields unfolded."""
        names = [name for name in self.fields if name.startswith("end_")]
        return any(self[name].value() or name in self.errors for name in names)


def in_study(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the StudySpec that these fields describe."""
    config: dict[str, Any] = {
        name: typed[field] for name, field in COUNTS.items() if typed.get(field) is not None
    }
    for name, field in RUNTIMES.items():
        if typed.get(field) is not None:
            config[name] = {_DURATION: duration(typed[field])}
    if typed.get("end_no_progress_time") is not None:
        config[NO_PROGRESS] = duration(typed["end_no_progress_time"])
    if typed.get("end_asap"):
        config[ASAP] = True
    noise = {NOISE: typed["noise"]} if typed.get("noise") else {}
    return {**({CONFIG: config} if config else {}), **noise}


def initial(study: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields, from a StudySpec in its canonical form."""
    config = study.get(CONFIG, {})
    found: dict[str, Any] = {field: config.get(name) for name, field in COUNTS.items()}
    times = {field: config.get(name, {}).get(_DURATION) for name, field in RUNTIMES.items()}
    times["end_no_progress_time"] = config.get(NO_PROGRESS)
    return {
        **found,
        **{field: _seconds(text) for field, text in times.items()},
        "end_asap": bool(config.get(ASAP)),
        "noise": study.get(NOISE, ""),
    }


def _seconds(text: str | None) -> float | None:
    return float(text.removesuffix("s")) if text else None


def shown_times(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with durations as people write them."""
    times = (*RUNTIMES.values(), "end_no_progress_time")
    return {
        name: duration_text(value) if name in times and value is not None else value
        for name, value in values.items()
    }
