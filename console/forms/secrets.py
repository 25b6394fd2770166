"""The form of a stored secret."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.forms.fields import PlainText, line_of_text


class WriteOnly(forms.Textarea):
    """A text that the page never shows again, also not when the form has an error."""

    def format_value(self, value: Any) -> str:
        return ""


class NewSecret(forms.Form):
    name = forms.CharField(
        max_length=100,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy(
            "Jobs refer to it by this name. The name of an existing secret replaces its value."
        ),
        widget=line_of_text(placeholder="HF_TOKEN"),
    )
    value = PlainText(
        label=gettext_lazy("Value"),
        help_text=gettext_lazy("It can be replaced and deleted, and nobody can read it here again."),
        widget=WriteOnly(
            attrs={
                "rows": 2,
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
                "class": "program covered",
            }
        ),
    )

    def clean_value(self) -> str:
        """Return the value without the line break with which a pasted token often ends."""
        value = str(self.cleaned_data["value"])
        return value if "\n" in value.rstrip("\n") else value.strip()
