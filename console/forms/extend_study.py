"""The form that gives a study more trials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents.infra.sentences import shown
from jobs.models import TuningJob
from jobs.rules.spec.parse import Violation
from jobs.rules.tuning.extension import FAILED, PARALLEL, TRIALS

_FIELDS = {TRIALS: "max_trials", PARALLEL: "parallel_trials", FAILED: "max_failed"}


class ExtendStudyForm(forms.Form):
    max_trials = forms.IntegerField(label=gettext_lazy("Trials in all"), required=False)
    parallel_trials = forms.IntegerField(label=gettext_lazy("Trials at once"), required=False)
    max_failed = forms.IntegerField(
        label=gettext_lazy("Trials that may fail"),
        required=False,
        help_text=gettext_lazy("So many failed trials end the study. 0: Trainyard decides."),
    )

    @classmethod
    def of(cls, study: TuningJob) -> ExtendStudyForm:
        counts = {
            "max_trials": study.max_trials,
            "parallel_trials": study.parallel_trials,
            "max_failed": study.max_failed_trials,
        }
        return cls(initial=counts, auto_id="extend-%s")

    @classmethod
    def from_post(cls, data: Any) -> ExtendStudyForm:
        return cls(data, auto_id="extend-%s")

    def document(self) -> dict[str, int]:
        names = {"max_trials": "maxTrialCount", "parallel_trials": "parallelTrialCount"}
        names["max_failed"] = "maxFailedTrialCount"
        return {names[field]: value for field, value in self.cleaned_data.items() if value is not None}

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Those of a field beside it, all others above the form."""
        for each in violations:
            field, text = _FIELDS.get(each.field), shown(each.description)
            whole_sentence = each.description[:1].isupper()
            if field and not whole_sentence:
                text = _("{field} {problem}").format(field=self[field].label, problem=text)
            self.add_error(field, text if field else f"{each.field}: {text}")
