"""What a host keeps, on its page and in REST: within what each person may see, and removed by an admin alone."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.hosts import kept
from agents.links.host_watch import SILENT_S, HostWatch
from agents.models import Discard, Host, HostEvent, HostKept
from jobs.artifacts import artifacts
from jobs.models import Artifact, AuditEntry, Job, Preparation, PreparationNeed, Project, Run
from jobs.preparations.kept import uses_of
from jobs.wake import hints
from tests.unit.console.views.example_rows import a_host, a_job, one_line

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
ENTRIES = [
    ["environments", A, 5_000_000, 1_700_000_000, 1_700_001_000, False],
    ["blobs", B, 3_000_000, 1_700_000_000, 1_700_001_000, False],
    ["podman", C, None, 1_700_000_000, 1_700_001_000, True],
    ["images", D, 7, 1_700_000_000, 1_700_001_000, False],
]


@pytest.fixture
def host(db):
    row = a_host()
    Host.every.filter(pk=row.pk).update(lease_token=7)
    assert kept.record(row.pk, 7, {"kept": ENTRIES, "left_out": 2}, timezone.now()) is False
    return row


@pytest.fixture
def theirs(db):
    return Project.objects.create(name="secret-lab", created_at=timezone.now())


def needs(job, host, kind, key, title, what=None, result=None):
    now = timezone.now()
    row, _ = Preparation.objects.get_or_create(
        host=host, kind=kind, key=key,
        defaults={"what": what or {}, "title": title, "created_at": now, "used_at": now, "result": result or {}},
    )  # fmt: skip
    PreparationNeed.objects.create(preparation=row, run=job.runs.get())


@pytest.fixture
def used(host, project, theirs, cast):
    """Of the project: the environment and its package, by a job that is over. Of another: the same environment, and an
    image by a job that goes on."""
    over = a_job(project, cast.bob, state="SUCCEEDED", host=host)
    other = a_job(theirs, cast.alice, host=host)
    Run.objects.filter(job=other).update(host=host)
    blobs = {"blobs": [{"sha256": B, "size": 3}]}
    needs(over, host, "environment", A, "the Python packages of the job", blobs)
    needs(other, host, "environment", A, "the Python packages of the job")
    needs(other, host, "image", "k", "the image gs://hush/hush.tar", {"engine": "podman", "archive": C})
    needs(other, host, "image", "l", "the image hush", {"engine": "apptainer"}, {"id": D})
    artifact = artifacts.add_artifact(project, "package", "train-1.whl", [b"bytes"], "bob")
    Artifact.objects.filter(pk=artifact.pk).update(sha256=B)
    return over, other


def page(browser, host):
    return one_line(html.unescape(browser.get(f"/hosts/{host.pk}/").content.decode()))


def told(browser, host):
    answer = browser.get(f"/api/v1/hosts/{host.name}/kept").json()
    assert answer["leftOut"] == 2 and "reportTime" in answer
    return {each["kind"]: each for each in answer["kept"]}


def test_nothing_is_said_before_the_host_has_told(browser, cast):
    host = a_host()
    assert "Kept for the runs to come" not in page(browser("root"), host)
    assert browser("root").get(f"/api/v1/hosts/{host.name}/kept").json() == {
        "kept": [], "leftOut": 0, "ofOthers": 0,
    }  # fmt: skip


def test_each_thing_has_its_name_size_times_and_projects(browser, cast, host, used):
    text = page(browser("root"), host)
    for words in (
        "Python environment",
        "train-1.whl",
        "the image gs://hush/hush.tar",
        "4.8",
        "secret-lab",
        "2 more",
    ):
        assert words in text, words
    found = told(browser("root"), host)
    assert (found["environments"]["projects"], found["environments"]["otherProjects"]) == (
        ["default", "secret-lab"], 0,
    )  # fmt: skip
    assert found["blobs"]["name"] == "train-1.whl" and found["blobs"]["sizeBytes"] == 3_000_000
    assert found["blobs"]["sinceTime"].startswith("2023-11-14T22:13:20")
    assert found["podman"]["sizeBytes"] is None


def test_strangers_learn_nothing_of_what_other_projects_use(browser, cast, host, used):
    """Neither what they alone use, nor that they use the same: a digest, a size or a time would say what it is."""
    text = page(browser("bob"), host)
    answer = browser("bob").get(f"/api/v1/hosts/{host.name}/kept").json()
    for secret in ("hush", "secret-lab", str(used[1].pk), C[:12], D[:12], "other project"):
        assert secret not in text and secret not in str(answer), secret
    assert "train-1.whl" in text and "2 of them were brought by no project of yours" in text
    assert answer["ofOthers"] == 2
    blob, environment = sorted(answer["kept"], key=lambda each: each["kind"])
    assert (blob["kind"], blob["key"]) == ("blobs", B) and "sinceTime" not in blob
    assert environment == {
        "kind": "environments", "key": A, "name": "the Python packages of the job", "sizeBytes": 5_000_000,
        "projects": ["default"], "otherProjects": 0, "inUse": "", "leaving": False,
    }  # fmt: skip
    PreparationNeed.objects.filter(run__job=used[1]).delete()
    assert told(browser("bob"), host)["environments"]["sinceTime"].startswith("2023-11-14T22:13:20")


def test_who_manages_the_host_sees_all_of_it(browser, cast, host, used):
    answer = browser("root").get(f"/api/v1/hosts/{host.name}/kept").json()
    assert {each["key"] for each in answer["kept"]} == {A, B, C, D} and answer["ofOthers"] == 0


def test_a_name_of_a_file_of_another_project_is_not_shown(browser, cast, host, used, theirs):
    Artifact.objects.update(project=theirs, name="hush.whl")
    assert "hush" not in page(browser("bob"), host)
    assert told(browser("bob"), host)["blobs"]["name"] == ""
    Preparation.objects.all().delete()
    assert B[:12] not in page(browser("bob"), host) and told(browser("bob"), host) == {}


def test_what_no_job_needs_is_removed_and_the_history_says_so(browser, cast, host, used):
    Job.objects.filter(pk=used[1].pk).update(state="FAILED")
    answer = browser("root").post(f"/hosts/{host.pk}/kept/environments/{A}", follow=True)
    assert "is being removed" in one_line(answer.content.decode())
    now = timezone.now()
    assert kept.to_discard(host.pk) == [("environments", A)]
    answered = {"kind": "environments", "key": A, "why": "it is in use on the host"}
    assert kept.record_discarded(host.pk, 6, answered, now) is False, "another has the lease"
    assert kept.record_discarded(host.pk, 7, answered, now) is True and not Discard.objects.exists()
    assert kept.record_discarded(host.pk, 7, answered, now) is False, "nobody asked for that"
    text = page(browser("root"), host)
    assert "it is in use on the host" in text and "kept on the host" in text
    last = HostEvent.objects.filter(host=host, kind="kept").get()
    assert last.actor == "root"
    # Members of other projects read the history, so it has no digest. The audit has it.
    assert not any(A[:12] in line.text for line in HostEvent.objects.filter(host=host))


@pytest.mark.parametrize(("kind", "key", "words"), [
    ("images", D, "job {job} needs it"), ("podman", C, "job {job} needs it"), ("trees", A, "keeps no such thing"),
    ("blobs", A, "keeps no such thing"),
])  # fmt: skip
def test_what_is_needed_stays_with_the_reason(browser, cast, host, used, kind, key, words):
    address = f"/api/v1/hosts/{host.name}/kept/{kind}/{key}:discard"
    answer = browser("root").post(address, {}, content_type="application/json")
    assert answer.status_code == 400 and words.format(job=used[1].pk) in answer.json()["error"]["message"]
    assert not Discard.objects.exists()


def test_what_the_host_uses_stays_though_no_job_needs_it(browser, cast, host):
    answer = browser("root").post(
        f"/api/v1/hosts/{host.name}/kept/podman/{C}:discard", {}, content_type="application/json"
    )
    assert answer.status_code == 400 and "something on the host uses it now" in answer.content.decode()


def test_rest_removes_a_shipped_file_when_what_is_made_of_it_is_ready(browser, cast, host, used):
    address = f"/api/v1/hosts/{host.name}/kept/blobs/{B}:discard"
    refused = browser("root").post(address, {}, content_type="application/json")
    assert refused.status_code == 400 and "needs it" in refused.json()["error"]["message"]
    Preparation.objects.update(phase="READY")
    answer = browser("root").post(
        f"/api/v1/hosts/{host.name}/kept/blobs/{B}:discard", {}, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    assert [each["leaving"] for each in answer.json()["kept"] if each["kind"] == "blobs"] == [True]


@pytest.mark.parametrize("nonsense", [
    {}, {"kept": 7}, {"kept": [7, ["blobs"], ["x", A, 1, 1, 1, False], ["blobs", "../x", 1, 1, 1, False]]},
    {"kept": [["blobs", A, -1, 1, 1, False], ["blobs", A, 1, "1", 1, False], ["blobs", A, 1, 1, 1, "no"]]},
])  # fmt: skip
def test_a_hostile_host_stores_nothing_that_a_page_could_not_show(browser, cast, host, nonsense):
    kept.record(host.pk, 7, nonsense, timezone.now())
    assert HostKept.objects.get().entries == []
    page(browser("root"), host)


def test_without_the_lease_nothing_is_stored(host):
    kept.record(host.pk, 6, {"kept": []}, timezone.now())
    assert len(HostKept.objects.get().entries) == len(ENTRIES)


def test_a_removal_wakes_the_dispatcher_of_the_host(
    browser, cast, host, monkeypatch, django_capture_on_commit_callbacks
):
    sent = []
    monkeypatch.setattr(hints, "post", lambda task, *rest: sent.append((task, rest[0])))
    with django_capture_on_commit_callbacks(execute=True):
        browser("root").post(
            f"/api/v1/hosts/{host.name}/kept/environments/{A}:discard", {}, content_type="application/json"
        )
    assert ("jobs.tasks.watch", [host.pk]) in sent


def test_code_has_the_name_of_the_file_that_was_brought(browser, cast, host, project, theirs):
    HostKept.objects.update(entries=[["trees", D, 7, 1_700_000_000, 1_700_001_000, False]])
    job = a_job(project, cast.bob, host=host)
    Run.objects.filter(job=job).update(host=host)
    needs(job, host, "tree", D, "the code of the job", {"blob": B, "blobs": [{"sha256": B, "size": 3}]})
    assert told(browser("bob"), host)["trees"]["name"] == "the code of the job"
    artifact = artifacts.add_artifact(project, "archive", "my-code.tar.gz", [b"bytes"], "bob")
    Artifact.objects.filter(pk=artifact.pk).update(sha256=B)
    assert told(browser("bob"), host)["trees"]["name"] == "my-code.tar.gz"
    Artifact.objects.update(project=theirs)
    assert told(browser("bob"), host)["trees"]["name"] == "the code of the job"


def test_the_job_that_needs_something_is_a_link(browser, cast, host, used):
    text = page(browser("root"), host)
    assert f'needed by job <a href="/jobs/{used[1].pk}/">{used[1].pk}</a>' in text


def test_an_image_that_was_pulled_is_needed_by_its_job(host, project, cast):
    job = a_job(project, cast.bob, host=host)
    Run.objects.filter(job=job).update(host=host)
    needs(job, host, "image", "k", "the image train", {"engine": "docker"}, {"id": D})
    [use] = uses_of(host, [("docker", D)])["docker", D]
    assert (use.job, use.live, use.title) == (job.pk, 1, "the image train")


def test_removals_of_one_kind_are_told_apart_without_their_digests(browser, cast, host):
    """In the history, which members of other projects read. The audit says which number is which digest."""
    HostKept.objects.update(
        entries=[["trees", key, 1, 1_700_000_000, 1_700_000_000, False] for key in (A, B)]
    )
    for key in (A, B):
        browser("root").post(
            f"/api/v1/hosts/{host.name}/kept/trees/{key}:discard", {}, content_type="application/json"
        )
    number = {row.key: row.pk for row in Discard.objects.all()}
    kept.record_discarded(host.pk, 7, {"kind": "trees", "key": A, "why": "it is in use"}, timezone.now())
    kept.record_discarded(host.pk, 7, {"kind": "trees", "key": B}, timezone.now())
    lines = {line.kind: line.text for line in HostEvent.objects.filter(host=host).order_by("pk")}
    assert lines["kept"] == f"code (removal {number[A]}): it is in use"
    assert lines["discarded"] == f"code (removal {number[B]})"
    noted = AuditEntry.objects.filter(what="host.discard").order_by("pk")
    assert [(each.before["key"], each.before["removal"]) for each in noted] == list(number.items())


class Asked:
    """A link that notes what the host is asked to remove."""

    def __init__(self):
        self.keys = []

    def send(self, frame):
        self.keys += [frame["key"]] if frame["t"] == "discard" else []


@pytest.fixture
def removals(browser, cast, host):
    """Two that an admin ordered while the host was down, for longer than a host may be silent."""
    for kind, key in (("environments", A), ("blobs", B)):
        browser("root").post(
            f"/api/v1/hosts/{host.name}/kept/{kind}/{key}:discard", {}, content_type="application/json"
        )
    Discard.objects.update(asked_at=timezone.now() - timedelta(hours=3))
    return HostWatch(host.pk), Asked()


def test_a_removal_waits_for_a_host_that_is_down(removals):
    watch, link = removals
    watch.send(link, 1_000.0)
    assert link.keys == [A, B]
    assert not HostEvent.objects.filter(kind="kept").exists()


def test_a_removal_that_a_host_never_answers_holds_up_no_other(browser, removals, host):
    watch, link = removals
    watch.send(link, 1_000.0)
    watch.send(link, 1_000.0 + SILENT_S - 20)
    assert Discard.objects.count() == 2
    watch.send(link, 1_000.0 + SILENT_S)
    assert not Discard.objects.exists()
    assert "): the host did not answer in an hour." in page(browser("root"), host)


def test_one_that_waits_for_the_removals_before_it_is_not_given_up(removals):
    watch, link = removals
    watch.send(link, 1_000.0)
    watch.record({"t": "discarded", "kind": "environments", "key": A}, 7)
    watch.send(link, 1_000.0 + SILENT_S - 20)
    watch.send(link, 1_000.0 + SILENT_S)
    assert [row.key for row in Discard.objects.all()] == [B]
    watch.send(link, 1_000.0 + 2 * SILENT_S)
    assert not Discard.objects.exists()


def test_another_link_asks_again_and_waits_anew(removals):
    watch, link = removals
    watch.send(link, 1_000.0)
    watch.begin()
    watch.send(link, 1_000.0 + SILENT_S)
    assert link.keys == [A, B, A, B] and Discard.objects.count() == 2
