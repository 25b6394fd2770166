"""Pages in other languages, in a browser: what scripts write is in the language of their page.

The pages are made by the views, with rows of examples, and served with the static files. A language of this file's own
has each English text between brackets and longer, so that a text that nobody has marked is seen as well.
"""

from __future__ import annotations

import json
import re

import pytest
from babel.messages.catalog import Catalog
from django.utils.translation import override

from console.runtime import catalogues as compiled
from console.templatetags import display
from tests.browser.static_site import served
from tests.harness import catalogues
from tests.unit.console.i18n.test_catalogues import MARKUP, PLACE
from tests.unit.console.views.conftest import browser, cast, no_host_answers, project
from tests.unit.console.views.test_page_matrix import addresses

__all__ = ["addresses", "browser", "cast", "no_host_answers", "project"]

# Django knows this language, and we have no catalogue for it: it lends its name.
CODE = "eo"
LONGER = 0.4


def longer(text):
    """Words of usual length until the text is 40 % longer: `⟦Jobs ong⟧`."""
    plain = MARKUP.sub("", PLACE.sub("", text))
    missing = max(round(LONGER * len(plain)), 3)
    return f"⟦{text} {' '.join(['longtext'] * 200)[:missing].strip()}⟧"


@pytest.fixture
def pseudo(settings, tmp_path):
    for name, texts in (("django", catalogues.collect()), ("djangojs", catalogues.in_scripts())):
        catalogue = Catalog(locale=CODE)
        for text in texts:
            catalogue.add(text, longer(text) if isinstance(text, str) else tuple(map(longer, text)))
        path = tmp_path / CODE / "LC_MESSAGES" / f"{name}.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(catalogues.header(catalogue) + catalogues.body(catalogue))
    settings.LANGUAGES = [("en", "English"), (CODE, "Longer")]
    settings.LOCALE_PATHS = [tmp_path]
    display._script_texts.cache_clear()
    display._badge.cache_clear()
    compiled.compile_changed()
    yield
    display._script_texts.cache_clear()
    display._badge.cache_clear()


@pytest.fixture(autouse=True)
def beside_the_browser(monkeypatch):
    """Playwright keeps an event loop in this thread, which waits while a view asks the database."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")


@pytest.fixture
def made(pseudo, addresses, browser):
    """The page of an address as root sees it, in the language that is longer."""
    client = browser("root")
    client.cookies["language"] = CODE

    def page(name):
        answer = client.get(addresses(name))
        assert answer.status_code == 200, name
        return answer.content.decode() if answer.headers["Content-Type"].startswith("text/html") else ""

    return page


def test_a_script_speaks_the_language_of_its_page(page, made):
    """Ages are written by the server, and counted on by page.js."""
    html = made("job")
    assert re.search(r'<script id="texts" type="application/json">', html)
    with served(html) as address:
        page.goto(address)
        ago = page.locator("time [data-ago]").first
        ago.wait_for()
        page.wait_for_function("document.documentElement.classList.contains('js')")
        assert re.fullmatch(r"⟦⟦.*min.*⟧.* ago .*⟧|⟦just now .*⟧", ago.inner_text()), ago.inner_text()


def test_an_english_page_brings_no_texts_along(addresses, browser):
    assert 'id="texts"' not in browser("root").get(addresses("job")).content.decode()


def test_texts_of_scripts_cannot_end_their_block(pseudo, monkeypatch):
    """A translation is data, whatever stands in it."""
    monkeypatch.setattr(display.JavaScriptCatalog, "get_catalog", lambda self: {"a": "</script><b>"})
    display._script_texts.cache_clear()
    with override(CODE):
        block = str(display.script_texts())
    assert block.count("</script>") == 1
    assert json.loads(block[block.index(">") + 1 : block.rindex("</script>")]) == {"a": "</script><b>"}
