"""A host is changed only as a whole, after its new way was tried, and nothing that runs there is lost."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest
from django.utils import timezone

from agents.hosts import moving
from agents.hosts.moving import Tried
from agents.infra.refusals import Conflict, Refused, Unavailable
from agents.models import Host, HostEvent, HostStatus
from jobs.maintenance import edit_host as service
from jobs.maintenance import logins
from jobs.maintenance.edit_host import Place
from jobs.models import AuditEntry, Project, RecordingState, Run, ShellSession
from tests.unit.console.views.example_rows import KEY, a_host, a_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def project():
    return Project.objects.get_or_create(name="default", defaults={"created_at": timezone.now()})[0]


@pytest.fixture
def tried(monkeypatch):
    """What is at the end of the new way. A test changes it."""

    class Answer:
        same, meanwhile, ways = True, None, []

    answer = Answer()
    answer.ways = []

    def try_way(host, way, accepted):
        answer.ways.append(way)
        if answer.meanwhile:
            answer.meanwhile()
        return Tried({"gate:22": KEY} if way.jump else {}, answer.same)

    monkeypatch.setattr(moving, "try_way", try_way)
    return answer


@pytest.fixture
def host():
    return a_host("gpu-03", address="10.0.0.3", user="gpu")


def edit(host, seen=None, location=None, **changes):
    seen = seen or Place.of(host)
    way = replace(seen.way, **changes)
    return service.edit_host(host, Place(way, location or seen.location), seen, [], "root", timezone.now())


def refused(host, *arguments, **changes):
    before, noted = Host.objects.filter(pk=host.pk).values().get(), AuditEntry.objects.count()
    with pytest.raises(Refused) as why:
        edit(host, *arguments, **changes)
    assert Host.objects.filter(pk=host.pk).values().get() == before
    assert AuditEntry.objects.count() == noted
    return why.value


def busy(host, project):
    from django.contrib.auth.models import User

    person = User.objects.get_or_create(username="bob")[0]
    return a_job(project, person, host=host)


def test_a_new_address_is_tried_before_it_counts(host, tried, project):
    busy(host, project)
    assert edit(host, address="10.0.0.9", port=2222, jump="ada@gate")
    host.refresh_from_db()
    assert (host.address, host.port, host.jump, host.user) == ("10.0.0.9", 2222, "ada@gate", "gpu")
    assert host.jump_keys == {"gate:22": KEY} and host.pinned_key == KEY and host.status == HostStatus.UP
    assert host.due_at and tried.ways[0].address == "10.0.0.9"
    noted = AuditEntry.objects.get(what="host.edit")
    assert (noted.actor, noted.subject) == ("root", "gpu-03")
    assert (noted.before["login"], noted.after["login"]) == ("gpu@10.0.0.3:22", "gpu@10.0.0.9:2222")
    assert "10.0.0.9" in HostEvent.objects.get(host=host, kind="edited").text
    assert Run.objects.filter(host=host, released_at=None).count() == 1


def test_nothing_is_dialled_for_a_location_or_for_no_change(host, tried):
    assert not edit(host)
    assert edit(host, location="lab-c")
    host.refresh_from_db()
    assert host.location.name == "lab-c" and host.due_at is None and not tried.ways


def test_an_unreachable_host_is_dialled_at_once(host, tried):
    Host.objects.update(status=HostStatus.UNREACHABLE, last_error="gone")
    edit(host, address="10.0.0.9")
    host.refresh_from_db()
    assert (host.status, host.last_error) == (HostStatus.CHECKING, "")


def test_a_host_without_an_accepted_key_shows_its_key_again(host, tried):
    Host.objects.update(pinned_key="", offered_key=KEY, status=HostStatus.NEW)
    edit(host, address="10.0.0.9")
    host.refresh_from_db()
    assert (host.offered_key, host.status, host.address) == (
        "",
        HostStatus.NEW,
        "10.0.0.9",
    ) and not tried.ways


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"address": "-oProxyCommand=x"}, "address"),
        ({"port": 0}, "port"),
        ({"user": "a;b"}, "user"),
        ({"jump": "a b"}, "jump"),
        ({"location": "Lab C"}, "location"),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(host, tried, change, field):
    assert refused(host, **change).field == field


def test_the_login_changes_only_while_nothing_runs(host, tried, project):
    busy(host, project)
    why = refused(host, user="train")
    assert why.field == "user" and "1 run belongs to the login gpu" in why.message and not tried.ways
    Run.objects.update(released_at=timezone.now())
    assert edit(host, user="train")


def test_the_login_stays_until_everything_of_its_runs_is_here(host, tried, project):
    busy(host, project)
    Run.objects.update(phase="closed", released_at=timezone.now(), log_complete_at=None, metrics_proof="")
    assert "log bytes" in refused(host, user="train").message
    Run.objects.update(log_complete_at=timezone.now())
    assert "metrics" in refused(host, user="train").message
    Run.objects.update(metrics_proof="whole")
    coming = {"recording": "a" * 32, "recording_state": RecordingState.COMING}
    ShellSession.objects.create(run=Run.objects.get(), opened_at=timezone.now(), **coming)
    assert "recordings of shells" in refused(host, user="train").message
    ShellSession.objects.update(recording_state=RecordingState.WHOLE)
    assert edit(host, user="train")


def test_a_run_that_begins_while_the_host_is_tried_keeps_its_login(host, tried, project):
    tried.meanwhile = lambda: busy(host, project)
    assert refused(host, user="train").field == "user"


def test_a_second_admin_is_told_that_the_host_was_changed(host, tried):
    seen = Place.of(host)
    edit(host, address="10.0.0.4")
    host.refresh_from_db()
    assert isinstance(refused(host, seen, address="10.0.0.5"), Conflict)


@pytest.mark.parametrize(
    "change", [{"address": "10.0.0.4"}, {"pinned_key": "ssh-ed25519 AAAA"}, {"retired_at": timezone.now()}]
)
def test_a_change_while_the_host_is_tried_is_not_written_over(host, tried, change):
    tried.meanwhile = lambda: Host.every.update(**change)
    with pytest.raises(Conflict):
        edit(host, address="10.0.0.9")
    assert Host.every.get(pk=host.pk).address != "10.0.0.9"


def test_a_machine_with_the_same_key_that_is_not_the_same_loses_no_run(host, tried, project):
    busy(host, project)
    tried.same = False
    why = refused(host, address="10.0.0.9")
    assert why.field == "address" and "share keys" in why.message
    Run.objects.update(released_at=timezone.now())
    assert edit(host, address="10.0.0.9")  # a machine that was installed anew


@pytest.mark.parametrize("same", [True, False])
def test_nothing_is_placed_on_another_machine_before_it_was_checked(host, tried, same):
    tried.same = same
    edit(host, address="10.0.0.9")
    host.refresh_from_db()
    assert host.status == (HostStatus.UP if same else HostStatus.CHECKING) and host.due_at


def test_the_logins_of_projects_move_with_their_machine(host, tried, project):
    logins.set_template(host, "train-{project}", "root", timezone.now())
    login = Host.objects.get(machine=host)
    assert refused(host, user="train-default").field == "user"
    assert "Change its machine" in refused(login, address="10.0.0.9").message
    busy(login, project)
    edit(host, address="10.0.0.9", user="other", jump="gate", location="lab-c")
    login.refresh_from_db()
    assert (login.address, login.user, login.jump) == ("10.0.0.9", "train-default", "other@gate:22")
    assert login.location.name == "lab-c" and login.jump_keys == {"gate:22": KEY}


def test_who_gets_no_place_to_try_a_way_is_told_at_once(host, tried):
    with ExitStack() as held:
        for _ in range(service.tries.most // 2):
            held.enter_context(service.tries.place("root"))
        with pytest.raises(Unavailable, match="Try again in a moment"):
            edit(host, address="10.0.0.4")
        assert tried.ways == []
    assert edit(host, address="10.0.0.4") and service.tries.total() == 0
