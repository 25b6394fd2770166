"""The customJobs API as scripts use it: requests, responses, refusals."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from console.api.jobs import custom_jobs
from jobs.models import Job, Membership, Project, Quota, Role
from tests.unit.console.api.conftest import ALL, JOBS
from tests.unit.console.views.example_rows import a_host, a_job, document

pytestmark = pytest.mark.django_db


def named(answer):
    return [job["displayName"] for job in answer.json()["customJobs"]]


SNAKE = {
    "display_name": "train",
    "job_spec": {
        "worker_pool_specs": [
            {"replica_count": 1.0, "container_spec": {"image_uri": "host", "command": ["true"]}},
            {},
            {
                "replica_count": "2",
                "machine_spec": None,
                "container_spec": {"image_uri": "host", "args": ["true"]},
            },
        ],
        "scheduling": {"timeout": "3600s", "strategy": 3},
        "enable_web_access": True,
    },
    "labels": {"team": "vision"},
}


@pytest.mark.parametrize(
    ("path", "sent"),
    [(JOBS, document()), (JOBS + "?$alt=json;enum-encoding=int", SNAKE), ("/" + JOBS, SNAKE)],
)
def test_a_job_is_created_from_each_spelling_of_address_and_fields(script, path, sent):
    doubled = {"PATH_INFO": path} if path.startswith("//") else {}
    answer = script("bob").post(path.replace("//", "/"), sent, content_type="application/json", **doubled)
    assert answer.status_code == 200, answer.content
    job = answer.json()
    row = Job.objects.get()
    assert job["name"] == f"projects/default/locations/us-central1/customJobs/{row.pk}"
    assert (job["displayName"], job["state"]) == ("train", "JOB_STATE_QUEUED")
    assert job["createTime"].endswith("Z") and "startTime" not in job and "error" not in job
    assert row.owner_name == "bob"
    if sent is SNAKE:
        pools = job["jobSpec"]["workerPoolSpecs"]
        assert [pool.get("replicaCount") for pool in pools] == ["1", None, "2"]
        assert pools[1] == {} and pools[0]["containerSpec"]["imageUri"] == "host"
        assert job["jobSpec"]["enableWebAccess"] is True and job["labels"] == {"team": "vision"}
    again = script("vera").get("/v1/" + job["name"]).json()
    assert again == job


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"displayName": "x"}', "job_spec"),
        ('{"displayName": 7, "jobSpec": {"workerPoolSpecs": [{"replicaCount": "many"}]}}', "display_name"),
        (
            '{"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"replicaCount": "many"}]}}',
            "worker_pool_specs[0]",
        ),
        ("[1, 2]", None),
        ("{", None),
        ("[" * 100_000, None),
        (b"\xff\xfe{}", None),
    ],
)
def test_a_refusal_names_the_field(script, body, field):
    answer = script("bob").post(JOBS, body, content_type="application/json")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    if field:
        (details,) = error["details"]
        assert details["@type"] == "type.googleapis.com/google.rpc.BadRequest"
        assert any(field in one["field"] and one["description"] for one in details["fieldViolations"])
    assert not Job.objects.exists()


def test_what_quota_can_never_allow_is_refused_by_its_field(script, project):
    Quota.objects.create(project=project, metric="gpus", accelerator_type="NVIDIA_L4", value=16)
    body = document(replicas=3)
    for pool in body["jobSpec"]["workerPoolSpecs"]:
        pool["machineSpec"] = {"acceleratorType": "NVIDIA_L4", "acceleratorCount": 8}
    answer = script("bob").post(JOBS, body, content_type="application/json")
    (details,) = answer.json()["error"]["details"]
    (violation,) = details["fieldViolations"]
    assert answer.status_code == 400 and not Job.objects.exists()
    assert violation["field"] == "job_spec.worker_pool_specs[1].machine_spec.accelerator_count"
    assert "at once is 16 for project default, and this job asks for 24" in violation["description"]


def test_one_idempotency_key_creates_one_job(script):
    bob = script("bob", **{"Idempotency-Key": "nightly-1"})
    first = bob.post(JOBS, document(), content_type="application/json").json()
    assert bob.post(JOBS, document(), content_type="application/json").json() == first
    other = bob.post(JOBS, document("other"), content_type="application/json")
    assert (other.status_code, other.json()["error"]["status"]) == (409, "ALREADY_EXISTS")
    alice = script("alice", **{"Idempotency-Key": "nightly-1"})
    assert alice.post(JOBS, document(), content_type="application/json").json()["name"] != first["name"]
    refused = script("bob", **{"Idempotency-Key": "with space"}).post(
        JOBS, document(), content_type="application/json"
    )
    assert refused.status_code == 400 and Job.objects.count() == 2


# May do it: 200. May see but not do it: 403. May not see it: 404. No login: 401.
MATRIX = {
    "list": {"root": 200, "alice": 200, "bob": 200, "vera": 200, "charlie": 404, None: 401, "gone": 401},
    "get": {
        "root": 200,
        "alice": 200,
        "bella": 200,
        "vera": 200,
        "charlie": 404,
        "loner": 404,
        None: 401,
        "gone": 401,
    },
    "create": {"root": 200, "bob": 200, "vera": 403, "charlie": 404, None: 401},
    "cancel": {"root": 200, "alice": 200, "bob": 200, "bella": 403, "vera": 403, "charlie": 404, None: 401},
    "delete": {"alice": 400, "bob": 400, "bella": 403, "vera": 403, "charlie": 404, None: 401},
    "ours": {"vera": 200, "charlie": 404, None: 401},
    "log": {"vera": 200, "charlie": 404, None: 401},
}


@pytest.mark.parametrize("verb", MATRIX)
def test_each_role_gets_the_answer_that_its_permissions_allow(script, cast, project, verb):
    job = a_job(project, cast.bob)
    calls = {
        "list": lambda client: client.get(ALL),
        "get": lambda client: client.get(f"{JOBS}/{job.pk}"),
        "create": lambda client: client.post(JOBS, document(), content_type="application/json"),
        "cancel": lambda client: client.post(f"{JOBS}/{job.pk}:cancel"),
        "delete": lambda client: client.delete(f"{JOBS}/{job.pk}"),
        "ours": lambda client: client.get(f"/api/v1/jobs/{job.pk}"),
        "log": lambda client: client.get(f"/api/v1/jobs/{job.pk}/replicas/workerpool0-0/log"),
    }
    answers = {who: calls[verb](script(who)) for who in MATRIX[verb]}
    assert {who: answer.status_code for who, answer in answers.items()} == MATRIX[verb]
    for answer in answers.values():
        if answer.status_code >= 400:
            assert answer.json()["error"]["code"] == answer.status_code and b"bob" not in answer.content
        assert ("WWW-Authenticate" in answer) == (answer.status_code == 401)


def test_the_sdk_shows_the_message_for_a_wrong_token(script, db):
    assert script(authorization="Bearer tyd_wrong").get(ALL).status_code == 401
    answer = script(authorization="Bearer tyd_wrong", **{"x-goog-api-client": "gl-python/3.11"}).get(ALL)
    assert answer.status_code == 403 and "token" in answer.json()["error"]["message"]


def test_errors_have_the_format_of_google_apis(script):
    alice = script("alice")
    for method, path, status in (
        ("get", "/v1/projects/default/locations/x/datasets", 501),
        ("get", JOBS + "/12345", 404),
        ("get", JOBS + "/" + "9" * 19, 404),
        ("get", JOBS + "/abc", 404),
        ("post", JOBS + "/12345:cancel", 404),
        ("put", JOBS, 405),
        ("post", "/api/v1/nothing", 404),
    ):
        answer = getattr(alice, method)(path)
        assert (path, answer.status_code, answer.json()["error"]["code"]) == (path, status, status)


def test_cancelling_and_deleting(script, cast, project):
    job = a_job(project, cast.bob, state="QUEUED")
    bob = script("bob")
    answer = bob.post(f"{JOBS}/{job.pk}:cancel", content_type="application/x-www-form-urlencoded")
    assert (answer.status_code, answer.json()) == (200, {})
    document = bob.get(f"{JOBS}/{job.pk}").json()
    assert (
        document["state"] == "JOB_STATE_CANCELLED" and document["error"]["code"] == 1 and document["endTime"]
    )
    operation = bob.delete(f"{JOBS}/{job.pk}").json()
    assert operation["done"] is True and operation["response"]["@type"].endswith("google.protobuf.Empty")
    assert bob.get(f"{JOBS}/{job.pk}").status_code == 404
    for prefix in ("/v1/", "/ui/"):
        assert bob.get(prefix + operation["name"]).json()["done"] is True


def test_an_operation_reveals_nothing_about_other_projects(script, cast, project):
    job = a_job(project, cast.bob)
    of = "/v1/projects/{}/locations/us-central1/operations/{}".format
    assert script("bob").get(of("default", job.pk)).status_code == 404
    assert script("charlie").get(of("default", job.pk)).status_code == 404
    answers = [script("charlie").get(of("elsewhere", pk)).status_code for pk in (job.pk, job.pk + 1)]
    assert answers == [404, 404]


def test_shells_are_offered_while_the_job_runs(script, cast, project):
    host = a_host()
    running = a_job(project, cast.bob, host=host, replicas=2)
    ended = a_job(project, cast.bob, host=host, state="FAILED", error_code=3, error_message="exit 1")
    plain = a_job(project, cast.bob, host=host)
    Job.objects.filter(pk=plain.pk).update(spec={**plain.spec, "enableWebAccess": False})
    jobs = {job["name"].rsplit("/")[-1]: job for job in script("vera").get(ALL).json()["customJobs"]}
    uris = jobs[str(running.pk)]["webAccessUris"]
    assert sorted(uris) == ["workerpool0-0", "workerpool1-0"]
    assert (
        uris["workerpool1-0"] == f"http://testserver/jobs/{running.pk}/shell/{running.pk}-workerpool1-0-a1-r0"
    )
    assert "webAccessUris" not in jobs[str(plain.pk)] and "webAccessUris" not in jobs[str(ended.pk)]
    assert (
        jobs[str(ended.pk)]["error"] == {"code": 3, "message": "exit 1"}
        and "startTime" in jobs[str(running.pk)]
    )


@pytest.fixture
def shelf(cast, project):
    """Three jobs, oldest first."""
    now = timezone.now()
    for name, state, labels, age in (
        ("my_job_a", "SUCCEEDED", {"team": "vision", "0": "x"}, 30),
        ("my_job_b", "FAILED", {"team": "speech"}, 20),
        ("other (c)", "RUNNING", {"owner": "c", "team": ""}, 10),
    ):
        a_job(project, cast.bob, state=state, name=name, labels=labels, created_at=now - timedelta(days=age))
    return now


A, B, C = "my_job_a", "my_job_b", "other (c)"


FILTERS = [
    ("", [C, B, A]),
    ('state="JOB_STATE_SUCCEEDED" AND display_name:"my_job_*"', [A]),
    ('state!="JOB_STATE_FAILED" OR display_name="my_job_b"', [C, B, A]),
    ('NOT display_name="my_job_a"', [C, B]),
    ('-displayName="my_job_a" state=JOB_STATE_FAILED', [B]),
    ("displayName:job", [B, A]),
    ('display_name:"*(c)"', [C]),
    ("labels.team=vision", [A]),
    ("labels.team:*", [C, B, A]),
    ("NOT labels.team=vision", [C, B]),
    ("labels.owner!=c", [B, A]),
    ("labels.owner:*", [C]),
    ("(labels.team=vision OR labels.team=speech) AND state=JOB_STATE_FAILED", [B]),
    # OR binds tighter than AND.
    ("state=JOB_STATE_FAILED AND labels.team=vision OR labels.team=speech", [B]),
    ('create_time>"{}"', [C, B]),
    ("createTime<={}", [A]),
    ("create_time!={} AND labels.team=speech", [B]),
]
NONSENSE = [
    "state=SLEEPING",
    "state<JOB_STATE_FAILED",
    "owner=bob",
    "display_name=",
    "display_name",
    "(state=JOB_STATE_FAILED",
    "state=JOB_STATE_FAILED)",
    "create_time>yesterday",
    "create_time>0001-01-01T00:00:00+23:00",
    "display_name:" + "a*" * 40,
    "(" * 40 + "state=JOB_STATE_FAILED" + ")" * 40,
    "x" * 3000,
    "labels.team<a",
    "AND",
]


def test_the_list_can_be_filtered(script, shelf):
    when = (shelf - timedelta(days=25)).isoformat()
    vera = script("vera")
    answers = {text: vera.get(ALL, {"filter": text.format(when)}) for text, _ in FILTERS}
    assert {text: named(answer) for text, answer in answers.items()} == dict(FILTERS)


def test_wildcards_match_in_order_and_no_name_makes_the_filter_hang(script, cast, project):
    a_job(project, cast.bob, name="a" * 128)
    a_job(project, cast.bob, name="one two three two")
    stars = {
        "a*" * 8 + "b": 0,
        "a*" * 8: 1,
        "one*two*three*two": 1,
        "one*three*two": 1,
        "one*three*two*two": 0,
        "*two": 1,
        "*": 2,
        "one*": 1,
        "on*one": 0,
    }
    previous = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the database still compares"))
    signal.alarm(60)
    try:
        filters = {text: {"filter": f'display_name:"{text}"'} for text in stars}
        found = {text: len(named(script("vera").get(ALL, asked))) for text, asked in filters.items()}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    assert found == stars


def test_an_invalid_filter_is_refused(script):
    alice = script("alice")
    for text in NONSENSE:
        answer = alice.get(ALL, {"filter": text})
        assert answer.status_code == 400, text
        (violation,) = answer.json()["error"]["details"][0]["fieldViolations"]
        assert violation["field"] == "filter"


def test_page_tokens_lead_through_the_whole_list(script, shelf):
    vera = script("vera")
    first = vera.get(ALL, {"pageSize": "2", "readMask": "displayName,job_spec.enable_web_access"}).json()
    assert first["customJobs"] == [
        {"displayName": name, "jobSpec": {"enableWebAccess": True}} for name in (C, B)
    ]
    token = first["nextPageToken"]
    last = vera.get(ALL, {"page_size": "2", "pageToken": token})
    assert named(last) == [A] and "nextPageToken" not in last.json()
    for wrong in ({"pageToken": token, "filter": "labels.team:*"}, {"pageToken": "¿"}, {"pageSize": "-1"}):
        assert vera.get(ALL, wrong).status_code == 400


def test_a_page_of_large_specs_is_shorter_and_none_is_left_out(script, shelf, monkeypatch):
    vera = script("vera")
    for most, sizes in ((1, [1, 1, 1]), (100_000, [3])):
        monkeypatch.setattr(custom_jobs, "MAX_PAGE_BYTES", most)
        answer = vera.get(ALL).json()
        pages = [answer["customJobs"]]
        while token := answer.get("nextPageToken"):
            answer = vera.get(ALL, {"pageToken": token}).json()
            pages.append(answer["customJobs"])
        assert [job["displayName"] for page in pages for job in page] == [C, B, A]
        assert list(map(len, pages)) == sizes


def test_a_list_costs_as_many_queries_as_one_job(script, cast, project, django_assert_max_num_queries):
    host = a_host()
    for _ in range(8):
        a_job(project, cast.bob, host=host)
    vera = script("vera")
    with django_assert_max_num_queries(9):
        assert len(vera.get(ALL).json()["customJobs"]) == 8


def test_a_job_that_a_script_asks_for_costs_few_queries(script, cast, project, django_assert_max_num_queries):
    job = a_job(project, cast.bob, host=a_host())
    vera = script("vera")
    address = f"{ALL}/{job.pk}"
    assert vera.get(address).status_code == 200
    # The token, the project, the job, the rights, the running replicas.
    with django_assert_max_num_queries(5):
        assert vera.get(address).json()["displayName"] == job.display_name


def test_a_job_is_not_found_in_another_project(script, cast, project):
    job = a_job(project, cast.bob, host=a_host())
    other = Project.objects.create(name="other", created_at=timezone.now())
    Membership.objects.create(project=other, user=cast.vera, role=Role.VIEWER)
    in_other = ALL.replace(f"/{project.name}/", "/other/")
    vera = script("vera")
    assert vera.get(in_other).status_code == 200
    for address in (f"{in_other}/{job.pk}", f"{ALL}/{2**70}"):
        assert vera.get(address).status_code == 404


def test_the_trainyard_view_of_a_job(script, cast, project):
    job = a_job(project, cast.bob, host=a_host("gpu-a"), reason="", replicas=2, attempt=2)
    answer = script("vera").get(f"/api/v1/jobs/{job.pk}").json()
    assert answer["id"] == str(job.pk) and answer["attempt"] == 2 and answer["owner"] == "bob"
    assert [replica["name"] for replica in answer["replicas"]] == ["workerpool0-0", "workerpool1-0"]
    (run,) = answer["replicas"][0]["runs"]
    assert (run["host"], run["phase"], run["logComplete"]) == ("gpu-a", "running", False)
    assert answer["customJob"]["name"].endswith(str(job.pk))


def test_what_is_missing_and_what_has_no_effect_is_told_at_the_submit_and_on_the_job(script, browser):
    sent = document(script="cat gs://nowhere/data")
    sent["jobSpec"] |= {"serviceAccount": 'é"train@example.org'}
    bob = script("bob")
    answer = bob.post(JOBS, sent, content_type="application/json")
    assert answer.status_code == 200, answer.content
    first, second = answer["Warning"].split(', 299 trainyard "')
    assert first.startswith(
        '299 trainyard "gs://nowhere/data is named, and the project has no bucket nowhere'
    )
    assert second.startswith(
        "Kept and shown, but without effect on hosts of your own: serviceAccount (?'train@"
    )
    job = answer.json()["name"].rpartition("/")[2]
    own = bob.get(f"/api/v1/jobs/{job}").json()
    assert own["withoutEffect"] == [{"field": "serviceAccount", "value": 'é"train@example.org'}]
    assert [one["kind"] for one in own["advice"]][-2:] == ["warning", "hint"]
    page = browser("bob").get(f"/jobs/{job}/spec").content.decode()
    assert "Kept without effect" in page and "no bucket nowhere" in page
    assert "Warning" not in bob.post(JOBS, document(), content_type="application/json")


# What `gcloud ai custom-jobs create` sends for the documents' example of Reduction Server: its numbers are texts.
V100 = {"machineType": "n1-highmem-96", "acceleratorType": "NVIDIA_TESLA_V100", "acceleratorCount": 8}
TRAINS = {"machineSpec": V100, "containerSpec": {"imageUri": "gcr.io/lab/train:1"}}
REDUCES = {
    "machineSpec": {"machineType": "n1-highcpu-16"},
    "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"},
}
REDUCTION = {
    "displayName": "reduction",
    "jobSpec": {
        "workerPoolSpecs": [
            {**TRAINS, "replicaCount": "1"},
            {**TRAINS, "replicaCount": "4"},
            {**REDUCES, "replicaCount": "16"},
        ]
    },
}


def test_the_example_of_reduction_server_is_accepted_and_has_21_replicas(script):
    """Five machines of 100 Gbit/s, and sixteen of 32: a primary and four workers with GPUs, and the reducers."""
    bob = script("bob")
    answer = bob.post(JOBS, REDUCTION, content_type="application/json")
    assert answer.status_code == 200, answer.content
    made = answer.json()
    pools = made["jobSpec"]["workerPoolSpecs"]
    assert [pool["machineSpec"] for pool in pools] == [V100, V100, REDUCES["machineSpec"]]
    assert [row.name for row in Job.objects.get().replicas.all()] == [
        "workerpool0-0",
        *(f"workerpool1-{number}" for number in range(4)),
        *(f"workerpool2-{number}" for number in range(16)),
    ]
    # No host has such machines here: it waits, and says so, until it is cancelled.
    assert bob.post(f"/v1/{made['name']}:cancel", {}, content_type="application/json").json() == {}
    assert bob.get(f"/v1/{made['name']}").json()["state"] == "JOB_STATE_CANCELLED"
