"""Inputs are drawn without templates exactly as Django's templates draw them."""

from __future__ import annotations

import pytest
from django import forms
from django.forms.renderers import DjangoTemplates, get_default_renderer
from django.utils.translation import gettext_lazy

from console.forms.widget_renderer import DRAWN, FOLDER, WidgetRenderer

ODD = '<b title="a">&\'{{ no }}'
VALUES = ("", None, "plain", ODD, 3, 2.5, True, ("a", "b"))
ATTRS = (
    {},
    {"id": "id_x", "rows": 24, "required": True, "disabled": False, "class": "wide"},
    {"placeholder": ODD, "title": gettext_lazy("Name"), "min": 0.5, "data-x": None},
)
CHOICES = [("", "–"), ("a", ODD), (ODD, gettext_lazy("Name")), (1, 2.5), ("Group & co", [("b", "B"), (3, 4)])]
WIDGETS = (
    forms.TextInput(),
    forms.NumberInput(),
    forms.EmailInput(),
    forms.URLInput(),
    forms.PasswordInput(render_value=True),
    forms.HiddenInput(),
    forms.CheckboxInput(),
    forms.FileInput(),
    forms.DateInput(),
    forms.DateTimeInput(),
    forms.TimeInput(),
    forms.Textarea(),
    forms.Select(choices=CHOICES),
    forms.SelectMultiple(choices=CHOICES),
    forms.RadioSelect(choices=CHOICES),
    forms.CheckboxSelectMultiple(choices=CHOICES),
    forms.ClearableFileInput(),
)


@pytest.mark.parametrize("widget", WIDGETS, ids=lambda widget: type(widget).__name__)
@pytest.mark.parametrize("attrs", ATTRS, ids=("none", "usual", "odd"))
def test_a_widget_looks_as_its_template_makes_it(widget, attrs):
    for value in VALUES:
        expected = widget.render(f"n<{value}", value, attrs, renderer=DjangoTemplates())
        assert widget.render(f"n<{value}", value, attrs, renderer=WidgetRenderer()) == expected


@pytest.mark.parametrize("kind", [forms.RadioSelect, forms.CheckboxSelectMultiple])
def test_a_choice_alone_looks_as_its_template_makes_it(kind):
    class Asked(forms.Form):
        one = forms.ChoiceField(choices=CHOICES, widget=kind)

    ours, djangos = (
        Asked(initial={"one": "a"}, renderer=WidgetRenderer()),
        Asked({"one": "a"}, renderer=DjangoTemplates()),
    )
    for mine, other in zip(ours["one"], djangos["one"], strict=True):
        assert mine.tag() == other.tag()
        assert mine.tag(wrap_label=True) == other.tag(wrap_label=True)


def test_every_form_is_drawn_so():
    assert isinstance(get_default_renderer(), WidgetRenderer)


def test_every_template_that_is_replaced_is_one_of_django():
    for name in DRAWN:
        assert name.startswith(FOLDER)
        DjangoTemplates().get_template(name)
