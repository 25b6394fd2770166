"""What the tags for translated texts keep is what Django's would say, in each language and with any values."""

from __future__ import annotations

from itertools import product

import pytest
from django.template import Context, Engine
from django.utils import translation

DJANGO = Engine(builtins=["django.templatetags.i18n"])
OURS = Engine(builtins=["django.templatetags.i18n", "console.templatetags.kept_texts"])
TEXTS = (
    '{% translate "Name" %}',
    "{% translate 'Name' %} {% translate 'Name' %}",
    '{% translate "Name" as it %}[{{ it }}]',
    "{% translate name %}",
    '{% translate "Name" noop %}',
    '{% translate "Name"|lower %}',
    '{% translate "Name" context "of a month" %}',
    '{% translate "100 %, a & b <i>" %}',
    "{% blocktranslate %}Name{% endblocktranslate %}",
    "{% blocktranslate %}100 % of a & b{% endblocktranslate %}",
    "{% blocktranslate with name=row.name %}Remove {{ name }}{% endblocktranslate %}",
    "{% for name in row.all %}{% blocktranslate %}Remove {{ name }}{% endblocktranslate %}{% endfor %}",
    "{% blocktranslate asvar it with name=row.name %}Delete {{ name }}{% endblocktranslate %}[{{ it }}]",
    "{% blocktranslate trimmed with now=1 ever=2.5 %}\n  {{ now }} of {{ ever }} hosts\n{% endblocktranslate %}",
    "{% blocktranslate %}Remove {{ missing }}{% endblocktranslate %}",
    "{% blocktranslate with name=missing.name %}Remove {{ name }}{% endblocktranslate %}",
    "{% blocktranslate count number=row.all|length %}one{% plural %}{{ number }} of them{% endblocktranslate %}",
    "{% autoescape off %}{% blocktranslate %}Remove {{ name }}{% endblocktranslate %}{% endautoescape %}",
    "{% blocktranslate with name='<b>'|safe %}Remove {{ name }}{% endblocktranslate %}{{ name }}",
)
VALUES = {"name": "<a & b> 100 %(name)s", "row": {"name": "'x'", "all": ["a", "<b>", None, 7]}}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_what_django_would_say(text):
    theirs, ours = DJANGO.from_string(text), OURS.from_string(text)
    for language, _again in product(("en", "ja", "pt-br", None), range(2)):
        with translation.override(language):
            assert ours.render(Context(VALUES)) == theirs.render(Context(VALUES))


def test_a_text_is_translated():
    with translation.override("ja"):
        assert OURS.from_string('{% translate "Name" %}').render(Context()) == "名前"


def test_a_text_is_looked_up_once_for_each_language(monkeypatch):
    asked = []
    text = OURS.from_string(
        "{% for n in all %}{% blocktranslate %}Remove {{ n }}{% endblocktranslate %}{% endfor %}"
    )
    monkeypatch.setattr("console.templatetags.kept_texts.gettext", lambda text: asked.append(text) or text)
    for language in ("en", "ja", "en"):
        with translation.override(language):
            assert "Remove 2" in text.render(Context({"all": range(9)}))
    assert len(asked) == 2


def test_pages_have_these_tags():
    assert (
        Engine.get_default().template_builtins[-2].tags["translate"]
        is OURS.template_builtins[-1].tags["translate"]
    )
