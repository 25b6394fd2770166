"""A person who walks through the product, and what is looked at on every page: accessibility, width, the policy.

Nothing is found by a word, because the words are those of the language: by addresses, names of fields and states.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from playwright.sync_api import expect

from tests.harness.accessibility import WCAG22, violations
from tests.harness.product.product import PASSWORD

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "var" / "walks"
WIDE, PHONE = 1280, 360
SCHEMES = ("light", "dark")
PATIENCE_MS = 40_000
# What hangs over the right edge, and is not in a box that scrolls.
CUT = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const { right, width } = one.getBoundingClientRect();
  return width && right > document.documentElement.clientWidth + 1 && one.checkVisibility()
    && !one.closest(".scroller, pre, .log-body, .xterm, .visually-hidden, .tabs, svg, [popover]");
}).slice(0, 3).map((one) => one.outerHTML.slice(0, 120))"""


# Whether the browser draws the page at all: a terminal is drawn by frames, the words above it are not.
DRAWN = """() => new Promise((done) => {
  const state = document.querySelector("[data-part=state]").textContent;
  const told = (frames) => done(`${state}, ${document.visibilityState}, ${frames}`);
  requestAnimationFrame(() => told("drawn"));
  setTimeout(() => told("no frame within 3 s"), 3000);
})"""


class How(NamedTuple):
    """`named` reads what `name` writes: dark-360-pt-br."""

    scheme: str
    width: int
    language: str

    @classmethod
    def named(cls, name):
        scheme, width, language = name.split("-", 2)
        assert scheme in SCHEMES and language in dict(settings.LANGUAGES), name
        return cls(scheme, int(width), language)

    @property
    def name(self):
        return f"{self.scheme}-{self.width}-{self.language}"


def languages():
    """English, and Japanese where it is offered."""
    return [code for code, _ in settings.LANGUAGES if code in ("en", "ja")]


COMBINATIONS = [How(*each) for each in product(SCHEMES, (WIDE, PHONE), languages())]


class ShellTab:
    """A tab with a shell. Its failure tells whether the prompt did not come, or was not drawn."""

    def __init__(self, context, address):
        self.page, self.came = context.new_page(), []
        self.page.on("websocket", self.hear)
        self.page.goto(address)
        self.screen = self.page.locator(".xterm-rows").first
        self.page.locator(".xterm-helper-textarea").first.wait_for(state="attached")
        # First, because it says why there is no prompt.
        expect(self.page.locator("[data-part=state]").first).to_have_attribute("data-tone", "good")

    def hear(self, socket):
        if "/ws/shells/" in socket.url:
            socket.on("framesent", lambda data: self.came.append(f"> {data!r}"))
            socket.on("framereceived", lambda data: self.came.append(f"< {data!r}"))
            socket.on("close", lambda _: self.came.append("closed"))

    def expect(self, text):
        try:
            expect(self.screen).to_contain_text(text)
        except AssertionError as missing:
            came = [each[:300] for each in self.came if "beat" not in each]
            raise AssertionError("\n".join([str(missing), self.page.evaluate(DRAWN), *came])) from None


class Walk:
    """What is wrong is collected and told at the end, so that one walk tells of all pages."""

    def __init__(self, chromium, yard, how, name):
        self.chromium, self.yard, self.how, self.wrong = chromium, yard, how, []
        self.pictures = PICTURES / f"{name}-{how.name}"
        self.pictures.mkdir(parents=True, exist_ok=True)
        for old in self.pictures.glob("*.png"):
            old.unlink()
        self.number = 0
        self.contexts = []
        self.page = self.new_browser()

    def new_browser(self):
        """A page of a browser that knows nobody."""
        how = self.how
        context = self.chromium.new_context(
            viewport={"width": how.width, "height": 800 if how.width == WIDE else 740},
            color_scheme=how.scheme,
            reduced_motion="reduce",
            has_touch=how.width == PHONE,
        )
        context.add_cookies([{"name": "language", "value": how.language, "url": self.yard.url}])
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        context.on("page", self.watch)
        self.contexts.append(context)
        return context.new_page()

    def watch(self, page):
        page.on("pageerror", lambda problem: self.wrong.append(f"{page.url}: {problem}"))
        page.on("console", lambda said: self.heard(page, said))
        page.on("request", self.requested)

    def heard(self, page, said):
        # Chromium reports a socket that ends because its page is left.
        if said.type == "error" and "WebSocket" not in said.text:
            self.wrong.append(f"{page.url}: {said.text}")

    def requested(self, request):
        if not request.url.startswith(
            (self.yard.url, self.yard.url.replace("http", "ws", 1), "data:", "blob:")
        ):
            self.wrong.append(f"a request to {request.url}")

    def begin(self, name):
        page = self.page
        page.goto(f"{self.yard.url}/login")
        self.look("login")
        page.locator("input[name=username]:visible").fill(name)
        page.locator("input[name=password]:visible").fill(PASSWORD)
        page.locator("input[name=password]:visible").press("Enter")
        page.wait_for_url(lambda address: "/login" not in address)
        return page

    def open(self, path, name):
        self.page.goto(self.yard.url + path)
        self.look(name)

    def look(self, name, page=None):
        """Judge the page as it is, and keep a picture of it where somebody asked for walks, who looks at them."""
        page = page or self.page
        # What lies half below the bar at the top counts as too small to be hit.
        page.evaluate("scrollTo(0, 0)")
        self.number += 1
        if os.environ.get("WALKS"):
            picture = self.pictures / f"{self.number:02}-{name.replace(' ', '-')}.png"
            # To hide the caret, Playwright would give each field a style, which htmx then copies against the policy.
            page.screenshot(path=picture, full_page=True, caret="initial")
        self.wrong += [f"{name}: {rule}: {nodes[:3]}" for rule, nodes in violations(page, WCAG22)]
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            self.wrong.append(f"{name} hangs over by {over} px")
        self.wrong += [f"{name} cuts {cut}" for cut in page.evaluate(CUT)]
        language = page.evaluate("document.documentElement.lang")
        if not language.startswith(self.how.language):
            self.wrong.append(f"{name} is in {language}")

    def state(self, state):
        expect(self.page.locator(f"#job-state [data-state={state}]").first).to_be_visible()

    def job_of_page(self):
        """The id of the job whose page is open."""
        return int(self.page.url.partition("/jobs/")[2].partition("/")[0])

    def end(self):
        for context in self.contexts:
            context.close()

    def judged(self):
        assert self.wrong == [], "\n".join(self.wrong)
