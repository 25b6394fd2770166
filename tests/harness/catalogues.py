"""Finds the texts that templates and code mark for translation, and keeps the catalogues of `locale/` in step.

Developers need this, not the product: it reads source files. gettext's own tools would do the same, but nobody has to
install them.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

from agents.hosts.checklist import ORDER_OF_LOGIN
from jobs.models.notifications import Way
from jobs.projects.quotas import METRIC_LABELS
from jobs.rules.lifecycle.states import FlagName
from jobs.rules.notifications import EVENTS

ROOT = Path(__file__).resolve().parents[2]
LOCALE = ROOT / "locale"
# What Django's `templatize` writes for a marked text, and `_("…")` in an argument of a tag.
STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
IN_TEMPLATE = re.compile(rf"\b(?:n?gettext|_)\(\s*u?({STRING})(?:\s*,\s*u?({STRING}))?")
ONE = frozenset({"_", "gettext", "gettext_lazy", "gettext_noop", "said"})
LOOK_UP = frozenset({"gettext", "gettext_lazy", "ngettext"})
# The texts are the first two arguments, or those behind the number.
MANY = {"ngettext": 0, "ngettext_lazy": 0, "said_of": 1}
IN_SCRIPT = re.compile(
    rf"(?<![\w.#])say\(\s*({STRING})|(?<![\w.#])sayMany\([^,]+,\s*({STRING}),\s*({STRING})"
)
# A text, or its singular and plural.
Text = str | tuple[str, str]


def collect() -> set[Text]:
    """The texts of templates and code. Raises ValueError for a text that is marked both with a plural and without it: a
    catalogue keeps only one of the two.
    """
    texts = set(in_templates()) | set(in_code()) | set(in_tables())
    if twice := {text[0] for text in texts if isinstance(text, tuple)} & {
        t for t in texts if isinstance(t, str)
    }:
        raise ValueError(f"marked with a plural, and without: {sorted(twice)}")
    return texts


def in_scripts() -> set[Text]:
    return {text for path in sorted((ROOT / "static").rglob("*.js")) for text in in_script(path.read_text())}


def in_script(source: str) -> Iterator[Text]:
    for text, one, many in IN_SCRIPT.findall(re.sub(r"(?m)^\s*//.*$", "", source)):
        yield ast.literal_eval(text) if text else (ast.literal_eval(one), ast.literal_eval(many))


def in_templates() -> Iterator[Text]:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        yield from in_template(path.read_text(), str(path))


def in_template(source: str, origin: str = "") -> Iterator[Text]:
    for one, many in IN_TEMPLATE.findall(templatize(source, origin=origin)):
        yield (ast.literal_eval(one), ast.literal_eval(many)) if many else ast.literal_eval(one)


def in_tables() -> Iterator[Text]:
    """Words of the storeys below, which know nothing of languages. Pages look them up."""
    for words in EVENTS.values():
        yield words
        yield words[0].upper() + words[1:]
    yield from METRIC_LABELS.values()
    yield from map(str, Way.labels)
    yield from ORDER_OF_LOGIN
    yield from (name.value.capitalize() for name in FlagName)


def in_code() -> Iterator[Text]:
    for storey in ("console", "jobs", "agents"):
        for path in sorted((ROOT / storey).rglob("*.py")):
            yield from in_module(path.read_text(), str(path))


def in_module(source: str, origin: str = "") -> Iterator[Text]:
    """Raises ValueError for a mark around something that is no plain text: nobody could translate it."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        count = 1 if name in ONE else 2 if name in MANY else 0
        if not count:
            continue
        if name in LOOK_UP and not isinstance(node.args[0], ast.Constant):
            # It looks up a text that `gettext_noop` has marked elsewhere, or that stands in a table.
            continue
        first = MANY.get(name, 0)
        texts = [each.value for each in node.args[first : first + count] if isinstance(each, ast.Constant)]
        if len(texts) != count or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{origin}:{node.lineno}: {name}() needs a plain text, not an expression")
        yield texts[0] if count == 1 else (texts[0], texts[1])


def paths() -> list[Path]:
    """Two for each language: Django's names for the catalogue of templates and code, and for that of scripts."""
    return sorted(LOCALE.glob("*/LC_MESSAGES/*.po"))


def texts() -> dict[str, set[Text]]:
    """What each catalogue should have, by the name of its file. All of the code is read: ask once for all languages."""
    return {"django": collect(), "djangojs": in_scripts()}


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=path.parts[-3], abort_invalid=True)


def update(path: Path, texts: Iterable[Text], write: bool = True) -> int:
    """Bring a catalogue in step with the texts. Returns how many are not translated."""
    known = read(path)
    catalogue = Catalog(locale=path.parts[-3])
    left = 0
    for text in texts:
        key = text if isinstance(text, str) else text[0]
        # `in` and `get` of a catalogue know a text by its singular.
        message = known.get(key)
        translated = message.string if message and message.id == text else ""
        left += not (all(translated) if isinstance(translated, tuple) else translated)
        catalogue.add(text, translated)
    if write:
        path.write_bytes(header(catalogue) + body(catalogue))
    return left


def header(catalogue: Catalog) -> bytes:
    """Only what gettext needs: no dates and names, over which two branches would conflict."""
    lines = [
        f"Language: {catalogue.locale_identifier}",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=UTF-8",
        "Content-Transfer-Encoding: 8bit",
        f"Plural-Forms: {catalogue.plural_forms}",
    ]
    return ('msgid ""\nmsgstr ""\n' + "".join(f'"{line}\\n"\n' for line in lines) + "\n").encode()


def body(catalogue: Catalog) -> bytes:
    """Sorted by text and without places in the code: two people who add texts seldom touch the same line."""
    out = io.BytesIO()
    write_po(out, catalogue, omit_header=True, no_location=True, sort_output=True, width=100)
    return out.getvalue()
