"""One address, two answers: the whole page, or for htmx the part that changes."""

from __future__ import annotations

import json
import re

import pytest

from console.runtime.requests.middleware import POLICY
from tests.unit.console.views.example_rows import a_host, a_job

HTMX = {"HX-Request": "true"}


@pytest.fixture
def job(project, cast):
    return a_job(project, cast.bob, host=a_host())


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("/jobs/", "filtered-jobs"),
        ("/hosts/", "filtered-hosts"),
        ("/jobs/{job}/metrics", "job-metrics"),
        ("/jobs/{job}/events", "job-events"),
        ("/jobs/new", "draft"),
        ("/jobs/new?as=json", "draft"),
        ("/audit/", "audit-page"),
    ],
)
def test_htmx_gets_the_fragment_and_a_browser_the_whole_page(browser, job, address, part):
    client, address = browser("root"), address.format(job=job.pk)
    page, fragment = client.get(address), client.get(address, headers=HTMX)
    assert "<html" in page.text and f'id="{part}"' in page.text
    assert "<html" not in fragment.text and f'id="{part}"' in fragment.text
    # Back must not show the fragment as a page.
    assert "HX-Request" in page["Vary"] and "HX-Request" in fragment["Vary"]
    # htmx finds in the answer what it asked for: each page names the part that it replaces.
    assert f'hx-select="#{part}"' in page.text


def test_the_fragment_of_a_job_has_the_address_of_its_socket(browser, job):
    fragment = browser("bob").get(f"/jobs/{job.pk}/events?kind=state&of=job", headers=HTMX).text
    assert f'ws-connect="/ws/live?at=%2Fjobs%2F{job.pk}%2Fevents%3Fkind%3Dstate%26of%3Djob"' in fragment
    assert 'id="job-events"' in fragment and fragment.count("ws-connect") == 1


def test_a_form_check_by_htmx_gets_only_the_form(browser, project):
    client = browser("bob")
    answer = client.post("/jobs/new", {"mode": "json", "text": "{", "action": "check"}, headers=HTMX)
    assert answer.status_code == 200 and "<html" not in answer.text and 'id="draft"' in answer.text


def test_every_page_of_a_logged_in_person_loads_htmx_within_the_security_policy(browser, job):
    page = browser("bob").get("/jobs/").text
    config = json.loads(re.search(r"name=\"htmx-config\"\s+content='([^']+)'", page)[1])
    assert "unsafe" not in " ".join(POLICY.values())
    assert not config["allowEval"] and not config["includeIndicatorStyles"] and not config["allowScriptTags"]
    assert config["selfRequestsOnly"] and config["historyCacheSize"] == 0
    assert re.search(r'<script src="/static/npm/htmx/htmx.min.js" defer></script>', page)
    assert "htmx" not in browser().get("/login").text
