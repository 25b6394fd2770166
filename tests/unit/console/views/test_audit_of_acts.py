"""Every page that acts has a row: what it writes into the audit, or why it writes nothing. A new act without a row
fails. The acts with a body here are done, and their entry is looked for.
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.hosts import gpu_quarantine, moving
from agents.hosts.moving import Tried
from agents.models import Host, HostKept, HostStatus
from agents.ssh.host_keys import fingerprint
from console.auth import tokens
from console.models import SecondFactor
from jobs.models import AuditEntry, Project, Run
from jobs.secrets import store
from tests.unit.console.views import test_page_matrix as pages
from tests.unit.console.views.example_rows import KEY
from tests.unit.console.views.page_addresses import addresses

__all__ = ["addresses"]

EDITED = {"address": "10.0.0.11", "port": "22", "user": "train", "jump": "", "location": "default"}
# Page → (what, the form that is sent).
DONE = {
    "add-host": ("host.add", {**EDITED, "name": "gpu-77"}),
    "paste-hosts": ("host.add", {"hosts": "gpu-78 train@10.0.0.8", "location": "default"}),
    "accept-key": ("host.accept_key", {"fingerprint": fingerprint(KEY)}),
    "accept-keys": ("host.accept_key", {"keys": KEY, "host": "{host} " + fingerprint(KEY)}),
    "edit-host": (
        "host.edit",
        {**EDITED, **{f"seen_{name}": value for name, value in EDITED.items()}, "location": "lab-z"},
    ),
    "check-host": ("host.check", {}),
    "remove-host": ("host.remove", {}),
    "cordon-host": ("host.cordon", {"message": "x"}),
    "uncordon-host": ("host.uncordon", {}),
    "drain-host": ("host.drain", {"message": "x"}),
    "contain-host": ("host.contain", {"pid_namespaces": "on"}),
    "network-host": ("host.network", {"data_address": "10.0.0.11"}),
    "host-logins": ("host.logins", {"template": "train-{project}"}),
    "declare-gone": ("host.declare_gone", {"name": "{name}"}),
    "bulk-hosts": ("host.cordon", {"act": "cordon", "host": "{host}", "confirm": "1"}),
    "gpu-act": ("gpu.recheck", {}),
    "discard-kept": ("host.discard", {}),
    "stray-act": ("stray.stop", {}),
    "bind-location": ("location.bind", {"projects": "default"}),
    "share-location": ("location.storage", {"storage": "* /data"}),
    "alias-image": ("location.images", {"name": "ghcr.io/lab/torch", "image": "host"}),
    "location-registries": ("registry.set", {"registry": "ghcr.io", "username": "ada", "password": "x"}),
    "project-registries": ("registry.set", {"registry": "ghcr.io", "username": "ada", "password": "x"}),
    "begin-recovery": ("recovery.begin", {"why": "a backup"}),
    "new-token": ("token.make", {"name": "ci", "days": "30", "scope": "read"}),
    "revoke-token": ("token.revoke", {}),
    "share-shell": ("shell.share", {"shared": "1"}),
    "end-sessions": ("session.end_all", {}),
    "end-person-sessions": ("session.end_all", {}),
    "new-recovery-codes": ("second_factor.codes", {}),
    "remove-second-factor": ("second_factor.remove", {}),
    "reset-second-factor": ("second_factor.remove", {}),
    "own-secrets": ("secret.set", {"name": "HF", "value": "hf_secret_value"}),
    "remove-own-secret": ("secret.remove", {"name": "OLD"}),
    "project-secrets": ("secret.set", {"name": "HF", "value": "hf_secret_value"}),
    "remove-project-secret": ("secret.remove", {"name": "OLD"}),
    "set-quota": ("quota.set", {"whose": ":project", "metric": "running", "limit": "3"}),
    "default-quotas": ("quota.set", {"whose": ":project", "metric": "running", "limit": "3"}),
    "disable-person": ("user.disable", {}),
    "invite-person": ("user.invite", {}),
    "delete-person": ("user.delete", {}),
    "set-admin": ("user.admin", {"admin": "1"}),
    "add-person": ("user.add", {"username": "zoe"}),
    "new-project": ("project.create", {"name": "vision", "title": "", "weight": "1"}),
    "archive-project": ("project.archive", {"archived": "1"}),
    "remove-machine-type": ("machine_type.remove", {}),
}
# Page → the test that does it, because it needs more than a form.
ELSEWHERE = {
    **dict.fromkeys(
        ("end-session", "password", "second-factor"), "auth/test_session_list.py, auth/test_second_factor.py"
    ),
    **dict.fromkeys(("add-passkey", "remove-passkey"), "auth/test_passkeys.py"),
    **dict.fromkeys(("connect-oidc", "disconnect-oidc"), "auth/test_oidc.py"),
    **dict.fromkeys(("set-member", "remove-member", "project-settings"), "views/test_projects.py"),
    **dict.fromkeys(
        (
            "add-notification",
            "add-project-notification",
            "change-notification",
            "remove-notification",
            "idle-rule",
        ),
        "views/test_notifications.py",
    ),
    "close-shell": "views/test_shells.py",  # it is written when the shell has ended
    "vouch-notification": "views/test_notifications.py",
    "move-in-queue": "views/test_queue_moves.py",
    "delete-output": "views/test_outputs.py",
    **dict.fromkeys(("delete-model", "delete-model-version"), "views/test_models.py"),
    **dict.fromkeys(
        (
            "add-bucket",
            "change-bucket",
            "delete-bucket",
            "add-artifact",
            "new-job-code",
            "train-model-code",
            "delete-artifact",
            "delete-object",
        ),
        "artifacts/test_objects.py, api/test_artifacts.py",
    ),
    "enable-person": "views/test_people_pages.py",
    "extend-study": "views/test_extend_study.py",
    "machines": "views/test_machine_types.py",
    "confirm-recovery": "host_sync/test_recovery_mode.py",
    "remove-job-template": "projects/test_job_templates.py",
}
# Page → why nothing is written.
NOTHING = {
    **dict.fromkeys(
        ("cancel-job", "delete-job", "bulk-jobs", "rerun-job", "sample-job", "new-job", "train-model"),
        "history of the job",
    ),
    **dict.fromkeys(("cancel-study", "delete-study", "new-study"), "its row and its trials' history"),
    **dict.fromkeys(("job-views", "remove-job-view", "preferences", "choose-project"), "a person's own view"),
    **dict.fromkeys(
        ("new-job-summary", "new-study-summary", "train-model-summary", "new-job-env-rows", "compare-keys"),
        "it changes nothing",
    ),
    **dict.fromkeys(("test-notification", "ask-notification"), "it only sends a message"),
    "add-object": "as many as jobs write",
    "default-model-version": "an alias that moves; nothing is lost",
    **dict.fromkeys(("begin-passkey", "begin-second-factor"), "the first of two steps"),
    **dict.fromkeys(("confirm-by-passkey", "confirm-by-oidc"), "a confirmation, not an act"),
}


def test_every_page_that_acts_is_in_the_audit_or_says_why_not():
    assert set(DONE) | set(ELSEWHERE) | set(NOTHING) == set(pages.POST)
    assert not set(DONE) & (set(ELSEWHERE) | set(NOTHING))


@pytest.fixture
def ready(addresses, cast, project, monkeypatch):
    """What the acts need: a key that waits, a way that leads to the host, a GPU in quarantine, stored secrets."""
    monkeypatch.setattr(moving, "try_way", lambda host, way, keys: Tried({}, True))
    return addresses


def prepare(name, host, cast, project):
    rows, now = Host.objects.filter(pk=host.pk), timezone.now()
    if name in ("accept-key", "accept-keys"):
        rows.update(offered_key=KEY, pinned_key="", status=HostStatus.NEW)
    elif name in ("remove-host", "declare-gone", "host-logins"):
        Run.objects.update(released_at=now)
        rows.update(status=HostStatus.UNREACHABLE)
    elif name == "contain-host":
        rows.update(facts={"pid_namespace": True})
    elif name == "uncordon-host":
        from jobs.maintenance import cordon_and_drain

        cordon_and_drain.cordon(host, "x", "alice", now)
    elif name == "gpu-act":
        gpu = host.gpus.get()
        gpu_quarantine.quarantine(host.pk, {gpu.uuid: [STRANGER]}, "", now)
    elif name == "discard-kept":
        HostKept.objects.create(host=host, at=now, entries=[["blobs", "a" * 64, 7, 1, 1, False]])
    elif name in ("remove-own-secret", "remove-project-secret"):
        store.put(cast.root if "own" in name else project, "OLD", "old_secret", "alice", now)
    elif name == "delete-person":
        User.objects.filter(username="yves").update(is_active=False)
    elif name in ("new-recovery-codes", "remove-second-factor", "reset-second-factor"):
        owner = User.objects.get(username="yves") if name.startswith("reset") else cast.root
        SecondFactor.objects.create(user=owner, sealed=b"x", made_at=now, used_step=0)


STRANGER = {"pid": 1, "ticks": 9, "user": "m", "age_s": 7, "name": "miner", "how": "open", "run": ""}


@pytest.mark.parametrize("name", sorted(DONE))
def test_an_act_is_in_the_audit(name, ready, cast, project, browser):
    what, form = DONE[name]
    address = ready(name)
    host = Host.objects.order_by("pk").first()
    prepare(name, host, cast, project)
    if name == "revoke-token":
        row, _ = tokens.create(cast.root, "ci", timezone.now())
        address = f"/account/tokens/{row.pk}/revoke"
    sent = {
        key: value.format(host=host.pk, name=host.name, project="{project}") for key, value in form.items()
    }
    before = AuditEntry.objects.count()
    answer = browser("root").post(address, sent)
    written = list(AuditEntry.objects.order_by("pk").values_list("what", "actor")[before:])
    assert (what, "root") in written, (answer.status_code, written, answer.content.decode()[-1500:])
    assert Project.objects.exists()
