"""The form by which an admin binds a location to projects. jobs.projects.locations decides what is valid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy


class BindLocation(forms.Form):
    all_projects = forms.BooleanField(required=False, label=gettext_lazy("All projects"))
    projects = forms.MultipleChoiceField(
        label=gettext_lazy("Projects"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        error_messages={
            "invalid_choice": gettext_lazy("There is no project %(value)s any more. Select others.")
        },
    )

    def set_choices(self, projects: Iterable[str]) -> None:
        self.fields["projects"].choices = [(name, name) for name in projects]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = super().clean() or {}
        if not self.errors and bool(typed.get("all_projects")) == bool(typed.get("projects")):
            self.add_error("projects", _("Select the projects that the location serves, or all projects."))
        return typed
