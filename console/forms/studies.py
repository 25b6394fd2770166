"""The new-study form, as fields or as JSON: to and from the HyperparameterTuningJob document.

Only rules/tuning decides what a study may be. The form writes the document, and shows every violation at the field that
it is about. The job of the trials stands in it as JSON, as the page of a job shows it. A document that has more than
the fields can say is shown as JSON as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents.infra.sentences import shown
from console.forms.fields import LabelLines, PlainText, area_of_text, line_of_text
from console.forms.jobs import JobDestination, set_choices
from console.forms.study_rows import study_end
from console.forms.study_rows.metric_rows import MetricsField, row_of_metric
from console.forms.study_rows.parameter_rows import INPUTS, ParametersField, documents, rows_of
from console.forms.study_rows.pasted_space import UnreadableSpace, pasted_rows
from console.forms.study_rows.study_end import END_FIELDS, StudyEnd
from console.forms.violations import field_of
from jobs.models import TuningJob
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import Violation
from jobs.rules.spec.secret_variables import without_values
from jobs.rules.tuning.extension import FAILED, PARALLEL, TRIALS
from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.study import ALGORITHMS, OPTUNA, Rule, Selection, study_document

SEARCHES = (
    ("", gettext_lazy("Bayesian: learns from the trials that have ended")),
    (ALGORITHMS[3], gettext_lazy("Random")),
    (ALGORITHMS[2], gettext_lazy("Grid: each point once")),
    (OPTUNA[1], gettext_lazy("TPE of Optuna")),
    (OPTUNA[2], gettext_lazy("NSGA-II of Optuna")),
    (OPTUNA[3], gettext_lazy("CMA-ES of Optuna")),
)
NEVER = ""
RULES = (
    (NEVER, gettext_lazy("Never: each trial runs to its end")),
    (Rule.MEDIAN, gettext_lazy("Stop a trial that is below the median of the others")),
    (Rule.DECAY_CURVE, gettext_lazy("Stop a trial whose curve is expected to end below the best")),
    (Rule.CONVEX, gettext_lazy("Stop a trial that a model of all curves expects below the best")),
)
# The field of the StudySpec for each rule.
_RULE_FIELDS = {
    Rule.MEDIAN: "medianAutomatedStoppingSpec",
    Rule.DECAY_CURVE: "decayCurveStoppingSpec",
    Rule.CONVEX: "convexAutomatedStoppingSpec",
}
SELECTIONS = (
    (Selection.LAST, gettext_lazy("the last one")),
    (Selection.BEST, gettext_lazy("the best one")),
)
STUDY_FIELDS = {
    "display_name": "display_name",
    "location": "location",
    "project": "project",
    "labels": "labels",
    "max_trial_count": "max_trials",
    "parallel_trial_count": "parallel_trials",
    "max_failed_trial_count": "max_failed",
    "study_spec.metrics": "metric",
    "study_spec.algorithm": "algorithm",
    "study_spec.trainyard": "algorithm",
    "study_spec.measurement_selection_type": "selection",
    "study_spec.parameters": "parameters",
    **{f"study_spec.{rule}": "early_stopping" for rule in Rule},
    "study_spec.transfer_learning_config": "prior",
    **END_FIELDS,
    "trial_job_spec": "trial_job",
}
# What a part of a parameter is called in the form.
_PARTS = {
    "parameter_id": gettext_lazy("name"),
    "min_value": gettext_lazy("lowest value"),
    "max_value": gettext_lazy("highest value"),
    "values": gettext_lazy("values"),
    "scale_type": gettext_lazy("scale"),
    "default_value": gettext_lazy("value to begin with"),
}
_ONLY_FOR = gettext_lazy("only for")


class _Destined(forms.Form):
    """What the document does not say: project, location, and the request id that makes a second send harmless."""

    project = forms.ChoiceField(label=gettext_lazy("Project"))
    location = forms.ChoiceField(label=gettext_lazy("Location"))
    request_id = forms.CharField(required=False, widget=forms.HiddenInput, max_length=200)

    @property
    def destination(self) -> JobDestination:
        return JobDestination(*(self.cleaned_data[name] for name in ("project", "location", "request_id")))

    @property
    def job(self) -> forms.Form:
        """The form that holds the destination, as drafts of jobs have it."""
        return self

    def set_choices(self, projects: Iterable[str], locations: Iterable[str]) -> None:
        set_choices(self, projects, locations)

    @property
    def fields_with_errors(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name in self.errors]

    def _hide_secrets(self, name: str) -> None:
        """Take the values of secrets out of a text of JSON before a page shows it."""
        document = self.cleaned_data.get(name) if self.is_bound and hasattr(self, "cleaned_data") else None
        if document and without_values(document) != document:
            data = QueryDict(mutable=True)
            for key in self.data:
                data.setlist(key, self.data.getlist(key))  # type: ignore[attr-defined]
            data[self.add_prefix(name)] = as_text(document)
            self.data = data


class StudyDraft(StudyEnd, _Destined):
    """The form with fields. Typed text is never lost."""

    mode = "form"
    display_name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        strip=False,
        widget=line_of_text(maxlength=128, required=True),
    )
    metric = MetricsField(
        label=gettext_lazy("Metric"),
        required=False,
        help_text=gettext_lazy(
            "The name under which the program reports it, such as accuracy or loss. With several, the search looks for "
            "the trials that no other one beats in all of them."
        ),
    )
    parameters = ParametersField(
        label=gettext_lazy("Parameters"),
        required=False,
        help_text=gettext_lazy(
            "The program of a trial gets each as an argument: --name=value. Values of a list stand between commas."
        ),
    )
    space = PlainText(
        label=gettext_lazy("Parameters as JSON or YAML"),
        required=False,
        help_text=gettext_lazy("As Vertex AI, Katib or Weights & Biases have them. They become rows."),
        widget=area_of_text("program", rows=6),
    )
    max_trials = forms.IntegerField(label=gettext_lazy("Trials"), required=False)
    parallel_trials = forms.IntegerField(
        label=gettext_lazy("Trials at once"),
        required=False,
        help_text=gettext_lazy(
            "The search learns from trials that have ended: fewer at once find better values."
        ),
    )
    max_failed = forms.IntegerField(
        label=gettext_lazy("Trials that may fail"),
        required=False,
        help_text=gettext_lazy("So many failed trials end the study. Empty: Trainyard decides."),
    )
    algorithm = forms.ChoiceField(label=gettext_lazy("Search"), required=False, choices=SEARCHES)
    early_stopping = forms.ChoiceField(
        label=gettext_lazy("Trials that do badly"), required=False, choices=RULES
    )
    selection = forms.ChoiceField(
        label=gettext_lazy("Which measurement of a trial counts"), required=False, choices=SELECTIONS
    )
    prior = forms.CharField(
        label=gettext_lazy("Earlier studies"),
        required=False,
        help_text=gettext_lazy(
            "Numbers of studies of the project with the same parameters, with commas between: the search knows their "
            "results from the first trial on."
        ),
        widget=line_of_text(maxlength=800),
    )
    labels = LabelLines(
        label=gettext_lazy("Labels"),
        required=False,
        help_text=gettext_lazy("One key=value per line."),
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    trial_job = PlainText(
        label=gettext_lazy("Job of each trial"),
        required=False,
        help_text=gettext_lazy("A CustomJobSpec as JSON: the jobSpec of a job, as its page shows it."),
        widget=area_of_text("program", rows=18),
    )

    unreadable_space = ""
    # What an unsent form was made from.
    first_document: Mapping[str, Any] = {}

    @classmethod
    def from_post(cls, data: QueryDict) -> StudyDraft:
        return cls(data)

    def with_pasted_space(self) -> StudyDraft:
        """The same with the parameters of the pasted text as rows; or this one, which says why it has none."""
        above = self["parameters"].value()
        try:
            pasted = pasted_rows(self.data.get("space", ""), len(above))
        except UnreadableSpace as unreadable:
            self.unreadable_space = str(unreadable)
            return self
        data = QueryDict(mutable=True)
        for key in self.data:
            data.setlist(key, self.data.getlist(key))  # type: ignore[attr-defined]
        rows = [*above, *pasted]
        for place, name in enumerate(INPUTS):
            data.setlist(f"parameters-{name}", [str(row[place]) for row in rows])
        data["space"] = ""
        return StudyDraft(data)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], chosen: JobDestination) -> StudyDraft:
        draft = cls(initial={**study_end.shown_times(_initial(document)), **_place(chosen)})
        draft.first_document = document
        return draft

    def clean_trial_job(self) -> dict[str, Any]:
        return read_json(self.cleaned_data["trial_job"], _("The job of a trial is a JSON object: { … }."))

    def document(self) -> dict[str, Any]:
        """The document that the form describes. A field with an error counts as empty."""
        typed = self.cleaned_data
        study: dict[str, Any] = {
            "metrics": [row.document() for row in typed.get("metric") or ()],
            "parameters": documents(typed.get("parameters") or ())[0],
        }
        if typed.get("algorithm") in OPTUNA.values():
            study["trainyard"] = {"algorithm": typed["algorithm"]}
        elif typed.get("algorithm"):
            study["algorithm"] = typed["algorithm"]
        if typed.get("selection") == Selection.BEST:
            study["measurementSelectionType"] = str(Selection.BEST)
        if typed.get("early_stopping"):
            study[_RULE_FIELDS[Rule(typed["early_stopping"])]] = {}
        study |= study_end.in_study(typed)
        if earlier := [name.strip() for name in (typed.get("prior") or "").split(",") if name.strip()]:
            study["transferLearningConfig"] = {"priorStudyNames": earlier}
        counts = {
            "maxTrialCount": typed.get("max_trials"),
            "parallelTrialCount": typed.get("parallel_trials"),
            "maxFailedTrialCount": typed.get("max_failed"),
        }
        return {
            "displayName": typed.get("display_name") or "",
            **({"labels": typed["labels"]} if typed.get("labels") else {}),
            "studySpec": study,
            **{name: count for name, count in counts.items() if count is not None},
            "trialJobSpec": typed.get("trial_job") or {},
        }

    def hide_secrets(self) -> None:
        self._hide_secrets("trial_job")

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Add the violations of the document to the fields. A field that already has an error gets no second one."""
        wrong = set(self.errors)
        for violation in violations:
            field = field_of(violation.field, STUDY_FIELDS)
            if field is None or field not in wrong:
                self.add_error(field, self._message(field, violation))

    def _row(self, path: str) -> int:
        """The row that a path of the document is about; 0 for none."""
        paths = documents(self.cleaned_data.get("parameters") or ())[1]
        found = [each for each in paths if path == each or path.startswith((f"{each}.", f"{each}["))]
        return paths[max(found, key=len)] if found else 0

    def _message(self, field: str | None, violation: Violation) -> str:
        text = shown(violation.description)
        row = self._row(violation.field)
        if row:
            path = violation.field
            part = (
                _ONLY_FOR if ".parent_" in path else _PARTS.get(path.rpartition(".")[2].partition("[")[0], "")
            )
            place = _("Row {number}, {part}: {problem}") if part else _("Row {number}: {problem}")
            return place.format(number=row, part=part, problem=text)
        if field is None or field == "trial_job":
            return f"{violation.field}: {text}"
        whole_sentence = violation.description[:1].isupper()
        return (
            text if whole_sentence else _("{field} {problem}").format(field=self[field].label, problem=text)
        )


class StudyJsonDraft(_Destined):
    """The form as JSON: one field that holds the whole document."""

    mode = "json"
    text = PlainText(label=gettext_lazy("HyperparameterTuningJob"), widget=area_of_text("program", rows=30))
    violations: tuple[Violation, ...] = ()
    _made_from: Mapping[str, Any] = {}

    @classmethod
    def from_post(cls, data: QueryDict) -> StudyJsonDraft:
        return cls(data)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], chosen: JobDestination) -> StudyJsonDraft:
        draft = cls(initial={"text": as_text(document), **_place(chosen)})
        draft._made_from = document
        return draft

    def clean_text(self) -> dict[str, Any]:
        return read_json(self.cleaned_data["text"], _("A HyperparameterTuningJob is a JSON object: { … }."))

    def document(self) -> dict[str, Any]:
        """The document of the text; an empty one while the text cannot be read."""
        return dict(self.cleaned_data.get("text") or {}) if self.is_bound else dict(self._made_from)

    def hide_secrets(self) -> None:
        self._hide_secrets("text")

    def add_violations(self, violations: Iterable[Violation]) -> None:
        """Keep the violations beside the form. A form that was never sent cannot hold errors of Django."""
        self.violations = tuple(violations)


AnyStudyDraft = StudyDraft | StudyJsonDraft


def study_draft_of(document: Mapping[str, Any], chosen: JobDestination) -> AnyStudyDraft:
    """The form with fields where these say all that the document says, or else the document itself."""
    return (StudyDraft if can_show(document) else StudyJsonDraft).from_document(document, chosen)


def can_show(document: Mapping[str, Any]) -> bool:
    """Whether the fields, written back, are the same study. `document` is canonical."""
    if "trainyard" in document:
        return False  # a seed has no field
    typed = StudyDraft({})
    typed.cleaned_data = _initial(document)
    try:
        written = study_document(parse_study(typed.document()["studySpec"]))
    except InvalidDocument:
        return False
    return bool(written == document["studySpec"])


def read_json(text: str, expected: str) -> dict[str, Any]:
    try:
        document = json.loads(text or "{}")
    except RecursionError:
        raise forms.ValidationError(_("The text is nested too deeply.")) from None
    except ValueError as error:
        raise forms.ValidationError(_("The text is not JSON: {error}.").format(error=error)) from None
    if not isinstance(document, dict):
        raise forms.ValidationError(expected)
    return document


def as_text(document: object) -> str:
    return json.dumps(without_values(document), indent=2, ensure_ascii=False)


def _place(chosen: JobDestination) -> dict[str, str]:
    return {"project": chosen.project, "location": chosen.location, "request_id": chosen.request_id}


def _initial(document: Mapping[str, Any]) -> dict[str, Any]:
    study = document.get("studySpec", {})
    metrics = [row_of_metric(each) for each in study.get("metrics", ())]
    rule = next((rule for rule, field in _RULE_FIELDS.items() if field in study), NEVER)
    return {
        "display_name": document.get("displayName", ""),
        "labels": "\n".join(f"{key}={value}" for key, value in document.get("labels", {}).items()),
        "metric": tuple(metrics),
        "parameters": tuple(rows_of(study.get("parameters", ()))),
        "algorithm": study.get("trainyard", {}).get("algorithm") or study.get("algorithm", ""),
        "selection": study.get("measurementSelectionType", Selection.LAST),
        "early_stopping": rule,
        "prior": ", ".join(study.get("transferLearningConfig", {}).get("priorStudyNames", ())),
        "max_trials": document.get("maxTrialCount"),
        "parallel_trials": document.get("parallelTrialCount"),
        "max_failed": document.get("maxFailedTrialCount"),
        "trial_job": as_text(document.get("trialJobSpec", {})),
        **study_end.initial(study),
    }


_EXTENDED = {TRIALS: "max_trials", PARALLEL: "parallel_trials", FAILED: "max_failed"}


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
            field, text = _EXTENDED.get(each.field), shown(each.description)
            whole_sentence = each.description[:1].isupper()
            if field and not whole_sentence:
                text = _("{field} {problem}").format(field=self[field].label, problem=text)
            self.add_error(field, text if field else f"{each.field}: {text}")
