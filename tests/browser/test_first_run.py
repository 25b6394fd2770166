"""The first five minutes of a person: a setup link, a host, a job, its log, a shell, a cancel.

Each page on the way is judged: no rule of WCAG 2.2 AA is broken in light or dark, nothing is wider than 375 px, and the
content security policy blocked nothing.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from agents.hosts.checklist import NEEDED
from agents.ssh.host_keys import fingerprint
from tests.harness.accessibility import WCAG22, violations
from tests.harness.hosts import Fleet
from tests.harness.product import Product
from tests.harness.wait_and_processes import wait_for

RULES = (*WCAG22, "best-practice")
COLOURS = ["color-contrast"]
PASSWORD = "a fine long password"
WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 375, "height": 800}
# A job that prints a line when it runs, and stays until it is stopped.
WAITING = "echo ready to wait\nsleep 3600"

# Its shell needs an sshd of root, if only in a user namespace.
pytestmark = [pytest.mark.timeout(900), pytest.mark.needs_namespaces]


@pytest.fixture(scope="module")
def machine():
    with Fleet(1, tier="ports") as fleet:
        yield fleet[0]


@pytest.fixture(scope="module")
def yard(machine):
    with Product() as product:
        yield product
        print(product.tail())  # pytest shows it when something failed


@pytest.fixture
def page(page):
    """A page with long timeouts, because the machine may be busy; it records what the policy refused."""
    page.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if "Content Security Policy" in said.text else None,
    )
    return page


def judge(page, name):
    """Judge the page as it is now, in light and dark, wide and narrow."""
    # Dark differs from light in its colours alone.
    for scheme, rules in {"light": RULES, "dark": COLOURS}.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page, rules) == [], f"{name}, {scheme}"
    page.set_viewport_size(NARROW)
    over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    page.set_viewport_size(WIDE)
    assert over <= 0, f"{name} hangs over by {over} px at {NARROW['width']} px"


def test_a_first_run_from_setup_to_a_shell(page, yard, machine):
    set_up(page, yard)
    add_host(page, machine)
    job = run_sample(page)
    use_shell(page, start_waiting_job(page))
    cancel(page)
    page.goto(job)
    expect(page.locator("#job-state [data-state=SUCCEEDED]")).to_be_visible()
    expect(page.get_by_text("Done.", exact=True)).to_be_visible()
    expect(page.locator("#job-logs [data-part=state]")).to_contain_text("SHA-256")
    judge(page, "a job that succeeded")
    for name, path in {
        "jobs": "/jobs/",
        "hosts": "/hosts/",
        "GPUs": "/hosts/gpus",
        "account": "/account",
        "projects": "/projects/",
        "a project": "/projects/default/",
        "usage": "/usage/",
        "people": "/admin/people/",
        "quotas of new projects": "/admin/quotas/",
        "audit": "/audit/",
        "not found": "/nothing",
    }.items():
        page.goto(yard.url + path)
        judge(page, name)
    page.goto(f"{yard.url}/account")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    judge(page, "login")


def set_up(page, yard):
    link = re.compile(r"Set up your account: (http://\S+)")
    page.goto(wait_for(lambda: link.search(yard.tail(10**6)), "the setup link", dump=yard.tail)[1])
    judge(page, "setup")
    page.get_by_label("Your name").fill("ada")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Set up Trainyard").click()
    expect(page.get_by_role("heading", name="The first five minutes")).to_be_visible()
    judge(page, "the first five minutes")


def add_host(page, machine):
    page.get_by_role("link", name="Add a host").click()
    judge(page, "add hosts")
    command = page.locator(".copy code").first.inner_text()
    machine.authorize(re.search(r"ssh-ed25519 [^']+", command)[0])
    page.get_by_label("Name", exact=True).fill("gpu-01")
    page.get_by_label("Address").fill(machine.address)
    page.get_by_label("Login").first.fill(machine.user)
    page.get_by_label("Port").fill(str(machine.port))
    page.get_by_role("button", name="Add the host").click()
    # Without a reload, the fingerprint and then the checklist appear by themselves.
    expect(page.locator("#offered-fingerprint")).to_have_text(fingerprint(machine.host_key_line))
    judge(page, "a host whose key is offered")
    page.get_by_role("button", name="Accept").click()
    expect(page.locator("#host-live [data-state=up]")).to_be_visible()
    for name in NEEDED:
        expect(page.locator(f"[data-check='{name}']")).to_have_attribute("data-ok", "good")
    expect(page.get_by_text("accepted by ada").first).to_be_visible()
    judge(page, "a host that is up")


def run_sample(page):
    page.get_by_role("link", name="Trainyard").click()
    page.get_by_role("button", name="Run the sample job").click()
    expect(page.locator("#job-state [data-state=RUNNING]")).to_be_visible()
    expect(page.get_by_text("step 2 of 10")).to_be_visible()
    judge(page, "a running job")
    return page.url


def start_waiting_job(page):
    page.get_by_role("link", name="Jobs").first.click()
    page.get_by_role("link", name="New job").click()
    judge(page, "new job")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Name is required.")).to_be_visible()
    judge(page, "new job with complaints")
    page.get_by_label("Name", exact=True).fill("the waiting one")
    page.locator("#id_pool0-program").fill(WAITING)
    page.get_by_role("button", name="Would it start now?").click()
    expect(page.locator(".verdict").get_by_text("It could start now.")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("ready to wait", exact=True)).to_be_visible()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Shell in workerpool0-0").click()
    return opened.value


def use_shell(page, shell):
    screen = shell.locator(".xterm-rows")
    shell.locator(".xterm-helper-textarea").wait_for(state="attached")
    expect(screen).to_contain_text(re.compile(r"[$#]"))
    shell.keyboard.type("echo shell-$((6 * 7))\n")
    expect(screen).to_contain_text("shell-42")
    judge(shell, "shell")
    shell.close()


def cancel(page):
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-state [data-state=CANCELLED]")).to_be_visible()
    expect(page.get_by_text("ada cancelled it")).to_be_visible()
