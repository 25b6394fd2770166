"""Fragments that a page asks for by htmx: filters, pages of a list, the log of notifications, a check of a form."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from tests.harness.browser import log_in
from tests.harness.product import Product, job_spec

JOBS = 52  # one page of the list and two jobs more
# The answer to "Would it start now?". The summary beside the form has notes too, before anybody asks.
VERDICT = "#draft > .verdict > .note"

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def yard():
    with Product() as product:
        product.with_admin()
        # No host is there: all jobs wait.
        for number in range(JOBS):
            product.submit(job_spec(["true"], name=f"job-{number:02}"))
        yield product
        print(product.tail())  # pytest shows it when something failed


@pytest.fixture(scope="module")
def session(chromium, yard):
    """The cookies of a login. No test ends it: one that needs a browser without a session forgets its cookies."""
    context = chromium.new_context()
    log_in(context.new_page(), yard.url)
    cookies = context.cookies()
    context.close()
    return cookies


@pytest.fixture
def page(page, yard, session):
    """Logged in. A page fails the test where the content security policy refused something, or a socket did."""
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if "Content Security Policy" in said.text else None,
    )
    page.context.add_cookies(session)
    return page


@pytest.fixture
def sockets(page, yard):
    """The pages that open sockets follow, counted from a page that opens none."""
    page.goto("about:blank")
    opened = []

    def keep(socket):
        place = unquote(socket.url.partition("/ws/live?at=")[2])
        opened.append(place)
        socket.on("close", lambda *_: opened.remove(place))

    page.on("websocket", keep)
    return opened


def mark(page):
    """Set a mark that is lost when the whole page is loaded, and stays when a fragment is replaced."""
    page.evaluate("window.marked = true")


def marked(page):
    return page.evaluate("window.marked === true")


def wait_until(page, condition, shown=""):
    for _ in range(600):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"still not so after 30 s: {shown}")


def test_a_filter_replaces_the_list_and_the_back_button_restores_it(page, yard, sockets):
    page.goto(f"{yard.url}/jobs/")
    expect(page.locator("#link-dot")).to_have_text("Live")
    mark(page)
    page.get_by_label("Name or id").fill("job-07")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/jobs/\?text=job-07"))
    expect(page.get_by_role("link", name="Show all")).to_be_visible()
    assert marked(page)
    # The socket of the whole list is closed, the one of the filtered list is open.
    wait_until(page, lambda: sockets == ["/jobs/?text=job-07&label=&state=&owner=&sort=-created"], sockets)
    page.go_back()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(50)
    assert page.get_by_label("Name or id").input_value() == ""
    page.go_forward()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(1)
    assert page.get_by_label("Name or id").input_value() == "job-07"


def test_a_socket_of_before_does_not_paint_over_a_fragment_that_has_just_come(page, yard):
    """The old socket brings the list of the filter before. It is closed when the new list comes."""
    page.goto(f"{yard.url}/jobs/")
    expect(page.locator("#link-dot")).to_have_text("Live")
    mark(page)
    # What every swap finds: is the element of the old socket still there when the new list is?
    page.evaluate(
        """() => {
          window.both = [];
          const old = document.getElementById("live");
          new MutationObserver(() => {
            const filtered = document.querySelectorAll("#jobs-live tbody tr").length < 50;
            window.both.push(filtered && old.isConnected);
          }).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    page.get_by_label("Name or id").fill("ob-31")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(1)
    yard.submit(job_spec(["true"], name="not-for-this-filter"))
    yard.submit(job_spec(["true"], name="lob-31"))
    expect(page.get_by_role("link", name="lob-31")).to_be_visible()
    expect(page.get_by_role("link", name="not-for-this-filter")).to_have_count(0)
    assert (
        marked(page)
        and page.evaluate("window.both.length")
        and not page.evaluate("window.both.some(Boolean)")
    )


def test_a_filtered_list_stays_live(page, yard):
    page.goto(f"{yard.url}/jobs/")
    page.get_by_label("Name or id").fill("fresh")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No job fits these filters.")).to_be_visible()
    expect(page.locator("#link-dot")).to_have_text("Live")
    mark(page)
    yard.submit(job_spec(["true"], name="fresh-one"))
    expect(page.get_by_role("link", name="fresh-one")).to_be_visible()
    # The link is a part of a fragment that a socket brought or took away: htmx knows it all the same.
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(50)
    assert marked(page)


def test_older_jobs_are_loaded_as_a_fragment(page, yard):
    page.goto(f"{yard.url}/jobs/?text=job-")
    mark(page)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Previous").click()
    expect(page.locator("#jobs-live tbody tr")).to_have_count(50)
    assert marked(page)


def test_the_events_of_a_job_are_filtered_in_place_and_live(page, yard, sockets):
    job = yard.submit(job_spec(["true"], name="watched"))
    page.goto(f"{yard.url}/jobs/{job}/events")
    expect(page.locator("#link-dot")).to_have_text("Live")
    mark(page)
    page.locator("#job-events select[name=kind]").select_option("cancel")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Nothing of that kind yet.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"kind=cancel$"))
    wait_until(page, lambda: sockets == [f"/jobs/{job}/events?of=&kind=cancel"], sockets)
    yard.client.cancel(job)
    expect(page.locator("#job-events .kind-cancel").first).to_be_visible()
    assert marked(page)


def test_the_audit_is_filtered_in_place(page, yard):
    page.goto(f"{yard.url}/audit/")
    mark(page)
    page.get_by_label("Subject", exact=True).fill("nothing like that")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("Nothing fits these filters.")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#audit-page tbody tr").first).to_be_visible()
    assert marked(page)


class Slow(BaseHTTPRequestHandler):
    """A receiver of webhooks that answers only after the test releases it."""

    let = threading.Event()

    def do_POST(self):
        self.let.wait(120)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    Slow.let.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_log_of_notifications_refreshes_by_itself(page, yard, receiver):
    page.goto(f"{yard.url}/account/notifications")
    page.get_by_label("How").select_option("hook")
    page.get_by_role("textbox", name="Address").fill(receiver)
    page.get_by_role("button", name="Add", exact=True).click()
    page.goto(f"{yard.url}/account/notifications")
    page.get_by_role("button", name="Send a test").click()
    row = page.locator("#sent tbody tr").first
    expect(row).to_contain_text("On its way")
    mark(page)
    Slow.let.set()
    expect(row.locator(".tone-good")).to_be_visible()
    assert marked(page)
    # Nothing is on its way any more: the page asks no further.
    expect(page.locator("#sent")).not_to_have_attribute("hx-get", re.compile("."))


@pytest.mark.parametrize("kind", ["", "?as=json"])
def test_a_form_is_checked_in_place(page, yard, kind):
    page.goto(f"{yard.url}/jobs/new{kind}")
    mark(page)
    page.get_by_role("button", name="Would it start now?").click()
    expect(page.locator(VERDICT).first).to_be_visible()
    assert marked(page)
    assert page.url == f"{yard.url}/jobs/new{kind}"


def test_a_checked_form_still_adds_rows_and_warns_about_lost_text(page, yard):
    page.goto(f"{yard.url}/jobs/new?sample")
    page.get_by_role("button", name="Would it start now?").click()
    expect(page.locator(VERDICT).first).to_be_visible()
    rows = page.locator("#pool0 .env-row")
    count = rows.count()
    rows.last.get_by_placeholder("NAME", exact=True).fill("ONE_MORE")
    expect(rows).to_have_count(count + 1)
    warned = []
    page.on("dialog", lambda dialog: (warned.append(dialog.type), dialog.accept()))
    page.goto(f"{yard.url}/jobs/")
    assert warned == ["beforeunload"]


@pytest.fixture
def held(page, yard):
    """Questions whether the form would start, which wait."""
    held = []
    page.route(f"{yard.url}/jobs/new", lambda route: held.append(route))
    return held


def check(page, held):
    """Ask, and return the question, which waits."""
    page.get_by_role("button", name="Would it start now?").click()
    wait_until(page, lambda: held, "the question")
    return held.pop()


def test_what_is_typed_while_the_form_is_checked_stays(page, yard, held):
    page.goto(f"{yard.url}/jobs/new?sample")
    rows = page.locator("#pool0 .env-row")
    count = rows.count()
    question = check(page, held)
    name = rows.nth(count - 1).get_by_placeholder("NAME", exact=True)
    name.fill("ONE_MORE")
    expect(rows).to_have_count(count + 1)
    question.continue_()
    expect(page.locator(VERDICT).first).to_be_visible()
    expect(rows).to_have_count(count + 1)
    assert name.input_value() == "ONE_MORE"
    # Nothing is typed after this question: the form comes back as the server has read it, without empty rows.
    form = page.locator("#new-job").element_handle()
    check(page, held).continue_()
    page.wait_for_function("(form) => !form.isConnected", arg=form)
    names = rows.get_by_placeholder("NAME", exact=True)
    assert "ONE_MORE" in [names.nth(each).input_value() for each in range(names.count())]


def test_what_is_typed_while_a_document_is_checked_stays(page, yard, held):
    page.goto(f"{yard.url}/jobs/new?as=json")
    question = check(page, held)
    document = page.locator("#new-job textarea")
    document.fill('{"displayName": "typed"}')
    question.continue_()
    expect(page.locator(VERDICT).first).to_be_visible()
    assert document.input_value() == '{"displayName": "typed"}'


def test_an_ended_session_redirects_to_the_login(page, yard):
    page.goto(f"{yard.url}/audit/")
    page.context.clear_cookies()
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/login\?next=/audit/"))


def test_a_form_stays_when_its_check_is_refused(page, yard):
    page.goto(f"{yard.url}/jobs/new")
    name = page.locator("#draft input[type=text]").first
    name.fill("typed")
    page.context.clear_cookies()
    page.get_by_role("button", name="Would it start now?").click()
    expect(page.locator("#link-dot")).not_to_be_empty()
    assert name.input_value() == "typed"


def test_filters_and_forms_work_without_scripts(chromium, yard, page):
    context = chromium.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    plain = context.new_page()
    plain.goto(f"{yard.url}/jobs/")
    plain.get_by_label("Name or id").fill("job-07")
    plain.get_by_role("button", name="Filter").click()
    expect(plain.locator("#jobs-live tbody tr")).to_have_count(1)
    plain.get_by_role("link", name="Show all").first.click()
    expect(plain.locator("#jobs-live tbody tr")).to_have_count(50)
    plain.goto(f"{yard.url}/jobs/new?sample")
    plain.get_by_role("button", name="Would it start now?").click()
    expect(plain.locator(VERDICT).first).to_be_visible()
    context.close()
