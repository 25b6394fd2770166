"""The page of a shell in headless Chromium: from a key to the painted letter, and from a reload to the screen.

The reference of a key is the same page over an echo on this machine (echo_server.py), so that what the browser itself
needs, a frame above all, is in both. Both pages take turns of ten keys.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

from tests.bench.figures import Figure, percentile, short, spread
from tests.bench.hosts_and_product import product_on_hosts
from tests.harness.browser import headless_chromium, log_in
from tests.harness.product import job_spec
from tests.harness.wait_and_processes import wait_for

KEYS = 10
# The terminal's own echo, as from a local pty: no line editor draws.
QUIET = "PS1=; exec cat >/dev/null"
SCREEN = "screen-is-here"

# The shell's socket goes to the echo server instead; the page and all its other addresses are the product's.
ELSEWHERE = """{
  const Real = WebSocket;
  window.WebSocket = class extends Real {
    constructor(url) {
      super(String(url).includes("/ws/shells/") ? "ws://127.0.0.1:PORT/" : url);
    }
  };
}"""
# xterm changes the rows in the turn that paints them, so a message posted then is delivered when they are painted.
WATCH_KEYS = """() => {
  const rows = document.querySelector(".xterm-rows");
  const painted = new MessageChannel();
  let before, begin, seen;
  addEventListener("keydown", (event) => {
    [before, begin] = [rows.textContent, event.timeStamp];
    window.keyPainted = new Promise((resolve) => (seen = resolve));
  }, true);
  painted.port1.onmessage = () => seen(performance.now() - begin);
  new MutationObserver(() => {
    if (before === undefined || rows.textContent === before) return;
    before = undefined;
    painted.port2.postMessage(0);
  }).observe(rows, { childList: true, subtree: true, characterData: true });
}"""
WATCH_SCREEN = """{
  const painted = new MessageChannel();
  window.screenPainted = new Promise((resolve) => (painted.port1.onmessage = () => resolve(performance.now())));
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".xterm-rows")?.textContent.includes("SCREEN")) return;
    observer.disconnect();
    painted.port2.postMessage(0);
  }).observe(document, { childList: true, subtree: true, characterData: true });
}"""


def paint(options):
    rounds, reloads = (5, 5) if options.quick else (20, 15)
    with (
        product_on_hosts("apart") as product,
        headless_chromium(whole=True) as browser,
        echo_server() as port,
    ):
        job_id = product.submit(job_spec(["sleep", "600"], name="shell", web_access=True))
        product.client.wait(job_id, "RUNNING")
        run = wait_for(lambda: product.runs(job_id), "a run")[0]["id"]
        address = f"{product.url}/jobs/{job_id}/shell/{run}"
        ours = opened(browser, product, address, "")
        echo = opened(browser, product, address, ELSEWHERE.replace("PORT", str(port)))
        times = in_turns({"ours": ours, "echo": echo}, rounds)
        again = [reloaded(ours) for _ in range(reloads)]
        product.client.cancel(job_id)
    ours_p50, echo_p50 = (percentile(times[name], 0.5) for name in ("ours", "echo"))
    yield Figure(
        "key → painted letter",
        spread(times["ours"]),
        f"local echo {spread(times['echo'])}",
        ours_p50 / echo_p50,
        "",
    )
    p50, p90 = percentile(again, 0.5), percentile(again, 0.9)
    text = f"{short(p50)} / {short(p90)} ms (n={len(again)})"
    yield Figure("reload → the screen of the kept shell, p50 / p90", text, "", None, "≤ 300 ms", p50 <= 300)


def opened(browser, product, address, script):
    """The page of a new shell, which echoes by its terminal alone."""
    # The policy of our pages allows no socket to another port, where the echo server is.
    page = browser.new_context(viewport={"width": 1200, "height": 800}, bypass_csp=bool(script)).new_page()
    log_in(page, product.url)
    if script:
        page.add_init_script(script)
    page.goto(address)
    page.locator("[data-part=state]", has_text="Connected").wait_for()
    page.locator(".xterm-helper-textarea").focus()
    if not script:
        page.keyboard.type(f"echo {SCREEN[:6]}''{SCREEN[6:]}; {QUIET}\n")
        page.locator(".xterm-rows", has_text=SCREEN).wait_for()
    time.sleep(1)
    page.evaluate(WATCH_KEYS)
    return page


def in_turns(pages, rounds):
    times = {name: [] for name in pages}
    for number in range(rounds):
        for name, page in pages.items():
            page.bring_to_front()
            times[name] += [key_painted(page, "abcdefgh"[(number + key) % 8]) for key in range(KEYS)]
    return {name: each[KEYS:] for name, each in times.items()}


def key_painted(page, key):
    page.keyboard.press(key)
    took = page.evaluate("keyPainted")
    time.sleep(0.02)
    return took


def reloaded(page):
    """Reload the page. Returns after how many milliseconds the screen of the shell was painted."""
    if not page.evaluate("Boolean(window.screenPainted)"):
        page.bring_to_front()
        page.add_init_script(WATCH_SCREEN.replace("SCREEN", SCREEN))
    page.reload(wait_until="commit")
    took = page.evaluate("screenPainted")
    page.locator("[data-part=state]", has_text="Connected").wait_for()
    time.sleep(0.3)
    return took


@contextlib.contextmanager
def echo_server():
    command = [sys.executable, "-m", "tests.bench.echo_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
