"""The list of jobs and the page of one job: their texts, their number of queries, and that sockets send the same."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import HostStatus
from console.presenters import live
from console.presenters.jobs import job_parts, replicas
from jobs import services
from jobs.models import Job, JobLabel, Replica, Run, Transition
from jobs.rules.lifecycle.states import JobState
from tests.unit.console.views.example_rows import a_host, a_job, a_run, moved, one_line

HOSTILE = "<script>alert('1')</script>\"'--></td>"


def queries(client, address):
    """Count the queries of the page itself, without those for the session and the user."""
    client.get(address)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in asked.captured_queries]


# The list


def names(answer):
    return [row.name for row in answer.context["list"].rows]


@pytest.fixture
def three(project, cast):
    a_job(project, cast.bob, name="resnet small", state="RUNNING")
    a_job(project, cast.bella, name="resnet large", state="SUCCEEDED")
    return a_job(project, cast.bob, name="bert", state="QUEUED", reason="Needs 8 GPUs; 3 are free.")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["bert", "resnet large", "resnet small"]),
        ("text=RESNET", ["resnet large", "resnet small"]),
        ("state=QUEUED", ["bert"]),
        ("state=active", ["bert", "resnet small"]),
        ("state=nonsense", ["bert", "resnet large", "resnet small"]),
        ("owner=bob", ["bert", "resnet small"]),
        ("owner=bob&text=res&state=RUNNING", ["resnet small"]),
        ("before=nonsense", ["bert", "resnet large", "resnet small"]),
        ("before=9999999999999999999", ["bert", "resnet large", "resnet small"]),
        ("text=%25", []),
        ("text=99999999999999999999999", []),
    ],
)
def test_the_list_is_filtered(browser, three, query, found):
    assert names(browser("vera").get(f"/jobs/?{query}")) == found


def test_a_job_is_found_by_its_id(browser, three):
    assert names(browser("vera").get(f"/jobs/?text={three.pk}")) == ["bert"]


def test_the_list_says_why_a_job_waits(browser, three):
    assert "Needs 8 GPUs; 3 are free." in browser("vera").get("/jobs/").content.decode()


def test_every_job_is_on_exactly_one_page_of_the_list(browser, project, cast):
    made = [a_job(project, cast.bob, name=f"job {n}").display_name for n in range(103)]
    address, seen, pages, vera = "/jobs/?owner=bob", [], 0, browser("vera")
    while address:
        answer = vera.get(address)
        seen, pages, address = seen + names(answer), pages + 1, answer.context["list"].next
    assert seen == made[::-1] and pages == 3


def test_the_number_of_queries_of_the_list_does_not_grow_and_no_spec_is_loaded(browser, project, cast):
    client = browser("vera")
    a_job(project, cast.bob, labels={"team": "vision"})
    one = queries(client, "/jobs/")
    for _ in range(20):
        a_job(project, cast.bob, replicas=3)
    many = queries(client, "/jobs/")
    assert len(one) == len(many)
    assert not [sql for sql in many if '"spec"' in sql]


def test_an_empty_list_links_to_the_first_steps(browser):
    assert "First five minutes" in browser("bob").get("/", follow=True).content.decode()
    assert "/welcome" in browser("bob").get("/jobs/").content.decode()


# The page of one job


def test_the_number_of_queries_of_the_page_does_not_grow_with_the_replicas(browser, project, cast):
    client, host = browser("bob"), a_host()
    small, large = a_job(project, cast.bob, host=host), a_job(project, cast.bob, replicas=40, host=host)
    for n in range(30):
        moved(large, "RUNNING", "RUNNING", subject=f"workerpool1-{n}")
    assert len(queries(client, f"/jobs/{small.pk}/")) == len(queries(client, f"/jobs/{large.pk}/"))


def test_the_page_of_a_running_job(browser, project, cast):
    job = a_job(project, cast.bob, name="bert", replicas=3, host=a_host("gpu-north"))
    page = browser("bob").get(f"/jobs/{job.pk}/").content.decode()
    for words in (
        "Running",
        "gpu-north",
        "workerpool0-0",
        "workerpool1-1",
        "Cancel the job",
        "submitted",
        str(job.pk),
    ):
        assert words in page, words
    assert page.count("/shell/") == 3 and page.count('aria-current="page"') == 1
    assert "Delete the job" not in page


def test_a_viewer_sees_no_actions(browser, project, cast):
    job = a_job(project, cast.bob, host=a_host())
    page = browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    assert "/shell" not in page and "/cancel" not in page and "/clone" not in page


@pytest.mark.parametrize("phase", ["created", "claimed", "ended", "closed"])
def test_no_shell_is_offered_for_a_replica_that_does_not_run(browser, project, cast, phase):
    job = a_job(project, cast.bob, host=a_host(), phase=phase)
    assert "/shell/" not in browser("bob").get(f"/jobs/{job.pk}/").content.decode()


def test_a_job_being_cancelled_shows_when_its_processes_are_killed(browser, project, cast):
    now = timezone.now()
    job = a_job(
        project,
        cast.bob,
        state="CANCELLING",
        host=a_host(),
        cancel_requested_at=now,
        cancel_requested_by="alice",
    )
    page = browser("bob").get(f"/jobs/{job.pk}/").content.decode()
    assert "alice requested it" in page and "data-until=" in page and "Cancel the job" not in page


def test_an_unreachable_host_is_not_shown_as_a_failure(browser, project, cast):
    host = a_host(status=HostStatus.UNREACHABLE)
    job = a_job(project, cast.bob, host=host)
    page = one_line(browser("bob").get(f"/jobs/{job.pk}/").text)
    assert "Unreachable" in page and "may still be running." in page and "Running" in page


def test_a_run_left_on_an_unreachable_host_is_shown_to_be_stopped_when_the_host_answers(
    browser, project, cast
):
    job = a_job(project, cast.bob, state="CANCELLED", host=a_host(status=HostStatus.UNREACHABLE))
    page = one_line(browser("bob").get(f"/jobs/{job.pk}/").text)
    assert "may still be running, although its job has ended. It is stopped when the host answers." in page


def test_a_replica_that_waits_for_the_next_attempt_shows_no_old_host(browser, project, cast):
    job = a_job(project, cast.bob, state="QUEUED", host=a_host("gpu-old"), phase="closed")
    job.runs.update(exit_code=6)
    Job.objects.filter(pk=job.pk).update(attempt=2)
    [line] = replicas.replica_lines(Job.objects.get(pk=job.pk), shells=True)
    assert line.host == "" and line.end == ""
    assert [run.end for run in line.runs] == ["exit code 6"]


ENDS = [
    ({"exit_code": 0}, "exit code 0"),
    ({"exit_code": 137, "oom": True}, "ran out of memory"),
    (
        {"exit_signal": 9, "oom": True, "oom_sure": "certain"},
        "ran out of memory (certain: its own cgroup counted it)",
    ),
    (
        {"exit_signal": 9, "oom": True, "oom_sure": "likely"},
        "ran out of memory (likely: its host counted a kill just then)",
    ),
    ({"exit_signal": 9}, "killed by SIGKILL"),
    ({"exit_signal": 99}, "killed by signal 99"),
    ({"refusal": "gpu_busy"}, "not started: a GPU was in use"),
    ({"refusal": "never_heard"}, "not started: never heard"),
    ({"why": "reboot"}, "lost: the host was restarted"),
    ({"why": "tombstone"}, "never started"),
    ({}, "ended; exit code unknown"),
]


@pytest.mark.parametrize(("facts", "words"), ENDS)
def test_the_end_of_a_run_is_described_in_words(facts, words):
    assert replicas.ending(Run(phase="closed", **facts)) == words
    assert replicas.ending(Run(phase="running", **facts)) == ""


@pytest.mark.parametrize(("memory_mb", "words"), [(38, "38 MiB"), (1536, "1.5 GiB")])
def test_a_small_memory_limit_is_not_shown_as_none(memory_mb, words):
    run = Run(memory_mb=memory_mb, memory_enforced=True)
    assert replicas.memory_limit(run) == f"{words} of memory, enforced"


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_in_each_state_has_a_page(browser, project, cast, state):
    job = a_job(
        project, cast.bob, state=state, error_message="Because of that.\nAnd this." * (state == "FAILED")
    )
    answer = browser("bob").get(f"/jobs/{job.pk}/")
    assert f'data-state="{state}"' in answer.content.decode()
    assert answer.context["head"].terminal is (state in ("SUCCEEDED", "FAILED", "CANCELLED"))


def test_the_history_pages_show_every_line_once(browser, project, cast):
    job = a_job(project, cast.bob)
    for n in range(450):
        moved(job, "WAITING", "STARTING", subject="workerpool0-0", cause=f"cause {n};")
    assert "/events" in browser("vera").get(f"/jobs/{job.pk}/").content.decode()
    seen, address, vera = [], f"/jobs/{job.pk}/events", browser("vera")
    while address:
        page = vera.get(address).context["events"]
        seen += [line.cause for attempt in page.attempts for line in attempt.lines]
        address = page.older_url
    assert seen == [f"cause {n};" for n in range(449, -1, -1)] + ["submitted"]


def test_text_of_users_and_hosts_is_escaped_on_every_page(browser, project, cast):
    host = a_host(status=HostStatus.UNREACHABLE, last_error=HOSTILE)
    job = a_job(
        project,
        cast.bob,
        name=HOSTILE[:128],
        state="CANCELLING",
        host=host,
        labels={HOSTILE[:20]: HOSTILE},
        reason=HOSTILE,
        error_message=HOSTILE,
        owner_name=HOSTILE,
        cancel_requested_by=HOSTILE,
        cancel_requested_at=timezone.now(),
        flags=[{"flag": HOSTILE, "since": timezone.now().isoformat(), "text": HOSTILE}],
    )
    job.spec["workerPoolSpecs"][0]["containerSpec"] = {
        "command": [HOSTILE],
        "env": [{"name": HOSTILE, "value": HOSTILE}],
    }
    job.save()
    job.runs.update(phase="closed", message=HOSTILE, refusal=HOSTILE[:32])
    moved(job, HOSTILE[:16], HOSTILE[:16], subject=HOSTILE, cause=HOSTILE, actor=HOSTILE)
    root = browser("root")
    for address in (
        "/jobs/",
        f"/jobs/{job.pk}/",
        f"/jobs/{job.pk}/metrics",
        f"/jobs/{job.pk}/shells/",
        f"/jobs/{job.pk}/spec",
        f"/jobs/{job.pk}/events",
        f"/jobs/{job.pk}/log",
        f"/jobs/{job.pk}/clone",
        f"/hosts/{host.pk}/",
        "/hosts/",
    ):
        page = root.get(address).content.decode()
        assert "<script>alert" not in page, address
        assert "&lt;script&gt;" in page, address


# What can be done


def test_a_job_that_is_cancelled_twice_is_cancelled_once(browser, project, cast):
    job = a_job(project, cast.bob, state="QUEUED")
    for _ in range(2):
        assert browser("bob").post(f"/jobs/{job.pk}/cancel")["Location"] == f"/jobs/{job.pk}/"
    job.refresh_from_db()
    assert (job.cancel_requested_by, job.state) == ("bob", "CANCELLED")


def test_a_job_that_is_over_can_be_deleted(browser, project, cast):
    job = a_job(project, cast.bob, state="SUCCEEDED")
    assert browser("bob").post(f"/jobs/{job.pk}/delete")["Location"] == "/jobs/"
    assert browser("bob").get(f"/jobs/{job.pk}/").status_code == 404
    assert Transition.objects.filter(job_id=job.pk).exists()


def test_a_job_that_is_not_over_is_not_deleted(browser, project, cast):
    job = a_job(project, cast.bob, state="QUEUED")
    page = browser("bob").post(f"/jobs/{job.pk}/delete", follow=True).content.decode()
    assert "Cancel it first" in page and Job.objects.filter(pk=job.pk).exists()


def test_a_refused_action_is_rolled_back(browser, project, cast, monkeypatch):
    job = a_job(project, cast.bob, state="SUCCEEDED")

    def half(row, actor, now):
        Job.every.filter(pk=row.pk).update(deleted_at=now)
        raise services.Refused("state", "No.")

    monkeypatch.setattr(services, "delete", half)
    browser("bob").post(f"/jobs/{job.pk}/delete")
    assert Job.objects.filter(pk=job.pk).exists()


# What the sockets send


@pytest.mark.parametrize("person", ["root", "bob", "vera"])
def test_a_page_and_its_live_update_have_the_same_html(browser, project, cast, person):
    job = a_job(project, cast.bob, host=a_host(), ended_at=timezone.now() - timedelta(hours=1))
    user, host_id = getattr(cast, person), job.runs.get().host_id
    pages = {
        f"/jobs/{job.pk}/": tab(user, job, "job-overview-head", "job-replicas", "job-story"),
        f"/jobs/{job.pk}/metrics": tab(user, job, "job-head", "job-metrics"),
        f"/jobs/{job.pk}/spec": tab(user, job, "job-head"),
        f"/jobs/{job.pk}/events": tab(user, job, "job-head", "job-events"),
        "/jobs/?owner=bob": [live.list_live(user, {"owner": "bob"})],
        "/hosts/": [live.hosts_live(user, {})],
        f"/hosts/{host_id}/": [live.host_live(user, host_id)],
    }
    for address, parts in pages.items():
        page = browser(person).get(address).content.decode()
        for part in parts:
            assert still(part).strip() and still(part).strip() in still(page), address


def tab(user, job, *parts):
    return [job_parts.part_live(part, user, job.pk, {}) for part in parts]


def still(html):
    """Remove the texts that change every second."""
    return "".join(
        line for line in html.splitlines(keepends=True) if "data-ago" not in line and "data-since" not in line
    )


def test_people_outside_the_project_are_sent_no_fragment(project, cast):
    job = a_job(project, cast.bob, host=a_host())
    host_id = job.runs.get().host_id
    assert job_parts.job_live(cast.charlie, job.pk, {}) == ""
    assert job_parts.job_live(cast.bob, 1, {}) == "" and live.host_live(cast.bob, 10**6) == ""
    assert "train" not in live.list_live(cast.charlie, {})
    assert live.host_live(cast.loner, host_id) == ""


def test_a_stamp_changes_when_its_fragment_would(project, cast):
    host = a_host(gpus=1)
    job = a_job(project, cast.bob, host=host)

    def stamps():
        return {
            "job": job_parts.job_stamp(job.pk),
            "list": live.list_stamp(cast.bob, {}),
            "hosts": live.hosts_stamp(cast.bob, {}),
            "host": live.host_stamp(host.pk),
        }

    def moved_by(act):
        before = stamps()
        act()
        after = stamps()
        return {name for name in before if before[name] != after[name]}

    later = timezone.now() + timedelta(seconds=1)
    run = job.runs.get()
    jobs, hosts = type(job).objects.filter(pk=job.pk), type(host).objects.filter(pk=host.pk)
    assert moved_by(lambda: None) == set()
    assert moved_by(lambda: hosts.update(seen_at=later, lease_token=9)) == set()
    assert moved_by(lambda: jobs.update(version=2, reason="x", updated_at=later)) == {"job", "list"}
    assert moved_by(lambda: moved(job, "PENDING", "RUNNING")) == {"job"}  # a line of its history
    label = JobLabel(job=job, project=project, key="team", value="x")
    assert moved_by(label.save) == {"list"}
    assert moved_by(lambda: hosts.update(status="unreachable", status_since=later)) == {
        "job",
        "hosts",
        "host",
    }
    assert moved_by(lambda: hosts.update(checklist=[])) == {"host"}
    assert moved_by(lambda: hosts.update(free_disk_mb=1)) == {"hosts", "host"}
    assert moved_by(lambda: Run.objects.filter(pk=run.pk).update(ended_at=later)) == {"job"}
    assert moved_by(lambda: Run.objects.filter(pk=run.pk).update(released_at=later)) == {"hosts", "host"}
    assert moved_by(lambda: a_run(job, Replica.objects.get(), host, number=1)) == {"job", "hosts", "host"}
    assert moved_by(lambda: a_job(project, cast.bob)) == {"list"}


def test_search_in_logs_of_earlier_runs_is_offered_where_there_are_any(browser, project, cast):
    job = a_job(project, cast.bob, host=a_host())
    page = f"/jobs/{job.pk}/"
    assert 'data-part="everywhere"' not in browser("vera").get(page).content.decode()
    run = job.runs.select_related("replica").get()
    a_run(job, run.replica, run.host, number=1)
    for address in (page, f"{page}log/workerpool0-0"):
        shown = one_line(browser("vera").get(address).text)
        assert "> All runs </button>" in shown and 'data-part="earlier" checked' in shown
    job = a_job(project, cast.bob, host=run.host, replicas=2)
    assert "> All replicas </button>" in one_line(browser("vera").get(f"/jobs/{job.pk}/").text)
