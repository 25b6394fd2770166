"""Pages of hosts: add one or many, accept the host key, check, remove."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.hosts import checklist, host_history, misbehaviour
from agents.models import Host, HostStatus, Location
from agents.ssh import keys
from agents.ssh.host_keys import fingerprint
from console.presenters.hosts import host_list
from jobs.models import HostMaintenance
from tests.unit.console.views.example_rows import KEY, OTHER_KEY, a_host, a_job, a_run, one_line

ONE = {
    "name": "gpu-01",
    "address": "10.0.0.11",
    "user": "train",
    "port": "22",
    "location": "default",
    "jump": "",
}


def test_a_host_is_added(browser):
    answer = browser("root").post("/hosts/add", {**ONE, "port": "2222", "location": "lab-b", "jump": "gate"})
    host = Host.objects.get()
    assert answer["Location"] == f"/hosts/{host.pk}/"
    assert (host.name, host.port, host.location.name, host.jump, host.added_by) == (
        "gpu-01",
        2222,
        "lab-b",
        "gate",
        "root",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "gpu 01"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "taken"}, "name"),
        ({"address": "-oProxyCommand=x"}, "address"),
        ({"address": "<script>alert(1)</script>"}, "address"),
        ({"port": "0"}, "port"),
        ({"port": "x"}, "port"),
        ({"user": "a;b"}, "user"),
        ({"jump": "a b"}, "jump"),
        ({"location": "Lab B"}, "location"),
    ],
)
def test_an_invalid_value_is_refused_at_its_field_and_the_form_keeps_it(browser, change, field):
    a_host("taken")
    answer = browser("root").post("/hosts/add", {**ONE, **change})
    form = answer.context["form"]
    assert Host.objects.count() == 1 and form.errors[field] and list(form.errors) == [field]
    assert "<script>alert" not in answer.content.decode()
    assert form["address"].value() == change.get("address", "10.0.0.11")


def test_several_hosts_are_added_by_pasting(browser):
    text = "gpu-01 train@10.0.0.11\r\n\r\n# the rest\r\ngpu-02 10.0.0.12:2222 gate\r\n"
    answer = browser("root").post("/hosts/paste", {"hosts": text, "user": "train", "location": "default"})
    assert answer["Location"] == "/hosts/keys"
    assert list(Host.objects.values_list("name", "user", "port", "jump")) == [
        ("gpu-01", "train", 22, ""),
        ("gpu-02", "train", 2222, "gate"),
    ]


@pytest.mark.parametrize(
    "text", ["gpu-01 train@10.0.0.11\ngpu-01 train@10.0.0.12", "gpu-01 10.0.0.1\ntaken 10.0.0.2", "\n"]
)
def test_one_invalid_line_adds_no_host_and_the_form_keeps_the_text(browser, text):
    a_host("taken")
    answer = browser("root").post("/hosts/paste", {"hosts": text, "user": "train", "location": "default"})
    assert answer.status_code == 200 and Host.objects.count() == 1
    assert answer.context["pasted"].errors["hosts"]
    assert text.split()[:1] == [] or text.split()[0] in answer.content.decode()


def test_the_page_to_add_a_host_shows_the_command_that_allows_the_login(browser):
    page = browser("root").get("/hosts/add").content.decode()
    assert keys.public_line().strip() in page and "authorized_keys" in page


def test_an_offered_key_is_accepted_and_the_admin_recorded(browser):
    host = a_host(status=HostStatus.NEW, pinned_key="", offered_key=KEY)
    root = browser("root")
    assert fingerprint(KEY) in root.get(f"/hosts/{host.pk}/").content.decode()
    root.post(f"/hosts/{host.pk}/accept", {"fingerprint": fingerprint(KEY)})
    host.refresh_from_db()
    assert (host.pinned_key, host.offered_key, host.key_accepted_by) == (KEY, "", "root")
    assert "accepted by root" in root.get(f"/hosts/{host.pk}/").content.decode()


def test_only_the_key_that_was_shown_is_accepted(browser):
    host = a_host(status=HostStatus.NEW, pinned_key="", offered_key=OTHER_KEY)
    for shown in (fingerprint(KEY), ""):
        page = (
            browser("root")
            .post(f"/hosts/{host.pk}/accept", {"fingerprint": shown}, follow=True)
            .content.decode()
        )
        assert "Compare again" in page
    host.refresh_from_db()
    assert host.pinned_key == ""


@pytest.mark.parametrize("status", [HostStatus.BLOCKED, HostStatus.UNREACHABLE, HostStatus.CHECKING])
def test_a_changed_key_shows_both_fingerprints(browser, status):
    host = a_host(
        status=status,
        offered_key=OTHER_KEY,
        key_accepted_by="alice",
        last_error="The host key changed",
    )
    page = one_line(browser("root").get(f"/hosts/{host.pk}/").content.decode())
    assert fingerprint(KEY) in page and fingerprint(OTHER_KEY) in page
    assert "has changed </strong>" in page and "Accepted by alice" in page
    # Once: the note above the page says it, and the page does not ask as for a new host.
    assert page.count(f'value="{fingerprint(OTHER_KEY)}"') == 1 and "Accept the host key?" not in page


def test_a_changed_key_of_a_jump_host_is_shown_beside_the_accepted_key_of_the_jump_host(browser):
    host = a_host(
        status=HostStatus.BLOCKED,
        jump="gate",
        jump_keys={"gate:22": OTHER_KEY},
        offered_key=KEY,
        offered_at="gate:22",
    )
    shown = browser("root").get(f"/hosts/{host.pk}/").context["host"]
    assert (shown.pinned, shown.offered) == (fingerprint(OTHER_KEY), fingerprint(KEY))


def test_a_host_that_misbehaved_says_why_and_a_check_dials_it_at_once(browser):
    host, now = a_host(), timezone.now()
    misbehaviour.close(host, "its runner broke the protocol: a second greeting", now)
    page = browser("root").get(f"/hosts/{host.pk}/")
    for words in ("Disconnected", "Why it was disconnected", "a second greeting", "misbehaving"):
        assert words in page.content.decode(), words
    browser("root").post(f"/hosts/{host.pk}/check")
    host.refresh_from_db()
    assert not misbehaviour.is_closed(host, timezone.now()) and host.due_at <= timezone.now()


def test_the_checklist_shows_every_check_its_cure_and_the_exact_error(browser):
    error = "kex_exchange_identification: Connection closed\nby remote host"
    host = a_host(
        status=HostStatus.UNUSABLE,
        last_error=error,
        checklist=[
            {"name": "Reachable", "ok": True, "text": "answers", "fix": ""},
            {"name": "GPUs", "ok": False, "text": "nvidia-smi failed", "fix": "Make nvidia-smi work"},
            {"name": "Clock", "ok": None, "text": "40 s behind", "fix": "Turn on time synchronisation"},
            {"name": "Runtimes", "ok": None, "text": "host", "fix": ""},
        ],
    )
    page = browser("vera").get(f"/hosts/{host.pk}/")
    tones = {check.name: check.tone for check in page.context["host"].checks}
    assert (tones["Reachable"], tones["GPUs"], tones["Clock"], tones["Runtimes"]) == (
        "good",
        "bad",
        "warn",
        "still",
    )
    assert tones["Memory"] == "wait" and len(tones) == len(checklist.ORDER)
    for words in (error, "Make nvidia-smi work", "Turn on time synchronisation", "not known yet"):
        assert words in page.content.decode(), words


def test_check_again_makes_the_check_due_at_once(browser):
    host = a_host(due_at=None)
    browser("root").post(f"/hosts/{host.pk}/check")
    assert Host.objects.filter(pk=host.pk).exclude(due_at=None).exists()


def test_a_host_is_not_removed_while_a_run_holds_it(browser, project, cast):
    host = a_host("gpu-9")
    job = a_job(project, cast.bob, host=host)
    root = browser("root")
    assert "1 run holds it" in root.post(f"/hosts/{host.pk}/remove", follow=True).content.decode()
    job.runs.update(released_at=job.created_at)
    assert root.post(f"/hosts/{host.pk}/remove")["Location"] == "/hosts/"
    assert not Host.objects.filter(pk=host.pk).exists()
    # Its page stays for those who follow a link of an old job; nothing can be done on it.
    page = root.get(f"/hosts/{host.pk}/").content.decode()
    assert "Removed" in page and "Check again" not in page
    assert root.post(f"/hosts/{host.pk}/check").status_code == 404


def test_the_page_of_a_host_shows_its_gpus_and_runs(browser, project, cast):
    host = a_host(gpus=2)
    job = a_job(project, cast.bob, name="bert")
    run = a_run(job, job.replicas.get(), host, gpus=[host.gpus.first()])
    shown = browser("vera").get(f"/hosts/{host.pk}/").context["host"]
    assert [gpu.run for gpu in shown.gpus] == [run.pk, ""]
    assert [line.job_name for line in shown.runs] == ["bert"]
    row = browser("vera").get("/hosts/").context["list"].rows[0]
    assert (row.gpus_used, row.gpus, row.models, row.runs) == (1, 2, "2 × NVIDIA L4", 1)


def test_people_outside_the_project_see_that_a_gpu_is_held_but_not_by_which_job(browser, project, cast):
    host = a_host(gpus=2)
    job = a_job(project, cast.bob, name="secret-bert")
    run = a_run(job, job.replicas.get(), host, gpus=[host.gpus.first()])
    page = browser("charlie").get(f"/hosts/{host.pk}/")
    shown, text = page.context["host"], one_line(page.text)
    assert [(gpu.held, gpu.run) for gpu in shown.gpus] == [(True, ""), (False, "")] and shown.runs == ()
    assert "another project" in text
    assert not [word for word in ("secret-bert", run.pk, str(job.pk)) if word in text]


def test_the_number_of_queries_does_not_grow_with_the_hosts(
    browser, project, cast, django_assert_num_queries
):
    a_host(gpus=1)
    with CaptureQueriesContext(connection) as few:
        host_list.host_list(cast.vera)
    for _ in range(10):
        a_job(project, cast.bob, host=a_host(gpus=3))
    with django_assert_num_queries(len(few)):
        assert len(host_list.host_list(cast.vera).rows) == 11


def test_the_list_of_hosts_has_pages_and_its_sums_are_of_all_hosts(browser, project, cast):
    names = [f"node-{number:02}" for number in range(host_list.SIZE + 2)]
    for name in names:
        a_host(name, gpus=1, status=HostStatus.UP if name != names[-1] else HostStatus.UNREACHABLE)
    root = browser("root")
    first = root.get("/hosts/")
    shown = first.context["list"]
    assert [row.name for row in shown.rows] == names[: host_list.SIZE]
    assert "51 of 52 up, 0 of 52 GPUs in use" in one_line(first.text)
    assert shown.next and not shown.first and names[-1] not in first.text
    second = root.get(shown.next)
    assert [row.name for row in second.context["list"].rows] == names[host_list.SIZE :]
    assert second.context["list"].first == "/hosts/" and not second.context["list"].next
    assert f'ws-connect="/ws/live?at=%2Fhosts%2F%3Fafter%3D{names[host_list.SIZE - 1]}"' in second.text


def test_the_list_of_hosts_is_filtered_by_name_address_status_and_location(browser, project, cast):
    a_host("alpha", address="192.0.2.9")
    beta = a_host("beta", location=Location.objects.create(name="lab-b"))
    a_host("gamma", status=HostStatus.UNREACHABLE)
    HostMaintenance.objects.create(host=beta, cordoned=True)
    root = browser("root")

    def names(query):
        return [row.name for row in root.get(f"/hosts/?{query}").context["list"].rows]

    assert names("text=ALPH") == ["alpha"] and names("text=192.0.2") == ["alpha"]
    assert names("status=unreachable") == ["gamma"] and names("status=cordoned") == ["beta"]
    assert names("location=lab-b") == ["beta"]
    assert names("status=nonsense") == ["alpha", "beta", "gamma"]
    assert "No host fits these filters" in root.get("/hosts/?text=delta").text


def test_the_page_of_a_host_shows_what_admins_did_however_much_the_host_says(browser):
    host, now = a_host(), timezone.now()
    host_history.record(host.pk, "key_accepted", "by a person", "alice", now - timedelta(days=2))
    for number in range(100):
        host_history.record(host.pk, "gpu_back", str(number), "trainyard", now, limited=False)
    page = browser("root").get(f"/hosts/{host.pk}/").content.decode()
    assert "by a person" in page and page.count("GPU back") == 30
