"""Foreign text in every place where it reaches a page: nothing of it runs, asks another server, or hides what is there.

The texts stand in the rows themselves, behind every check of a form, so that only the pages can be what stops them.
"""

from __future__ import annotations

import csv
from datetime import date
from io import StringIO
from itertools import cycle

import pytest
from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils import timezone

from agents.models import Gpu, Host
from console.presenters.projects.usage_csv import csv_parts
from jobs.models import AuditEntry, Job, Transition
from jobs.projects import audit
from jobs.projects.usage import JobLine
from tests.browser.log_product import Product, wait_for_text
from tests.browser.static_site import served, viewer_page
from tests.browser.test_job_lists import database_beside_the_browser
from tests.harness import attack_corpus as corpus
from tests.harness.wait_and_processes import wait_for
from tests.unit.console.views.conftest import browser, cast, no_host_answers, project
from tests.unit.console.views.example_rows import a_host, a_job
from tests.unit.console.views.page_addresses import addresses
from tests.unit.console.views.test_page_matrix import DOWNLOADS, GET, LEADS_ON

__all__ = ["addresses", "browser", "cast", "database_beside_the_browser", "no_host_answers", "project"]

OURS = ("console", "jobs", "agents", "auth")
# Columns of fixed words, of addresses by which rows are found, and of digests; and names that the product makes.
WORDS = """
  key digest sha sha256 password session_data way event kind subject scope language login confirmation_digest boot_id
  log_digest_here log_digest_host request_id time_zone pinned_key host_key runner_sha lease_owner deployment codename
  model_id Replica.name Stray.run Host.jump
"""
FIXED = set(WORDS.split())
# Without jobs to compare, that address leads on too.
NO_PAGE = DOWNLOADS | LEADS_ON | {"compare-jobs", "compare-studies"}
NEVER_CHANGE = (AuditEntry, Transition)


def is_foreign(field):
    is_text = isinstance(field, models.CharField | models.TextField)
    names = {field.name, f"{field.model.__name__}.{field.name}"}
    is_fixed = (
        field.primary_key or field.unique or field.choices or names & FIXED or field.name.endswith("_key")
    )
    return is_text and not is_fixed and (field.max_length or 2000) >= 30


def plant():
    """Put an attack into every column that has a text. Returns their names. What never changes gets another row."""
    attacks, planted = cycle([*corpus.MARKUP.values(), *corpus.FORMULAS]), set()
    for model in (model for app in OURS for model in apps.get_app_config(app).get_models()):
        fields = [field for field in model._meta.concrete_fields if is_foreign(field)]
        for row in model._base_manager.all() if fields else ():
            for field in fields:
                setattr(row, field.name, next(attacks)[: field.max_length or 2000])
            if model in NEVER_CHANGE:
                row.pk = row._state.adding = None
            row.save()
            planted |= {f"{model.__name__}.{field.name}" for field in fields}
    return planted | in_documents(attacks)


def in_documents(attacks):
    """What a person wrote into a job, and what hosts say of themselves."""
    for job in Job.every.all():
        container = job.spec["workerPoolSpecs"][0]["containerSpec"]
        container["args"] = [*corpus.MARKUP.values(), *corpus.HIDING.values(), *corpus.FORMULAS]
        values = enumerate([*corpus.MARKUP.values(), *corpus.HIDING.values()])
        container["env"] = [{"name": f"V{number}", "value": value} for number, value in values]
        job.labels = {"team": "</script><b>", "x": 'a"onclick='}
        job.save()
    for host in Host.objects.all():
        host.checklist = [{**line, "text": next(attacks), "fix": next(attacks)} for line in host.checklist]
        host.facts = {name: next(attacks) for name in ("kernel", "os", "python", "distribution", "cpu")}
        host.save()
    return {"Job.spec", "Job.labels", "Host.checklist", "Host.facts"}


@pytest.fixture
def seen(page, live_server, browser):
    """A page in which root is logged in, and what it did that it must not."""
    session = browser("root").cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
    )
    page.did = corpus.watched(page, live_server.url)
    return page


@pytest.mark.django_db(transaction=True)
def test_no_page_runs_or_asks_for_what_stands_in_a_row(seen, live_server, addresses):
    where = {name: addresses(name) for name in GET}
    planted, wrong, shown = plant(), [], ""
    for name, path in sorted(where.items()):
        if name in NO_PAGE:
            continue
        answer = seen.goto(live_server.url + path)
        assert answer.status < 500, (name, answer.text()[:2000])
        seen.wait_for_load_state("load")
        # A terminal makes styles (console/runtime/requests/middleware.py).
        made = {"style"} if name == "shell" else set()
        wrong += [(name, what) for what in corpus.look(seen) + seen.did if what not in made]
        seen.did.clear()
        shown += seen.content()
    assert wrong == [], "\n".join(map(str, wrong))
    assert len(planted) > 50
    for attack in ("&lt;script&gt;attacked()", "&lt;svg onload=attacked()&gt;", "&lt;base href="):
        assert attack in shown, f"{attack} is on no page: nothing was shown"


def test_no_table_for_a_spreadsheet_has_a_formula():
    names = [*corpus.FORMULAS, *corpus.MARKUP.values()]
    lines = [JobLine(1, name, 7, "NVIDIA_L4", 1, 1.0, 1.0) for name in names]
    text = "".join(csv_parts(date(2026, 11, 1), [lines], {1: "default"}))
    [_, *rows] = csv.reader(StringIO(text))
    assert [row[2].removeprefix("'") for row in rows] == names
    assert [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


@pytest.mark.parametrize("path", ["/audit/export?format=csv", "/hosts/occupancy.csv?span=month"])
def test_no_download_has_a_formula(project, cast, browser, path):
    job = a_job(project, cast.bob, host=a_host("gpu-7", gpus=1))
    job.runs.update(gpu_uuids=[gpu.uuid for gpu in Gpu.objects.all()])
    names = [*corpus.FORMULAS, *corpus.MARKUP.values()]
    for name in names:
        audit.record(name, name, "job", name, name, None, timezone.now(), project)
    Job.objects.update(display_name=corpus.FORMULAS[0], owner_name=corpus.FORMULAS[2])
    text = b"".join(browser("root").get(path).streaming_content).decode()
    [_, *rows] = csv.reader(StringIO(text))
    cells = {cell.removeprefix("'") for row in rows for cell in row}
    assert cells & set(names), "nothing of it is in the file"
    assert [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))] == []


def test_no_line_of_a_log_runs_or_asks(page):
    with served(viewer_page()) as address:
        did = corpus.watched(page, address.rstrip("/"))
        Product(page, b"\n".join([*corpus.LINES, b"the last line\n"]))
        page.goto(address)
        wait_for_text(page, "the last line")
        assert corpus.look(page) + did == []
        assert page.locator(".log-body").get_by_text("<script>attacked()</script>", exact=True).count() == 1


PUT = """(html) => {
  const box = document.querySelector("main").appendChild(document.createElement("div"));
  box.innerHTML = html;
}"""


def test_a_page_that_is_attacked_is_found_out(page):
    """The watch and the look see each kind of attack that gets through."""
    with served("<main></main>") as address:
        did = corpus.watched(page, address.rstrip("/"))
        page.goto(address)
        # That of "base" leaves the page at once.
        for name in corpus.MARKUP.keys() - {"base"}:
            page.evaluate(PUT, corpus.MARKUP[name])
        page.evaluate("(text) => document.querySelector('main').append(text)", corpus.HIDING["reversed"])
        wait_for(lambda: "policy: img-src" in str(corpus.look(page)), "the report of the policy", timeout=20)
        found = "\n".join(corpus.look(page) + did)
        signs = (
            "onerror",
            "onload",
            "javascript:",
            "iframe",
            "style",
            "hidden letters",
            "policy: img-src",
        )
        for sign in signs:
            assert sign in found, (sign, found)
