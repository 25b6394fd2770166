"""The limit on stored logs, by REST, on the page of a project, and where a job is submitted."""

from __future__ import annotations

import json

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra import shared_answers
from console import cli
from console.live import tails
from jobs.models import LogStorage, Run
from jobs.projects import log_storage
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_host, a_job, document, one_line
from tests.unit.console.views.test_new_job import FORM

QUOTA = "/api/v1/projects/default/quotas"


def test_the_limit_is_set_told_and_enforced(script, cast, project, client):
    root, bob = script("root"), script("bob")
    a_job(project, cast.bob, host=a_host())
    Run.objects.update(log_stored=750_000_000)
    done = root.put(f"{QUOTA}/logGb", json.dumps({"limit": 1.5}), content_type="application/json")
    assert done.json()["logGb"] == {"limit": 1.5, "used": 0.75}
    assert bob.post(JOBS, json.dumps(document()), content_type="application/json").status_code == 200
    client.force_login(cast.bob)
    page = one_line(client.get("/projects/default/").content.decode())
    assert "GB of stored logs" in page and "0.75" in page
    Run.objects.update(log_stored=1_500_000_000)
    shared_answers.forget_all()
    refused = bob.post(JOBS, json.dumps(document()), content_type="application/json")
    assert refused.status_code == 429
    assert "take 1.50 GB, and it may store 1.5 GB. Delete jobs" in refused.json()["error"]["message"]
    seen = client.post("/jobs/new", {**FORM, "action": "check"}).context["preview"]
    assert seen.tone == "bad" and "may store 1.5 GB" in seen.text


def test_the_limit_is_told_before_it_is_reached(script, cast, project, client, capsys):
    root, bob = script("root"), script("bob")
    job = a_job(project, cast.bob, host=a_host())
    Run.objects.update(log_stored=1_200_000_000)
    root.put(f"{QUOTA}/logGb", json.dumps({"limit": 1.5}), content_type="application/json")
    log_storage.measure(timezone.now())
    words = "The logs of project default take 1.20 GB of 1.5 GB. At the limit it takes no new jobs."
    assert root.get(QUOTA).json()["logGb"]["warning"].startswith(words)
    assert bob.get(f"/api/v1/jobs/{job.pk}").json()["logStorage"].startswith(words)
    answer = bob.post(JOBS, json.dumps(document()), content_type="application/json")
    assert answer.status_code == 200 and words in answer["Warning"]
    with CaptureQueriesContext(connection) as asked:
        LogStorage.objects.update(level=0)
        assert words not in log_storage.recent_warning(project.pk)
        shared_answers.forget_all()
        assert not any(log_storage.recent_warning(project.pk) for _ in range(20))
    assert len(asked) == 3, "while there is room, one statement in two seconds serves all submits"
    log_storage.measure(timezone.now())
    shared_answers.forget_all()
    client.force_login(cast.bob)
    assert words in one_line(client.get("/projects/default/").text)
    assert words in one_line(client.get(f"/jobs/{job.pk}/").text)
    seen = client.post("/jobs/new", {**FORM, "action": "check"}).context["preview"]
    assert seen.advice[0].text.startswith(words)
    assert cli.main(["quota", "list"]) == 0
    printed = capsys.readouterr()
    assert "log-gb\t1.5\tused 1.2\n" in printed.out and words in printed.err


def test_a_log_that_is_not_stored_any_more_says_so(script, cast, project, client):
    job = a_job(project, cast.bob, host=a_host())
    Run.objects.update(log_stored=2_000_000_000, log_complete_at=None)
    script("root").put(f"{QUOTA}/logGb", json.dumps({"limit": 1}), content_type="application/json")
    log_storage.measure(timezone.now())
    answer = script("bob").get(
        f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/log", headers={"Range": "bytes=0-0"}
    )
    assert answer["Trainyard-Log-Held"].startswith(
        "Storing stopped at byte 2000000000: the logs of project default"
    )
    run = Run.objects.get(job=job)
    assert tails.read_status(run.pk).held == answer["Trainyard-Log-Held"]
    client.force_login(cast.bob)
    assert "Nothing more of them is stored" in one_line(client.get(f"/jobs/{job.pk}/").text)


def test_a_member_cannot_have_a_limit_of_their_own(script, project):
    url = "/api/v1/projects/default/eachMember/quotas/logGb"
    answer = script("alice").put(url, json.dumps({"limit": 1}), content_type="application/json")
    assert answer.status_code == 400 and "project as a whole" in answer.json()["error"]["message"]
