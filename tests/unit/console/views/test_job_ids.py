"""What everybody reads about a host names no job of another tenant."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.hosts import host_history
from agents.models import Gpu, GpuState, Host
from console.auth import tokens
from tests.unit.console.views.example_rows import a_host, a_job

HIDDEN = "a job of another project"


@pytest.fixture
def told(project, cast):
    """A host whose history, error and GPU name a job of Bob's project, and one of the project elsewhere."""
    host = a_host(gpus=1)
    ours, theirs = a_job(project, cast.bob, host=host), a_job(cast.elsewhere, cast.charlie, host=host)
    run = theirs.runs.get().pk
    text = f"Ended without this host's proof: {ours.pk}, {theirs.pk}."
    host_history.record(host.pk, "job_ended", text, "trainyard", timezone.now(), limited=False)
    Host.objects.filter(pk=host.pk).update(last_error=f"{run} left a process behind")
    Gpu.objects.filter(host=host).update(
        state=GpuState.QUARANTINED, state_since=timezone.now(), state_text=f"Held by {run}."
    )
    return host, str(ours.pk), str(theirs.pk)


def test_pages_of_a_host_name_only_jobs_that_the_person_may_see(browser, told):
    host, ours, theirs = told
    for url in (f"/hosts/{host.pk}/", "/hosts/"):
        page = browser("bob").get(url).content.decode()
        assert theirs not in page and HIDDEN in page, url
        assert theirs in browser("root").get(url).content.decode(), url
    assert ours in browser("bob").get(f"/hosts/{host.pk}/").content.decode()
    assert theirs in browser("charlie").get(f"/hosts/{host.pk}/").content.decode()


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**19 - 1])
def test_a_number_that_no_job_can_have_breaks_no_page(browser, client, cast, told, number):
    """Whoever may run a process on a GPU chooses its name, which the pages show."""
    host, _, _ = told
    Gpu.objects.update(state_text=f"Held by {number}.")
    Host.objects.filter(pk=host.pk).update(last_error=f"{number} left a process behind")
    host_history.record(host.pk, "job_ended", f"{number}", "trainyard", timezone.now(), limited=False)
    for url in (f"/hosts/{host.pk}/", "/hosts/", "/hosts/gpus"):
        page = browser("bob").get(url)
        assert page.status_code == 200 and str(number) not in page.content.decode(), url
    token = tokens.create(cast.bob, "test", timezone.now())[1]
    for url in ("/api/v1/hosts", f"/api/v1/hosts/{host.name}", f"/api/v1/hosts/{host.name}/gpus"):
        answer = client.get(url, headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200 and str(number) not in answer.content.decode(), url


def test_rest_names_only_jobs_that_the_person_may_see(client, cast, told):
    host, _, theirs = told
    for person, sees in (("bob", False), ("charlie", True), ("root", True)):
        token = tokens.create(getattr(cast, person), "test", timezone.now())[1]
        for url in ("/api/v1/hosts", f"/api/v1/hosts/{host.name}", f"/api/v1/hosts/{host.name}/gpus"):
            answer = client.get(url, headers={"authorization": f"Bearer {token}"}).content.decode()
            assert (theirs in answer, HIDDEN in answer) == (sees, not sees), (person, url)
