"""Every text of a template stands in a mark, so that it can be translated (console/README.md says how to mark)."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
# What is already marked, and what nobody sees.
MARKED = re.compile(
    r"{%-?\s*comment\b.*?{%\s*endcomment\s*%}|{%\s*blocktranslate\b.*?{%\s*endblocktranslate\s*%}|{#.*?#}",
    re.DOTALL,
)
TOKEN = re.compile(r"{%.*?%}|{{.*?}}", re.DOTALL)
# A text that a tag passes on: `label="Copy"`, `default:"none"`. Marked, it is `label=_("Copy")`.
PASSED = re.compile(r"""\b(?:label|title|text|words|empty)="([^"]*)"|\|default(?:_if_none)?:"([^"]*)\"""")
# Attributes that people read or hear.
SEEN = frozenset({"title", "aria-label", "aria-description", "placeholder", "alt", "data-label"})
# What computers write and read is the same in all languages.
SAME = frozenset({"code", "kbd", "pre", "samp", "script", "style", "svg", "textarea"})
NAMES = re.compile(r"\b(?:Trainyard|workerpool|PID|UTC|GPU|CPU)\b")
WORD = re.compile(r"[^\W\d_]{2,}")


class Texts(HTMLParser):
    """Collects what a person sees of a template that has lost its marked texts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._same = 0

    def handle_starttag(self, tag, attributes):
        self._same += tag in SAME
        self.found += [value for name, value in attributes if name in SEEN and value]

    def handle_endtag(self, tag):
        self._same -= tag in SAME

    def handle_data(self, data):
        if not self._same:
            self.found.append(data)


def unmarked(source):
    bare = MARKED.sub("", source)
    passed = [text for token in TOKEN.findall(bare) for pair in PASSED.findall(token) for text in pair]
    texts = Texts()
    # A tag or a variable ends a word. In an attribute it must not end the attribute.
    texts.feed(TOKEN.sub(" ", bare))
    texts.close()
    found = (" ".join(NAMES.sub("", text).split()) for text in (*texts.found, *passed))
    return [text for text in found if WORD.search(text)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_no_text_stands_outside_of_a_mark(path):
    assert unmarked(path.read_text()) == [], "console/README.md, Texts"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("<p>Nothing yet.</p>", ["Nothing yet."]),
        ('<p title="To the end">{{ name }}</p>', ["To the end"]),
        ("<p>{% if a %}Yes{% else %}{% translate 'No' %}{% endif %}</p>", ["Yes"]),
        ('<td{% if a %} data-label="Runs"{% endif %}>{{ job.id }}</td>', ["Runs"]),
        ('{% include "parts/copy.html" with label="Copy it" %}', ["Copy it"]),
        ('<td>{{ user|default:"nobody" }}</td>', ["nobody"]),
        ("<title>{{ name }} · Trainyard</title>", []),
        ("<p>{% blocktranslate trimmed %}Say <b>it</b>{% endblocktranslate %} <code>ls -l</code></p>", []),
        ('<p class="muted" id="words">{% comment %}Why{% endcomment %} {{ a }} · 1 × {# why #}</p>', []),
        ('{% include "a.html" with label=_("Copy it") %}{{ user|default:_("nobody") }}', []),
    ],
)
def test_a_text_outside_of_a_mark_is_found(source, found):
    assert unmarked(source) == found
