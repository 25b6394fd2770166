"""A made-up language: English in full-width letters, so that a test sees what comes from a catalogue and what does not.

    Remove %(name)s?  →  Ｒｅｍｏｖｅ %(name)s？

Words of a page that are in plain letters stand in no catalogue, or were put into a sentence without being translated.
Full-width letters have capitals, so code that changes the first letter does the same as in English.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import django
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from tests.harness import catalogues

CODE = "qq"
# The code of the language with longer words. Two languages under one code would find each other's texts in what a
# process keeps by language.
LONGER = "ql"
# Values and markup in a text stay as they are.
KEPT = re.compile(r"(%\(\w+\)[sd]|%[sd%]|\{\w*\}|</?\w+[^>]*>|&\w+;)")
_WIDE = {plain: plain + 0xFEE0 for plain in (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))}
_PLAIN = {wide: plain for plain, wide in _WIDE.items()}
# How JSON in a page writes a letter that is not ASCII.
_ESCAPED = re.compile(r"\\u(ff[2-5][0-9a-f])")
# Attributes that people read or hear, and elements in which computers write and read.
SEEN = frozenset({"title", "aria-label", "aria-description", "placeholder", "alt", "data-label"})
SAME = frozenset({"code", "kbd", "pre", "samp", "script", "style", "svg", "textarea"})
WORD = re.compile(r"[A-Za-z]{2,}")


def wide(text: str) -> str:
    """The text in the made-up language."""
    return changed(text, lambda words: words.translate(_WIDE))


def plain(text: str) -> str:
    """The English of a text in the made-up language, or of a page in it."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).translate(_PLAIN)


def longer(text: str) -> str:
    """A text that needs 40 % more room: each word has more letters."""
    return changed(text, lambda words: re.sub(r"[A-Za-z]{2,}", _stretched, words))


def _stretched(word: re.Match[str]) -> str:
    letters = word[0]
    return letters + letters[-1] * -(-len(letters) * 2 // 5)


def changed(text: str, change: Callable[[str], str]) -> str:
    return "".join(part if KEPT.fullmatch(part) else change(part) for part in KEPT.split(text))


def write(folder: Path, change: Callable[[str], str] = wide, code: str = CODE) -> None:
    """Make `folder` a place for `LOCALE_PATHS`: catalogues with all texts of ours and of Django."""
    target = folder / code / "LC_MESSAGES"
    target.mkdir(parents=True)
    for domain, made in _compiled(change).items():
        (target / f"{domain}.mo").write_bytes(made)


@cache
def _compiled(change: Callable[[str], str]) -> dict[str, bytes]:
    """Both catalogues. All code is read for them, which takes seconds: once in a process."""
    found = {}
    for domain, texts in catalogues.texts().items():
        catalogue = Catalog(locale="en", charset="utf-8")
        for text in {*_of_django(), *texts} if domain == "django" else texts:
            new = change(text) if isinstance(text, str) else tuple(map(change, text))
            catalogue.add(text, new)
        file = io.BytesIO()
        write_mo(file, catalogue)
        found[domain] = file.getvalue()
    return found


def _of_django() -> Iterator[catalogues.Text]:
    root = Path(django.__file__).parent
    for folder in ("conf", "contrib/auth", "contrib/humanize"):
        with (root / folder / "locale/en/LC_MESSAGES/django.po").open("rb") as file:
            yield from (
                message.id for message in read_po(file, locale="en") if message.id and not message.context
            )


class Words(HTMLParser):
    """Collects what a person sees or hears of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._same: list[str] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        # What stands in another language says so; `translate="no"` are names and what computers read.
        same = tag in SAME or given.get("translate") == "no" or (tag != "html" and "lang" in given)
        if (same or self._same) and tag not in VOID:
            self._same.append(tag)
        if tag not in VOID or tag == "input":
            self.found += [value for name, value in attributes if name in SEEN and value]
        if tag == "input" and given.get("type") in ("submit", "button"):
            self.found.append(given.get("value") or "")

    def handle_endtag(self, tag):
        if self._same:
            self._same.pop()

    def handle_data(self, data):
        if not self._same:
            self.found.append(data)


VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "use", "wbr"})


def not_translated(html: str, names: Iterable[str] = ()) -> list[str]:
    """The visible texts of a page that hold words in plain letters, other than these names."""
    words = Words()
    words.feed(html)
    words.close()
    same = re.compile("|".join(rf"(?<![A-Za-z])(?:{name})(?![A-Za-z])" for name in names) or "(?!)")
    texts = (same.sub("", " ".join(text.split())) for text in words.found)
    return [text for text in texts if WORD.search(text)]
