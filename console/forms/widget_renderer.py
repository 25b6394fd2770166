"""Draws the inputs of forms without templates, byte for byte as Django's templates do.

A page with a form has a hundred inputs, and Django renders two templates for each.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.utils.formats import localize
from django.utils.html import conditional_escape

Widget = Mapping[str, Any]
FOLDER = "django/forms/widgets/"


class WidgetRenderer(DjangoTemplates):
    """Widgets that are not known here are rendered by their template."""

    def render(self, template_name: str, context: dict[str, Any], request: HttpRequest | None = None) -> Any:
        draw = DRAWN.get(template_name)
        if draw is None:
            return super().render(template_name, context, request)
        return draw(context["widget"])


def _attributes(widget: Widget) -> str:
    return "".join(
        f" {_text(name)}" if value is True else f' {_text(name)}="{_as_text(value)}"'
        for name, value in widget["attrs"].items()
        if value is not False
    )


def _input(widget: Widget) -> str:
    value = "" if widget["value"] is None else f' value="{_as_text(widget["value"])}"'
    return (
        f'<input type="{_text(widget["type"])}" name="{_text(widget["name"])}"{value}{_attributes(widget)}>'
    )


def _choice(widget: Widget) -> str:
    """A round or square box of several, with its label around it if the widget says so."""
    if not widget.get("wrap_label"):
        return _input(widget)
    of = widget["attrs"].get("id")
    label = f'<label for="{_text(of)}">' if of else "<label>"
    return f"{label}{_input(widget)}\n {_text(widget['label'])}</label>"


def _textarea(widget: Widget) -> str:
    text = _text(widget["value"]) if widget["value"] else ""
    return f'<textarea name="{_text(widget["name"])}"{_attributes(widget)}>\n{text}</textarea>'


def _select(widget: Widget) -> str:
    drawn = [f'<select name="{_text(widget["name"])}"{_attributes(widget)}>']
    for group, options, _index in widget["optgroups"]:
        drawn += [f'\n  <optgroup label="{_text(group)}">'] if group else []
        drawn += [f"\n  {_option(option)}\n" for option in options]
        drawn += ["\n  </optgroup>"] if group else []
    return "".join([*drawn, "\n</select>"])


def _option(widget: Widget) -> str:
    value = _as_text(widget["value"])
    return f'<option value="{value}"{_attributes(widget)}>{_text(widget["label"])}</option>'


def _as_text(value: Any) -> str:
    """As the filter `stringformat` and escaping make it."""
    return _escaped(value if isinstance(value, str) else str(value))


def _text(value: Any) -> str:
    """As a template shows a variable."""
    return _escaped(value if type(value) is str else localize(value))


def _escaped(value: Any) -> str:
    """As `conditional_escape`. Most values are plain texts: its checks take longer than the escaping."""
    return html.escape(value) if type(value) is str else conditional_escape(value)


_INPUTS = (
    "text",
    "number",
    "email",
    "url",
    "password",
    "hidden",
    "checkbox",
    "file",
    "date",
    "datetime",
    "time",
)
DRAWN: Mapping[str, Callable[[Widget], str]] = {
    **{f"{FOLDER}{kind}.html": _input for kind in _INPUTS},
    **{f"{FOLDER}{kind}.html": _choice for kind in ("radio_option", "checkbox_option")},
    f"{FOLDER}textarea.html": _textarea,
    f"{FOLDER}select.html": _select,
}
