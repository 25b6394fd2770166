"""People and notification targets in the REST API, for an admin's script."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.auth import tokens
from jobs.models import AuditEntry, Membership, Notification, NotificationTarget
from tests.unit.console.api.test_projects import violation

PEOPLE, MINE, OURS = "/api/v1/people", "/api/v1/notifications", "/api/v1/projects/default/notifications"
JSON = {"content_type": "application/json"}
SLACK = {"way": "slack", "address": "https://1.1.1.1/services/T0/B0/secretsecretsecret"}


def test_a_person_is_invited_disabled_and_enabled(script, cast):
    root = script("root", elevated=True)
    answer = root.post(PEOPLE, {"name": "zoe"}, **JSON)
    made = answer.json()
    assert answer["Cache-Control"] == "no-store"
    assert (made["name"], made["admin"], made["invited"]) == ("zoe", False, True)
    assert made["projects"] == [{"project": "default", "role": "submitter"}]
    link = made["invitation"]["url"]
    again = root.post(f"{PEOPLE}/zoe:invite", {}, **JSON).json()["url"]
    assert Client().get(link.removeprefix("http://testserver")).status_code == 404
    assert b"Welcome, zoe" in Client().get(again.removeprefix("http://testserver")).content
    token = tokens.create(User.objects.get(username="zoe"), "ci", timezone.now())[1]
    out = root.patch(f"{PEOPLE}/zoe", {"active": False, "admin": True}, **JSON).json()
    assert (out["active"], out["admin"]) == (False, True) and tokens.owner(token, timezone.now()) is None
    assert violation(root.post(f"{PEOPLE}/zoe:invite", {}, **JSON))[1] == "active"
    assert root.patch(f"{PEOPLE}/zoe", {"active": True}, **JSON).json() == root.get(f"{PEOPLE}/zoe").json()
    assert "zoe" in [one["name"] for one in root.get(PEOPLE).json()["people"]]
    strict = root.post(PEOPLE, {"name": "max", "member": False, "password": "a fine long password"}, **JSON)
    assert strict.json()["projects"] == [] and "invitation" not in strict.json()
    assert Client().login(username="max", password="a fine long password")
    told = script("root").get("/api/v1/audit?subject=zoe&what=member.set").json()["entries"]
    assert [(one["project"], one["to"]) for one in told] == [("default", "submitter")]
    smile = "\U0001f600 and \u00e9"
    assert script("root").patch("/api/v1/projects/default", {"title": smile}, **JSON).json()["title"] == smile
    assert "a fine long" not in str(list(AuditEntry.objects.values())) + strict.content.decode()


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("post", PEOPLE, {}, "name"),
        ("post", PEOPLE, {"name": "a b"}, "name"),
        ("post", PEOPLE, {"name": "bob"}, "name"),
        ("post", PEOPLE, {"name": ["x"]}, "name"),
        ("post", PEOPLE, {"name": "x", "password": "short"}, "password"),
        ("post", PEOPLE, {"name": "x", "admin": "yes"}, "admin"),
        ("post", PEOPLE, {"name": "x", "role": "king"}, "role"),
        ("patch", f"{PEOPLE}/root", {"admin": False}, "admin"),
        ("patch", f"{PEOPLE}/root", {"active": False}, "active"),
        ("post", MINE, {**SLACK, "way": "pigeon"}, "way"),
        ("post", MINE, {"way": "slack"}, "address"),
        ("post", MINE, {"way": "slack", "address": "http://127.0.0.1/x"}, "address"),
        ("post", MINE, {"way": "slack", "address": 7}, "address"),
        ("post", MINE, {**SLACK, "events": ["nothing"]}, "events"),
        ("post", MINE, {**SLACK, "events": "failed"}, "events"),
        ("post", MINE, {**SLACK, "waitHours": -1}, "waitHours"),
        ("post", OURS, {**SLACK, "who": "me"}, "who"),
        ("post", MINE, {**SLACK, "address": f"https://{'a' * 70}.example/x"}, "address"),
        ("post", PEOPLE, {"name": "\ud800"}, "name"),
        ("put", "/api/v1/machineTypes/big", {"cpus": 4, "note": ["\udfff"]}, "note"),
        ("put", "/api/v1/machineTypes/big", {"cpus": 4, "note": "x\ud83d"}, "note"),
        ("put", "/api/v1/machineTypes/big", {"cpus": 4, "memoryMb": -1}, "memoryMb"),
        ("put", "/api/v1/projects/default/quotas/runing", {"limit": 1}, "accelerator_type"),
        ("post", "/api/v1/projects", {"name": "x", "weight": 3}, "weight"),
        ("put", "/api/v1/projects/default/members/bob", {"role": "admin", "until": "friday"}, "until"),
        ("put", "/api/v1/projects/default/idleRule", {"minutes": 0}, "minutes"),
        ("put", "/api/v1/projects/default/idleRule", {"minutes": 1.5}, "minutes"),
        ("put", "/api/v1/projects/default/idleRule", {"minutes": 5, "stops": 1}, "stops"),
    ],
)
def test_an_error_names_the_field(script, method, path, body, field):
    sent = json.dumps(body)  # JSON can express half of a surrogate pair
    answer = getattr(script("root", elevated=True), method)(path, sent, **JSON)
    assert answer.status_code == 400 and violation(answer)[1] == field, answer.content
    assert not AuditEntry.objects.exists()
    assert not NotificationTarget.objects.exists()


def test_notification_targets_are_added_changed_tested_and_removed_by_their_owners(script, cast, settings):
    bob, alice = script("bob"), script("alice")
    hook = bob.post(MINE, {**SLACK, "way": "hook", "events": ["failed"]}, **JSON).json()
    assert (
        hook["secret"].startswith("whsec_")
        and hook["project"] is None
        and "secretsecret" not in hook["address"]
    )
    ours = alice.post(OURS, SLACK, **JSON).json()
    assert ours["project"] == "default" and "secret" not in ours
    assert [one["id"] for one in alice.get(OURS).json()["notifications"]] == [ours["id"]]
    (mine,) = bob.get(MINE).json()["notifications"]
    assert "secret" not in mine and mine["id"] == hook["id"]
    path = f"{MINE}/{hook['id']}"
    assert bob.patch(path, {"waitHours": 2}, **JSON).json()["events"] == ["failed"]
    assert bob.patch(path, {"events": ["failed", "stalled"]}, **JSON).json()["waitHours"] == 2
    assert {alice.get(path).status_code, script("root").get(path).status_code} == {404}
    assert (
        bob.post(f"{path}:test", {}, **JSON).status_code == 200 and Notification.objects.get().event == "test"
    )
    assert bob.delete(f"{MINE}/{ours['id']}").status_code == 403
    assert bob.delete(path).status_code == 200 and bob.get(path).status_code == 404
    rule = "/api/v1/projects/default/idleRule"
    told = alice.put(rule, {"minutes": 30, "stops": True}, **JSON).json()
    assert told == {"minutes": 30, "stops": True} == alice.get(rule).json()
    assert alice.put(rule, {}, **JSON).json() == {"minutes": None, "stops": False}
    told = set(AuditEntry.objects.values_list("what", flat=True))
    assert told == {"notice.add", "project.idle_rule"}
    assert Membership.objects.filter(user=cast.bob).exists()
