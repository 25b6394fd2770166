"""Roles × verbs × objects × addresses. Each address has a row with the object and the verb that it needs; the answer to
each person follows from the table in permission_table.py. A new address without a row fails.
"""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from agents.models import Location
from console.api.unimplemented import UnknownAddress
from console.api.urls import urlpatterns as rest_urls
from console.consumers.routes import websocket_urlpatterns
from console.views.urls import urlpatterns as page_urls
from jobs.models import Membership
from jobs.notifications import targets
from jobs.secrets import image_registries, store
from tests.unit.console.consumers import test_credentials as sockets
from tests.unit.console.permission_table import PEOPLE, outcome
from tests.unit.console.script_tokens import token_of
from tests.unit.console.views import test_page_matrix as pages
from tests.unit.console.views.conftest import cast, no_host_answers, project
from tests.unit.console.views.example_rows import (
    a_host,
    a_job,
    a_machine_type,
    a_pipeline,
    a_recording,
    a_shell,
    a_stored_file,
    a_template,
    a_tuning_job,
    an_output,
    document,
)

__all__ = ["cast", "no_host_answers", "project"]

ANYBODY = ("anybody", "")
# What each page needs, by name: pairs (object, verb). The first pair that is not allowed decides.
PAGES = {
    "welcome": (),
    "search": (),
    "help-keys": (),
    "help-index": (),
    "help": (),
    "help-training": (),
    "help-api": (),
    "account": (),
    "preferences": (),
    "new-token": (),
    "password": (),
    "security": (),
    "command-line": (),
    "device-login": (),
    "end-sessions": (),
    **dict.fromkeys(
        ("second-factor", "begin-second-factor", "remove-second-factor", "new-recovery-codes"),
        (),
    ),
    "jobs": (),
    "queue": (),
    "compare-jobs": (),
    "compare-studies": (),
    "job-views": (),
    "bulk-jobs": (),
    "move-in-queue": (),
    "projects": (),
    "choose-project": (),
    "own-secrets": (),
    "remove-own-secret": (),
    "project-secrets": (("project", "submit"),),
    **dict.fromkeys(
        ("project-storage", "bucket", "object-file", "artifact-file"), (("project", "see_files"),)
    ),
    **dict.fromkeys(
        ("delete-artifact", "delete-bucket", "delete-object", "add-bucket", "add-artifact", "add-object"),
        (("project", "store"),),
    ),
    "change-bucket": (("project", "manage"),),
    "remove-project-secret": (("project", "manage_secrets"),),
    "project-registries": (("project", "manage_secrets"),),
    "usage": (),
    "usage-csv": (),
    "hosts": (),
    "gpus": (("Host", "see"),),
    "occupancy": (("Host", "see"),),
    "occupancy-csv": (("Host", "see"),),
    "locations": (("Location", "see"),),
    "share-location": (("location", "manage"),),
    "bind-location": (("location", "manage"),),
    "alias-image": (("location", "manage"),),
    "location-registries": (("location", "manage"),),
    "machines": (("MachineType", "see"),),
    "new-job": (("Job", "submit"),),
    "new-study-summary": (("Job", "submit"),),
    "new-job-summary": (("Job", "submit"),),
    "new-job-code": (("Job", "submit"),),
    "new-job-env-rows": (("Job", "submit"),),
    "job-templates": (("Job", "submit"),),
    "sample-job": (("Job", "submit"),),
    "job": (("job", "see"),),
    "job-replicas": (("job", "see"),),
    "job-metrics": (("job", "see"),),
    "job-shells": (("job", "watch_shell"),),
    "job-spec": (("job", "see"),),
    "job-events": (("job", "see"),),
    "job-history": (("job", "see"),),
    "clone-job": (("Job", "submit"), ("job", "see")),
    "rerun-job": (("job", "see"), ("job", "submit")),
    "job-diff": (("job", "see"),),
    "log": (("job", "see_log"),),
    "merged-log": (("job", "see_log"),),
    "shell": (("run", "shell"),),
    **dict.fromkeys(("job-outputs", "job-output", "job-output-image"), (("job", "see_log"),)),
    "delete-output": (("job", "delete"),),
    "job-files": (("job", "shell"),),
    "job-file": (("job", "shell"),),
    "job-stacks": (("job", "shell"),),
    "new-shell": (("job", "shell"),),
    "close-shell": (("job", "shell"),),
    "share-shell": (("job", "shell"),),
    "replay-shell": (("job", "replay_shell"),),
    "shell-recording": (("job", "replay_shell"),),
    "pipelines": (),
    **dict.fromkeys(("train-model", "train-model-code", "train-model-summary"), (("Job", "submit"),)),
    "models": (),
    "model": (("project", "see"),),
    "default-model-version": (("project", "submit"),),
    "delete-model-version": (("job", "delete"),),
    "cancel-job": (("job", "cancel"),),
    "studies": (),
    "new-study": (("Job", "submit"),),
    "study": (("job", "see"),),
    "study-parameters": (("job", "see"),),
    "study-contour": (("job", "see"),),
    "study-curves": (("job", "see"),),
    "study-scatter": (("job", "see"),),
    "study-timeline": (("job", "see"),),
    "study-spec": (("job", "see"),),
    "study-csv": (("job", "see"),),
    "study-json": (("job", "see"),),
    "cancel-study": (("job", "cancel"),),
    "extend-study": (("job", "cancel"),),
    "delete-study": (("job", "delete"),),
    "delete-job": (("job", "delete"),),
    "bulk-hosts": (("Host", "manage"),),
    "add-host": (("Host", "manage"),),
    "paste-hosts": (("Host", "manage"),),
    **dict.fromkeys(("host-keys", "compare-keys", "accept-keys"), (("Host", "manage"),)),
    "host": (("host", "see"),),
    **dict.fromkeys(
        (
            "accept-key",
            "check-host",
            "edit-host",
            "remove-host",
            "cordon-host",
            "uncordon-host",
            "contain-host",
            "host-logins",
            "network-host",
            "maintain-host",
            "drain-host",
            "declare-gone",
            "gpu-act",
            "discard-kept",
            "stray-act",
        ),
        (("host", "manage"),),
    ),
    "remove-machine-type": (("MachineType", "manage"),),
    "project": (("project", "see"),),
    "new-project": (("Project", "configure"),),
    "project-settings": (("project", "configure"),),
    "archive-project": (("project", "configure"),),
    "set-member": (("project", "manage_members"),),
    "remove-member": (("project", "manage_members"),),
    "set-quota": (("project", "manage_members"),),
    "default-quotas": (("Project", "set_quotas"),),
    "people": (("User", "manage"),),
    "reset-second-factor": (("User", "manage"),),
    "disconnect-oidc": (),
    "begin-passkey": (),
    "add-passkey": (),
    "confirm-by-passkey": (),
    **dict.fromkeys(
        (
            "add-person",
            "invite-person",
            "disable-person",
            "enable-person",
            "delete-person",
            "set-admin",
            "end-person-sessions",
            "reset-second-factor",
        ),
        (("User", "manage"),),
    ),
    "audit": (("AuditEntry", "see"),),
    "audit-export": (("AuditEntry", "see"),),
    "vouch-notification": (("User", "manage"),),
    "recovery": (("Host", "manage"),),
    "begin-recovery": (("Host", "manage"),),
    "confirm-recovery": (("Host", "manage"),),
    **dict.fromkeys(("notifications", "notification-log", "add-notification"), ()),
    **dict.fromkeys(
        (
            "project-notifications",
            "project-notification-log",
            "add-project-notification",
            "idle-rule",
            "change-notification",
            "test-notification",
            "ask-notification",
        ),
        (("project", "manage"),),
    ),
}
# A page and the form on it may need different permissions.
POSTS = {"machines": (("MachineType", "manage"),), "project-secrets": (("project", "manage_secrets"),)}
# A person's own objects. Those of other people do not exist here.
# A notification target or a template that is removed exists for nobody after that.
# Without a login server there is nothing to connect with or to confirm at (auth/test_oidc.py has one).
OWN = {
    "connect-oidc",
    "confirm-by-oidc",
    "remove-passkey",
    "revoke-token",
    "end-session",
    "remove-job-view",
    "remove-notification",
    "remove-job-template",
    "delete-model",
}

JOBS = "/v1/projects/default/locations/us-central1"
P = "/api/v1/projects/default"
L = "/api/v1/locations/default"
SHELL = "0123456789abcdef" * 2
ACCEPT = {"keys": "SHA256:" + "A" * 43, "validateOnly": True}
LIMIT, ROLE = {"limit": 3}, {"role": "viewer"}
REST = [
    ("GET", f"{JOBS}/customJobs", ("project", "see"), None),
    ("POST", f"{JOBS}/customJobs", ("project", "submit"), {}),
    ("GET", f"{JOBS}/customJobs/{{job}}", ("job", "see"), None),
    ("DELETE", f"{JOBS}/customJobs/{{job}}", ("job", "delete"), None),
    ("POST", f"{JOBS}/customJobs/{{job}}:cancel", ("job", "cancel"), {}),
    ("GET", "/v1/projects/default/locations", ("project", "see"), None),
    ("GET", "/v1/projects/default/locations/default", ("project", "see"), None),
    ("GET", f"{JOBS}/operations/{{operation}}", ("project", "see"), None),
    ("DELETE", f"{JOBS}/operations/{{operation}}", ("project", "see"), None),
    ("POST", f"{JOBS}/operations/{{operation}}:wait", ("project", "see"), {}),
    ("POST", f"{JOBS}/operations/{{operation}}:cancel", ("project", "see"), {}),
    ("GET", f"{JOBS}/hyperparameterTuningJobs", ("project", "see"), None),
    ("POST", f"{JOBS}/hyperparameterTuningJobs", ("project", "submit"), {}),
    ("GET", f"{JOBS}/hyperparameterTuningJobs/{{tuning}}", ("job", "see"), None),
    ("DELETE", f"{JOBS}/hyperparameterTuningJobs/{{tuning}}", ("job", "delete"), None),
    ("POST", f"{JOBS}/hyperparameterTuningJobs/{{tuning}}:cancel", ("job", "cancel"), {}),
    ("POST", "/api/v1/studies:price", ("project", "submit"), {"project": "default"}),
    ("GET", "/api/v1/studies/{tuning}", ("job", "see"), None),
    ("POST", "/api/v1/studies/{tuning}:extend", ("job", "cancel"), {}),
    ("GET", f"{JOBS}/trainingPipelines", ("project", "see"), None),
    ("POST", f"{JOBS}/trainingPipelines", ("project", "submit"), {}),
    ("GET", f"{JOBS}/trainingPipelines/{{pipeline}}", ("job", "see"), None),
    ("DELETE", f"{JOBS}/trainingPipelines/{{pipeline}}", ("job", "delete"), None),
    ("POST", f"{JOBS}/trainingPipelines/{{pipeline}}:cancel", ("job", "cancel"), {}),
    ("GET", f"{JOBS}/models", ("project", "see"), None),
    ("GET", f"{JOBS}/models/digits", ("project", "see"), None),
    ("DELETE", f"{JOBS}/models/digits", ("job", "delete"), None),
    ("GET", f"{JOBS}/models/digits:listVersions", ("project", "see"), None),
    ("DELETE", f"{JOBS}/models/digits@1:deleteVersion", ("job", "delete"), None),
    ("POST", f"{JOBS}/models/digits@1:mergeVersionAliases", ("project", "submit"), {"versionAliases": ["a"]}),
    (
        "POST",
        "/v2/entries:list",
        ("job", "see_log"),
        {"resourceNames": ["projects/default"], "filter": "resource.labels.job_id={job}"},
    ),
    ("GET", "/api/v1/savedViews", ANYBODY, None),
    (
        "POST",
        "/api/v1/savedViews",
        ("project", "submit"),
        {"name": "a", "query": "state=active", "project": "default"},
    ),
    ("GET", "/api/v1/search?q=x", ANYBODY, None),
    ("GET", "/api/v1/openapi.json", ANYBODY, None),
    ("GET", "/api/v1/openapi.yaml", ANYBODY, None),
    ("GET", "/api/v1/jobs", ANYBODY, None),
    ("GET", "/api/v1/queue", ANYBODY, None),
    ("POST", "/api/v1/queue:preview", ("job", "reorder"), {"jobs": ["{job}"], "to": "top"}),
    ("POST", "/api/v1/queue:reorder", ("job", "reorder"), {"jobs": ["{job}"], "to": "top"}),
    # Each job of the list is judged by itself (api/test_batches.py).
    ("POST", "/api/v1/jobs:batchCancel", ANYBODY, {"jobs": ["1"]}),
    ("GET", "/api/v1/jobs/{job}", ("job", "see"), None),
    ("POST", "/api/v1/jobs/{job}:rerun", ("project", "submit"), {}),
    ("GET", "/api/v1/jobs/{job}/events", ("job", "see"), None),
    ("GET", "/api/v1/jobs/{job}/preparations", ("job", "see"), None),
    ("GET", "/api/v1/jobs/{job}/shells", ("job", "see"), None),
    ("POST", "/api/v1/jobs/{job}/shells", ("job", "shell"), {}),
    # No host answers here: whoever may have the files is told that (400).
    ("GET", "/api/v1/jobs/{job}/replicas/workerpool0-0/files", ("job", "shell"), None),
    ("GET", "/api/v1/jobs/{job}/replicas/workerpool0-0/files/content?path=x", ("job", "shell"), None),
    ("POST", "/api/v1/jobs/{job}/stacks", ("job", "shell"), {}),
    ("GET", f"/api/v1/jobs/{{job}}/shells/{SHELL}/recording", ("job", "replay_shell"), None),
    ("PATCH", f"/api/v1/jobs/{{job}}/shells/{SHELL}", ("job", "shell"), {"shared": True}),
    ("DELETE", f"/api/v1/jobs/{{job}}/shells/{SHELL}", ("job", "shell"), None),
    ("GET", "/api/v1/jobs/{job}/replicas/workerpool0-0/log", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/outputs", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/outputs/files?path=bucket-1/run", ("job", "see_log"), None),
    ("DELETE", "/api/v1/jobs/{job}/outputs/files?path=bucket-1/run/x", ("job", "delete"), None),
    ("GET", "/api/v1/jobs/{job}/outputs/content?path=bucket-1/run/x", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/samples", ("job", "see"), None),
    ("GET", "/api/v1/jobs/{job}/reports", ("job", "see"), None),
    ("GET", "/api/v1/jobs/{job}/metrics", ("job", "see"), None),
    ("GET", "/api/v1/jobs/{job}/replicas/workerpool0-0/log/search", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/log/search", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/log?as=zip", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/log/earlier?until=1", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/log/later?since=1", ("job", "see_log"), None),
    ("GET", "/api/v1/jobs/{job}/replicas/workerpool0-0/log/lines", ("job", "see_log"), None),
    ("GET", "/api/v1/recovery", ("host", "manage"), None),
    ("POST", "/api/v1/recovery:begin", ("host", "manage"), {"why": "a backup"}),
    ("POST", "/api/v1/recovery:confirm", ("host", "manage"), {}),
    ("GET", "/api/v1/hosts", ANYBODY, None),
    ("POST", "/api/v1/hosts:acceptKeys", ("Host", "manage"), ACCEPT),
    ("GET", "/api/v1/hosts/{host}", ("host", "see"), None),
    ("PATCH", "/api/v1/hosts/{host}", ("host", "manage"), {"location": "lab-c"}),
    ("POST", "/api/v1/hosts/{host}:cordon", ("host", "manage"), {}),
    ("GET", "/api/v1/hosts/{host}/gpus", ("host", "see"), None),
    ("POST", "/api/v1/hosts/{host}/gpus/GPU-{host}-0:recheck", ("host", "manage"), {}),
    ("GET", "/api/v1/hosts/{host}/kept", ("host", "see"), None),
    ("POST", "/api/v1/hosts/{host}/kept/blobs/" + "a" * 64 + ":discard", ("host", "manage"), {}),
    ("GET", "/api/v1/locations", ("Location", "see"), None),
    ("GET", "/api/v1/locations/default", ("location", "see"), None),
    ("PATCH", "/api/v1/locations/default", ("location", "manage"), {"allProjects": True}),
    ("GET", "/api/v1/machineTypes", ("machine_type", "see"), None),
    ("PUT", "/api/v1/machineTypes/big", ("machine_type", "manage"), {"cpus": 4}),
    ("DELETE", "/api/v1/machineTypes/ours", ("machine_type", "manage"), None),
    ("GET", "/api/v1/projects", ANYBODY, None),
    ("POST", "/api/v1/projects", ("Project", "configure"), {"name": "vision"}),
    ("GET", P, ("project", "see"), None),
    ("PATCH", P, ("project", "configure"), {"title": "Ours"}),
    ("GET", f"{P}/members", ("project", "see"), None),
    ("PUT", f"{P}/members/yves", ("project", "manage_members"), ROLE),
    ("DELETE", f"{P}/members/yves", ("project", "manage_members"), None),
    ("GET", f"{P}/quotas", ("project", "see_usage"), None),
    ("PUT", f"{P}/quotas/NVIDIA_L4", ("project", "set_quotas"), LIMIT),
    ("DELETE", f"{P}/quotas/NVIDIA_L4", ("project", "set_quotas"), None),
    ("PUT", f"{P}/eachMember/quotas/running", ("project", "manage_members"), LIMIT),
    ("DELETE", f"{P}/eachMember/quotas/running", ("project", "manage_members"), None),
    ("PUT", f"{P}/members/yves/quotas/running", ("project", "manage_members"), LIMIT),
    ("DELETE", f"{P}/members/yves/quotas/running", ("project", "manage_members"), None),
    ("GET", "/api/v1/defaultQuotas", ("Project", "set_quotas"), None),
    ("PUT", "/api/v1/defaultQuotas/running", ("Project", "set_quotas"), LIMIT),
    ("DELETE", "/api/v1/defaultQuotas/running", ("Project", "set_quotas"), None),
    ("PUT", "/api/v1/defaultQuotas/eachMember/running", ("Project", "set_quotas"), LIMIT),
    ("DELETE", "/api/v1/defaultQuotas/eachMember/running", ("Project", "set_quotas"), None),
    ("GET", f"{P}/secrets", ("project", "submit"), None),
    ("PUT", f"{P}/secrets/HF", ("project", "manage_secrets"), {"value": "x"}),
    ("DELETE", f"{P}/secrets/HF", ("project", "manage_secrets"), None),
    ("GET", f"{P}/imageRegistries", ("project", "submit"), None),
    (
        "PUT",
        f"{P}/imageRegistries/ghcr.io",
        ("project", "manage_secrets"),
        {"username": "a", "password": "x"},
    ),
    ("DELETE", f"{P}/imageRegistries/ghcr.io", ("project", "manage_secrets"), None),
    ("GET", f"{L}/imageRegistries", ("location", "manage"), None),
    ("PUT", f"{L}/imageRegistries/ghcr.io", ("location", "manage"), {"username": "a", "password": "x"}),
    ("DELETE", f"{L}/imageRegistries/ghcr.io", ("location", "manage"), None),
    ("GET", f"{P}/artifacts", ("project", "see_files"), None),
    ("POST", f"{P}/artifacts?kind=archive&name=a.tar", ("project", "store"), {}),
    ("GET", f"{P}/artifacts/{{sha256}}", ("project", "see_files"), None),
    ("GET", f"{P}/artifacts/{{sha256}}/content", ("project", "see_files"), None),
    ("DELETE", f"{P}/artifacts/{{sha256}}", ("project", "store"), None),
    ("GET", f"{P}/buckets", ("project", "see_files"), None),
    ("POST", f"{P}/buckets", ("project", "store"), {"name": "another"}),
    ("GET", f"{P}/buckets/ours", ("project", "see_files"), None),
    ("PATCH", f"{P}/buckets/ours", ("project", "manage"), {"keepDays": 30}),
    ("DELETE", f"{P}/buckets/ours", ("project", "store"), None),
    ("GET", f"{P}/buckets/ours/objects", ("project", "see_files"), None),
    ("GET", f"{P}/buckets/ours/objects/a/b.txt", ("project", "see_files"), None),
    ("PUT", f"{P}/buckets/ours/objects/c", ("project", "store"), {}),
    ("DELETE", f"{P}/buckets/ours/objects/a/b.txt", ("project", "store"), None),
    ("GET", "/storage/v1/b?project=default", ("project", "see_files"), None),
    ("POST", "/storage/v1/b?project=default", ("project", "store"), {"name": "another"}),
    ("GET", "/storage/v1/b/ours", ("project", "see_files"), None),
    ("DELETE", "/storage/v1/b/ours", ("project", "store"), None),
    ("POST", "/upload/storage/v1/b/ours/o?uploadType=media&name=c", ("project", "store"), {}),
    ("GET", "/download/storage/v1/b/ours/o/a/b.txt?alt=media", ("project", "see_files"), None),
    ("GET", "/storage/v1/b/ours/o", ("project", "see_files"), None),
    ("GET", "/storage/v1/b/ours/o/a/b.txt", ("project", "see_files"), None),
    ("PATCH", "/storage/v1/b/ours/o/a/b.txt", ("project", "store"), {"metadata": {"a": "b"}}),
    ("DELETE", "/storage/v1/b/ours/o/a/b.txt", ("project", "store"), None),
    ("POST", "/storage/v1/b/ours/o/a/b.txt/copyTo/b/ours/o/c", ("project", "store"), {}),
    (
        "POST",
        "/storage/v1/b/ours/o/c/compose",
        ("project", "store"),
        {"sourceObjects": [{"name": "a/b.txt"}]},
    ),
    ("GET", f"{P}/templates", ("project", "submit"), None),
    ("POST", f"{P}/templates", ("project", "submit"), {"name": "t", "customJob": document()}),
    ("PUT", f"{P}/templates/t", ("project", "submit"), {"customJob": document()}),
    ("GET", f"{P}/templates/t", ("project", "submit"), None),
    ("DELETE", f"{P}/templates/t", ("project", "submit"), None),
    ("GET", "/api/v1/templates", ANYBODY, None),
    ("POST", "/api/v1/templates", ANYBODY, {"name": "t", "customJob": document()}),
    ("PUT", "/api/v1/templates/t", ANYBODY, {"customJob": document()}),
    ("GET", "/api/v1/secrets", ANYBODY, None),
    ("PUT", "/api/v1/secrets/HF", ANYBODY, {"value": "x"}),
    ("GET", f"{P}/notifications", ("project", "manage"), None),
    ("POST", f"{P}/notifications", ("project", "manage"), {"way": "pigeon"}),
    ("GET", f"{P}/idleRule", ("project", "manage"), None),
    ("PUT", f"{P}/idleRule", ("project", "manage"), {"minutes": 30}),
    ("GET", "/api/v1/notifications", ANYBODY, None),
    ("POST", "/api/v1/notifications", ANYBODY, {"way": "pigeon"}),
    ("GET", "/api/v1/notifications/{target}", ("project", "manage"), None),
    ("PATCH", "/api/v1/notifications/{target}", ("project", "manage"), {"waitHours": 2}),
    ("DELETE", "/api/v1/notifications/{target}", ("project", "manage"), None),
    ("POST", "/api/v1/notifications/{target}:test", ("project", "manage"), {}),
    ("POST", "/api/v1/notifications/{target}:ask", ("project", "manage"), {}),
    ("POST", "/api/v1/notifications/{target}:vouch", ("User", "manage"), {}),
    ("GET", "/api/v1/people", ("User", "manage"), None),
    ("POST", "/api/v1/people", ("User", "manage"), {"name": "zoe"}),
    ("GET", "/api/v1/people/yves", ("User", "manage"), None),
    ("PATCH", "/api/v1/people/yves", ("User", "manage"), {"active": False}),
    ("DELETE", "/api/v1/people/yves", ("User", "manage"), None),
    ("POST", "/api/v1/people/yves:invite", ("User", "manage"), {}),
    ("GET", "/api/v1/sessions", ANYBODY, None),
    ("POST", "/api/v1/sessions:endAll", ANYBODY, {}),
    ("POST", "/api/v1/people/yves:endSessions", ("User", "manage"), {}),
    ("POST", "/api/v1/people/yves:resetSecondFactor", ("User", "manage"), {}),
    ("GET", "/api/v1/account", ANYBODY, None),
    ("GET", "/api/v1/tokens", ANYBODY, None),
    ("POST", "/api/v1/tokens", ANYBODY, {"name": "ci"}),
    ("GET", f"{P}/usage", ("project", "see_usage"), None),
    ("GET", "/api/v1/usage", ANYBODY, None),
    ("GET", "/api/v1/audit", ("AuditEntry", "see"), None),
]
# A person's own objects, absent for everybody else.
REST_OWN = [
    # The key in the address is all that they need (api/test_google_storage.py).
    ("PUT", "/upload/storage/v1/b/ours/o"),
    ("DELETE", "/upload/storage/v1/b/ours/o"),
    # Of the token of the request itself (api/test_device_logins.py).
    ("DELETE", "/api/v1/account/token"),
    ("DELETE", "/api/v1/savedViews/1"),
    ("DELETE", "/api/v1/tokens/{token}"),
    ("DELETE", "/api/v1/sessions/0123456789abcdef"),
    ("DELETE", "/api/v1/secrets/HF"),
    ("GET", "/api/v1/templates/t"),
    ("DELETE", "/api/v1/templates/t"),
]
# Open to whoever comes, because a login begins here: api/test_device_logins.py looks at them.
REST_OPEN = [("POST", "/api/v1/deviceLogins"), ("POST", "/api/v1/deviceLogins:token")]
SOCKETS = {
    "/ws/live?at=/jobs/": ANYBODY,
    "/ws/jobs": ANYBODY,
    "/ws/jobs/{job}": ("job", "see"),
    "/ws/jobs/{job}/log": ("job", "see_log"),
    "/ws/jobs/{job}/log/workerpool0-0": ("job", "see_log"),
    "/ws/hosts": ("Host", "see"),
    "/ws/hosts/{host}": ("host", "see"),
    "/ws/shell/{run}": ("run", "shell"),
    sockets.NEW_SHELL: ("run", "shell"),
}
ANSWERS = {401: "unknown", 403: "refused", 404: "absent"}


def met(person, needs):
    """The answer is decided by the first need that is not allowed."""
    outcomes = [outcome(person, *need) for need in needs or (ANYBODY,) if need != ANYBODY]
    unknown = outcome(person, *ANYBODY) == "unknown"
    return "unknown" if unknown else next((one for one in outcomes if one != "in"), "in")


def test_every_page_follows_from_the_table():
    named = {pattern.name for pattern in page_urls}
    assert named == set(PAGES) | pages.OPEN | pages.REDIRECTS | OWN
    wrong = []
    for table, changes in ((pages.GET, {}), (pages.POST, POSTS)):
        for name, row in table.items():
            for person, status in row.items() if name not in OWN else ():
                expected = met(person, changes.get(name, PAGES[name]))
                got = "unknown" if status == pages.LOGIN else ANSWERS.get(status, "in")
                if got != expected:
                    wrong.append((name, person, status, expected))
    assert wrong == [], "\n".join(map(str, wrong))


def test_every_socket_follows_from_the_table():
    routes = [route.pattern for route in websocket_urlpatterns if str(route.pattern)]
    example = {"job": 1, "host": 1, "run": "r"}
    paths = [path.format(**example).partition("?")[0] for path in SOCKETS]
    assert [pattern for pattern in routes if not any(re.search(str(pattern), path) for path in paths)] == []
    assert len(routes) == len(SOCKETS)
    for path, need in SOCKETS.items():
        assert sockets.MAY[path] == {who for who in sockets.PEOPLE if met(who, [need]) == "in"}, path


def test_every_address_for_scripts_has_a_row(db):
    example = dict.fromkeys(("job", "host", "target", "token", "pipeline", "tuning", "operation"), 1) | {
        "sha256": "0" * 64
    }
    named = [(method, path) for method, path, *_ in REST] + REST_OWN + REST_OPEN
    rows = {(resolve(path.format(**example).partition("?")[0]).route, method) for method, path in named}
    there = set()
    for pattern in rest_urls:
        view = pattern.callback.view_class
        if view is not UnknownAddress:
            methods = [
                name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view, name)
            ]
            there |= {(str(pattern.pattern), method) for method in methods}
    assert rows == there and len(rows) == len(named)


@pytest.fixture
def scene(cast, project, no_host_answers):
    host = a_host(gpus=1)
    job = a_job(project, cast.bob, host=host)
    a_recording(a_shell(job.runs.get(), cast.bob, SHELL))
    an_output(job, "bucket-1/run/x")
    a_machine_type("ours")
    Membership.objects.create(project=project, user=User.objects.create_user("yves"), role="viewer")
    now = timezone.now()
    store.put(project, "HF", "value", "alice", now)
    for owner in (project, Location.objects.get(name="default")):
        image_registries.put(owner, "ghcr.io", "ada", "value", "alice", now)
    a_template(project, "t")
    clients = {None: Client()}
    for person in PEOPLE:
        if person != "nobody":
            token = token_of(getattr(cast, person), elevated=True)
            clients[person] = Client(headers={"authorization": f"Bearer {token}"})
    target = targets.add(project, "slack", "https://x.example/", ["failed"], 1.0, "alice", now)[0]
    ids = {"job": job.pk, "host": host.pk, "target": target.pk}
    deleted = a_job(project, cast.bob, state="CANCELLED", phase="closed", host=host, deleted_at=now)
    sha256 = a_stored_file(project, "ours", "a/b.txt")
    return clients, {
        **ids,
        "pipeline": a_pipeline(job, "digits").pk,
        "tuning": a_tuning_job(job).pk,
        "operation": deleted.pk,
        "sha256": sha256,
    }


def test_every_address_for_scripts_follows_from_the_table(scene):
    """Each act is rolled back, so that all of them start from the same rows."""
    clients, example = scene
    wrong = []
    for method, path, need, body in REST:
        for person, client in clients.items():
            with transaction.atomic():
                given = client.generic(
                    method, path.format(**example), _sent(body, example), content_type="application/json"
                )
                transaction.set_rollback(True)
            expected = met(person, [need])
            if ANSWERS.get(given.status_code, "in") != expected:
                wrong.append((method, path, person, given.status_code, expected))
    assert wrong == [], "\n".join(map(str, wrong))


def _sent(body, example):
    return "" if body is None else json.dumps(body).replace("{job}", str(example["job"]))
