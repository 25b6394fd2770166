"""Every page with words that are 40 % longer, as other languages have: nothing is cut, nothing lies over another thing,
and everybody can use it, in light and in dark.

The pages are made by the views, with rows of examples, and served with the static files.
"""

from __future__ import annotations

import pytest
from django.conf import settings
from django.http import HttpResponseNotAllowed
from django.utils import translation

from console.templatetags import display
from console.views import errors
from tests.browser.static_site import served
from tests.browser.test_job_lists import database_beside_the_browser
from tests.harness import marked_language
from tests.harness.accessibility import COLOURS, WCAG21, violations
from tests.harness.marked_language import LONGER
from tests.unit.console.views.conftest import no_host_answers
from tests.unit.console.views.rows_of_a_file import addresses, browser, stored
from tests.unit.console.views.test_page_matrix import GET

__all__ = ["addresses", "browser", "database_beside_the_browser", "no_host_answers", "stored"]
WIDTHS = (1280, 360)

# A terminal takes its new size after the next frame, or when the browser has nothing else to do.
SETTLED = """() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => requestIdleCallback(done))))"""

# What is wrong with the layout, in words. A box that scrolls by itself, a text that ends in "…" and a word that only
# screen readers get are no faults.
FAULTS = """() => {
  const found = [], root = document.documentElement;
  const named = (each) => `${each.tagName.toLowerCase()}.${each.className} “${each.textContent.trim().slice(0, 40)}”`;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} px wide`);
  const shown = (each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const within = (each, test) => { for (; each; each = each.parentElement) if (test(each)) return each; return null; };
  const apart = (each) => within(each, (one) => {
    const style = getComputedStyle(one);
    return ["fixed", "sticky"].includes(style.position) || one.closest("svg, .skip") || style.clipPath !== "none"
      || (style.position === "absolute" && one.offsetWidth <= 1);
  });
  for (const each of document.querySelectorAll("main *, header *")) {
    const style = getComputedStyle(each);
    const clips = ["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis";
    const boxed = each.matches("button, .button, .badge, th, select") || (clips && !each.matches("input, textarea"));
    const cut = each.clientWidth && each.scrollWidth > each.clientWidth + 1;
    if (boxed && cut && shown(each) && !apart(each)) found.push(`cut: ${named(each)}`);
  }
  const texts = [], range = document.createRange();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const each = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !shown(each) || apart(each)) continue;
    const scrolls = within(each, (one) => getComputedStyle(one).overflowX !== "visible");
    range.selectNodeContents(walk.currentNode);
    for (const box of range.getClientRects()) texts.push({ box, each, scrolls });
  }
  for (const [index, one] of texts.entries()) for (const other of texts.slice(index + 1)) {
    if (one.each === other.each || one.scrolls !== other.scrolls) continue;
    const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
    const high = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
    if (wide > 2 && high > 6) found.push(`${named(one.each)} lies over ${named(other.each)}`);
  }
  return [...new Set(found)].slice(0, 8);
}"""


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory):
    folder = tmp_path_factory.mktemp("longer")
    marked_language.write(folder, marked_language.longer, LONGER)
    return folder


@pytest.fixture(autouse=True)
def longer(settings, catalogues):
    settings.LANGUAGES = [("en", "English"), (LONGER, "Longer")]
    settings.LOCALE_PATHS = [catalogues]
    display._script_texts.cache_clear()
    display._badge.cache_clear()
    yield
    display._script_texts.cache_clear()
    display._badge.cache_clear()


@pytest.fixture(scope="module")
def tab(chromium):
    """One tab for all pages: a profile for each would be a third of a test. Each page has an origin of its own, so that
    nothing that one stores reaches the next."""
    context = chromium.new_context(viewport={"width": 1200, "height": 800})
    tab = context.new_page()
    tab.set_default_timeout(30_000)
    tab.problems = []
    tab.on("pageerror", lambda problem: tab.problems.append(str(problem)))
    yield tab
    context.close()


@pytest.fixture
def page(tab):
    tab.problems.clear()
    yield tab
    tab.goto("about:blank")
    assert tab.problems == []


def faults(page, html):
    with served(html) as address:
        page.goto(address)
        page.wait_for_function("document.documentElement.classList.contains('js')")
        found = []
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(SETTLED)
            found += [f"{width} px: {fault}" for fault in page.evaluate(FAULTS)]
        return found + inaccessible(page)


def inaccessible(page):
    """Dark differs from light in its colours alone. The language of the longer words is none, which is no fault."""
    page.evaluate("for (const each of document.querySelectorAll('[lang=ql]')) each.lang = 'en'")
    found = []
    for scheme, rules in (("light", WCAG21), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += [f"{scheme}: {each}" for each in violations(page, rules)]
    page.emulate_media(color_scheme="light")
    return found


@pytest.mark.parametrize("name", sorted(GET))
@pytest.mark.slow
def test_a_page_has_room_for_longer_words(name, page, addresses, browser):
    client = browser("root")
    client.cookies["language"] = LONGER
    answer = client.get(addresses(name), follow=True)
    if answer.headers["Content-Type"].startswith("text/html") and b"<html" in answer.content:
        assert faults(page, answer.content.decode()) == []


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("new-job", "displayName", ""), ("add-host", "name", "~"), ("new-project", "name", "~")],
)
@pytest.mark.slow
def test_a_form_has_room_for_its_errors(name, field, value, page, addresses, browser):
    client = browser("root")
    client.cookies["language"] = LONGER
    answer = client.post(addresses(name), {field: value})
    assert faults(page, answer.content.decode()) == []


@pytest.mark.parametrize(
    "answered",
    [
        lambda request: errors.bad_request(request, Exception()),
        lambda request: errors.forbidden(request, Exception()),
        lambda request: errors.not_found(request, Exception()),
        errors.broken,
        errors.csrf,
        lambda request: errors.wrong_method(request, HttpResponseNotAllowed(["GET"])),
        lambda request: errors.unavailable(request, {}, "The database does not answer."),
    ],
    ids=["400", "403", "404", "500", "csrf", "405", "503"],
)
@pytest.mark.slow
def test_a_page_for_an_error_has_room_for_longer_words(answered, page, rf):
    request = rf.get("/jobs/")
    request.COOKIES[settings.SESSION_COOKIE_NAME] = "anything"
    with translation.override(LONGER):
        answer = answered(request)
    assert faults(page, answer.content.decode()) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('<p style="width: 500px">wide</p>', "the page is"),
        ('<button style="width: 50px; white-space: nowrap">Remove this host</button>', "cut: button"),
        ('<p style="width: 60px; overflow: hidden; white-space: nowrap">cut without a sign</p>', "cut: p"),
        ("<p>one</p><p style='margin-top: -40px'>two</p>", "lies over"),
        ('<p style="width: 60px; overflow: auto; white-space: nowrap">a box that scrolls</p>', ""),
        (
            '<p style="width: 60px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap">ends so</p>',
            "",
        ),
    ],
)
def test_a_fault_is_found(page, content, fault):
    page.set_content(f"<main>{content}</main>")
    page.set_viewport_size({"width": 360, "height": 900})
    found = page.evaluate(FAULTS)
    assert (found == []) if not fault else any(fault in each for each in found)
