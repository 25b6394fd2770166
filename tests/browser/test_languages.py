"""Pages in other languages, in a browser: what scripts write is in the language of their page.

The pages are made by the views, with rows of examples, and served with the static files, in a made-up language whose
words are longer than English ones (tests/harness/marked_language.py).
"""

from __future__ import annotations

import json
import re

import pytest
from django.utils.translation import override

from console.templatetags import display
from tests.browser.static_site import served
from tests.harness import marked_language
from tests.harness.marked_language import LONGER
from tests.unit.console.views.conftest import browser, cast, no_host_answers, project
from tests.unit.console.views.page_addresses import addresses

__all__ = ["addresses", "browser", "cast", "no_host_answers", "project"]


@pytest.fixture
def pseudo(settings, tmp_path):
    marked_language.write(tmp_path, marked_language.longer, LONGER)
    settings.LANGUAGES = [("en", "English"), (LONGER, "Longer")]
    settings.LOCALE_PATHS = [tmp_path]
    display._script_texts.cache_clear()
    display._badge.cache_clear()
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
    client.cookies["language"] = LONGER

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
        assert re.fullmatch(r"\d+ (minnn|s) agooo|justtt nowww", ago.inner_text()), ago.inner_text()


def test_an_english_page_brings_no_texts_along(addresses, browser):
    assert 'id="texts"' not in browser("root").get(addresses("job")).content.decode()


def test_texts_of_scripts_cannot_end_their_block(pseudo, monkeypatch):
    """A translation is data, whatever stands in it."""
    monkeypatch.setattr(display.JavaScriptCatalog, "get_catalog", lambda self: {"a": "</script><b>"})
    display._script_texts.cache_clear()
    with override(LONGER):
        block = str(display.script_texts())
    assert block.count("</script>") == 1
    assert json.loads(block[block.index(">") + 1 : block.rindex("</script>")]) == {"a": "</script><b>"}
