"""Every page × every person. A page without a row here fails, so that every new page gets a decision."""

from __future__ import annotations

import pytest

from agents.models import Host
from console.views.urls import urlpatterns
from jobs.models import Job
from tests.unit.console.views.rows_of_a_file import addresses, browser, stored

__all__ = ["addresses", "browser", "stored"]

PEOPLE = ("root", "alice", "bob", "bella", "vera", "charlie", "loner", None)
LOGIN = "login"


def row(root, alice, bob, bella, vera, charlie, loner):
    """Return the expected status for each person. A person who is not logged in is sent to the login page."""
    return dict(zip(PEOPLE, (root, alice, bob, bella, vera, charlie, loner, LOGIN), strict=True))


EVERYBODY = row(200, 200, 200, 200, 200, 200, 200)
SEES_JOB = row(200, 200, 200, 200, 200, 404, 404)
SEES_HOST = row(200, 200, 200, 200, 200, 200, 404)
MANAGES_NOTIFICATIONS = row(200, 200, 403, 403, 403, 404, 404)
# A person in no project sees nothing. Only root manages people.
ROOT_ONLY = row(200, 403, 403, 403, 403, 403, 404)
ROOT_AND_NO_OTHER = row(200, 404, 404, 404, 404, 404, 404)
ACTS_ON_PEOPLE = row(302, 404, 404, 404, 404, 404, 404)

# Charlie and Alice may submit, each in their own project.
GET = {
    "welcome": EVERYBODY,
    "search": EVERYBODY,
    "help-keys": EVERYBODY,
    "help-index": EVERYBODY,
    "help": EVERYBODY,
    "help-training": EVERYBODY,
    "help-api": EVERYBODY,
    "account": EVERYBODY,
    "security": EVERYBODY,
    "command-line": EVERYBODY,
    "device-login": EVERYBODY,
    "second-factor": EVERYBODY,
    "preferences": EVERYBODY,
    "jobs": EVERYBODY,
    "queue": EVERYBODY,
    # Without jobs it leads back to the list; test_compare.py has those that may be seen and those that may not.
    "compare-jobs": row(302, 302, 302, 302, 302, 302, 302),
    "job-views": EVERYBODY,
    "new-job": row(200, 200, 200, 200, 403, 200, 404),
    "job-templates": row(200, 200, 200, 200, 403, 200, 404),
    "pipelines": EVERYBODY,
    "train-model": row(200, 200, 200, 200, 403, 200, 404),
    "models": EVERYBODY,
    "model": SEES_JOB,
    "studies": EVERYBODY,
    # Without studies it leads back to the list, as with jobs.
    "compare-studies": row(302, 302, 302, 302, 302, 302, 302),
    "new-study": row(200, 200, 200, 200, 403, 200, 404),
    **dict.fromkeys(
        (
            "study",
            "study-parameters",
            "study-contour",
            "study-curves",
            "study-scatter",
            "study-timeline",
            "study-spec",
            "study-csv",
            "study-json",
        ),
        SEES_JOB,
    ),
    "job": SEES_JOB,
    "job-replicas": SEES_JOB,
    "job-metrics": SEES_JOB,
    "job-shells": row(200, 200, 200, 200, 403, 404, 404),
    "job-spec": SEES_JOB,
    "job-events": SEES_JOB,
    "job-history": row(302, 302, 302, 302, 302, 404, 404),
    "clone-job": row(200, 200, 200, 200, 403, 404, 404),
    "job-diff": SEES_JOB,
    "log": SEES_JOB,
    "merged-log": SEES_JOB,
    "shell": row(200, 200, 200, 403, 403, 404, 404),
    "job-outputs": SEES_JOB,
    # Without a path they lead to the tab.
    "job-output": row(302, 302, 302, 302, 302, 404, 404),
    "job-output-image": row(302, 302, 302, 302, 302, 404, 404),
    "job-stacks": row(200, 200, 200, 403, 403, 404, 404),
    "job-files": row(200, 200, 200, 403, 403, 404, 404),
    # Whoever may have the file reads that its host does not answer.
    "job-file": row(409, 409, 409, 403, 403, 404, 404),
    "replay-shell": row(200, 200, 200, 403, 403, 404, 404),
    "shell-recording": row(200, 200, 200, 403, 403, 404, 404),
    "new-shell": row(302, 302, 302, 403, 403, 404, 404),
    "projects": EVERYBODY,
    "choose-project": EVERYBODY,
    "project": SEES_JOB,
    "own-secrets": EVERYBODY,
    "project-secrets": row(200, 200, 200, 200, 403, 404, 404),
    **dict.fromkeys(("project-storage", "bucket", "object-file", "artifact-file"), SEES_JOB),
    **dict.fromkeys(
        ("delete-artifact", "delete-bucket", "delete-object"), row(200, 200, 200, 200, 403, 404, 404)
    ),
    "usage": EVERYBODY,
    "usage-csv": EVERYBODY,
    "new-project": ROOT_ONLY,
    "people": ROOT_AND_NO_OTHER,
    "default-quotas": ROOT_ONLY,
    "notifications": EVERYBODY,
    "notification-log": EVERYBODY,
    "project-notifications": MANAGES_NOTIFICATIONS,
    "project-notification-log": MANAGES_NOTIFICATIONS,
    "audit": row(200, 200, 404, 404, 404, 200, 404),
    "audit-export": row(200, 200, 404, 404, 404, 200, 404),
    "hosts": EVERYBODY,
    "gpus": SEES_HOST,
    "occupancy": SEES_HOST,
    "occupancy-csv": SEES_HOST,
    "add-host": ROOT_ONLY,
    "host-keys": ROOT_ONLY,
    "host": SEES_HOST,
    "maintain-host": row(200, 403, 403, 403, 403, 403, 404),
    "edit-host": row(200, 403, 403, 403, 403, 403, 404),
    "locations": row(200, 200, 200, 200, 200, 200, 404),
    "machines": row(200, 200, 200, 200, 200, 200, 404),
    "recovery": ROOT_ONLY,
}
# What answers a file, and what only leads to another address.
DOWNLOADS = {
    "usage-csv",
    "occupancy-csv",
    "study-csv",
    "study-json",
    "audit-export",
    "job-file",
    "shell-recording",
    "artifact-file",
    "object-file",
}
LEADS_ON = {"new-shell", "job-history", "job-output", "job-output-image"}
MANAGES_HOST = row(302, 403, 403, 403, 403, 403, 404)
# What the deployment's admins may do to a project, and what its own admins may as well.
CONFIGURES = row(302, 403, 403, 403, 403, 404, 404)
MANAGES_MEMBERS = row(302, 302, 403, 403, 403, 404, 404)
POST = {
    "new-project": ROOT_ONLY,
    "project-settings": row(200, 403, 403, 403, 403, 404, 404),
    "archive-project": CONFIGURES,
    "set-member": row(200, 200, 403, 403, 403, 404, 404),
    "remove-member": MANAGES_MEMBERS,
    "set-quota": row(200, 200, 403, 403, 403, 404, 404),
    "default-quotas": ROOT_ONLY,
    "own-secrets": EVERYBODY,
    "remove-own-secret": row(302, 302, 302, 302, 302, 302, 302),
    "project-secrets": row(200, 200, 403, 403, 403, 404, 404),
    **dict.fromkeys(("add-bucket", "add-artifact", "add-object"), row(400, 400, 400, 400, 403, 404, 404)),
    **dict.fromkeys(
        ("delete-artifact", "delete-bucket", "delete-object"), row(302, 302, 302, 302, 403, 404, 404)
    ),
    "change-bucket": row(302, 302, 403, 403, 403, 404, 404),
    "remove-project-secret": MANAGES_MEMBERS,
    "project-registries": MANAGES_MEMBERS,
    "add-person": ROOT_AND_NO_OTHER,
    "invite-person": ROOT_AND_NO_OTHER,
    "disable-person": ACTS_ON_PEOPLE,
    "enable-person": ACTS_ON_PEOPLE,
    "delete-person": ACTS_ON_PEOPLE,
    "set-admin": ACTS_ON_PEOPLE,
    "add-notification": EVERYBODY,
    "add-project-notification": MANAGES_NOTIFICATIONS,
    "idle-rule": MANAGES_MEMBERS,
    "change-notification": MANAGES_NOTIFICATIONS,
    "test-notification": MANAGES_MEMBERS,
    "ask-notification": MANAGES_MEMBERS,
    "vouch-notification": ACTS_ON_PEOPLE,
    # The first caller removes it, so it is gone for all others; test_notifications.py asks one by one.
    "remove-notification": row(302, 404, 404, 404, 404, 404, 404),
    "cancel-job": row(302, 302, 302, 403, 403, 404, 404),
    "delete-output": row(302, 302, 302, 403, 403, 404, 404),
    "delete-job": row(302, 302, 302, 403, 403, 404, 404),
    "close-shell": row(302, 302, 302, 403, 403, 404, 404),
    "share-shell": row(302, 302, 302, 403, 403, 404, 404),
    "cancel-study": row(302, 302, 302, 403, 403, 404, 404),
    # Nothing is asked for, which the page says.
    "extend-study": row(200, 200, 200, 403, 403, 404, 404),
    # It is not over, which the page says.
    "delete-study": row(302, 302, 302, 403, 403, 404, 404),
    "new-study": row(200, 200, 200, 200, 403, 200, 404),
    "default-model-version": row(302, 302, 302, 302, 403, 404, 404),
    # It is the only version, which the page says.
    "delete-model-version": row(302, 302, 302, 403, 403, 404, 404),
    # The first caller removes it, so it is gone for all others (test_models.py).
    "delete-model": row(302, 404, 404, 404, 404, 404, 404),
    # Each job is judged by itself (test_bulk.py).
    "job-views": EVERYBODY,
    # Its maker, and who manages its project (test_saved_views.py). The first caller removes it.
    "remove-job-view": row(302, 404, 404, 404, 404, 404, 404),
    "move-in-queue": row(302, 302, 302, 302, 302, 302, 302),
    "bulk-jobs": row(302, 302, 302, 302, 302, 302, 302),
    "bulk-hosts": row(302, 403, 403, 403, 403, 403, 404),
    "sample-job": row(302, 302, 302, 302, 403, 302, 404),
    "new-study-summary": row(200, 200, 200, 200, 403, 200, 404),
    "new-job-summary": row(200, 200, 200, 200, 403, 200, 404),
    "train-model": row(200, 200, 200, 200, 403, 200, 404),
    "train-model-summary": row(200, 200, 200, 200, 403, 200, 404),
    "remove-job-template": row(302, 404, 404, 404, 403, 404, 404),
    "rerun-job": row(302, 302, 302, 302, 403, 404, 404),
    # Without a file: the form comes back and says so.
    "new-job-code": row(400, 400, 400, 400, 403, 400, 404),
    "train-model-code": row(400, 400, 400, 400, 403, 400, 404),
    "new-job-env-rows": row(200, 200, 200, 200, 403, 200, 404),
    "new-job": row(200, 200, 200, 200, 403, 200, 404),
    "add-host": ROOT_ONLY,
    "paste-hosts": ROOT_ONLY,
    "compare-keys": ROOT_ONLY,
    "accept-keys": ROOT_ONLY,
    "accept-key": MANAGES_HOST,
    "check-host": MANAGES_HOST,
    "edit-host": row(200, 403, 403, 403, 403, 403, 404),
    "remove-host": MANAGES_HOST,
    "cordon-host": MANAGES_HOST,
    "contain-host": MANAGES_HOST,
    "host-logins": MANAGES_HOST,
    "network-host": MANAGES_HOST,
    "begin-recovery": ROOT_ONLY,
    "confirm-recovery": row(302, 403, 403, 403, 403, 403, 404),
    "uncordon-host": MANAGES_HOST,
    "drain-host": MANAGES_HOST,
    "declare-gone": row(200, 403, 403, 403, 403, 403, 404),
    "machines": row(200, 403, 403, 403, 403, 403, 404),
    "share-location": row(302, 403, 403, 403, 403, 403, 404),
    "bind-location": row(302, 403, 403, 403, 403, 403, 404),
    "alias-image": row(302, 403, 403, 403, 403, 403, 404),
    "location-registries": row(302, 403, 403, 403, 403, 403, 404),
    "remove-machine-type": row(302, 403, 403, 403, 403, 403, 404),
    "gpu-act": MANAGES_HOST,
    "discard-kept": MANAGES_HOST,
    "stray-act": MANAGES_HOST,
    "preferences": row(302, 302, 302, 302, 302, 302, 302),
    "choose-project": row(302, 302, 302, 302, 302, 302, 302),
    "new-token": EVERYBODY,
    "password": EVERYBODY,
    "second-factor": EVERYBODY,
    "begin-second-factor": row(302, 302, 302, 302, 302, 302, 302),
    "remove-second-factor": row(302, 302, 302, 302, 302, 302, 302),
    "new-recovery-codes": row(302, 302, 302, 302, 302, 302, 302),
    "reset-second-factor": ACTS_ON_PEOPLE,
    "end-person-sessions": ACTS_ON_PEOPLE,
    # There is no login server here (auth/test_oidc.py has one).
    "connect-oidc": row(404, 404, 404, 404, 404, 404, 404),
    "confirm-by-oidc": row(404, 404, 404, 404, 404, 404, 404),
    "disconnect-oidc": row(302, 302, 302, 302, 302, 302, 302),
    # The answer is JSON that says what is missing.
    "begin-passkey": row(400, 400, 400, 400, 400, 400, 400),
    "confirm-by-passkey": row(400, 400, 400, 400, 400, 400, 400),
    "add-passkey": row(400, 400, 400, 400, 400, 400, 400),
    "remove-passkey": row(404, 404, 404, 404, 404, 404, 404),
    "end-sessions": row(302, 302, 302, 302, 302, 302, 302),
    "end-session": row(404, 404, 404, 404, 404, 404, 404),
    "revoke-token": row(404, 404, 404, 404, 404, 404, 404),
}
# Open to whoever comes; test_session.py looks at them.
OPEN = {
    # With a link that somebody was shown today (test_command_line.py).
    "client-wheel",
    *("setup", "invited", "confirm-notifications", "unsubscribe", "theme", "language"),
    *("login", "login-code", "login-oidc", "oidc-callback", "logout", "begin-login-passkey", "login-passkey"),
}
REDIRECTS = {"home"}


def test_every_page_has_a_row():
    assert {pattern.name for pattern in urlpatterns} == set(GET) | set(POST) | OPEN | REDIRECTS


@pytest.mark.parametrize("name", sorted(GET))
def test_each_person_can_open_exactly_their_pages(name, addresses, browser):
    _try(name, "get", GET[name], addresses, browser)


@pytest.mark.parametrize("name", sorted(POST))
def test_each_person_can_do_exactly_their_actions(name, addresses, browser):
    _try(name, "post", POST[name], addresses, browser)


def test_a_get_changes_nothing(addresses, browser):
    jobs = list(Job.every.values_list("pk", "state", "cancel_requested_at", "deleted_at"))
    names, root = sorted(set(POST) - set(GET)), browser("root")
    assert {name: root.get(addresses(name)).status_code for name in names} == dict.fromkeys(names, 405)
    assert list(Job.every.values_list("pk", "state", "cancel_requested_at", "deleted_at")) == jobs
    assert Host.objects.count() == 1


def test_a_post_from_another_site_is_refused(addresses, browser):
    root, expired = browser("root", enforce_csrf_checks=True), (403, True)
    answers = {name: root.post(addresses(name)) for name in sorted(POST)}
    said = {
        name: (answer.status_code, "This form has expired" in answer.content.decode())
        for name, answer in answers.items()
    }
    assert said == dict.fromkeys(said, expired)


def _try(name, verb, expected, addresses, browser):
    for person in PEOPLE:
        answer = getattr(browser(person), verb)(addresses(name))
        if expected[person] == LOGIN:
            assert answer.status_code == 302 and answer["Location"].startswith("/login?next="), (name, person)
        else:
            assert answer.status_code == expected[person], (name, person, answer.content[:300])
