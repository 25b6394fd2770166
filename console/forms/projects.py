"""Forms about projects. jobs/ decides which names, roles and limits are valid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from console.forms.job_fields import PRIORITY_WORDS
from jobs.projects.members import ROLES
from jobs.projects.quotas import METRIC_LABELS
from jobs.rules.scheduling.order import PRIORITIES
from jobs.rules.scheduling.quota import Metric

# Choices of Settings.record_shells.
DEPLOYMENT = "deployment"
RECORDS = {"yes": True, "no": False}
CHOICES = frozenset({"highest_priority", "record_shells"})
# Choices of LimitForm.whose beside the names of people. Neither can be the name of a person.
WHOLE, EACH = ":project", "*"
ROLE_WORDS = {
    "viewer": gettext_lazy("viewer"),
    "submitter": gettext_lazy("submitter"),
    "admin": gettext_lazy("admin"),
}


class NewProject(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        help_text=gettext_lazy(
            "Used in addresses and in the resource names of jobs. Lower-case letters, digits and dashes."
        ),
        widget=forms.TextInput(attrs={"autocapitalize": "none", "autocomplete": "off"}),
    )
    title = forms.CharField(
        label=gettext_lazy("Title"),
        max_length=100,
        required=False,
        help_text=gettext_lazy("A title for people."),
    )


class Settings(NewProject):
    weight = forms.FloatField(
        label=gettext_lazy("Weight"),
        help_text=gettext_lazy(
            "The share of the capacity: when jobs of both wait, weight 2 gets twice as much as weight 1."
        ),
        widget=forms.NumberInput(attrs={"step": "any", "min": "0.01"}),
    )

    highest_priority = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Highest priority of its jobs"),
        choices=[(word, PRIORITY_WORDS[word]) for word in PRIORITIES],
        help_text=gettext_lazy("The highest priority that its admins may choose. Existing jobs keep theirs."),
    )

    record_shells = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Recordings of shells"),
        choices=[
            (DEPLOYMENT, gettext_lazy("as the deployment says")),
            ("yes", gettext_lazy("recorded")),
            ("no", gettext_lazy("not recorded")),
        ],
        help_text=gettext_lazy(
            "What shells show, for shells that open from now on. Keys are never recorded."
        ),
    )

    field_order = ("name", "title", "weight", "highest_priority", "record_shells")

    def changes(self) -> dict[str, Any]:
        """Return the changed settings. What the browser did not send stays as it is."""
        found = {**self.cleaned_data, "record_shells": RECORDS.get(self.cleaned_data["record_shells"])}
        return {
            name: value for name, value in found.items() if name not in CHOICES or self.cleaned_data[name]
        }


class Member(forms.Form):
    user = forms.CharField(
        max_length=150,
        label=gettext_lazy("Name"),
        widget=forms.TextInput(attrs={"list": "people", "autocapitalize": "none", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"), choices=[(role, ROLE_WORDS[role]) for role in ROLES], initial="submitter"
    )


class LimitForm(forms.Form):
    whose = forms.ChoiceField(label=gettext_lazy("Applies to"))
    metric = forms.ChoiceField(
        label=gettext_lazy("Limit of"),
        choices=[(str(metric), gettext_lazy(METRIC_LABELS[metric])) for metric in Metric],
    )
    accelerator_type = forms.CharField(
        max_length=63,
        required=False,
        label=gettext_lazy("GPU type"),
        help_text=gettext_lazy("Only for the limit of GPUs at once."),
        widget=forms.TextInput(attrs={"list": "gpu-types", "autocapitalize": "none", "autocomplete": "off"}),
    )
    limit = forms.FloatField(
        required=False,
        label=gettext_lazy("At most"),
        help_text=gettext_lazy("Empty: no limit."),
        widget=forms.NumberInput(attrs={"step": "any", "min": "0"}),
    )

    def set_choices(self, whole: bool, people: Iterable[str]) -> None:
        """Set for whom this person may change limits."""
        field = self.fields["whose"]
        assert isinstance(field, forms.ChoiceField)
        first = [(WHOLE, gettext_lazy("The whole project"))] if whole else []
        field.choices = [*first, (EACH, gettext_lazy("Each member")), *((name, name) for name in people)]


def recording_choice(is_recorded: bool | None) -> str:
    return {True: "yes", False: "no", None: DEPLOYMENT}[is_recorded]


def add_refusal(form: forms.Form, refused: Refused) -> None:
    form.add_error(refused.field if refused.field in form.fields else None, shown(refused.message))
