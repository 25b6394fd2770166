"""What a page shows is said by its address: whoever reloads it, goes back to it or sends it gets the same view.

For each page that can be filtered, sorted, zoomed or folded: its address is opened with all of that at once. Then the
controls show it, and each form and each link to a next page keeps the rest of it.
"""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.utils import timezone

from agents.models import Location
from jobs.projects import audit
from tests.unit.console.views.example_rows import a_host, a_job, a_machine_type, a_tuning_job, moved

# Pages, and all that their addresses may say. JOB is the address of a job with 200 replicas.
VIEWS = {
    "jobs": ("/jobs/", "text=job&label=team%3Dnlp&state=active&owner=bob&project=default&sort=-gpus"),
    "queue": ("/jobs/queue", "project=default"),
    "studies": ("/studies/", "text=study&state=active&owner=bob&project=default"),
    "hosts": ("/hosts/", "text=gpu&status=up&location=default&type=NVIDIA_L4&use=idle&sort=-name"),
    "hosts by size": ("/hosts/", "cpus=2&memory=1&disk=1"),
    "GPUs": ("/hosts/gpus", "text=gpu&show=free&type=NVIDIA_L4&location=default&view=table"),
    "occupancy": ("/hosts/occupancy", "span=week&at=2026-11-20&location=default&project=default&view=table"),
    "occupancy of a host": ("/hosts/occupancy", "span=month&at=2026-11-01&host=gpu-long-1"),
    "machine types": ("/machines/", "location=default"),
    "usage": ("/usage/", "month=2026-10&project=default"),
    "audit": (
        "/audit/",
        "subject=job&actor=bob&what=job.submitted&project=default&kind=job&since=2026-01-01&until=2027-01-01",
    ),
    "people": ("/admin/people/", "text=b"),
    "search": ("/search", "q=job"),
    "replicas": (
        "JOB",
        "text=worker&state=RUNNING&pool=workerpool1&sort=silent&view=table&replica=workerpool1-3",
    ),
    "metrics": (
        "JOBmetrics",
        "span=day&replicas=workerpool0-0&replicas=workerpool1-3&bands=1"
        "&from=2026-11-23T10%3A00%3A00Z&to=2026-11-23T11%3A00%3A00Z",
    ),
    "use": ("JOBmetrics", "span=day&sort=silent&replica=workerpool1-3"),
    "events": ("JOBevents", "replica=workerpool1-3&of=job&kind=state"),
    "shells": ("JOBshells/", "replica=workerpool1-3"),
    "difference": ("JOBdiff", "with=OTHER"),
}


@pytest.fixture
def rows(project, cast):
    hosts = [a_host(name=f"gpu-long-{number}", gpus=2) for number in range(60)]
    job = a_job(project, cast.bob, replicas=200, host=hosts[0], name="job of 200")
    a_tuning_job(job)
    a_machine_type()
    a_host(location=Location.objects.create(name="north"))
    a_job(project, cast.bob, pk=job.pk - 1)
    moved(job, "PENDING", "RUNNING")
    audit.record("bob", "job.submitted", "job", "job of 200", None, None, timezone.now(), project=project)
    return job


class Page(HTMLParser):
    """The forms that ask for the page anew (name -> values each), and the links to it."""

    def __init__(self, html, path):
        super().__init__(convert_charrefs=True)
        self.path, self.forms, self.links, self.form, self.select = path, [], [], None, None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            asks = given.get("method", "get").lower() == "get" and given.get("action") in (
                None,
                "",
                self.path,
            )
            here = given.get("action", "").startswith("#")
            self.form = {} if asks or here else None
            if self.form is not None:
                self.forms.append(self.form)
        if tag == "a" and "href" in given:
            self.links.append((given, urlsplit(given["href"])))
        if self.form is None:
            return
        # The palette is above every page.
        if given.get("id") == "palette-text":
            self.forms.remove(self.form)
        elif tag == "input" and given.get("name") and (given.get("type") != "checkbox" or "checked" in given):
            self.form.setdefault(given["name"], []).append(given.get("value", ""))
        if tag == "select":
            self.select = given.get("name")
        if tag == "option" and "selected" in given:
            self.form.setdefault(self.select, []).append(given.get("value"))

    def handle_data(self, data):
        # An option without a value has its text for it.
        values = self.form.get(self.select, []) if self.form else []
        if values and values[-1] is None:
            values[-1] = data.strip()

    def handle_endtag(self, tag):
        if tag == "form":
            self.form = None

    @property
    def own_links(self):
        return [(given, parse_qsl(to.query)) for given, to in self.links if to.path in ("", self.path)]


def is_kept(pair, pairs):
    """A replica that is chosen may be the only one of several. The page before a month is another one."""
    names = {pair[0], f"{pair[0]}s"} if pair[0] == "replica" else {pair[0]}
    return pair[0] in ("month", "at") or any(
        name in names and pair[1] in (value, *value.split(",")) for name, value in pairs
    )


@pytest.mark.parametrize("name", VIEWS)
def test_a_reload_shows_the_same_view(rows, browser, name):
    path, query = VIEWS[name]
    path = path.replace("JOB", f"/jobs/{rows.pk}/")
    query = query.replace("OTHER", str(rows.pk - 1))
    answer = browser("root").get(f"{path}?{query}")
    assert answer.status_code == 200, answer
    page, wrong = Page(answer.content.decode(), path), []
    asked = parse_qsl(query)
    for pair in asked:
        in_form = any(pair[1] in form.get(pair[0], []) for form in page.forms)
        marked = any("aria-current" in given and pair in pairs for given, pairs in page.own_links)
        if not in_form and not marked:
            wrong.append(f"no control shows {pair}")
    for form in page.forms:
        wrong += [
            f"a form with {sorted(form)} forgets {pair}"
            for pair in asked
            if not is_kept(pair, [(name, value) for name, values in form.items() for value in values])
        ]
    for given, pairs in page.own_links:
        if given.get("rel") in ("prev", "next"):
            wrong += [f"the {given['rel']} page forgets {pair}" for pair in asked if not is_kept(pair, pairs)]
    assert wrong == [], "\n".join(wrong)
