"""A tab that sleeps while megabytes a second are printed: awake again it shows the newest, and took no memory.

Chromium freezes it as it freezes tabs in the background: it is hidden, and then no script of the page runs.
"""

from __future__ import annotations

import re
import time
from functools import partial

import pytest

from tests.harness.browser import log_in
from tests.harness.hosts import Fleet
from tests.harness.product import Product, job_spec
from tests.harness.wait_and_processes import wait_for

# 100 bytes a line: its number, and when it was printed. What was held up meanwhile is not made up for. The shell
# prints 5 MB a second, the job 1 MB.
PRINT = (
    "import sys, time\n"
    "end = time.time() + 60; number, step = 0, int(sys.argv[1])\n"
    "while time.time() < end:\n"
    "    now = time.time(); lines = range(number, number + step)\n"
    "    sys.stdout.write(''.join('%010d @%014.3f %s\\n' % (n, now, 'x' * 72) for n in lines))\n"
    "    sys.stdout.flush(); number += step; time.sleep(0.02)\n"
)
LINE = re.compile(r"(\d{10}) @(\d{10}\.\d{3})")
# Longer than a host waits for somebody who types.
ASLEEP_S = 15.0
RIGHT_WITHIN_S = 5.0
MEMORY_MB = 64

pytestmark = [pytest.mark.timeout(600), pytest.mark.needs_namespaces]


@pytest.fixture(scope="module")
def machine():
    with Fleet(1, tier="ports") as fleet:
        yield fleet


@pytest.fixture(scope="module")
def yard(machine):
    with Product() as product:
        product.with_admin().with_hosts(machine)
        yield product
        print(product.tail())  # pytest shows it when something failed


@pytest.fixture
def run(yard):
    """A run that prints as soon as a file is there."""
    wait = 'until [ -e ~/begin ]; do sleep 0.1; done; python3 -c "$PRINT" 200; sleep 600'
    pool = {"command": ["bash", "-c", wait], "env": {"PRINT": PRINT}}
    job_id = yard.submit(job_spec(pool, name="prints", web_access=True))
    yard.client.wait(job_id, "RUNNING")
    yield yard.runs(job_id)[0]
    yard.client.cancel(job_id)


def lines(tab, rows):
    """(number, time) of the lines that are on the screen."""
    text = tab.locator(rows).inner_text().replace("\xa0", " ")
    return [(int(number), float(at)) for number, at in LINE.findall(text)]


def last(tab, rows, than):
    return [(number, at - than) for number, at in lines(tab, rows)[-2:]]


def is_newer(tab, rows, than):
    return any(at > than for _, at in lines(tab, rows))


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def set_state(tab, state):
    tab.context.new_cdp_session(tab).send("Page.setWebLifecycleState", {"state": state})


def memory_of_scripts(tab):
    session = tab.context.new_cdp_session(tab)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return metrics["JSHeapUsedSize"]


@pytest.mark.slow
def test_a_tab_that_slept_shows_the_newest_output_and_took_no_memory(page, yard, machine, run):
    log_in(page, yard.url)
    shell, log = page, page.context.new_page()
    job = run["job_id"]
    log.goto(f"{yard.url}/jobs/{job}/log/workerpool0-0")
    shell.goto(f"{yard.url}/jobs/{job}/shell/{run['id']}")
    shell.locator("[data-part=state]", has_text="Connected").wait_for()
    machine[0].write(f"{machine[0].home}/begin", "")
    shell.locator(".xterm-helper-textarea").focus()
    shell.keyboard.type('clear; python3 -c "$PRINT" 1000\n')
    tabs = {shell: ".xterm-rows", log: ".log-body"}
    for tab, rows in tabs.items():
        wait_for(partial(lines, tab, rows), "output on the screen")
        tab.evaluate("window.kept = true")
        tab.evaluate(HIDE, True)
        set_state(tab, "frozen")
    time.sleep(ASLEEP_S)
    for tab, rows in tabs.items():
        set_state(tab, "active")
        tab.evaluate(HIDE, False)
        awake = time.time()
        what = f"what is printed now, in {rows}"
        wait_for(
            partial(is_newer, tab, rows, awake), what, RIGHT_WITHIN_S, dump=partial(last, tab, rows, awake)
        )
        numbers = [number for number, _ in lines(tab, rows)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 10
        assert tab.evaluate("window.kept"), "the page was not loaded again"
        assert memory_of_scripts(tab) < MEMORY_MB * 1e6
