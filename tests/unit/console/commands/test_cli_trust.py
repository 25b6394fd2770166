"""Commands with which an admin confirms what Trainyard cannot check: addresses, stray runs, recovery."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents.hosts import recovery
from agents.ssh.host_keys import fingerprint
from jobs.models import Stray
from jobs.notifications import targets
from tests.unit.console.commands.test_cli import trainyard
from tests.unit.console.views.example_rows import KEY, OTHER_KEY, a_doubted_run, a_host

__all__ = ["trainyard"]
pytestmark = pytest.mark.django_db


def test_an_admin_confirms_the_mail_address_of_a_person(trainyard):
    bob = User.objects.create_user("bob")
    row, _ = targets.add(bob, "mail", "bob@example.org", [], 4.0, "bob", timezone.now())
    line = f"{row.pk}\tuser bob\tmail\tbob@example.org\t"
    assert trainyard("notice", "list").out == f"{line}waits for its owner\n"
    assert trainyard("notice", "vouch", str(row.pk)).out == "bob@example.org will be notified.\n"
    assert trainyard("notice", "list").out == f"{line}told\n"
    again, none = trainyard("notice", "vouch", str(row.pk)), trainyard("notice", "vouch", "99")
    assert (
        (again.code, none.code) == (1, 1) and "confirmed already" in again.err and "no address 99" in none.err
    )


def test_a_stray_run_is_stopped_and_dismissed_and_recovery_mode_begun(trainyard):
    run = a_doubted_run(a_host("gpu-03")).run
    assert f"not ours\t{run}\tgpu-03\trunning\n" in trainyard("recovery", "show").out
    assert trainyard("host", "stop-run", "gpu-03", run).out == f"{run} is to end.\n"
    assert trainyard("host", "dismiss-run", "gpu-03", run).code == 0
    assert Stray.objects.get().stop_wanted_at and "not ours" not in trainyard("recovery", "show").out
    assert "has no run x" in trainyard("host", "stop-run", "gpu-03", "x").err
    assert trainyard("recovery", "begin", "--why", "a backup").code == 0 and recovery.in_recovery_mode()
    assert trainyard("recovery", "show").out.startswith("observing: ")


def test_the_keys_of_many_hosts_are_accepted_from_a_file(trainyard, tmp_path):
    for name, pinned in (("gpu-01", ""), ("gpu-02", ""), ("gpu-03", OTHER_KEY)):
        a_host(name, address=name, pinned_key=pinned, offered_key=KEY)
    path, shown = tmp_path / "keys", fingerprint(KEY)
    path.write_text(f"gpu-01 {KEY}\ngpu-03 {KEY}\n")
    once = trainyard("host", "accept-keys", str(path))
    assert once.code == 1 and "2 of 3 keys still wait" in once.err
    assert once.out.splitlines() == [
        f"gpu-01\t{shown}\tequal\taccepted",
        f"gpu-02\t{shown}\tdiffers\tnot accepted",
        f"gpu-03\t{shown}\tequal\tnot accepted",
    ]
    assert (
        "gpu-03\t" + shown + "\tequal\taccepted"
        in trainyard("host", "accept-keys", str(path), "--changed", "gpu-03").out
    )
    assert "cannot be read" in trainyard("host", "accept-keys", str(tmp_path / "none")).err
