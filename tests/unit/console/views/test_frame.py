"""Rules for every page: a strict content security policy, error pages, existing static files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import OperationalError
from django.http import Http404
from django.test import Client
from django.utils import timezone

from agents import clock_keeper
from agents.infra import clock
from console.views import errors, home
from tests.unit.console.views.example_rows import a_host, a_job, one_line

ROOT = Path(__file__).resolve().parents[4]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
INLINE = re.compile(
    r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)|javascript:|\|\s*safe\b|autoescape\s+off",
    re.IGNORECASE,
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_templates_have_no_inline_scripts_or_styles_and_escape_everything(template):
    assert not INLINE.findall(template.read_text())


def test_every_static_file_that_a_page_names_exists():
    named = {name for path in TEMPLATES for name in re.findall(r"{%\s*static '([^']+)'", path.read_text())}
    ours = {name for name in named if not name.startswith("npm/")}
    assert len(ours) >= 8 and [name for name in sorted(ours) if not finders.find(name)] == []


def test_every_icon_that_a_page_names_exists():
    drawn = set(re.findall(r'symbol id="(\w+)"', (ROOT / "static/icons.svg").read_text()))
    named = {name for path in TEMPLATES for name in re.findall(r'{% icon "(\w+)" %}', path.read_text())}
    source = "".join(path.read_text() for path in (ROOT / "console").rglob("*.py"))
    in_code = set(
        re.findall(r'"(tick|cross|play|ring|hourglass|stop|slash|key|unplugged|dash|note)"', source)
    )
    assert named and in_code and named | in_code <= drawn


def test_admins_read_that_a_clock_was_set_and_others_do_not(browser, cast, monkeypatch):
    now = timezone.now()
    monkeypatch.setattr(clock, "date_clock", lambda: now.timestamp() - 3600)
    clock_keeper.record("the clock of gpu-7", -3600.0, now)
    seen = one_line(browser("root").get("/jobs/").content.decode())
    assert "The clock of gpu-7 was set back by 1:00:00." in seen
    assert "It is 1 h" in seen and "ahead of this machine's clock" in seen
    assert "was set back" not in browser("bob").get("/jobs/").content.decode()


def test_pages_and_shells_have_their_security_headers(browser, project, cast):
    job = a_job(project, cast.bob, host=a_host())
    bob = browser("bob")
    for address in ("/jobs/", "/login", "/nothing/here"):
        policy = bob.get(address)["Content-Security-Policy"]
        assert (
            "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        )
    answer = bob.get("/jobs/")
    assert answer["X-Content-Type-Options"] == "nosniff" and answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin" and "private" in answer["Cache-Control"]
    # xterm.js makes style elements of its own; scripts are as strict there as anywhere.
    shell = bob.get(f"/jobs/{job.pk}/shell/{job.runs.get().pk}")["Content-Security-Policy"]
    assert "style-src 'self' 'unsafe-inline'" in shell and "script-src 'self';" in shell


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (BadRequest("x"), 400, "could not be understood"),
        (PermissionDenied("x"), 403, "no permission to do that"),
        (RuntimeError("secret detail"), 500, "could not do this"),
        (OperationalError("database is locked"), 503, "did not answer"),
    ],
)
def test_each_error_has_a_page_without_details(cast, monkeypatch, error, status, words):
    def fail(*_, **__):
        raise error

    client = Client(raise_request_exception=False)
    client.force_login(cast.bob)
    monkeypatch.setattr(home.access, "visible", fail)
    answer = client.get("/")
    page = answer.content.decode()
    assert answer.status_code == status and words in page
    assert "secret detail" not in page and "locked" not in page
    assert "Content-Security-Policy" in answer


@pytest.fixture
def erring(cast, monkeypatch):
    """erring(who, error): the answer to this person where the page raises this error."""

    def ask(who, error):
        class Failing:
            @property
            def objects(self):
                raise error

        client = Client(raise_request_exception=False)
        client.force_login(getattr(cast, who))
        with monkeypatch.context() as patch:
            patch.setattr(home, "Job", Failing())
            return client.get("/")

    return ask


def menu_of(answer):
    page = answer.content.decode()
    return re.findall(r'<a href="(/[a-z]+/?)', page) if 'aria-label="Main"' in page else []


MENU = ["/jobs/", "/studies/", "/hosts/", "/projects/", "/machines/"]


@pytest.mark.parametrize("error", [BadRequest("x"), PermissionDenied("x"), Http404("x")])
def test_error_pages_keep_the_navigation(erring, error):
    for who, menu in (("bob", MENU), ("root", [*MENU, "/admin/"])):
        answer = erring(who, error)
        assert [place for place in menu_of(answer) if place in (*MENU, "/admin/")] == menu
        assert f">{who}</a>" in answer.content.decode() and "Log out" in answer.content.decode()


def test_a_wrong_method_and_an_expired_form_keep_the_navigation(cast):
    bob = Client(enforce_csrf_checks=True)
    bob.force_login(cast.bob)
    wrong, expired = bob.get("/logout"), bob.post("/logout")
    assert wrong.status_code == 405 and wrong["Allow"] == "POST" and "only takes a form" in wrong.text
    assert expired.status_code == 403 and "This form has expired" in expired.text
    for answer in (wrong, expired):
        assert menu_of(answer)[: len(MENU)] == MENU and ">bob</a>" in answer.text
    assert Client().get("/logout").status_code == 405 and menu_of(Client().get("/logout")) == []
    assert (
        bob.put("/v1/projects/default/locations/a/customJobs").headers["Content-Type"]
        != wrong["Content-Type"]
    )


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("x"), 500), (OperationalError("x"), 503)])
def test_pages_for_errors_of_the_server_have_a_menu_and_need_no_database(
    erring, error, status, rf, django_assert_num_queries
):
    answer = erring("bob", error)
    # The name of the person would need a query.
    assert answer.status_code == status and menu_of(answer) == MENU and "bob" not in answer.content.decode()
    request = rf.get("/")
    with django_assert_num_queries(0):
        pages = [errors.broken(request), errors.unavailable(request, {})]
    assert [menu_of(page) for page in pages] == [[], []]


def test_an_error_page_needs_no_database_that_is_away(erring, monkeypatch):
    """The page was not found, and then the database is gone: the page is shown all the same, without the person."""

    def away(*_, **__):
        raise OperationalError("x")

    monkeypatch.setattr("agents.hosts.recovery.in_recovery_mode", away)
    answer = erring("bob", Http404("x"))
    assert answer.status_code == 404 and "Not found" in answer.content.decode() and menu_of(answer) == MENU


def test_an_unknown_address_is_a_page_for_people_and_json_for_scripts(browser, db):
    page = browser().get("/nothing/here")
    assert page.status_code == 404 and "Not found" in page.content.decode()
    answer = browser().get("/api/nothing")
    assert answer.status_code in (401, 404) and answer["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    "address", ["/jobs/0/", "/jobs/99999999999999999999999/", "/hosts/99999999999999999999999/", "/jobs/x/"]
)
def test_huge_ids_are_not_found(browser, address):
    assert browser("root").get(address).status_code == 404


@pytest.mark.parametrize("address", ["/jobs/?text=a%00b", "/v1/projects/default/locations/a%00/customJobs"])
def test_an_address_with_a_nul_is_refused_before_any_query(browser, address, django_assert_num_queries):
    client = browser("root")
    with django_assert_num_queries(0):
        assert client.get(address).status_code == 400


def test_every_page_says_that_the_disk_of_the_server_is_full(browser, settings):
    words = "disk of this server is nearly full"
    assert words not in browser("vera").get("/jobs/").text
    settings.TRAINYARD = dataclasses.replace(settings.TRAINYARD, min_free_mb=10**9)
    assert words in browser("vera").get("/jobs/").text
    assert words not in browser().get("/login").text
