"""The tabs of a job's page: cells of replicas, the choice of a replica, folded events; as many queries for any size."""

from __future__ import annotations

import gzip
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.infra.texts import said
from agents.models import HostStatus
from console.presenters.jobs import job_parts, logs_together
from console.presenters.jobs.event_groups import ranges
from console.presenters.jobs.logs_together import MAX_REPLICAS
from jobs.maintenance.remove_host import remove_host
from jobs.models import Job, MetricsProof, Replica, Run, RunSample, Transition
from tests.unit.console.log_rows import write
from tests.unit.console.views.example_rows import a_host, a_job, moved, one_line

TABS = ("", "log", "log/workerpool0-0", "metrics", "shells/", "spec", "events", "replicas")


@pytest.fixture
def large(project, cast):
    """64 replicas on two hosts: one failed, one was restarted twice, one is on a host that does not answer."""
    job = a_job(project, cast.bob, replicas=64, host=a_host("gpu-north"))
    south = a_host("gpu-south", status=HostStatus.UNREACHABLE)
    Run.objects.filter(job=job, replica__name="workerpool1-40").update(host=south)
    Replica.objects.filter(job=job, name="workerpool1-3").update(state="FAILED")
    Replica.objects.filter(job=job, name="workerpool1-9").update(restarts=2)
    return job


def shown(answer):
    return [cell.line.name for cell in answer.context["cells"].cells]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?state=FAILED", ["workerpool1-3"]),
        ("?state=UNREACHABLE", ["workerpool1-40"]),
        ("?text=SOUTH", ["workerpool1-40"]),
        ("?text=63", ["workerpool1-62"]),
        ("?text=pool1-5&view=table", ["workerpool1-5", *(f"workerpool1-{n}" for n in range(50, 60))]),
        ("?pool=workerpool0", ["workerpool0-0"]),
        ("?state=FAILED&pool=workerpool0", []),
        ("?text=%25", []),
    ],
)
def test_the_replicas_are_filtered(browser, large, query, found):
    answer = browser("vera").get(f"/jobs/{large.pk}/{query}")
    assert shown(answer) == found
    assert f"{len(found)} of 64 replicas are shown." in one_line(answer.text)
    fragment = browser("vera").get(f"/jobs/{large.pk}/{query}", headers={"HX-Request": "true"})
    assert shown(fragment) == found and "<html" not in fragment.text


def test_each_replica_is_a_cell_that_says_its_state_rank_host_and_restarts(browser, large):
    page = browser("vera").get(f"/jobs/{large.pk}/").text
    assert page.count('class="cell ') == 64
    assert "workerpool1-9, rank 10: Running, on gpu-north, 2 restarts" in page and ">10↻</a>" in page
    assert "workerpool1-3, rank 4: Failed, on gpu-north" in page and ">4×</a>" in page
    assert "workerpool1-40, rank 41: Unreachable, on gpu-south" in page and ">41?</a>" in page
    assert 'href="?state=FAILED"' in page and "62 running" in one_line(page)


def test_the_load_fills_a_cell_and_sorts(browser, large):
    now = timezone.now()
    for name, load in (("workerpool1-1", 93), ("workerpool1-2", 7)):
        run = Run.objects.get(job=large, replica__name=name)
        gpus = [[load, 100], [load, 100]]
        RunSample.objects.create(run=run, step=10, at=now, cpu=1.0, memory_mb=1, gpus=gpus)
    answer = browser("vera").get(f"/jobs/{large.pk}/?sort=idle")
    assert shown(answer)[:2] == ["workerpool1-2", "workerpool1-1"]
    page = answer.text
    assert "load-9" in page and "load-1" in page and "rank 2: Running, GPU 93 %, on gpu-north" in page


def test_a_replica_that_is_quiet_for_much_longer_is_marked_and_named(browser, large):
    now = timezone.now().timestamp()
    for run in Run.objects.filter(job=large).select_related("replica"):
        write(run, b"step\n", wall=now - (2000 if run.replica.name == "workerpool1-7" else 2))
    answer = browser("vera").get(f"/jobs/{large.pk}/?sort=silent")
    assert shown(answer)[0] == "workerpool1-7"
    page = one_line(answer.text)
    assert "Much quieter than the others" in page and page.count(" odd") == 1 and "33 min" in page
    assert "much quieter than the others" in page and ">8!</a>" in page


def test_a_chosen_replica_is_shown_everywhere(browser, large):
    answer = browser("bob").get(f"/jobs/{large.pk}/?replica=workerpool1-9")
    page = answer.text
    assert 'data-replica="workerpool1-9"' in page and page.count('id="replica-') == 1
    assert f'href="/jobs/{large.pk}/metrics?replica=workerpool1-9"' in page
    assert f'href="/jobs/{large.pk}/shells/?replica=workerpool1-9"' in page
    assert f'href="/jobs/{large.pk}/log/workerpool1-9"' in page
    assert f'href="/jobs/{large.pk}/events?replica=workerpool1-9"' in page
    shells = browser("bob").get(f"/jobs/{large.pk}/shells/?replica=workerpool1-9").context["shells"]
    assert shells.replica == "workerpool1-9"
    # A replica that the job does not have is none.
    assert 'data-replica="workerpool0-0"' in browser("bob").get(f"/jobs/{large.pk}/?replica=nobody").text


def test_a_job_of_few_replicas_shows_them_as_a_table_at_once(browser, project, cast):
    job = a_job(project, cast.bob, replicas=4, host=a_host())
    page = browser("bob").get(f"/jobs/{job.pk}/").text
    assert page.count('id="replica-') == 4 and 'class="cell ' not in page
    assert 'class="cell ' in browser("bob").get(f"/jobs/{job.pk}/?view=cells").text


def many(project, cast, count, host):
    """A job with rows that are written at once."""
    job = a_job(project, cast.bob, replicas=2, host=host)
    Job.objects.filter(pk=job.pk).update(replica_count=count)
    known = {"job": job, "pool": 1, "state": "RUNNING"}
    Replica.objects.bulk_create(
        [Replica(name=f"workerpool1-{n}", index=n, **known) for n in range(1, count - 1)]
    )
    first = Run.objects.get(job=job, replica__name="workerpool1-0")
    made = []
    for replica in job.replicas.filter(pool=1, index__gt=0):
        run = Run.objects.get(pk=first.pk) if not made else made[-1]
        copy = Run(**{field.attname: getattr(run, field.attname) for field in Run._meta.concrete_fields})
        copy.pk, copy.replica_id = f"{job.pk}-{replica.name}-a1-r0", replica.pk
        copy.port = 30_000 + len(made)
        made.append(copy)
    Run.objects.bulk_create(made)
    now = timezone.now()
    Transition.objects.bulk_create(
        Transition(
            job=job,
            kind="run",
            at=now,
            subject=replica.name,
            from_state="STARTING",
            to_state="RUNNING",
            attempt=1,
            cause=said("Started on {host}.", host=f"gpu-{replica.index}"),
            actor="trainyard",
        )
        for replica in job.replicas.all()
    )
    return Job.objects.get(pk=job.pk)


def counted(client, address):
    client.get(address)
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(address)
    assert answer.status_code == 200
    return len(asked), len(gzip.compress(answer.content))


def test_no_tab_asks_more_often_for_a_thousand_replicas_and_each_stays_small(browser, project, cast):
    client, host = browser("bob"), a_host()
    small, large = a_job(project, cast.bob, host=host), many(project, cast, 1000, host)
    # Of so many, those whose logs are shown together are chosen. That takes some queries.
    chosen = many(project, cast, MAX_REPLICAS + 1, a_host("gpu-b"))
    for tab in (*TABS, "?view=table", "?view=table&start=900"):
        few, _ = counted(client, f"/jobs/{(chosen if tab == 'log' else small).pk}/{tab}")
        lots, size = counted(client, f"/jobs/{large.pk}/{tab}")
        assert few == lots, (tab, few, lots)
        assert size <= 60_000, (tab, size)
    table = client.get(f"/jobs/{large.pk}/?view=table&start=900").context["cells"]
    assert len(table.cells) == 100 and table.earlier_url and not table.later_url
    page = client.get(f"/jobs/{large.pk}/metrics")
    assert page.text.count('id="use-workerpool') == 100 and page.context["use"].earlier is None
    last = client.get(f"/jobs/{large.pk}/metrics?start=900")
    assert "start=800" in last.context["use"].earlier and last.context["use"].later is None
    assert 'id="use-workerpool1-998"' in last.text


def test_a_replica_is_found_by_rank_host_or_state_and_leads_to_the_tab(browser, large):
    def found(query, who="vera"):
        answer = browser(who).get(f"/jobs/{large.pk}/replicas?{query}", headers={"HX-Request": "true"})
        return [(choice.name, choice.url) for choice in answer.context["picker"].choices]

    base = f"/jobs/{large.pk}"
    assert found("text=failed&to=merged-log") == [("workerpool1-3", f"{base}/log/workerpool1-3")]
    assert found("text=south&to=job") == [("workerpool1-40", f"{base}/?replica=workerpool1-40")]
    assert found("text=41&to=job-metrics")[0] == ("workerpool1-40", f"{base}/metrics?replica=workerpool1-40")
    assert found("text=nothing-like-it") == [] and len(found("")) == 50
    # A viewer sees no shells, so nothing leads there.
    assert found("text=failed&to=job-shells", "bob")[0][1] == f"{base}/shells/?replica=workerpool1-3"
    assert found("text=failed&to=job-shells")[0][1] == f"{base}/?replica=workerpool1-3"
    assert "Choose a replica" in browser("vera").get(f"{base}/replicas?text=failed&to=merged-log").text
    assert browser("charlie").get(f"{base}/replicas").status_code == 404


def test_the_overview_of_a_failed_job_shows_the_log_of_the_replica_that_failed_first(browser, project, cast):
    job = a_job(project, cast.bob, "FAILED", replicas=3, host=a_host(), phase="closed", error_message="Lost.")
    now = timezone.now()
    for name, ago in (("workerpool1-0", 5), ("workerpool1-1", 9)):
        Replica.objects.filter(job=job, name=name).update(state="FAILED")
        run = Run.objects.get(job=job, replica__name=name)
        write(run, b"last words\n")
        Run.objects.filter(pk=run.pk).update(ended_at=now - timedelta(seconds=ago))
    page = browser("vera").get(f"/jobs/{job.pk}/").text
    assert 'data-replica="workerpool1-1"' in page and "last words" in page
    # On the other tabs the banner is short.
    events = browser("vera").get(f"/jobs/{job.pk}/events").text
    assert "Lost." in events and "last words" not in events


# Events


@pytest.fixture
def told(project, cast):
    """A job of four replicas: all start, one of them fails in another way than two others, then the job fails."""
    job = a_job(project, cast.bob, replicas=4, host=a_host(), state="FAILED")
    names = list(job.replicas.order_by("pool", "index").values_list("name", flat=True))
    for n, name in enumerate(names):
        event(job, "STARTING", name, "placement", said("Starting on {host}.", host=f"gpu-{n}"))
        event(job, "RUNNING", name, "run", said("Started on {host}.", host=f"gpu-{n}"))
    moved(job, "PENDING", "RUNNING", cause="All are up.")
    for name, code in (*((name, 1) for name in names[:3]), (names[3], 137)):
        ended = said("{replica} ended with exit code {code}.", replica=name, code=code)
        event(job, "FAILED", name, "run", ended)
    moved(job, "RUNNING", "FAILED", cause="It failed.")
    return job


def event(job, to, subject, kind, cause, ago_s=0):
    known = {"attempt": job.attempt, "actor": "trainyard", "from_state": ""}
    at = timezone.now() - timedelta(seconds=ago_s)
    Transition.objects.create(job=job, at=at, kind=kind, subject=subject, to_state=to, cause=cause, **known)


def groups(answer, name="events"):
    found = (group for attempt in answer.context[name].attempts for group in attempt.groups)
    return [
        (group.subjects if len(group.lines) > 1 else group.newest.subject, group.cause) for group in found
    ]


FOLDED = [
    ("job", "It failed."),
    ("workerpool1-2", "workerpool1-2 ended with exit code 137."),
    ("workerpool0-0, workerpool1-0…1", "… ended with exit code 1."),
    ("job", "All are up."),
    ("workerpool0-0, workerpool1-0…2", "Started on …"),
    ("workerpool0-0, workerpool1-0…2", "Starting on …"),
    ("job", "submitted"),
]


def test_equal_events_of_replicas_are_folded_in_their_order(browser, told):
    answer = browser("vera").get(f"/jobs/{told.pk}/events")
    assert groups(answer) == FOLDED
    assert answer.text.count(">×4</a>") == 2 and answer.text.count(">×3</a>") == 1
    assert groups(browser("vera").get(f"/jobs/{told.pk}/"), "story") == FOLDED
    only = browser("vera").get(f"/jobs/{told.pk}/?replica=workerpool1-2")
    assert [cause for _, cause in groups(only, "story")] == [
        *("workerpool1-2 ended with exit code 137.", "Started on gpu-3.", "Starting on gpu-3.")
    ]


def test_a_folded_group_is_opened_by_its_address(browser, told):
    client = browser("vera")
    [group] = [
        group
        for attempt in client.get(f"/jobs/{told.pk}/events").context["events"].attempts
        for group in attempt.groups
        if group.cause == "Started on …"
    ]
    page = client.get(f"/jobs/{told.pk}/events?kind=run&open={group.id}").text
    assert page.count(" inside") == 4 and "Started on gpu-2." in page and 'aria-expanded="true"' in page
    assert client.get(f"/jobs/{told.pk}/events?open=99999999999999999999").status_code == 200


def test_events_that_are_far_apart_or_of_one_replica_are_not_folded(browser, project, cast):
    job = a_job(project, cast.bob, replicas=2, host=a_host())
    start = said("Started on {host}.", host="gpu-1")
    for name, ago in (("workerpool0-0", 500), ("workerpool1-0", 100), ("workerpool1-0", 90)):
        event(job, "RUNNING", name, "run", start, ago)
    found = groups(browser("vera").get(f"/jobs/{job.pk}/events?kind=run"))
    assert [subject for subject, _ in found] == ["workerpool1-0", "workerpool1-0", "workerpool0-0"]


def test_the_pages_of_folded_events_have_each_event_once(browser, project, cast, monkeypatch):
    monkeypatch.setattr("console.presenters.jobs.timeline.PAGE_SIZE", 3)
    job = a_job(project, cast.bob, replicas=5, host=a_host())
    for n in range(4):
        for name in job.replicas.values_list("name", flat=True):
            event(job, "RUNNING", name, "run", said("Round {n} on {host}.", n=n, host=name[-1]))
    address, seen = f"/jobs/{job.pk}/events", []
    while address:
        page = browser("vera").get(address).context["events"]
        seen += [line.id for attempt in page.attempts for line in attempt.lines]
        address = page.older_url
    assert sorted(seen) == sorted(job.transitions.values_list("pk", flat=True)) and len(set(seen)) == len(
        seen
    )


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["workerpool1-0"], "workerpool1-0"),
        (["workerpool1-2", "workerpool0-0", "workerpool1-1"], "workerpool0-0, workerpool1-1…2"),
        (["workerpool1-0", "workerpool1-2"], "workerpool1-0, workerpool1-2"),
    ],
)
def test_names_of_replicas_are_shortened(names, short):
    assert ranges(names) == short


# The specification


def test_the_specification_names_all_variables_and_no_secret_value(browser, project, cast):
    job = a_job(project, cast.bob, replicas=3, host=a_host(), labels={"team": "nlp"})
    job.spec["workerPoolSpecs"][1]["containerSpec"]["env"] = [
        {"name": "LR", "value": "0.1"},
        {"name": "RANK", "value": "7"},
        {"name": "TOKEN", "secret": True},
        {"name": "HF", "valueFrom": {"secret": "hf"}},
    ]
    job.save()
    answer = browser("vera").get(f"/jobs/{job.pk}/spec")
    primary, workers = answer.context["spec"].pools
    assert {"MASTER_ADDR", "RANK", "CLUSTER_SPEC", "TF_CONFIG"} <= set(primary.given)
    # What a person sets wins.
    assert "WORLD_SIZE" in workers.given and "RANK" not in workers.given
    assert list(workers.env) == [
        *(("LR", "0.1"), ("RANK", "7"), ("TOKEN", "(secret)"), ("HF", "(secret hf)"))
    ]
    file = browser("vera").get(f"/jobs/{job.pk}/spec?as=json")
    assert file["Content-Disposition"] == f'attachment; filename="job-{job.pk}.json"'
    assert file.json() == {"displayName": "train", "jobSpec": job.spec, "labels": {"team": "nlp"}}
    assert browser("charlie").get(f"/jobs/{job.pk}/spec?as=json").status_code == 404


@pytest.mark.parametrize("tab", [*TABS, "?view=table"])
def test_a_job_is_shown_after_its_host_was_removed(browser, over_and_removed, tab):
    assert browser("bob").get(f"/jobs/{over_and_removed.pk}/{tab}").status_code == 200


def test_the_live_parts_of_a_job_are_shown_after_its_host_was_removed(browser, cast, over_and_removed):
    for name in job_parts.PARTS:
        assert job_parts.part_live(name, cast.bob, over_and_removed.pk, {}), name
    assert "gone-host" in job_parts.part_live(
        "job-replicas", cast.bob, over_and_removed.pk, {"view": "table"}
    )


@pytest.fixture
def over_and_removed(project, cast):
    """A job that is over, and whose host was taken out of service for good."""
    now, host = timezone.now(), a_host("gone-host")
    job = a_job(project, cast.bob, host=host, state="FAILED", ended_at=now)
    ended = {"phase": "closed", "ended_at": now, "released_at": now, "log_complete_at": now, "exit_code": 1}
    ended["metrics_proof"] = MetricsProof.NONE
    Run.objects.filter(job=job).update(**ended)
    remove_host(host, "root", now)
    return job


def ticked(answer):
    return [choice.name for choice in answer.context["picker"].choices if choice.ticked]


def test_several_replicas_are_ticked_and_their_logs_shown_together(browser, large):
    """Without scripts: the page of the choice sends what is ticked, and the address that comes says no more."""
    client, base = browser("vera"), f"/jobs/{large.pk}"
    page = client.get(f"{base}/replicas?to=merged-log&text=0-2,63&replicas=workerpool1-40")
    names = [choice.name for choice in page.context["picker"].choices]
    assert names == ["workerpool1-40", "workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool1-62"]
    assert ticked(page) == ["workerpool1-40"]
    assert f'formaction="{base}/log"' in page.text and page.text.count('type="checkbox" name="replicas"') == 5
    found = "workerpool0-0,workerpool1-0,workerpool1-1,workerpool1-62"
    assert page.context["picker"].found_url == f"{base}/log?replicas={found}"
    sent = client.get(f"{base}/log?to=merged-log&text=0&replicas=workerpool1-3&replicas=workerpool0-0")
    assert sent["Location"] == f"{base}/log?replicas=workerpool1-3,workerpool0-0"
    shown = client.get(sent["Location"])
    assert 'data-replicas="workerpool0-0,workerpool1-3"' in shown.text
    assert 'data-chosen="workerpool0-0,workerpool1-3"' in shown.text
    assert "as=zip&amp;replicas=workerpool0-0,workerpool1-3" in shown.text
    assert "The logs of 2 of 64 replicas are shown." in one_line(shown.text)
    assert shown.text.count('type="hidden" name="replicas"') == 2
    assert client.get(f"{base}/log?to=merged-log")["Location"] == f"{base}/log"
    # Charts and shells are of one replica.
    assert "checkbox" not in client.get(f"{base}/replicas?to=job-metrics").text


def test_all_logs_of_few_replicas_are_shown(browser, large):
    page = browser("vera").get(f"/jobs/{large.pk}/log")
    assert 'data-replicas=""' in page.text and "are shown:" not in one_line(page.text)


def test_of_very_many_replicas_those_that_matter_most_are_shown(browser, large, monkeypatch):
    """Rank 0, the one that failed, the one whose host does not answer, and then by rank."""
    monkeypatch.setattr(logs_together, "MAX_REPLICAS", 5)
    page = browser("vera").get(f"/jobs/{large.pk}/log")
    expected = ["workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool1-3", "workerpool1-40"]
    assert f'data-replicas="{",".join(expected)}"' in page.text
    assert "Of these 64 replicas, the logs of 5 are shown:" in one_line(page.text)
    # We have chosen these five, not the person: a search and a download are of all.
    assert 'data-chosen=""' in page.text and 'as=zip"' in page.text
    several = ",".join(f"workerpool1-{n}" for n in range(3, 12))
    page = browser("vera").get(f"/jobs/{large.pk}/log?replicas={several}")
    assert (
        'data-replicas="workerpool1-3,workerpool1-4,workerpool1-5,workerpool1-6,workerpool1-7"' in page.text
    )
    assert "Of these 9 replicas, the logs of 5 are shown:" in one_line(page.text)
