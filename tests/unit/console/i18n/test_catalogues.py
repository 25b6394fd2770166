"""The catalogues: what they have is a true translation, and a language that is offered has everything."""

from __future__ import annotations

import gettext
import re

import pytest
from django.conf import settings
from django.utils.translation import to_locale

from console.runtime import catalogues as compiled
from tests.harness import catalogues

PLACE = re.compile(r"%\(\w+\)[sd]|%%|\{\w*\}")
MARKUP = re.compile(r"</?\w+[^>]*>")
PATHS = catalogues.paths()


def broken(text, translated):
    """Why this cannot be the translation of that; empty if it can."""
    if sorted(PLACE.findall(text)) != sorted(PLACE.findall(translated)):
        return f"other values: {translated!r}"
    if sorted(MARKUP.findall(text)) != sorted(MARKUP.findall(translated)):
        return f"other markup: {translated!r}"
    return ""


def faults(message):
    many = isinstance(message.id, tuple)
    strings = message.string if isinstance(message.string, tuple) else (message.string,)
    for index, translated in enumerate(strings):
        if not translated:
            continue
        # The first form of several is the singular; a language with one form has the plural in it.
        text = message.id[0 if index == 0 and len(strings) > 1 else 1] if many else message.id
        if problem := broken(text, translated):
            yield f"{text!r}: {problem}"
    if message.fuzzy:
        yield f"{message.id!r}: not certain (fuzzy)"


def test_there_is_a_catalogue_for_each_language():
    assert [path.parts[-3] for path in PATHS] == ["ja", "ja", "ko", "ko", "pt_BR", "pt_BR"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_translations_keep_values_and_markup(path):
    found = [fault for message in catalogues.read(path) if message.id for fault in faults(message)]
    assert found == []


def test_a_language_that_is_offered_has_every_text():
    texts = catalogues.texts()
    assert len(texts["django"]) > 900 and len(texts["djangojs"]) > 8
    offered = {to_locale(code) for code, _ in settings.LANGUAGES}
    for path in PATHS:
        missing = catalogues.update(path, texts[path.stem], write=False)
        cure = f"{path}: {missing} texts are not translated: run tools/messages, then translate them"
        assert missing == 0 or path.parts[-3] not in offered, cure


@pytest.mark.parametrize(
    ("text", "translated", "right"),
    [
        ("Remove %(name)s?", "%(name)s を削除しますか?", True),
        ("Remove %(name)s?", "削除しますか?", False),
        ("Remove %(name)s?", "%(nome)s?", False),
        ("{number} hosts", "{number} 台", True),
        ("{number} hosts", "{n} 台", False),
        ('See <a href="%(url)s">it</a>', '<a href="%(url)s">見る</a>', True),
        ('See <a href="%(url)s">it</a>', "%(url)s 見る", False),
    ],
)
def test_a_wrong_translation_is_found(text, translated, right):
    assert (broken(text, translated) == "") is right


def test_marks_of_templates_and_code_are_found():
    template = """{% translate "One" %}{% blocktranslate trimmed with a=b.c %}
      Two {{ a }}
    {% endblocktranslate %}{% blocktranslate count n=x %}A run{% plural %}{{ n }} runs{% endblocktranslate %}
    {% include "a.html" with label=_("Three") %}<p title="{% translate "It's" %}">{{ y|default:_("none") }}</p>"""
    assert set(catalogues.in_template(template)) == {
        "One",
        "Two %(a)s",
        ("A run", "%(n)s runs"),
        "Three",
        "It's",
        "none",
    }
    code = 'x = _("One " "more"), gettext_lazy("Two"), ngettext("a run", "runs", 2), other("No")\n'
    assert set(catalogues.in_module(code)) == {"One more", "Two", ("a run", "runs")}
    stored = 'said("On {host}.", host=h), said_of(n, "a run", "{number} runs", host=h)\n'
    assert set(catalogues.in_module(stored)) == {"On {host}.", ("a run", "{number} runs")}
    script = (
        'say("In {length}", { length }); sayMany(count(), "{number} line", "{number} lines"); // say("no")\n'
    )
    assert list(catalogues.in_script(script)) == ["In {length}", ("{number} line", "{number} lines"), "no"]
    assert list(catalogues.in_script('  // say("nothing")\n')) == []
    with pytest.raises(ValueError, match=r"1: _\(\) needs a plain text"):
        list(catalogues.in_module("_(f'{x} runs')\n"))
    with pytest.raises(ValueError, match=r"1: said_of\(\) needs a plain text"):
        list(catalogues.in_module("said_of(n, one, '{number} runs')\n"))


def test_a_catalogue_is_brought_in_step(tmp_path):
    path = tmp_path / "ja" / "LC_MESSAGES" / "django.po"
    path.parent.mkdir(parents=True)
    path.write_text('msgid "Old"\nmsgstr "古い"\n\nmsgid "Jobs"\nmsgstr "ジョブ"\n')
    assert catalogues.update(path, ["Jobs", "Hosts", ("a run", "%(n)s runs")]) == 2
    text = path.read_text()
    assert "古い" not in text and "ジョブ" in text and 'msgid_plural "%(n)s runs"' in text
    assert catalogues.update(path, ["Jobs", "Hosts", ("a run", "%(n)s runs")]) == 2
    assert path.read_text() == text, "nothing has changed, so nothing is written anew"


def test_a_catalogue_is_compiled_when_its_texts_are_newer(tmp_path, settings):
    path = tmp_path / "ja" / "LC_MESSAGES" / "django.po"
    path.parent.mkdir(parents=True)
    path.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Jobs"\nmsgstr "ジョブ"\n'
    )
    settings.LOCALE_PATHS = [tmp_path]
    compiled.compile_changed()
    made = path.with_suffix(".mo")
    assert gettext.translation("django", tmp_path, ["ja"]).gettext("Jobs") == "ジョブ"
    before = made.stat().st_mtime_ns
    compiled.compile_changed()
    assert made.stat().st_mtime_ns == before
    assert [each.name for each in path.parent.iterdir() if each.suffix == ".new"] == []
