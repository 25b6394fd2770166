"""Forms about projects. What a name, a role or a limit may be is decided in jobs/."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms

from agents.infra.refusals import Refused
from jobs.projects.members import ROLES
from jobs.projects.quotas import WORDS
from jobs.rules.scheduling.order import PRIORITIES
from jobs.rules.scheduling.quota import Metric

# Neither can be the name of a person.
WHOLE, EACH = ":project", "*"


class NewProject(forms.Form):
    name = forms.CharField(
        max_length=63,
        help_text="Stands in addresses and in the names of jobs: a-z, 0-9 and dashes.",
        widget=forms.TextInput(attrs={"autocapitalize": "none", "autocomplete": "off"}),
    )
    title = forms.CharField(max_length=100, required=False, help_text="How people call it.")


class Settings(NewProject):
    weight = forms.FloatField(
        help_text="Its part of the machines against other projects: 2 gets twice as much as 1 when both wait.",
        widget=forms.NumberInput(attrs={"step": "any", "min": "0.01"}),
    )

    highest_priority = forms.ChoiceField(
        required=False,
        label="Highest priority of its jobs",
        choices=[(word, word) for word in PRIORITIES],
        help_text="What its admins may ask for. Jobs that are there keep theirs.",
    )

    field_order = ("name", "title", "weight", "highest_priority")

    def changes(self) -> dict[str, Any]:
        """What is not sent stays as it is."""
        return {
            name: value for name, value in self.cleaned_data.items() if name != "highest_priority" or value
        }


class Member(forms.Form):
    user = forms.CharField(
        max_length=150,
        label="Name",
        widget=forms.TextInput(attrs={"list": "people", "autocapitalize": "none", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(choices=[(role, role) for role in ROLES], initial="submitter")


class LimitForm(forms.Form):
    whose = forms.ChoiceField(label="Whose")
    metric = forms.ChoiceField(label="Of what", choices=[(str(metric), WORDS[metric]) for metric in Metric])
    accelerator_type = forms.CharField(
        max_length=63,
        required=False,
        label="GPU type",
        help_text="For GPUs at once.",
        widget=forms.TextInput(attrs={"list": "gpu-types", "autocapitalize": "none", "autocomplete": "off"}),
    )
    limit = forms.FloatField(
        required=False,
        label="At most",
        help_text="Empty: no limit.",
        widget=forms.NumberInput(attrs={"step": "any", "min": "0"}),
    )

    def offer(self, whole: bool, people: Iterable[str]) -> None:
        """Whose limits this person may change."""
        field = self.fields["whose"]
        assert isinstance(field, forms.ChoiceField)
        first = [(WHOLE, "The whole project")] if whole else []
        field.choices = [*first, (EACH, "Each member"), *((name, name) for name in people)]


def complain(form: forms.Form, refused: Refused) -> None:
    form.add_error(refused.field if refused.field in form.fields else None, refused.message)
