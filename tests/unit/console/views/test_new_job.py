"""The new-job form: it writes the document, the rules check it, and typed text is never lost."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from django.http import QueryDict
from django.utils import timezone

from agents.models import HostStatus
from console.forms.env_rows import EnvRow
from console.forms.fields import duration_text
from console.forms.jobs import Draft, JobDestination
from console.forms.sample import SAMPLE
from jobs import services
from jobs.models import Job, JobSecret, MaskedLog, Membership, Project, Quota, Secret
from jobs.rules.spec import parse
from jobs.rules.spec.tasks import HOST_IMAGE
from jobs.secrets import of_jobs, store
from tests.unit.console.views.example_rows import a_host, a_job, a_run, document

CHOSEN = JobDestination("default", "default", "form-1")
FORM = {
    "mode": "form",
    "project": "default",
    "location": "default",
    "display_name": "mnist",
    "pool0-kind": "bash",
    "pool0-program": "python3 train.py\r\necho done",
    "pool0-replica_count": "1",
}

POOL = {"replicaCount": "1", "containerSpec": {"imageUri": "host", "command": ["a"]}}

# Everything that the form shows, and some things that it only carries along.
DOCUMENTS = [
    document(),
    document("with pools", replicas=3, scheduling={"timeout": "5400s", "disableRetries": True}),
    {
        "displayName": "  spaces and <b>marks</b>  ",
        "labels": {"team": "vision", "empty": "", "trainyard-priority": "low"},
        "jobSpec": {
            "workerPoolSpecs": [
                {
                    "replicaCount": "1",
                    "machineSpec": {
                        "machineType": "n1-standard-8",
                        "acceleratorType": "NVIDIA_L4",
                        "acceleratorCount": 2,
                    },
                    "diskSpec": {"bootDiskSizeGb": 100},
                    "containerSpec": {
                        "imageUri": "host",
                        "command": ["python3", "-c", "print(1)\n\n# \ttab\n"],
                        "env": [{"name": "A", "value": ""}, {"name": "B", "value": "line 1\nline 2 "}],
                    },
                },
                {},
                {
                    "replicaCount": "4",
                    "containerSpec": {
                        "imageUri": "host",
                        "command": ["./a b", "", ' "x"', "--y=\n", "\\"],
                        "args": ["z"],
                    },
                },
            ],
            "scheduling": {
                "timeout": "0.5s",
                "restartJobOnWorkerRestart": True,
                "strategy": "SPOT",
                "maxWaitDuration": "60s",
            },
            "baseOutputDirectory": {"outputUriPrefix": "/data/out"},
            "enableWebAccess": True,
            "serviceAccount": "me@example.org",
        },
    },
    {
        "displayName": "stored secrets",
        "jobSpec": {
            "workerPoolSpecs": [
                {
                    "replicaCount": "1",
                    "containerSpec": {
                        "imageUri": "host",
                        "command": ["torchrun", "train.py"],
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "B", "valueFrom": {"secret": "HF"}},
                            {"name": "C", "valueFrom": {"secret": "HF", "of": "project"}},
                        ],
                    },
                }
            ]
        },
    },
    {
        "displayName": "an image, packages and code",
        "jobSpec": {
            "workerPoolSpecs": [
                {
                    "replicaCount": "1",
                    "containerSpec": {
                        "imageUri": "ghcr.io/lab/train:1",
                        "command": ["bash", "-c", "a | b"],
                        "args": ["--text=two words", "", "*"],
                        "env": [{"name": "A", "value": "1"}],
                    },
                    "trainyard": {"runtime": "podman", "code": {"artifact": 64 * "a", "directory": "src"}},
                },
                {
                    "replicaCount": "2",
                    "pythonPackageSpec": {
                        "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf:1",
                        "packageUris": ["gs://bucket/a.tar.gz", "gs://bucket/b.whl"],
                        "pythonModule": "trainer.task",
                        "args": ["--epochs", "3"],
                    },
                    "trainyard": {
                        "runtime": "docker",
                        "code": {"artifact": 64 * "a", "directory": "src"},
                        "shmMb": 2048,
                    },
                },
                {
                    "replicaCount": "1",
                    "containerSpec": {"imageUri": "ghcr.io/lab/idle"},
                    "trainyard": {"code": {"artifact": 64 * "a", "directory": "src"}},
                },
                {
                    "replicaCount": "1",
                    "containerSpec": {"imageUri": "host", "command": ["a"]},
                    "trainyard": {"runtime": "process", "code": {"artifact": 64 * "a", "directory": "src"}},
                },
            ]
        },
    },
    *(
        {**document(code[0]), "jobSpec": {"workerPoolSpecs": [{**POOL, "trainyard": {"code": code[1]}}]}}
        for code in (
            ("of a bucket", {"archiveUri": "gs://bucket/code.tar.gz"}),
            ("of git", {"git": {"url": "git@example.com:lab/train.git", "revision": "v1"}}),
            (
                "of git with a secret",
                {"git": {"url": "https://x.org/a", "revision": "main", "credentialSecret": "K"}},
            ),
        )
    ),
    SAMPLE,
    {**document(scheduling={"strategy": "FLEX_START"}), "labels": {"trainyard-priority": "no-such-word"}},
]


def posted(draft):
    """Return what a browser would send for this form: each field as it is shown, with CRLF line ends."""
    data = QueryDict(mutable=True)
    for form in (draft.job, draft.code, *draft.pools):
        for bound in form:
            value = bound.value()
            if bound.name == "env":
                for row in (*(value or ()), EnvRow("")):
                    for name, text in row._asdict().items():
                        data.appendlist(f"{bound.html_name}-{name}", text.replace("\n", "\r\n"))
            elif isinstance(value, bool):
                if value:
                    data[bound.html_name] = "on"
            elif value is not None:
                data[bound.html_name] = str(value).replace("\n", "\r\n")
    return data


@pytest.mark.parametrize("wanted", DOCUMENTS, ids=lambda wanted: wanted["displayName"].strip())
def test_a_document_is_the_same_after_a_round_trip_through_the_form(wanted):
    job = parse.parse_custom_job(wanted)
    shown = Draft.from_document(parse.to_document(job), CHOSEN)
    shown.set_choices(["default"], ["default"])
    back = Draft.from_post(posted(shown))
    back.set_choices(["default"], ["default"])
    assert back.is_valid(), [form.errors for form in (back.job, back.code, *back.pools)]
    again = parse.parse_custom_job(back.document())
    # For a program of the host the form has one command: where it was cut into command and args is not kept.
    assert whole(again) == whole(job)
    assert back.destination == CHOSEN


def whole(job):
    pools = [
        replace(pool, task=replace(pool.task, command=pool.task.argv, args=()))
        if pool and pool.task.image == HOST_IMAGE and pool.task.field == "container_spec"
        else pool
        for pool in job.job_spec.pools
    ]
    return replace(job, job_spec=replace(job.job_spec, pools=tuple(pools)))


@pytest.mark.parametrize(
    ("seconds", "text"), [(604800, "7d"), (5400, "90m"), (0.5, "0.5s"), (90, "90s"), (3600, "1h")]
)
def test_durations_are_written_briefly(seconds, text):
    assert duration_text(seconds) == text


def test_a_submitted_form_creates_the_job(browser, project):
    answer = browser("bob").post("/jobs/new", FORM)
    job = Job.objects.get()
    assert answer["Location"] == f"/jobs/{job.pk}/"
    assert (job.display_name, job.owner_name, job.project) == ("mnist", "bob", project)
    assert job.spec["workerPoolSpecs"][0]["containerSpec"]["command"] == [
        "bash",
        "-c",
        "python3 train.py\necho done",
    ]


def test_a_form_that_is_sent_twice_creates_one_job(browser):
    bob = browser("bob")
    key = re.search(r'name="request_id" value="([^"]+)"', bob.get("/jobs/new").content.decode())[1]
    answers = [bob.post("/jobs/new", {**FORM, "request_id": key}) for _ in range(2)]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert Job.objects.count() == 1
    # By way of Back, and changed: another job is meant.
    changed = bob.post("/jobs/new", {**FORM, "request_id": key, "display_name": "changed"})
    assert changed["Location"] != answers[0]["Location"] and Job.objects.count() == 2


def test_all_errors_are_shown_at_once_and_only_the_first_of_each_field(browser):
    """The page shows the errors of the form and of the job's rules, and only the first for each field."""
    wrong = {
        "timeout": "soon",
        "display_name": "",
        "pool0-accelerator_type": "H100",
        "pool0-replica_count": "x",
    }
    draft = browser("bob").post("/jobs/new", {**FORM, **wrong}).context["draft"]
    assert set(draft.job.errors) == {"timeout", "display_name"}
    assert set(draft.pools[0].errors) == {"accelerator_type", "replica_count"}
    told = draft.pools[0].errors["accelerator_type"][0]
    assert "Did you mean NVIDIA_H100" in told and len(told) < 200
    assert all(len(words) == 1 for form in (draft.job, draft.pools[0]) for words in form.errors.values())


WRONG = [
    ({"display_name": ""}, "display_name", "Name is required."),
    ({"display_name": "x" * 129}, "display_name", "129 characters"),
    ({"timeout": "soon"}, "timeout", "Write a duration"),
    ({"timeout": "0s"}, "timeout", "more than 0s"),
    ({"max_wait_duration": "a while"}, "max_wait_duration", "Write a duration"),
    ({"max_wait_duration": "9000d"}, "max_wait_duration", "0s (for ever)"),
    ({"strategy": "LOTTERY"}, "strategy", "not one of the available choices"),
    ({"priority": "urgent"}, "priority", "urgent is not one of"),
    ({"priority": "high", "labels": "trainyard-priority=low"}, "priority", "in one place"),
    ({"labels": "Team"}, "labels", "no “=”"),
    ({"labels": "Team=x"}, "labels", "lowercase"),
    ({"pool0-program": ""}, "pool0-program", "Program is required."),
    ({"pool0-replica_count": "2"}, "pool0-replica_count", "must be 1 in the first pool"),
    ({"pool0-replica_count": "many"}, "pool0-replica_count", "whole number"),
    ({"pool0-accelerator_count": "2"}, "pool0-accelerator_type", "is required"),
    ({"pool0-accelerator_type": "NVIDIA_L4"}, "pool0-accelerator_count", "at least 1"),
    (
        {"pool0-accelerator_type": "nonsense", "pool0-accelerator_count": "1"},
        "pool0-accelerator_type",
        "not a known value",
    ),
    ({"pool0-machine_type": "cray-1"}, "pool0-machine_type", "not a machine type"),
    (
        {"pool0-env-name": ["OK", "1BAD"], "pool0-env-value": ["", "x"]},
        "pool0-env",
        "Row 2: the name must be",
    ),
    ({"pool0-env-name": "TRAINYARD_X", "pool0-env-value": "x"}, "pool0-env", "the runner"),
    ({"pool1-on": "on", "pool1-kind": "bash", "pool1-program": ""}, "pool1-program", "Program is required."),
    ({"pool2-on": "on", "pool2-kind": "argv", "pool2-program": "x\0"}, "pool2-program", "ull"),
    ({"pool0-kind": "perl"}, "pool0-kind", "not one of the available choices"),
    ({"location": "mars"}, "location", "not one of the available choices"),
]


@pytest.mark.parametrize(
    ("change", "field", "words"), WRONG, ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_error_is_shown_at_its_field(browser, change, field, words):
    answer = browser("bob").post("/jobs/new", {**FORM, **change})
    assert answer.status_code == 200 and not Job.objects.exists()
    draft = answer.context["draft"]
    prefix, _, name = field.rpartition("-")
    form = draft.pools[int(prefix[-1])] if prefix else draft.job
    assert words in " ".join(form.errors[name]), form.errors
    page = answer.content.decode()
    assert form.errors[name][0] in page.replace("&quot;", '"').replace("&#x27;", "'")
    assert "python3 train.py" in page or "pool0-program" in change


def test_a_refused_form_shows_all_errors_and_keeps_its_values(browser):
    hostile = "</textarea><script>alert(1)</script>"
    answer = browser("bob").post(
        "/jobs/new",
        {
            **FORM,
            "display_name": hostile * 9,
            "labels": hostile,
            "pool0-program": hostile,
            "pool0-env-name": ["A", hostile],
            "pool0-env-value": ["1", hostile],
            "pool3-on": "on",
            "pool3-kind": "argv",
            "pool3-program": hostile,
            "pool3-machine_type": hostile,
        },
    )
    page = answer.content.decode()
    # Typed eight times over, shown each time as text, and in no other way.
    assert page.count("&lt;/textarea&gt;&lt;script&gt;") >= 15
    assert "<script>alert" not in page
    draft = answer.context["draft"]
    assert {"labels"} <= set(draft.job.errors)


def test_a_document_that_fits_no_host_is_refused_with_the_reason(browser):
    a_host(gpus=1)
    typed = {**FORM, "pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "8"}
    answer = browser("bob").post("/jobs/new", typed)
    assert not Job.objects.exists()
    (words,) = answer.context["draft"].pools[0].errors["accelerator_type"]
    assert "8 NVIDIA_L4" in words and words in answer.content.decode()


def test_what_quota_can_never_allow_is_refused_at_its_field(browser, project):
    a_host(gpus=8)
    Quota.objects.create(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=4)
    typed = {**FORM, "pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "8"}
    answer = browser("bob").post("/jobs/new", typed)
    assert not Job.objects.exists()
    (words,) = answer.context["draft"].pools[0].errors["accelerator_count"]
    assert "The quota of NVIDIA_L4 at once is 4 for project default, and this job asks for 8" in words
    seen = browser("bob").post("/jobs/new", {**typed, "action": "check"}).context["preview"]
    assert seen.tone == "bad" and seen.text == words
    assert browser("bob").post("/jobs/new", {**typed, "pool0-accelerator_count": "4"}).status_code == 302


def test_the_form_and_its_json_are_two_views_of_one_job(browser):
    bob = browser("bob")
    as_json = bob.post("/jobs/new", {**FORM, "action": "json", "timeout": "90m"})
    draft = as_json.context["draft"]
    text = draft["text"].value()
    assert json.loads(text)["jobSpec"]["scheduling"]["timeout"] == "5400s"
    sent = {"mode": "json", "project": "default", "location": "default", "text": text}
    as_form = bob.post("/jobs/new", {**sent, "action": "form"})
    assert as_form.context["draft"].job["timeout"].value() == "90m"
    assert bob.post("/jobs/new", sent).status_code == 302
    assert Job.objects.get().display_name == "mnist"


def test_the_json_of_an_invalid_form_is_shown_with_its_errors(browser):
    answer = browser("bob").post("/jobs/new", {**FORM, "action": "json", "display_name": ""})
    assert "<code>display_name</code> is required." in answer.content.decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "The text is not JSON"),
        ("[1]", "A CustomJob is a JSON object"),
        ("[" * 100_000, "The text is"),
        (
            '{"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"replicaCount": "x"}]}}',
            "job_spec.worker_pool_specs[0]",
        ),
        ('{"displayName": "x", "jobSpek": {}}', "jobSpek"),
    ],
)
def test_invalid_json_is_refused_and_the_page_keeps_it(browser, text, words):
    sent = {"mode": "json", "project": "default", "location": "default", "text": text}
    page = browser("bob").post("/jobs/new", sent).content.decode()
    assert words in page and not Job.objects.exists()
    assert text[:1000].replace('"', "&quot;") in page


@pytest.mark.parametrize(
    ("gpus", "asked", "tone"), [(2, "2", "good"), (2, "1", "good"), (2, "3", "bad"), (0, "1", "bad")]
)
def test_the_preview_says_whether_it_would_start(browser, gpus, asked, tone):
    a_host(gpus=gpus)
    typed = {
        **FORM,
        "pool0-accelerator_type": "NVIDIA_L4",
        "pool0-accelerator_count": asked,
        "action": "check",
    }
    assert browser("bob").post("/jobs/new", typed).context["preview"].tone == tone
    assert not Job.objects.exists()


def test_the_preview_counts_held_resources_and_the_form_offers_free_ones(browser, project, cast):
    host = a_host(gpus=2)
    job = a_job(project, cast.bob)
    a_run(job, job.replicas.get(), host, gpus=[host.gpus.first()])
    a_host(status=HostStatus.UNREACHABLE, gpus=4)
    typed = {**FORM, "pool0-accelerator_type": "NVIDIA_L4", "pool0-accelerator_count": "2", "action": "check"}
    answer = browser("bob").post("/jobs/new", typed)
    assert answer.context["preview"].tone == "wait"
    assert '<option value="NVIDIA_L4">1 of 2 free</option>' in answer.content.decode()


def test_a_full_console_disk_does_not_lose_the_typed_form(browser, monkeypatch):
    def full(*_, **__):
        raise services.Unavailable("The disk of this console is nearly full.")

    monkeypatch.setattr(services, "submit", full)
    answer = browser("bob").post("/jobs/new", FORM)
    assert answer.status_code == 503
    assert "nearly full" in answer.content.decode() and "python3 train.py" in answer.content.decode()


def test_a_clone_fills_the_form_with_the_job(browser, project, cast):
    job = a_job(project, cast.bob, name="first try", replicas=3, labels={"team": "vision"})
    draft = browser("bella").get(f"/jobs/{job.pk}/clone").context["draft"]
    assert draft.job["display_name"].value() == "first try"
    assert draft.job["labels"].value() == "team=vision"
    assert [pool.used for pool in draft.pools] == [True, True, False, False]
    assert draft.pools[1]["replica_count"].value() == 2


def test_the_sample_runs_with_one_click(browser):
    answer = browser("bob").post("/jobs/sample")
    assert answer["Location"] == f"/jobs/{Job.objects.get().pk}/"


def test_a_job_is_not_submitted_to_a_project_of_other_people(browser, cast):
    answer = browser("charlie").post("/jobs/new", FORM)
    assert answer.status_code == 200 and not Job.objects.exists()
    assert "not one of the available choices" in str(answer.context["draft"].job.errors["project"])


def test_priority_and_spot_are_set_in_the_form_and_high_needs_permission(browser, cast, project):
    asked = {**FORM, "priority": "high", "strategy": "SPOT", "action": "submit"}
    Project.objects.filter(pk=project.pk).update(highest_priority="high")
    assert (
        "high is for admins"
        in browser("bob").post("/jobs/new", {**asked, "action": "check"}).content.decode()
    )
    refused = browser("bob").post("/jobs/new", asked)
    page = refused.content.decode()
    assert refused.status_code == 200 and "high is for admins of the project" in page
    assert '<option value="high" selected>' in page and not Job.objects.exists()
    Project.objects.filter(pk=project.pk).update(highest_priority="normal")
    capped = browser("alice").post("/jobs/new", asked).content.decode()
    assert "Jobs of project default have priority normal at most" in capped and not Job.objects.exists()
    Project.objects.filter(pk=project.pk).update(highest_priority="high")
    assert browser("alice").post("/jobs/new", asked).status_code == 302
    job = Job.objects.get()
    assert (job.priority, job.spot, job.labels) == (100, True, {"trainyard-priority": "high"})
    shown = browser("alice").get(f"/jobs/{job.pk}/clone").content.decode()
    assert '<option value="high" selected>' in shown and '<option value="SPOT" selected>' in shown
    assert 'name="labels"' in shown and ">\ntrainyard-priority" not in shown
    browser("bob").post("/jobs/new", {**asked, "priority": "low", "strategy": ""})
    assert Job.objects.latest("pk").priority == -100


def test_the_form_sets_all_scheduling_fields_and_a_clone_keeps_them(browser):
    scheduling = {
        "timeout": "5400s",
        "maxWaitDuration": "0s",
        "strategy": "FLEX_START",
        "disableRetries": True,
        "restartJobOnWorkerRestart": True,
    }
    typed = {"timeout": "90m", "max_wait_duration": "0s", "strategy": "FLEX_START"}
    flags = {"disable_retries": "on", "restart_job_on_worker_restart": "on"}
    bob = browser("bob")
    assert bob.post("/jobs/new", {**FORM, **typed, **flags}).status_code == 302
    job = Job.objects.get()
    assert job.spec["scheduling"] == scheduling
    cloned = bob.get(f"/jobs/{job.pk}/clone").context["draft"]
    assert cloned.job.scheduling_shown and not cloned.job.more_shown
    shown = posted(cloned)
    assert bob.post("/jobs/new", {**shown.dict(), "mode": "form", "request_id": "2"}).status_code == 302
    assert Job.objects.latest("pk").spec["scheduling"] == scheduling
    assert not Draft.from_document(document(), CHOSEN).job.scheduling_shown


def test_a_clone_says_why_it_cannot_be_in_the_project_of_the_original(browser, cast, project):
    Membership.objects.create(project=cast.elsewhere, user=cast.vera, role="submitter")
    path = f"/jobs/{a_job(project, cast.bob).pk}/clone"
    told = "does not let you submit jobs. Project elsewhere is selected in the form instead."
    assert told in browser("vera").get(path).content.decode()
    assert told not in browser("bob").get(path).content.decode()
    Project.objects.filter(pk=project.pk).update(archived_at=timezone.now())
    assert (
        "Project default is archived. Project elsewhere is selected in the form instead."
        in browser("root").get(path).content.decode()
    )


def pools_of(job):
    return [pool["containerSpec"] for pool in job.spec["workerPoolSpecs"]]


def test_a_command_of_one_line_is_cut_into_its_words(browser):
    """`torchrun --nproc-per-node 8 train.py` could start, and then failed: no such file."""
    typed = {"pool0-kind": "argv", "pool0-program": "torchrun --nproc-per-node 8 train.py"}
    assert browser("bob").post("/jobs/new", {**FORM, **typed}).status_code == 302
    assert pools_of(Job.objects.get())[0]["command"] == ["torchrun", "--nproc-per-node", "8", "train.py"]


@pytest.mark.parametrize(
    ("by", "command"),
    [
        ("bash", ["bash", "-c", "python3 a.py | tee log"]),
        ("words", ["python3", "a.py", "|", "tee", "log"]),
    ],
)
def test_a_line_for_a_shell_is_a_question_with_two_answers(browser, by, command):
    a_host()
    typed = {**FORM, "pool0-kind": "argv", "pool0-program": "python3 a.py | tee log"}
    bob = browser("bob")
    asked = bob.post("/jobs/new", {**typed, "action": "submit"})
    page = asked.content.decode()
    assert not Job.objects.exists() and "means something to a shell only" in page
    assert 'name="pool0-by" value="bash"' in page and 'name="pool0-by" value="words"' in page
    assert 'name="then" value="submit"' in page
    # Enter in a field presses the first button of a form: it has to be a submit, and not an answer.
    assert page.index('name="action" value="submit"') < page.index('name="pool0-by"')
    looked = bob.post("/jobs/new", {**typed, "then": "check", "pool0-by": by})
    assert looked.context["preview"].tone == "good" and not Job.objects.exists()
    assert bob.post("/jobs/new", {**typed, "then": "submit", "pool0-by": by}).status_code == 302
    assert pools_of(Job.objects.get())[0]["command"] == command


def test_an_open_quote_is_an_error_of_the_program(browser):
    typed = {**FORM, "pool0-kind": "argv", "pool0-program": "python3 -c 'print(1)"}
    draft = browser("bob").post("/jobs/new", typed).context["draft"]
    assert "A quote is not closed" in draft.pools[0].errors["program"][0]


def test_three_pools_need_one_program(browser):
    """The others follow the primary; what is hidden in them is neither read nor checked."""
    others = {
        "pool1-on": "on",
        "pool1-same": "on",
        "pool1-replica_count": "2",
        "pool1-kind": "argv",
        "pool1-program": "a | b",
        "pool2-on": "on",
        "pool2-same": "on",
        "pool2-env-name": "1BAD",
        "pool2-env-value": "x",
        "pool3-on": "on",
        "pool3-kind": "argv",
        "pool3-program": "python3 evaluate.py",
        "pool0-env-name": ["LR", "HF_TOKEN"],
        "pool0-env-value": ["0.1", "hf_very-secret"],
        "pool0-env-kind": ["plain", "secret"],
    }
    assert browser("bob").post("/jobs/new", {**FORM, **others}).status_code == 302
    first, second, third, last = pools_of(Job.objects.get())
    assert first == second == third != last and last["command"] == ["python3", "evaluate.py"]
    assert [one["name"] for one in third["env"]] == ["LR", "HF_TOKEN"]
    assert JobSecret.objects.count() == 3
    page = browser("bob").get(f"/jobs/{Job.objects.get().pk}/clone").context["draft"]
    assert [bool(pool["same"].value()) for pool in page.pools[1:]] == [True, True, False]


def test_an_error_in_the_program_of_all_pools_is_told_once(browser):
    others = {"pool1-on": "on", "pool1-same": "on", "pool0-program": "", "pool2-on": "on", "pool2-same": "on"}
    draft = browser("bob").post("/jobs/new", {**FORM, **others}).context["draft"]
    assert draft.pools[0].errors["program"] == ["Program is required."]
    assert not draft.pools[1].errors and not draft.pools[2].errors and not draft.job.non_field_errors()


def test_pasted_env_lines_become_rows(browser):
    lines = 'export LR=0.1\r\n# comment\r\nNAME="a b"\r\nEMPTY='
    typed = {**FORM, "pool0-env-name": "A", "pool0-env-value": "1", "pool0-env_lines": lines}
    bob = browser("bob")
    shown = bob.post("/jobs/new", {**typed, "action": "check"}).context["draft"].pools[0]
    assert [tuple(row[:2]) for row in shown["env"].value()] == [
        ("A", "1"),
        ("LR", "0.1"),
        ("NAME", "a b"),
        ("EMPTY", ""),
    ]
    assert not shown["env_lines"].value()
    assert bob.post("/jobs/new", typed).status_code == 302
    env = {one["name"]: one.get("value", "") for one in pools_of(Job.objects.get())[0]["env"]}
    assert env == {"A": "1", "LR": "0.1", "NAME": "a b", "EMPTY": ""}


def test_env_lines_that_cannot_be_read_stay_with_their_errors(browser):
    lines = "A=1\nKEY='first\nsecond line"
    answer = browser("bob").post("/jobs/new", {**FORM, "pool0-env_lines": lines})
    pool = answer.context["draft"].pools[0]
    told = pool.errors["env_lines"]
    assert "Line 2: the quote of KEY is not closed" in told[0] and "Line 3: write NAME=value" in told[1]
    assert pool["env_lines"].value() == lines and not pool["env"].value() and not Job.objects.exists()


def test_pasted_lines_are_answered_as_rows_for_the_page(browser):
    bob = browser("bob")
    page = bob.post("/jobs/new/env-rows", {"pool": "pool1", "lines": "A=1\nB='2 3'"}).content.decode()
    assert page.count('name="pool1-env-name"') == 2 and 'value="B"' in page and "2 3</textarea>" in page
    wrong = bob.post(
        "/jobs/new/env-rows", {"pool": "pool1", "lines": 'TOKEN="hf_very-secret'}
    ).content.decode()
    assert "the quote of TOKEN is not closed" in wrong and "hf_very" not in wrong
    assert bob.post("/jobs/new/env-rows", {"pool": "x", "lines": ""}).status_code == 404
    assert browser("vera").post("/jobs/new/env-rows", {"pool": "pool1", "lines": ""}).status_code == 403


def test_without_scripts_more_rows_unfold_so_that_no_form_is_sent_and_loses_its_secrets(browser):
    page = browser("bob").get("/jobs/new").content.decode()
    rows, _, folded = page[page.index('id="pool0"') :].partition("<noscript>")
    folded = folded.partition("</noscript>")[0]
    assert rows.count('name="pool0-env-name"') == 3 and folded.count('name="pool0-env-name"') == 6
    assert "<summary>More rows</summary>" in folded and 'aria-label="Name of variable 4"' in folded
    assert 'type="submit"' not in folded and "formaction" not in folded


@pytest.mark.parametrize("page", ["/jobs/new", "/jobs/pipelines/new"])
def test_an_answer_to_a_script_has_no_folded_rows(browser, page):
    """htmx makes elements of what stands in noscript, and so their inputs would be sent with each form."""
    htmx = {"HX-Request": "true"}
    answers = [browser("bob").post(page, {**FORM, "action": "check"}, headers=htmx)]
    answers.append(browser("bob").get(page, headers=htmx))
    for answer in answers:
        shown = answer.content.decode()
        assert "More rows</summary>" not in shown and 2 <= shown.count('name="pool0-env-name"') <= 3
    whole = browser("bob").post(page, {**FORM, "action": "check"}).content.decode()
    assert whole.count('name="pool0-env-name"') == 8 and "More rows</summary>" in whole


SECRET_ROWS = {
    "pool0-env-name": ["HF_TOKEN", "WANDB"],
    "pool0-env-value": ["hf_very-secret", ""],
    "pool0-env-kind": ["secret", "stored"],
    "pool0-env-stored": ["", "WANDB_KEY"],
}


def test_secret_rows_make_secret_variables(browser, cast, project):
    store.put(project, "WANDB_KEY", "wandb-value", "alice", timezone.now())
    assert browser("bob").post("/jobs/new", {**FORM, **SECRET_ROWS}).status_code == 302
    job = Job.objects.get()
    assert pools_of(job)[0]["env"] == [
        {"name": "HF_TOKEN", "value": "", "secret": True},
        {"name": "WANDB", "value": "", "valueFrom": {"secret": "WANDB_KEY"}},
    ]
    assert sorted(of_jobs.values_of(job.pk)) == ["hf_very-secret", "wandb-value"]


@pytest.mark.parametrize("action", ["submit", "check", "json", "form"])
@pytest.mark.parametrize("mode", ["form", "json"])
def test_no_page_of_the_form_has_a_secret_value(browser, cast, project, action, mode):
    """Whatever was pressed, and whatever else is wrong."""
    store.put(project, "WANDB_KEY", "wandb-value", "alice", timezone.now())
    pool = {
        "replicaCount": "1",
        "containerSpec": {
            "imageUri": "host",
            "command": [],
            "env": [{"name": "HF_TOKEN", "value": "hf_very-secret", "secret": True}],
        },
    }
    text = json.dumps({"displayName": "", "jobSpec": {"workerPoolSpecs": [pool]}})
    sent = {**FORM, **SECRET_ROWS, "display_name": "", "mode": mode, "text": text, "action": action}
    page = browser("bob").post("/jobs/new", sent).content.decode()
    assert "HF_TOKEN" in page and "hf_very-secret" not in page and "wandb-value" not in page


def test_a_clone_asks_for_the_inline_secret_again(browser, cast, project):
    store.put(project, "WANDB_KEY", "wandb-value", "alice", timezone.now())
    bob = browser("bob")
    bob.post("/jobs/new", {**FORM, **SECRET_ROWS})
    shown = bob.get(f"/jobs/{Job.objects.get().pk}/clone")
    assert "hf_very-secret" not in shown.content.decode()
    copy = posted(shown.context["draft"])
    (told,) = bob.post("/jobs/new", dict(copy.lists())).context["draft"].pools[0].errors["env"]
    assert told.startswith("Row 1: type the value of HF_TOKEN.") and Job.objects.count() == 1
    copy.setlist("pool0-env-value", ["another-secret", "", ""])
    assert bob.post("/jobs/new", dict(copy.lists())).status_code == 302 and Job.objects.count() == 2


def test_the_preview_checks_that_a_stored_secret_exists(browser, cast, project):
    a_host()
    bob, typed = browser("bob"), {**FORM, **SECRET_ROWS, "action": "check"}
    (told,) = bob.post("/jobs/new", typed).context["draft"].pools[0].errors["env"]
    assert "There is no secret WANDB_KEY of yours or of project default" in told
    store.put(cast.bob, "WANDB_KEY", "of-bob", "bob", timezone.now())
    answer = bob.post("/jobs/new", typed)
    assert (
        answer.context["preview"].tone == "good" and '<option value="WANDB_KEY">' in answer.content.decode()
    )
    assert Secret.objects.get().used_at is None


def test_the_form_offers_the_persons_and_the_projects_secrets_only(browser, cast, project):
    now = timezone.now()
    for owner, name in ((project, "P_KEY"), (project, "BOTH"), (cast.bob, "BOTH"), (cast.alice, "A_KEY")):
        store.put(owner, name, "any-value", "root", now)
    store.put(cast.elsewhere, "ELSEWHERE", "any-value", "root", now)
    offered = {(one.name, one.project) for one in browser("bob").get("/jobs/new").context["stored_secrets"]}
    assert offered == {("BOTH", ""), ("project/BOTH", "default"), ("P_KEY", "default")}


def test_the_pages_of_a_log_say_that_secrets_are_masked(browser, cast, project):
    host, bob = a_host(), browser("bob")
    bob.post("/jobs/new", {**FORM, **{name: value[:1] for name, value in SECRET_ROWS.items()}})
    job = Job.objects.get()
    pages = [f"/jobs/{job.pk}/log/workerpool0-0", f"/jobs/{job.pk}/log"]
    run = a_run(job, job.replicas.get(), host)
    for page in pages:
        said = bob.get(page).content.decode()
        assert "Secrets are masked" in said and "is masked." not in said
    MaskedLog.objects.create(run=run, masked_to=9, ranges=2)
    assert all("2 places are masked." in bob.get(page).content.decode() for page in pages)
    plain = a_job(project, cast.bob)
    assert "Secrets are masked" not in bob.get(f"/jobs/{plain.pk}/log").content.decode()
