"""Projects, members, quotas, usage and the audit in the REST API."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from django.utils import timezone

from jobs.lifecycle import claims
from jobs.models import AuditEntry, GpuClaim, Job, Membership, Project, Run
from tests.unit.console.api.conftest import JOBS
from tests.unit.console.views.example_rows import a_host, a_job, document

P = "/api/v1/projects/default"
L4 = "NVIDIA_L4"


def put(client, path, body):
    return client.put(path, body, content_type="application/json")


def holding_two(project, owner):
    host = a_host(gpus=2)
    job = a_job(project, owner, host=host)
    for gpu in host.gpus.all():
        GpuClaim.objects.create(gpu=gpu, run=job.runs.get())
    job.runs.update(gpu_uuids=[gpu.uuid for gpu in host.gpus.all()])
    return job


def violation(answer):
    error = answer.json()["error"]
    return error["status"], error["details"][0]["fieldViolations"][0]["field"]


def test_a_project_is_created_renamed_weighted_and_archived(script):
    root = script("root")
    made = root.post(P[:-8], {"name": "vision", "title": "Vision"}, content_type="application/json").json()
    assert (made["name"], made["title"], made["weight"]) == ("vision", "Vision", 1.0)
    path = "/api/v1/projects/vision"
    changed = root.patch(
        path, {"name": "sight", "weight": 2.5, "highestPriority": "low"}, content_type="application/json"
    ).json()
    assert (changed["name"], changed["weight"], changed["number"]) == ("sight", 2.5, made["number"])
    assert (made["highestPriority"], changed["highestPriority"]) == ("normal", "low")
    by_number = f"/api/v1/projects/{made['number']}"
    assert root.get(by_number).json() == changed and root.get(path).status_code == 404
    assert root.patch(by_number, {"archived": True}, content_type="application/json").json()["archived"]
    jobs = f"/v1/projects/{made['number']}/locations/us-central1/customJobs"
    refused = root.post(jobs, document(), content_type="application/json")
    assert refused.status_code == 400 and violation(refused) == ("INVALID_ARGUMENT", "project")
    root.patch(by_number, {"archived": False}, content_type="application/json")
    job = root.post(jobs, document(), content_type="application/json").json()
    assert job["name"].startswith("projects/sight/") and root.get(jobs).json()["customJobs"] == [job]
    assert root.get(f"{jobs}/{job['name'].split('/')[-1]}").json() == job
    assert [row.what for row in AuditEntry.objects.order_by("id")] == [
        "project.create",
        "project.change",
        "project.archive",
        "project.restore",
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "Vision"}, "name"),
        ({"name": "default"}, "name"),
        ({"name": "7"}, "name"),
        ({"name": "new"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": 7}, "name"),
        ({"title": "x" * 101}, "title"),
        ({"weight": 0}, "weight"),
        ({"weight": "much"}, "weight"),
        ({"weight": True}, "weight"),
        ({"highestPriority": "urgent"}, "highestPriority"),
        ({"archived": 1.5}, "archived"),
        ({"owner": "me"}, "owner"),
    ],
)
def test_an_invalid_change_names_its_field(script, cast, body, field):
    answer = script("root").patch("/api/v1/projects/elsewhere", body, content_type="application/json")
    assert answer.status_code == 400 and violation(answer)[1] == field
    assert Project.objects.get(pk=cast.elsewhere.pk).name == "elsewhere" and not AuditEntry.objects.exists()


def test_a_projects_admin_manages_its_members(script, cast, project):
    alice = script("alice")
    assert put(alice, f"{P}/members/charlie", {"role": "viewer"}).status_code == 200
    assert script("charlie").get(P).json()["role"] == "viewer"
    assert {"user": "charlie", "role": "viewer"} in alice.get(f"{P}/members").json()["members"]
    assert violation(put(alice, f"{P}/members/charlie", {"role": "king"}))[1] == "role"
    assert violation(put(alice, f"{P}/members/unknown", {"role": "viewer"}))[1] == "user"
    assert violation(put(alice, f"{P}/members/gone", {"role": "viewer"}))[1] == "user"
    assert alice.delete(f"{P}/members/charlie").status_code == 200
    assert alice.delete(f"{P}/members/charlie").status_code == 404
    assert script("charlie").get(P).status_code == 404
    assert list(AuditEntry.objects.order_by("id").values_list("actor", "what", "before", "after")) == [
        ("alice", "member.set", None, "viewer"),
        ("alice", "member.remove", "viewer", None),
    ]


def test_quotas_are_set_shown_with_their_use_and_removed(script, cast, project):
    job = holding_two(project, cast.bob)
    root, alice, vera = script("root"), script("alice"), script("vera")
    assert put(root, f"{P}/quotas/{L4}", {"limit": 4}).status_code == 200
    for key, limit in (("running", 3), ("queued", 9), ("gpuHours", 1.5)):
        assert put(root, f"{P}/quotas/{key}", {"limit": limit}).status_code == 200
    assert put(alice, f"{P}/eachMember/quotas/{L4}", {"limit": 1}).status_code == 200
    assert put(alice, f"{P}/members/bob/quotas/{L4}", {"limit": 3}).status_code == 200
    told = vera.get(f"{P}/quotas").json()
    assert told["gpus"] == {L4: {"limit": 4, "used": 2}}
    assert told["running"] == {"limit": 3, "used": 1} and told["queued"] == {"limit": 9, "used": 0}
    assert told["gpuHours"]["limit"] == 1.5 and told["eachMember"]["gpus"] == {L4: 1}
    assert told["members"]["bob"]["gpus"] == {L4: {"limit": 3, "used": 2}}
    assert root.delete(f"{P}/quotas/{L4}").json()["gpus"] == {L4: {"limit": None, "used": 2}}
    assert put(root, f"{P}/quotas/running", {"limit": None}).json()["running"]["limit"] is None
    job.refresh_from_db()
    assert job.state == "RUNNING" and AuditEntry.objects.count() == 8


@pytest.mark.parametrize(
    "body", [{}, {"limit": "2"}, {"limit": -1}, {"limit": 1.5}, {"limit": True}, {"most": 1}, []]
)
def test_an_invalid_quota_is_refused_and_its_field_named(script, body):
    answer = put(script("root"), f"{P}/quotas/{L4}", body)
    assert answer.status_code == 400 and not AuditEntry.objects.exists()
    if body:
        assert violation(answer)[1] == "limit"


def test_new_projects_begin_with_the_default_quotas(script):
    root = script("root")
    put(root, f"/api/v1/defaultQuotas/{L4}", {"limit": 8})
    told = put(root, "/api/v1/defaultQuotas/eachMember/queued", {"limit": 5}).json()
    assert told == root.get("/api/v1/defaultQuotas").json()
    assert (told["gpus"], told["eachMember"]["queued"]) == ({L4: 8}, 5)
    root.post(P[:-8], {"name": "vision"}, content_type="application/json")
    assert root.get("/api/v1/projects/vision/quotas").json()["gpus"][L4] == {"limit": 8, "used": 0}


def test_a_full_queue_is_429_with_a_message(script, project):
    put(script("root"), f"{P}/quotas/queued", {"limit": 1})
    bob = script("bob")
    assert bob.post(JOBS, document(), content_type="application/json").status_code == 200
    refused = bob.post(JOBS, document(), content_type="application/json")
    error = refused.json()["error"]
    assert (refused.status_code, error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert "1 job waits already for project default, which may have 1" in error["message"]
    assert Job.objects.count() == 1


def test_usage_as_json_and_as_csv_have_the_same_sums(script, cast, project):
    job = holding_two(project, cast.bob)
    hour = timedelta(hours=1)
    month = timezone.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    Run.objects.update(created_at=month - hour)
    claims.release([Run.objects.get().pk], month + 2 * hour)
    told = script("vera").get(f"{P}/usage").json()
    line = {"project": "default", "user": "bob", "acceleratorType": L4}
    assert {name: told["lines"][0][name] for name in line} == line
    assert told["gpuSeconds"] == 2 * 2 * 3600 and told["month"] == f"{month:%Y-%m}"
    before = month - hour
    answer = script("alice").get(f"{P}/usage?month={before:%Y-%m}&format=csv")
    assert answer["Content-Type"].startswith("text/csv") and ".csv" in answer["Content-Disposition"]
    (row,) = csv.DictReader(io.StringIO(answer.getvalue().decode()))
    assert (row["job"], row["user"], float(row["gpu_seconds"])) == (str(job.pk), "bob", 2 * 3600)
    assert script("charlie").get("/api/v1/usage").json()["lines"] == []
    assert script("root").get("/api/v1/usage").json()["lines"] == told["lines"]
    for bad, field in (("month=2026-13", "month"), ("month=26-1", "month"), ("format=xml", "format")):
        assert violation(script("root").get(f"{P}/usage?{bad}"))[1] == field


def test_admins_of_a_project_see_its_audit(script, cast, project):
    put(script("root"), f"{P}/quotas/{L4}", {"limit": 4})
    put(script("root"), "/api/v1/projects/elsewhere/quotas/running", {"limit": 4})
    put(script("alice"), f"{P}/members/charlie", {"role": "viewer"})

    def told(who, query=""):
        return [entry["what"] for entry in script(who).get(f"/api/v1/audit{query}").json()["entries"]]

    assert told("root") == ["member.set", "quota.set", "quota.set"]
    assert told("alice") == ["member.set", "quota.set"] and told("charlie") == ["quota.set"]
    assert told("root", "?actor=alice") == told("root", "?subject=charlie") == ["member.set"]
    assert told("root", "?project=default&what=quota.set") == ["quota.set"]
    newest = script("root").get("/api/v1/audit").json()["entries"][0]
    assert (newest["from"], newest["to"], newest["project"]) == (None, "viewer", "default")
    assert told("root", f"?before={newest['id']}") == ["quota.set", "quota.set"]
    assert script("bob").get("/api/v1/audit").status_code == 404


def test_the_audit_comes_in_pages_and_refuses_what_is_no_filter(script, cast, project):
    for limit in (1, 2, 3):
        put(script("root"), f"{P}/quotas/{L4}", {"limit": limit})
    root, limits, token = script("root"), [], ""
    for _ in range(3):
        page = root.get(f"/api/v1/audit?pageSize=1&pageToken={token}").json()
        limits += [entry["to"] for entry in page["entries"]]
        token = page.get("nextPageToken", "")
        assert page.get("nextBefore", "") == token
    assert token == "" and limits == sorted(limits, key=str, reverse=True) and len(limits) == 3
    for bad in (
        "since=yesterday",
        "until=2026-13-01",
        "before=x",
        "pageToken=99999999999999999999",
        "pageSize=x",
    ):
        field = bad.partition("=")[0]
        assert violation(root.get(f"/api/v1/audit?{bad}"))[1] == field


def test_a_project_is_listed_only_while_the_person_is_a_member(script, cast):
    charlie = script("charlie")
    assert [one["name"] for one in charlie.get("/api/v1/projects").json()["projects"]] == ["elsewhere"]
    assert charlie.get(JOBS).status_code == 404
    Membership.objects.create(
        project=Project.objects.get(name="default"), user=cast.charlie, role="submitter"
    )
    assert [one["name"] for one in charlie.get("/api/v1/projects").json()["projects"]] == [
        "default",
        "elsewhere",
    ]
    assert charlie.post(JOBS, document(), content_type="application/json").status_code == 200
