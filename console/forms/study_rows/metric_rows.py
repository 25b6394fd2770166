"""Rows of the metrics of a study: a name, whether it is to be large or small, and a threshold if it is only watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from django import forms
from django.forms.renderers import BaseRenderer
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from console.forms.study_rows.typed_numbers import number_or_text, text_of_number
from jobs.rules.tuning.study import Goal

GOALS = ((Goal.MAXIMIZE, gettext_lazy("maximize")), (Goal.MINIMIZE, gettext_lazy("minimize")))
GOAL, THRESHOLD, SHARE = "goal", "threshold", "safe-share"


class MetricRow(NamedTuple):
    """Texts as they were typed. What is no goal and no number, the parser refuses. `threshold`: it must not be worse
    than that, and is not optimized. `share`: of the trials that should keep to it."""

    name: str = ""
    goal: str = Goal.MAXIMIZE
    threshold: str = ""
    share: str = ""

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"metricId": self.name, "goal": str(self.goal)}
        safety = {"safetyThreshold": self.threshold, "desiredMinSafeTrialsFraction": self.share}
        typed = {name: number_or_text(text) for name, text in safety.items() if text}
        return {**found, "safetyConfig": typed} if typed else found


def row_of_metric(metric: Mapping[str, Any]) -> MetricRow:
    """The row of a metric of a canonical document. A threshold of zero is left out there."""
    safety = metric.get("safetyConfig")
    threshold, share = "", ""
    if safety is not None:
        threshold = text_of_number(safety.get("safetyThreshold", 0.0))
        share = text_of_number(safety.get("desiredMinSafeTrialsFraction", ""))
    return MetricRow(metric.get("metricId", ""), metric.get("goal", Goal.MAXIMIZE), threshold, share)


class MetricRows(forms.Widget):
    """Repeated inputs, one of each in a row, and one empty row more."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> tuple[MetricRow, ...]:
        if not isinstance(data, MultiValueDict):
            return ()
        columns = (data.getlist(each) for each in (name, GOAL, THRESHOLD, SHARE))
        rows = [
            MetricRow(metric.strip(), goal or Goal.MAXIMIZE, threshold.strip(), share.strip())
            for metric, goal, threshold, share in zip_longest(*columns, fillvalue="")
        ]
        return tuple(row for row in rows if row.name or row.threshold or row.share) or tuple(rows[:1])

    def value_omitted_from_data(self, data: Mapping[str, Any], files: Any, name: str) -> bool:
        return name not in data

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: BaseRenderer | None = None
    ) -> SafeString:
        """Render with a template of ours. Django's form renderer finds only the templates of its own widgets."""
        rows: Iterable[MetricRow] = value or (MetricRow(),)
        context = {"id": (attrs or {}).get("id"), "rows": [*rows, MetricRow()], "goals": GOALS}
        return render_to_string("forms/metric_rows.html", context)


class MetricsField(forms.Field):
    """The cleaned value is a tuple of MetricRow. Which names are possible, the parser decides."""

    widget = MetricRows

    def clean(self, value: Any) -> tuple[MetricRow, ...]:
        return tuple(value or (MetricRow(),))
