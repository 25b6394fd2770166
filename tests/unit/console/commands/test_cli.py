"""The `trainyard` command: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents import clock_keeper
from agents.hosts.checklist import CheckItem
from agents.infra import clock
from agents.models import Host, Location, MachineClock
from agents.ssh.dial import Unreachable
from console import arguments, cli
from console.auth import tokens
from console.client import main as client
from console.commands import hosts
from console.models import ApiToken, SecondFactor
from console.runtime.processes import up
from jobs.models import Membership
from tests.unit.console.views.example_rows import TWO_NETWORKS, a_host

PASSWORD = "correct horse battery"


@pytest.fixture
def trainyard(db, monkeypatch, capsys):
    """Run the command in this process, on the test's database."""

    def run(*words, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            code = cli.main(list(words))
        except SystemExit as leaving:
            code = leaving.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def test_the_client_knows_every_verb_of_the_server_and_no_other():
    """Here, and not with the client: whoever adds a verb of the server runs these tests (`make quick` too)."""
    parser = arguments.parser()
    verbs = next(action.choices for action in parser._actions if action.choices)
    assert set(verbs) == client.SERVER_VERBS
    assert set(verbs) & set(client.VERBS) == {"quota"}
    quota = next(action.choices for action in verbs["quota"]._actions if action.choices)
    assert set(quota) == client.SERVER_QUOTA


def test_a_person_is_added_with_a_password_from_stdin(trainyard):
    done = trainyard("user", "add", "ada", "--admin", "--password-stdin", stdin=PASSWORD + "\n")
    assert (done.code, done.out, done.err) == (0, "Added ada (admin).\n", "")
    ada = User.objects.get(username="ada")
    assert ada.is_superuser and ada.check_password(PASSWORD)
    assert Membership.objects.get(user=ada).project.name == "default"


REFUSALS = [
    (("user", "add", "ada", "--password-stdin"), "short\n", "This password is too short"),
    (("user", "add", "ada", "--password-stdin"), "\n", "The password is empty"),
    (("user", "add", "ada"), PASSWORD, "--password-stdin"),
    (("user", "password", "bob", "--password-stdin"), PASSWORD, "There is no user 'bob'"),
    (("token", "create", "bob"), "", "trainyard user add bob"),
    (("member", "set", "bob", "viewer"), "", "There is no user 'bob'"),
    (("host", "add", "gpu 1", "127.0.0.1", "--user", "u", "--accept-first-key"), "", "name"),
]


@pytest.mark.parametrize(("words", "stdin", "reason"), REFUSALS)
def test_a_refusal_says_why_on_stderr_and_exits_with_1(trainyard, words, stdin, reason):
    done = trainyard(*words, stdin=stdin)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("trainyard: ") and reason in done.err
    assert not User.objects.exists() and not Host.objects.exists()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("user",),
        ("user", "add"),
        ("host", "add", "a", "b", "--user", "u"),
        ("host", "add", "a", "b", "--user", "u", "--port", "ssh", "--accept-first-key"),
        ("member", "set", "bob", "king"),
        ("up", "--only", "web,postman"),
    ],
)
def test_wrong_arguments_exit_with_2(trainyard, words):
    done = trainyard(*words)
    assert done.code == 2 and "usage: trainyard" in done.err


def test_a_token_is_printed_alone_and_works(trainyard):
    trainyard("user", "add", "ada", "--password-stdin", stdin=PASSWORD)
    done = trainyard("token", "create", "ada", "--name", "ci")
    assert (done.code, done.err) == (0, "")
    assert tokens.owner(done.out.removesuffix("\n"), timezone.now()).username == "ada"


def test_tokens_end_are_listed_and_revoked(trainyard):
    trainyard("user", "add", "ada", "--password-stdin", stdin=PASSWORD)
    token = trainyard("token", "create", "ada", "--name", "ci", "--days", "2", "--elevated").out.strip()
    row = ApiToken.objects.get()
    assert row.elevated and timedelta(days=1) < row.expires_at - timezone.now() <= timedelta(days=2)
    line = f"{row.pk}\tada\tci\tuntil {row.expires_at:%Y-%m-%d}\tnever used\televated\tadmin\t\n"
    assert trainyard("token", "list").out == line == trainyard("token", "list", "ada").out
    assert trainyard("token", "create", "ada", "--days", "900").err.startswith(
        "trainyard: A token is valid for 1 to"
    )
    assert trainyard("token", "revoke", str(row.pk)).out == "Revoked the token “ci” of ada.\n"
    assert tokens.owner(token, timezone.now()) is None and trainyard("token", "list").out == ""
    assert trainyard("token", "revoke", str(row.pk)).code == 1 == trainyard("token", "revoke", "99").code


def test_roles_are_set_and_listed(trainyard):
    for name in ("ada", "bob"):
        trainyard("user", "add", name, "--password-stdin", stdin=PASSWORD)
    assert trainyard("member", "set", "bob", "viewer").code == 0
    assert trainyard("user", "list").out == "ada\tuser\tdefault:submitter\nbob\tuser\tdefault:viewer\n"
    trainyard("user", "add", "eva", "--no-project", "--password-stdin", stdin=PASSWORD)
    assert "eva\tuser\t\n" in trainyard("user", "list").out
    trainyard("member", "set", "bob", "none")
    assert "bob\tuser\t\n" in trainyard("user", "list").out
    assert (
        trainyard("member", "set", "bob", "viewer", "--project", "moon").err
        == "trainyard: There is no project 'moon'.\n"
    )


def test_a_new_password_replaces_the_old_one(trainyard):
    trainyard("user", "add", "ada", "--password-stdin", stdin=PASSWORD)
    assert trainyard("user", "password", "ada", "--password-stdin", stdin="another good one\n").code == 0
    assert User.objects.get().check_password("another good one")


def test_a_disabled_person_loses_access_and_tokens(trainyard, client):
    trainyard("user", "add", "ada", "--admin", "--password-stdin", stdin=PASSWORD)
    trainyard("user", "add", "bob", "--password-stdin", stdin=PASSWORD)
    token = trainyard("token", "create", "bob").out.strip()
    assert client.login(username="bob", password=PASSWORD)
    assert trainyard("user", "disable", "bob").code == 0
    assert tokens.owner(token, timezone.now()) is None
    assert client.get("/jobs/").status_code == 302 and not client.login(username="bob", password=PASSWORD)
    assert "bob\tdisabled" in trainyard("user", "list").out
    assert trainyard("user", "enable", "bob").code == 0
    assert tokens.owner(token, timezone.now()) is None
    assert client.login(username="bob", password=PASSWORD)


def test_the_last_admin_stays(trainyard):
    trainyard("user", "add", "ada", "--admin", "--password-stdin", stdin=PASSWORD)
    done = trainyard("user", "disable", "ada")
    assert done.code == 1 and "last admin" in done.err
    assert User.objects.get().is_active


def test_the_public_key_is_printed_alone_and_stays(trainyard):
    first, second = trainyard("key"), trainyard("key")
    assert first.out == second.out
    assert first.out.startswith("ssh-ed25519 ") and first.out.count("\n") == 1


class Enrolment:
    """A fake of enrolment: a host that shows these keys one after the other, then passes or fails its checks."""

    def __init__(self, monkeypatch, keys, items=(), broken=None):
        self.keys, self.accepted = list(keys), []
        monkeypatch.setattr(hosts.enrolment, "fetch_host_key", self.offer)
        monkeypatch.setattr(hosts.enrol_host, "accept_host_key", self.accept)
        monkeypatch.setattr(hosts.enrolment, "check_host", lambda host_id, now: list(items))
        monkeypatch.setattr(
            hosts.checklist, "is_usable", lambda rows: all(row["ok"] is not False for row in rows)
        )
        self.broken = broken

    def offer(self, host_id, now):
        if self.broken:
            raise self.broken
        return self.keys[0] if self.keys else ""

    def accept(self, host_id, fingerprint, actor, now):
        assert fingerprint == self.keys.pop(0)
        self.accepted.append(fingerprint)


GOOD = [CheckItem("Reachable", True, "in 3 ms"), CheckItem("GPUs", None, "none found", "Only a note.")]
BAD = [
    CheckItem("Reachable", True, "ok"),
    CheckItem("Python", False, "3.5\x1b[31m is\told", "Install python3."),
]
ADD = ("host", "add", "gpu-1", "10.0.0.1", "--user", "ty", "--port", "2222", "--jump", "ty@gate")


def test_a_usable_host_exits_with_0_and_its_checklist(trainyard, monkeypatch):
    enrolment = Enrolment(monkeypatch, ["SHA256:gate", "SHA256:gpu"], GOOD)
    done = trainyard(*ADD, "--accept-key", "SHA256:gpu", "--accept-key", "SHA256:gate")
    assert done.code == 0, done.err
    assert enrolment.accepted == ["SHA256:gate", "SHA256:gpu"]
    assert "ok   Reachable: in 3 ms\nnote GPUs: none found\n     Fix: Only a note.\n" in done.out
    host = Host.objects.get()
    assert (host.name, host.address, host.port, host.user, host.jump) == (
        "gpu-1",
        "10.0.0.1",
        2222,
        "ty",
        "ty@gate",
    )
    assert host.location == Location.objects.get(name="default")


def test_a_host_that_is_not_usable_exits_with_1_and_can_be_tried_again(trainyard, monkeypatch):
    Enrolment(monkeypatch, ["SHA256:gpu"], BAD)
    done = trainyard(*ADD, "--accept-first-key")
    assert done.code == 1
    # No control characters for the terminal.
    assert "FAIL Python: 3.5 [31m is old\n     Fix: Install python3." in done.out
    assert "gpu-1 is not usable yet" in done.err
    Enrolment(monkeypatch, [], GOOD)
    assert trainyard(*ADD, "--accept-first-key").code == 0
    assert Host.objects.count() == 1


def test_a_host_key_other_than_the_named_one_is_refused(trainyard, monkeypatch):
    enrolment = Enrolment(monkeypatch, ["SHA256:evil"], GOOD)
    done = trainyard(*ADD, "--accept-key", "SHA256:good")
    assert done.code == 1 and enrolment.accepted == []
    assert "shows the key SHA256:evil, not SHA256:good. Nothing was sent" in done.err


def test_a_changed_host_key_is_not_accepted_as_a_first_key(trainyard, monkeypatch):
    Enrolment(monkeypatch, [], GOOD)
    trainyard(*ADD, "--accept-first-key")
    Host.objects.update(pinned_key="ssh-ed25519 AAAA")
    enrolment = Enrolment(monkeypatch, ["SHA256:evil"], GOOD)
    done = trainyard(*ADD, "--accept-first-key")
    assert done.code == 1 and enrolment.accepted == []
    assert "key has changed to SHA256:evil" in done.err


def test_an_unreachable_host_exits_with_1_and_the_exact_error(trainyard, monkeypatch):
    Enrolment(monkeypatch, [], broken=Unreachable("10.0.0.1:2222: Connection refused"))
    done = trainyard(*ADD, "--accept-first-key")
    assert (done.code, done.err) == (1, "trainyard: 10.0.0.1:2222: Connection refused\n")


def test_hosts_are_listed_one_a_line(trainyard, monkeypatch):
    Enrolment(monkeypatch, [], GOOD)
    trainyard(*ADD, "--accept-first-key")
    assert trainyard("host", "list").out.split("\t")[:4] == ["gpu-1", "ty@10.0.0.1:2222", "default", "new"]


def command(*words, stdin="", **environment):
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRAINYARD_", "DJANGO_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "console.cli", *words],
        input=stdin,
        text=True,
        capture_output=True,
        timeout=100,
        env={**clean, **environment},
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("TRAINYARD_PORT", "many"), ("TRAINYARD_DATA", "/dev/null"), ("DATABASE_URL", "mysql://h/d")],
)
def test_a_wrong_setting_exits_with_2_and_no_traceback(tmp_path, name, value):
    done = command("user", "list", **{"TRAINYARD_DATA": str(tmp_path), name: value})
    assert done.returncode == 2
    assert done.stderr.startswith(f"trainyard: {name} is ") and done.stderr.count("\n") == 1


def test_commands_that_start_together_on_a_new_data_directory_share_its_keys(tmp_path):
    """Secrets, database, default project and the deployment's key are each made once, by the first command."""
    data = tmp_path / "deep" / "data"
    add = ("user", "add", "ada", "--password-stdin", "--data", str(data))

    def start(words):
        # The directory by its variable or by --data; the password for the one that asks for it.
        return command(*words, stdin=PASSWORD, **({} if words is add else {"TRAINYARD_DATA": str(data)}))

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(start, [("key",), ("key",), add]))
    assert [(done.returncode, done.stderr) for done in answers] == [(0, "")] * 3
    one, other, added = (done.stdout for done in answers)
    assert one == other and one.startswith("ssh-") and added == "Added ada.\n"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert command("user", "list", TRAINYARD_DATA=str(data)).stdout == "ada\tuser\tdefault:submitter\n"


def test_a_host_is_cordoned_drained_and_uncordoned_by_command(trainyard):
    place = Location.objects.get_or_create(name="default")[0]
    now = timezone.now()
    Host.objects.create(
        name="gpu-03", location=place, address="a", user="u", created_at=now, added_by="x", status_since=now
    )
    assert trainyard("host", "cordon", "gpu-03", "--message", "disk").code == 0
    assert "\tcordoned\t" in trainyard("host", "list").out
    refused = trainyard("host", "drain", "gpu-03", "--force")
    assert (refused.code, "deadline" in refused.err) == (1, True)
    assert trainyard("host", "drain", "gpu-03", "--deadline", "soon").code == 1
    assert trainyard("host", "drain", "gpu-03", "--deadline", "2h", "--force").code == 0
    terms = Host.objects.get().maintenance
    assert terms.drain_force and terms.drain_until > now and terms.cordoned_by.endswith("(command line)")
    assert trainyard("host", "uncordon", "gpu-03").code == 0
    assert not Host.objects.get().maintenance.cordoned
    assert trainyard("host", "cordon", "gpu-04").code == 1
    refused = trainyard("host", "contain", "gpu-03", "--pid-namespaces", "on")
    assert refused.code == 1 and "not known whether gpu-03 allows PID namespaces" in refused.err
    Host.objects.update(facts={"pid_namespace": True})
    assert trainyard("host", "contain", "gpu-03", "--pid-namespaces", "on").code == 0
    assert Host.objects.get().pid_namespaces


def test_a_command_chooses_the_address_for_data(trainyard):
    a_host("gpu-03", found_address="10.0.0.7", facts=TWO_NETWORKS)
    done = trainyard("host", "network", "gpu-03", "--data-address", "10.9.0.7")
    assert done.code == 0 and "reached at 10.9.0.7" in done.out
    refused = trainyard("host", "network", "gpu-03", "--data-address", "10.9.0.8")
    assert refused.code == 1 and refused.err.count("10.9.0.7") == 1 and "--data-address" in refused.err
    assert "at 10.0.0.7" in trainyard("host", "network", "gpu-03", "--data-address", "found").out
    assert Host.objects.get().data_address == ""


def test_the_clock_is_shown_and_not_set_where_it_is_right(trainyard):
    shown = trainyard("clock", "show").out
    assert "\tTrainyard's time\n" in shown and "\tright\n" in shown
    refused = trainyard("clock", "set-right")
    assert refused.code == 1 and "nothing to set" in refused.err


def test_the_clock_is_not_set_back_while_trainyard_runs_on_this_data_directory(
    trainyard, monkeypatch, settings
):
    monkeypatch.setattr(clock, "_offset", clock._Offset(clock._offset.seconds))
    trainyard("clock", "show")
    machine = clock_keeper.this_boot()
    row = MachineClock.objects.get(machine=machine)
    MachineClock.objects.update(offset_s=row.offset_s + 7200, database_s=7200, machine_s=7200)
    assert "2:00:00 ahead" in trainyard("clock", "show").out
    with up.take_lock(settings.TRAINYARD.data / "up.lock"):
        refused = trainyard("clock", "set-right")
    assert refused.code == 1 and "only while nothing runs" in refused.err and "already runs" in refused.err
    assert trainyard("clock", "set-right").out == "Trainyard's time was set back by 2:00:00.\n"
    assert "\tright\n" in trainyard("clock", "show").out


def test_a_person_is_logged_out_of_all_browsers(trainyard, client):
    ada = User.objects.create_user("ada", password=PASSWORD)
    client.force_login(ada)
    assert "Ended 1 session of ada." in trainyard("user", "logout", "ada").out
    assert client.get("/account").status_code == 302


def test_a_token_of_the_command_line_has_a_scope_and_a_project(trainyard):
    User.objects.create_user("ada")
    trainyard("token", "create", "ada", "--scope", "read", "--project", "default")
    row = ApiToken.objects.get()
    assert (row.scope, row.project.name) == ("read", "default")
    assert trainyard("token", "list").out.rstrip("\n").endswith("\tread\tdefault")
    assert trainyard("token", "create", "ada", "--project", "nowhere").code != 0
    assert (
        "needs the scope “admin”"
        in trainyard(*["token", "create", "ada", "--scope", "read", "--elevated"]).err
    )


def test_the_second_factor_of_a_person_is_reset(trainyard):
    ada = User.objects.create_user("ada")
    assert "ada has no second factor" in trainyard("user", "reset-second-factor", "ada").err
    SecondFactor.objects.create(user=ada, sealed=b"x", made_at=timezone.now(), used_step=0)
    assert trainyard("user", "reset-second-factor", "ada").code == 0
    assert not SecondFactor.objects.exists()
