"""Rows of the metrics of a study: a name, and whether it is to be large or small."""

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

from jobs.rules.tuning.study import Goal

GOALS = ((Goal.MAXIMIZE, gettext_lazy("maximize")), (Goal.MINIMIZE, gettext_lazy("minimize")))
GOAL = "goal"


class MetricRow(NamedTuple):
    """Texts as they were typed. What is no goal, the parser refuses."""

    name: str = ""
    goal: str = Goal.MAXIMIZE

    def document(self) -> dict[str, Any]:
        return {"metricId": self.name, "goal": str(self.goal)}


class MetricRows(forms.Widget):
    """Repeated inputs `metric` and `goal`, one of each in a row, and one empty row more."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> tuple[MetricRow, ...]:
        if not isinstance(data, MultiValueDict):
            return ()
        columns = (data.getlist(name), data.getlist(GOAL))
        rows = [
            MetricRow(metric.strip(), goal or Goal.MAXIMIZE)
            for metric, goal in zip_longest(*columns, fillvalue="")
        ]
        return tuple(row for row in rows if row.name) or tuple(rows[:1])

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
