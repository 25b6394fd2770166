"""The fleet against real sshd: orders reach hosts, and what hosts report reaches the control plane, whatever fails."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from agents.hosts import seals
from agents.hosts.seals import SealOwner
from agents.links import inbox, leases, link
from agents.links.control_plane import Frame, PreparationName
from agents.links.fleet import link_delay
from agents.links.link import Link, LinkBroken
from agents.models import Host, HostEvent, HostStatus
from agents.ssh import install_runner
from agents.ssh.dial import dial
from agents.ssh.host_keys import fingerprint
from tests.harness.wait_and_processes import wait_for
from tests.unit.agents.conftest import key_of, ready, row, target
from tests.unit.agents.memory_control_plane import MemoryControlPlane

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_is_started_followed_verified_and_forgotten(machine, key, control_plane, start_fleet):
    host = row(machine, status=HostStatus.UNREACHABLE)
    fleet = start_fleet(key, control_plane)
    ready(fleet)
    control_plane.start("r-1", "sh", "-c", "echo first; echo second >&2; exit 3")
    fleet.poke([host.pk])
    wait_for(
        lambda: control_plane.done("r-1"), "the run to be done with", dump=lambda: repr(vars(control_plane))
    )
    assert control_plane.logs["r-1"] == b"first\nsecond\n"
    assert control_plane.facts["r-1"]["exit_code"] == 3
    assert control_plane.ends["r-1"].size == 13
    host.refresh_from_db()
    assert host.status == HostStatus.UP
    assert host.boot_id and host.runner_sha and host.seen_at
    assert [event.kind for event in HostEvent.objects.filter(host=host)] == ["up"]
    assert control_plane.changes == 1
    assert set(control_plane.tokens) == {host.lease_token}
    assert Host.objects.get().lease_owner == "one"
    assert seals.is_seal_of_run(SealOwner.of(host), "r-1", control_plane.facts["r-1"]["seal"])


def test_a_start_order_that_came_with_the_wanted_runs_is_not_asked_for_again(
    machine, key, control_plane, start_fleet
):
    host = row(machine)
    fleet = start_fleet(key, control_plane)
    ready(fleet)
    for with_orders, run in ((True, "r-1"), (False, "r-2")):
        control_plane.with_orders = with_orders
        control_plane.start(run, "true")
        fleet.poke([host.pk])
        wait_for(lambda: control_plane.done(run), "the run to be done with")  # noqa: B023
    assert control_plane.asked_for == ["r-2"]


def test_a_stop_that_comes_first_closes_the_run_and_one_that_comes_later_ends_it(
    machine, key, control_plane, start_fleet
):
    host = row(machine)
    control_plane.start("never", "touch", "started")
    control_plane.stop("never")
    control_plane.start("long", "sh", "-c", "echo up; exec sleep 600")
    fleet = start_fleet(key, control_plane)
    wait_for(lambda: control_plane.logs["long"] == b"up\n", "the long run to speak")
    control_plane.stop("long")
    fleet.poke([host.pk])
    wait_for(lambda: control_plane.done("never") and control_plane.done("long"), "both to be done with")
    assert control_plane.facts["never"]["never_started"] is True
    assert seals.is_seal_of_run(SealOwner.of(host), "never", control_plane.facts["never"]["seal"])
    assert control_plane.facts["long"]["why"] == "stop"


def test_what_nobody_waits_for_any_more_is_ended_on_its_host_also_by_the_next_dispatcher(
    machine, key, control_plane, start_fleet
):
    host = row(machine)
    fleet = start_fleet(key, control_plane, deployment="t-given-up")
    ready(fleet)
    digest = hashlib.sha256(b"never shipped").hexdigest()
    what = {"key": digest, "blob": digest, "blobs": [{"sha256": digest, "size": 13}]}
    tree = PreparationName("tree", digest, 1)
    for run in ("r-1", "r-2"):
        control_plane.hold_back(run, tree, what)
    fleet.poke([host.pk])
    wait_for(lambda: states(control_plane)[-1:] == ["WORKING"], "the host to be at it")
    control_plane.stop("r-1")
    fleet.poke([host.pk])
    wait_for(lambda: control_plane.done("r-1"), "the first one to be done with")
    assert not control_plane.given_up, "another run waits for it"
    fleet.stop()
    control_plane.stop("r-2")
    another = start_fleet(key, control_plane, name="two", deployment="t-given-up")
    ready(another)
    wait_for(
        lambda: states(control_plane)[-1:] == ["LOST"],
        "the host to have ended it",
        dump=lambda: repr((control_plane.prepared, control_plane.given_up)),
    )
    assert set(control_plane.given_up) == {tree}


def states(control_plane):
    return [report.state for report in control_plane.prepared]


def test_a_gang_starts_at_once_and_every_log_is_whole(machine, key, control_plane, start_fleet):
    host = row(machine)
    runs = [f"gang-{number}" for number in range(20)]
    for run in runs:
        control_plane.start(run, "sh", "-c", "seq 1 2000; echo $TRAINYARD_RUN")
    start_fleet(key, control_plane)
    wait_for(lambda: all(control_plane.done(run) for run in runs), "the gang to be done with")
    numbers = "".join(f"{number}\n" for number in range(1, 2001))
    assert {run: control_plane.logs[run].decode() for run in runs} == {
        run: f"{numbers}{run}\n" for run in runs
    }
    assert max(control_plane.takes) <= 64
    assert host.pk


def test_a_log_that_is_far_behind_is_stored_in_few_large_batches(machine, key, control_plane, start_fleet):
    row(machine)
    control_plane.start(
        "r", "sh", "-c", "head -c 24000000 /dev/zero | tr '\\0' x | fold -w 99 >big; cat big; echo end"
    )
    start_fleet(key, control_plane)
    wait_for(lambda: control_plane.done("r"), "the run to be done with")
    assert len(control_plane.logs["r"]) == control_plane.ends["r"].size > 24_000_000
    assert control_plane.logs["r"].endswith(b"xend\n") or control_plane.logs["r"].endswith(b"x\nend\n")
    # Frames of 256 KiB would be 92 batches, if each was stored when it came.
    assert len(control_plane.takes) < 46, control_plane.takes


def test_a_link_that_breaks_repeatedly_loses_and_repeats_no_byte(own_machine, control_plane, start_fleet):
    row(own_machine)
    control_plane.start("r", "sh", "-c", "for i in $(seq 1 60); do seq $i 1000; sleep 0.05; done")
    start_fleet(key_of(own_machine.fleet), control_plane)
    for expected in (20_000, 60_000, 100_000):
        wait_for(lambda at=expected: len(control_plane.logs["r"]) >= at, f"{expected} bytes of the log")
        own_machine.tell("reset")
    wait_for(lambda: control_plane.done("r"), "the run to be done with")
    whole = "".join(f"{n}\n" for i in range(1, 61) for n in range(i, 1001)).encode()
    assert control_plane.logs["r"] == whole
    assert not control_plane.gaps["r"]
    assert HostEvent.objects.count() <= 6


def test_a_host_that_does_not_answer_is_unreachable_and_its_run_goes_on(
    own_machine, control_plane, start_fleet
):
    host = row(own_machine)
    fleet = start_fleet(key_of(own_machine.fleet), control_plane, dead_s=2.0)
    control_plane.start("r", "sh", "-c", "echo before; sleep 4; echo after")
    fleet.poke([host.pk])
    wait_for(lambda: control_plane.logs["r"] == b"before\n", "the run to print")
    own_machine.cut()
    wait_for(lambda: status(host) == HostStatus.UNREACHABLE, "the host to be unreachable")
    assert [phase for phase in control_plane.phases("r") if phase in ("ended", "closed")] == []
    own_machine.restore()
    wait_for(lambda: control_plane.done("r"), "the run to be done with")
    assert control_plane.logs["r"] == b"before\nafter\n"
    assert control_plane.facts["r"]["exit_code"] == 0
    assert status(host) == HostStatus.UP


def test_a_changed_host_key_stops_everything_until_a_person_pins_it(own_machine, control_plane, start_fleet):
    host = row(own_machine)
    old = fingerprint(own_machine.host_key_line)
    own_machine.new_host_key()
    fleet = start_fleet(key_of(own_machine.fleet), control_plane)
    wait_for(lambda: status(host) == HostStatus.BLOCKED, "the host to be blocked")
    host.refresh_from_db()
    assert old in host.last_error and fingerprint(own_machine.host_key_line) in host.last_error
    assert "publickey" not in own_machine.sshd_log()
    Host.objects.filter(pk=host.pk).update(pinned_key=own_machine.host_key_line)
    fleet.poke([host.pk])
    wait_for(lambda: status(host) == HostStatus.UP, "the host to be up again")


def test_a_refused_login_is_tried_slowly_and_at_once_when_a_check_found_it_mended(
    own_machine, control_plane, start_fleet
):
    host = row(own_machine)
    line = own_machine.fleet.public_key_line
    own_machine.revoke(line)
    fleet = start_fleet(key_of(own_machine.fleet), control_plane)
    wait_for(lambda: status(host) == HostStatus.AUTH_FAILED, "the refusal to be recorded")
    for _ in range(20):
        fleet.poke([host.pk])
    assert own_machine.sshd_log().count("Connection closed by authenticating user") <= 1
    own_machine.authorize(line)
    Host.objects.filter(pk=host.pk).update(status=HostStatus.UP, status_since=timezone.now())
    wait_for(lambda: (fleet.poke([host.pk]), fleet.ready())[1], "the link to be up")


def test_a_control_plane_that_is_slow_or_fails_costs_neither_the_link_nor_a_byte(
    machine, key, control_plane, start_fleet, monkeypatch
):
    monkeypatch.setattr(inbox, "MAX_BYTES", 1024 * 1024)
    host = row(machine)
    fleet = start_fleet(key, control_plane, dead_s=3.0)
    ready(fleet)
    links = {thread._link for thread in fleet._hosts.values()}
    control_plane.gate.clear()
    control_plane.start("flood", "sh", "-c", "head -c 6000000 /dev/urandom | base64")
    fleet.poke([host.pk])
    wait_for(lambda: next(iter(links)).inbox.full, "the inbox to be full")
    stuck = time.monotonic()
    wait_for(lambda: time.monotonic() - stuck > 4.5, "longer than until a silent link is dead")
    failures, real = queue.Queue(), control_plane.store_reports

    def failing(*_):
        failures.put(1)
        raise RuntimeError("the database is away")

    control_plane.store_reports = failing
    control_plane.gate.set()
    wait_for(lambda: not failures.empty(), "a failed store_reports")
    control_plane.store_reports = real
    wait_for(lambda: control_plane.done("flood"), "the flood to be stored")
    assert len(control_plane.logs["flood"]) == control_plane.ends["flood"].size > 8_000_000
    assert {thread._link for thread in fleet._hosts.values()} == links


class FullControlPlane(MemoryControlPlane):
    """Stores facts, but no bytes while its disk is full, as jobs.host_sync does."""

    full = False
    dropped = 0

    def store_reports(self, host_id, token, arrivals):
        kept = [arrival for arrival in arrivals if not (self.full and isinstance(arrival.what, Frame))]
        self.dropped += len(arrivals) - len(kept)
        return super().store_reports(host_id, token, kept)

    def _want(self, run):
        want = super()._want(run)
        return replace(want, pull_from=None) if self.full else want


def test_bytes_that_arrived_while_the_disk_was_full_are_requested_again(machine, key, start_fleet):
    control_plane = FullControlPlane()
    host = row(machine)
    fleet = start_fleet(key, control_plane)
    ready(fleet)
    control_plane.start("r", "sh", "-c", "echo first; sleep 1; echo last")
    fleet.poke([host.pk])
    wait_for(lambda: control_plane.logs["r"] == b"first\n", "the first line")
    control_plane.full = True
    wait_for(
        lambda: control_plane.dropped and "r" in control_plane.ends,
        "the last line to be left out, and the end",
    )
    control_plane.full = False
    wait_for(lambda: control_plane.done("r"), "the rest of the log")
    assert control_plane.logs["r"] == b"first\nlast\n"


def test_unknown_runs_are_left_alone_and_found_again(machine, key, control_plane, start_fleet):
    row(machine)
    control_plane.start(
        "r", "sh", "-c", "echo one >> $HOME/starts; until [ -e $HOME/go ]; do sleep 0.05; done"
    )
    first = start_fleet(key, control_plane, deployment="t-left-alone")
    wait_for(lambda: "running" in control_plane.phases("r"), "the run to start")
    first.stop()
    stranger = MemoryControlPlane()
    second = start_fleet(key, stranger, deployment="t-left-alone")
    wait_for(lambda: "running" in stranger.phases("r"), "the other control plane to know it")
    second.stop()
    assert [phase for phase in stranger.phases("r") if phase != "running"] == []
    start_fleet(key, control_plane, deployment="t-left-alone")
    machine.write(f"{machine.home}/go", "")
    wait_for(lambda: control_plane.done("r"), "the run to end by itself")
    assert machine.read(f"{machine.home}/starts") == "one\n"
    assert control_plane.facts["r"]["exit_code"] == 0


def test_two_dispatchers_share_the_hosts_and_one_inherits_when_the_other_is_gone(
    machines, key, control_plane, start_fleet
):
    hosts = [row(machine) for machine in machines]
    deployment = "t-shared"
    first = start_fleet(key, control_plane, name="one", deployment=deployment, lease_s=4.0)
    ready(first, 2)
    second = start_fleet(key, control_plane, name="two", deployment=deployment, lease_s=4.0)
    ready(second)
    shared = {host.pk for host in hosts}
    wait_for(lambda: len(first.held()) == 1 and {*first.held(), *second.held()} == shared, "one host each")
    before = first.held() | second.held()
    first.stop()
    ready(second, 2)
    taken = second.held()
    assert sum(taken.values()) > sum(before.values()), "under a new token"


def test_a_lease_that_was_lost_ends_the_link_and_its_arrivals_are_refused(
    machine, key, control_plane, start_fleet
):
    host = row(machine)
    fleet = start_fleet(key, control_plane, name="stale", lease_s=3.0)
    ready(fleet)
    link = next(iter(fleet._hosts.values()))._link
    Host.objects.filter(pk=host.pk).update(
        lease_owner="other",
        lease_token=F("lease_token") + 5,
        lease_until=timezone.now() + timedelta(hours=1),
    )
    control_plane.current = False
    control_plane.start("r", "touch", "started")
    fleet.poke([host.pk])
    wait_for(lambda: link.ended, "the link to end")
    wait_for(lambda: fleet.held() == {}, "the stale owner to know")
    assert control_plane.takes == [] or control_plane.facts == {}
    assert status(host) == HostStatus.UP, "a stale owner writes nothing about the host"


def test_a_lease_that_is_renewed_too_late_costs_no_link(
    machine, key, control_plane, start_fleet, monkeypatch
):
    """The database was slow: meanwhile nothing is sent, and afterwards no host has to be dialled again."""
    quick, waits, share_out = threading.Event(), threading.Event(), leases.renew_and_take
    quick.set()

    def renew(*asked):
        if not quick.is_set():
            waits.set()
        return quick.wait(60) and share_out(*asked)

    monkeypatch.setattr(leases, "renew_and_take", renew)
    host = row(machine)
    fleet = start_fleet(key, control_plane, lease_s=3.0, dead_s=2.0)
    ready(fleet)
    [thread] = fleet._hosts.values()
    link = thread._link
    quick.clear()
    try:
        assert waits.wait(60), "a renewal that began before is over"
        wait_for(lambda: not thread.lease.good(), "the lease to run out")
        control_plane.start("r", "true")
        fleet.poke([host.pk])
        time.sleep(3.0)  # longer than a host may leave pings unanswered
        assert not link.ended and not control_plane.phases("r")
    finally:
        quick.set()
    wait_for(lambda: control_plane.done("r"), "the run to be done with")
    assert thread._link is link and not HostEvent.objects.exists()


def status(host):
    return Host.objects.get(pk=host.pk).status


def test_a_run_goes_on_when_the_runner_is_upgraded(machine, key, control_plane, start_fleet, monkeypatch):
    host = row(machine)
    control_plane.start(
        "r", "sh", "-c", "echo old; until [ -e $HOME/upgraded ]; do sleep 0.05; done; echo new"
    )
    first = start_fleet(key, control_plane, deployment="t-upgrade")
    wait_for(lambda: control_plane.logs["r"] == b"old\n", "the run to print")
    first.stop()
    old, program = (
        Host.objects.get(pk=host.pk).runner_sha,
        b"# the next version\n" + install_runner.runner_bytes(),
    )
    monkeypatch.setattr(install_runner, "runner_bytes", lambda: program)
    monkeypatch.setattr(install_runner, "shipped_sha", lambda: hashlib.sha256(program).hexdigest())
    second = start_fleet(key, control_plane, deployment="t-upgrade")
    ready(second)
    machine.write(f"{machine.home}/upgraded", "")
    wait_for(lambda: control_plane.done("r"), "the run to be done with")
    assert control_plane.logs["r"] == b"old\nnew\n"
    assert control_plane.facts["r"]["exit_code"] == 0
    wait_for(lambda: Host.objects.get(pk=host.pk).runner_sha != old, "the new version to be recorded")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-python", "no-such-python"),
        ("echo TRAINYARD-RUNNER 1; echo nonsense", "not a JSON line"),
        ('echo TRAINYARD-RUNNER 1; echo \'{"t":"hello","v":99}\'', "protocol 99"),
        ('echo TRAINYARD-RUNNER 1; echo \'{"t":"hello","v":1,"sha":"other"}\'', "another runner"),
        ("head -c 200000 /dev/zero | tr '\\0' '\\n'", "no runner"),
    ],
)
def test_another_program_makes_the_host_unusable_with_its_own_output(
    machine, key, control_plane, start_fleet, monkeypatch, command, words
):
    host = row(machine)
    monkeypatch.setattr(install_runner, "command", lambda sha, mode: command)
    monkeypatch.setattr(install_runner, "BOOT_COMMAND", command)
    start_fleet(key, control_plane)
    wait_for(lambda: status(host) == HostStatus.UNUSABLE, "the host to be unusable")
    assert words in Host.objects.get(pk=host.pk).last_error


@pytest.mark.parametrize("command", ["sleep 60", "echo TRAINYARD-RUNNER 1; sleep 60"])
def test_a_runner_that_never_greets_makes_the_host_unusable(
    machine, key, control_plane, start_fleet, monkeypatch, command
):
    monkeypatch.setattr(link, "HELLO_S", 1.0)
    host = row(machine)
    monkeypatch.setattr(install_runner, "command", lambda sha, mode: command)
    start_fleet(key, control_plane)
    wait_for(lambda: status(host) == HostStatus.UNUSABLE, "the host to be unusable")
    assert Host.objects.get(pk=host.pk).last_error == "its runner has not greeted within 1 s"


def test_output_before_the_greeting_is_skipped_and_a_stale_epoch_is_refused(machine, key, monkeypatch):
    real = install_runner.command
    monkeypatch.setattr(
        install_runner, "command", lambda sha, mode: "echo Welcome; echo -n '$ '; " + real(sha, mode)
    )
    answers = []
    for epoch in (5, 4):
        connection = dial(target(machine), key)
        install_runner.put_runner(connection)
        greeting = {"deployment": "t-epoch", "epoch": epoch, "console": "test"}
        link = Link(connection, "test", greeting, lambda: True, lambda within_s: None, SealOwner(1, "u", "k"))

        def greeted(hello, link=link):
            answers.append(hello.boot_id)
            threading.Thread(target=link.close).start()

        if epoch == 5:
            link.listen(greeted)
        else:
            with pytest.raises(LinkBroken, match="refused"):
                link.listen(greeted)
        connection.close()
    assert len(answers) == 1


def test_the_round_trip_of_a_small_frame_is_known(machine, key, control_plane, start_fleet):
    host = row(machine)
    fleet = start_fleet(key, control_plane)
    assert link_delay(host.pk) is None
    ready(fleet)
    assert 0 < wait_for(lambda: link_delay(host.pk), "the first answer") < 60
    assert link_delay(host.pk + 1) is None
