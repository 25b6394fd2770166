"""Form fields that Django does not have: durations as people write them, labels, plain text."""

from __future__ import annotations

import json
import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A longer duration could overflow when it is added to a date.
MAX_S = 100 * 365 * 86400
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.IGNORECASE)


class DurationText(forms.CharField):
    """A duration such as `90m`, `12h` or `1d 12h`. The cleaned value is in seconds, or None when the field is empty."""

    def to_python(self, value: Any) -> Any:
        text = str(super().to_python(value) or "").strip()
        if not text:
            return None
        if _PART.sub("", text).strip(" ,"):
            raise ValidationError(_("Write a duration such as 90m, 12h or 7d."))
        seconds = sum(float(number) * UNITS_S[unit.lower()] for number, unit in _PART.findall(text))
        if seconds > MAX_S:
            raise ValidationError(
                _("A duration cannot be longer than a hundred years. Write one such as 90m, 12h or 7d.")
            )
        return seconds


def duration_text(seconds: float) -> str:
    """Return the shortest spelling that DurationText reads back as the same duration."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS_S[unit] == 0:
            return f"{seconds / UNITS_S[unit]:.0f}{unit}"
    return f"{seconds:g}s"


class PlainText(forms.CharField):
    """Text as it was typed: nothing is stripped, and every line ends with LF, as programs on the host expect."""

    widget = forms.Textarea

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)

    def to_python(self, value: Any) -> Any:
        return str(super().to_python(value) or "").replace("\r\n", "\n").replace("\r", "\n")


class LabelLines(PlainText):
    """Lines of `key=value`. The cleaned value is a dict."""

    def clean(self, value: Any) -> Any:
        labels: dict[str, str] = {}
        for line in filter(None, map(str.strip, str(super().clean(value)).split("\n"))):
            key, equals, text = line.partition("=")
            if not equals:
                raise ValidationError(
                    _("Write one key=value per line. This line has no “=”: {line}").format(line=line[:60])
                )
            labels[key.strip()] = text.strip()
        return labels


def line_of_text(**attrs: object) -> forms.TextInput:
    """Return a one-line input for names and the like. The browser must not correct or complete them."""
    return forms.TextInput(attrs={"autocapitalize": "none", "autocomplete": "off", **attrs})


def area_of_text(kind: str, rows: int) -> forms.Textarea:
    return forms.Textarea(
        attrs={"class": kind, "rows": rows, "spellcheck": "false", "autocapitalize": "none"}
    )


def read_carried(text: str) -> dict[str, Any]:
    """Read the part of a document that a hidden field carries. The browser can change it, so it may hold anything."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return dict(value) if isinstance(value, dict) else {}


def without_folded_rows(form: forms.Form) -> None:
    """Leave out the rows for browsers without scripts. In an answer to htmx, what stands in `noscript` becomes
    elements, and their inputs would be sent."""
    for field in form.fields.values():
        if hasattr(field.widget, "folded"):
            field.widget.folded = 0
