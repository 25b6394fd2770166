"""The parts of enrolment that need no real host: what is parsed, judged and refused."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from agents.hosts import checklist, enrolment, probe
from agents.hosts.accelerators import accelerator_type
from agents.hosts.adding import InvalidLines, add_host, parse_pasted
from agents.hosts.inventory import missing_gpus, save_facts
from agents.infra.refusals import Refused
from agents.infra.text import clean_text
from agents.models import Gpu, Host, HostEvent, HostStatus
from agents.ssh.dial import HostKeyChanged, HostKeyUnknown, SshdBusy
from agents.ssh.host_keys import fingerprint
from agents.ssh.targets import Jump, parse_address, parse_jumps

GOOD = {
    "schema": 1,
    "python": "3.11.2",
    "boot_id": "b",
    "wall": 1.0,
    "hostname": "gpu01",
    "user": "gpu",
    "cpus": 8,
    "memory_mb": 2048,
    "disk": {
        "path": "/home/gpu",
        "free_mb": 5000,
        "total_mb": 9000,
        "fstype": "ext4",
        "local": True,
        "survives_reboot": True,
        "writable": True,
    },
    "gpus": [{"index": 0, "uuid": "GPU-1", "model": "NVIDIA H100 80GB HBM3", "memory_mb": 81559}],
    "gpu_error": None,
    "nvidia_smi": True,
    "runtimes": [{"name": "podman", "version": "4.3.1"}],
    "containment": "cgroup",
    "containment_text": "a delegated cgroup",
    "memory_limits": True,
    "gpu_topology": "\tGPU0\tGPU1\tNUMA Affinity\nGPU0\t X \tNV18\t0\nGPU1\tNV18\t X \t0\n",
    "gpu_unseen": 12,
    "logout": {"kill_user_processes": False, "linger": False},
    "nofile": 1024,
    "inotify": True,
    "sshd": {"max_sessions": 10, "max_startups": "10:30:100"},
    "network": {
        "interfaces": [
            {"name": "lo", "address": "127.0.0.1"},
            {"name": "eth0", "address": "10.0.0.7"},
            {"name": "ib0", "address": "10.9.0.7"},
        ],
        "ssh": "10.0.0.7",
        "route": "10.0.0.7",
        "name": ["10.0.0.7"],
    },
}
GOOD["ptrace_scope"] = 0
GREETING = [{"name": name, "ok": True, "text": "", "fix": ""} for name in ("Reachable", "Host key", "Login")]


def facts(**changes):
    return probe.parse(json.dumps({**GOOD, **changes}).encode())


def judged(offset=0.0, **changes):
    return {item.name: item for item in checklist.check_facts(facts(**changes), offset, "10.0.0.7")}


def network(**changes):
    return {"network": {**GOOD["network"], **changes}}


def test_a_healthy_host_is_usable_and_has_every_line_of_the_checklist():
    rows = GREETING + [item.as_row() for item in judged().values()]
    text = judged()["GPUs"].text
    assert "NVLink between all" in text and "12 processes of other users" in text
    assert facts().topology == {"links": [[0, 1, 118]], "numa": {"0": 0, "1": 0}}
    assert checklist.is_usable(rows)
    assert {row["name"] for row in rows} == set(checklist.ORDER)


@pytest.mark.parametrize(
    ("name", "ok", "changes"),
    [
        ("Python", False, {"python": "3.6.9"}),
        ("Python", False, {"python": ""}),
        ("Disk", False, {"disk": {**GOOD["disk"], "free_mb": 3}}),
        ("Disk", False, {"disk": {**GOOD["disk"], "writable": False}}),
        ("Disk", None, {"disk": {**GOOD["disk"], "local": False}}),
        ("Reboot-safe", None, {"disk": {**GOOD["disk"], "survives_reboot": False}}),
        ("After logout", False, {"logout": {"kill_user_processes": True, "linger": False}}),
        ("After logout", True, {"logout": {"kill_user_processes": True, "linger": True}}),
        ("SSH limits", None, {"sshd": {"max_sessions": 2, "max_startups": "2:100:2"}}),
        ("SSH limits", None, {"sshd": {"max_sessions": None, "max_startups": None}}),
        ("Clock", None, {"offset": 90.0}),
        ("CPUs", False, {"cpus": 0}),
        ("GPUs", False, {"gpu_error": "NVIDIA-SMI has failed"}),
        ("GPUs", True, {"gpus": [], "nvidia_smi": False}),
        ("Memory", None, {"memory_limits": False}),
        ("Debuggers", None, {"ptrace_scope": 1}),
        ("Debuggers", None, {"ptrace_scope": 3}),
        ("Debuggers", True, {"ptrace_scope": 0}),
        ("Containment", None, {"containment": "subreaper"}),
        ("Containment", None, {"containment": "subreaper", "pid_namespace": True}),
        ("Containment", None, {"containment": "subreaper", "pid_namespace": False}),
    ],
)
def test_each_fault_is_named_with_a_cure(name, ok, changes):
    item = judged(**changes)[name]
    assert item.ok is ok
    assert item.fix or ok is True or changes.get("sshd", {}).get("max_sessions", 1) is None
    rows = GREETING + [i.as_row() for i in judged(**changes).values()]
    assert checklist.is_usable(rows) is not (ok is False)


def test_a_missing_line_makes_a_host_unusable():
    rows = [item.as_row() for item in judged().values()]
    assert not checklist.is_usable(rows)


@pytest.mark.parametrize(
    "raw",
    [b"", b"motd\n", b"{}", b'{"schema": 2}', b"[" * 5000, b"\xff\xfe", b"x" * (probe.MAX_DOCUMENT + 1)],
)
def test_an_answer_that_is_no_probe_document_is_refused(raw):
    with pytest.raises(probe.InvalidProbe):
        probe.parse(raw)


@pytest.mark.parametrize("value", [None, -1, 10**400, "8", [], {}, True, float("inf")])
def test_absurd_values_become_unknown(value):
    host = facts(cpus=value, disk=value, gpus=value, runtimes=value, sshd=value, wall=value, python=value)
    assert (host.cpus, host.disk.free_mb, host.gpus) == (0, 0, ())


def test_a_banner_before_the_document_and_hostile_text_in_it_do_no_harm():
    raw = (
        b"Welcome!\n{not json}\n" + json.dumps({**GOOD, "hostname": "a\x00b\x1b[31m\ud800"}).encode() + b"\n"
    )
    assert probe.parse(raw).hostname == "ab[31m"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100_80GB"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA_TESLA_A100"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA_TESLA_A100"),
        ("Tesla T4", "NVIDIA_TESLA_T4"),
        ("NVIDIA L4", "NVIDIA_L4"),
        ("NVIDIA L40S", "NVIDIA_L40S"),
        ("NVIDIA H200", "NVIDIA_H200_141GB"),
        ("NVIDIA GB200", "NVIDIA_GB200"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA_GEFORCE_RTX_4090"),
    ],
)
def test_gpus_have_vertex_names_if_vertex_knows_them(model, name):
    assert accelerator_type(model) == name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gate", ("me", "gate", 22)),
        ("you@gate:2200", ("you", "gate", 2200)),
        ("[fe80::1]:22", ("me", "fe80::1", 22)),
        ("fe80::1", ("me", "fe80::1", 22)),
        ("you@fe80::1", ("you", "fe80::1", 22)),
    ],
)
def test_addresses_are_parsed_as_ssh_parses_them(text, found):
    assert parse_address(text, "me") == found


@pytest.mark.parametrize("text", ["", "a b", "-oProxyCommand=x", "a:0", "a:99999", "$(x)@a", "a:b", "@a"])
def test_a_text_that_is_no_address_is_refused(text):
    with pytest.raises(ValueError):
        parse_address(text, "me")


def test_jumps_are_parsed_as_ssh_parses_them():
    assert parse_jumps("a@gate:2200,inner", "me") == (Jump("a", "gate", 2200), Jump("me", "inner", 22))
    assert parse_jumps("", "me") == ()


def test_pasted_hosts_are_parsed():
    rows = parse_pasted("# lab\ngpu01 gpu@10.0.0.1\n\n10.0.0.2:2200 # new\nc x@d:24 j@gate", user="me")
    assert [(r.name, r.user, r.address, r.port, r.jump) for r in rows] == [
        ("gpu01", "gpu", "10.0.0.1", 22, ""),
        ("10-0-0-2", "me", "10.0.0.2", 2200, ""),
        ("c", "x", "d", 24, "j@gate"),
    ]


@pytest.mark.parametrize(
    "text", ["", "#", "a b c d e\n", "a 1.1.1.1\na 1.1.1.2", "a x@y:z", "a@b c d@e", "ok -x"]
)
def test_a_bad_paste_is_refused_with_a_message(text):
    with pytest.raises(Refused) as refused:
        parse_pasted(text, user="")
    assert refused.value.field == "hosts"
    assert refused.value.message


def test_all_bad_lines_of_a_paste_are_reported_at_once():
    with pytest.raises(InvalidLines) as refused:
        parse_pasted("a 1.1.1.1\na b c d e\nok u@-x\nb@c d@e", user="me")
    assert [message.split(":")[0] for message in refused.value.messages] == ["Line 2", "Line 3", "Line 4"]


@pytest.mark.django_db
def test_a_gpu_that_moved_is_in_the_histories_of_both_hosts():
    """A machine that is added again brings its GPUs along; the old host's history keeps them."""
    now = timezone.now()
    old = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    save_facts(old.pk, facts(), 0.0, now)
    Host.every.filter(pk=old.pk).update(retired_at=now)
    new = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    for _ in range(2):
        save_facts(new.pk, facts(), 0.0, now)
    [gpu] = Gpu.objects.all()
    assert gpu.host_id == new.pk
    events = (
        HostEvent.objects.filter(kind__startswith="gpu_").order_by("pk").values_list("host", "kind", "text")
    )
    assert [(host, kind) for host, kind, _ in events] == [(old.pk, "gpu_left"), (new.pk, "gpu_came")]
    assert all(gpu.uuid in text for _, _, text in events)


def test_clean_text_keeps_printable_text_and_cuts_it():
    assert clean_text("a\x00b\n\ud800ü") == "ab\nü"
    assert clean_text("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.django_db
def test_gpus_stay_when_nvidia_smi_does_not_answer():
    """Otherwise a short fault would refuse jobs for ever, and another host could claim the GPUs by reporting them."""
    now = timezone.now()
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    save_facts(host.pk, facts(), 0.0, now)
    save_facts(host.pk, facts(gpus=[], gpu_error="nvidia-smi: timed out"), 0.0, now)
    assert [gpu.present for gpu in host.gpus.all()] == [True]
    save_facts(host.pk, facts(gpus=[]), 0.0, now)
    assert [gpu.present for gpu in host.gpus.all()] == [False]


@pytest.mark.parametrize(
    ("card", "problem", "cure"),
    [
        (
            {"index": 3, "uuid": "GPU-9", "why": "mig"},
            "GPU 3 (GPU-9) is in MIG mode",
            "nvidia-smi -i 3 -mig 0",
        ),
        ({"index": 3, "uuid": "GPU-9", "why": "reset"}, "GPU 3 (GPU-9) needs a reset", "--gpu-reset -i 3"),
        ({"index": 3, "uuid": "", "why": "lost"}, "GPU 3 does not answer", "Reboot"),
        ({"index": None, "why": "lost", "text": "Unable to tell GPU7"}, "Unable to tell GPU7", "Reboot"),
        ({"index": {}, "uuid": 7, "why": []}, "GPU 0 (7) does not answer", "Reboot"),
    ],
)
def test_an_unusable_card_has_a_line_with_a_cure_and_the_others_are_used(card, problem, cure):
    item = judged(gpus_out=[card])["GPUs"]
    assert problem in item.text and cure in item.fix
    assert item.text.startswith("1 × NVIDIA H100 80GB HBM3 80 GiB") and item.ok is None
    assert checklist.is_usable(GREETING + [item.as_row() for item in judged(gpus_out=[card]).values()])
    assert "none; not used: " in judged(gpus=[], gpus_out=[card])["GPUs"].text


@pytest.mark.django_db
def test_a_missing_card_is_out_of_use_until_it_comes_back():
    now = timezone.now()
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    two = [GOOD["gpus"][0], {**GOOD["gpus"][0], "index": 1, "uuid": "GPU-2"}]
    broken = [{"index": 1, "uuid": "GPU-2", "why": "reset"}]
    seen = []
    for changes in ({"gpus": two}, {}, {}, {"gpus_out": broken}, {"gpus": two}):
        found = facts(**changes)
        assert save_facts(host.pk, found, 0.0, now) == []
        item = {
            i.name: i for i in checklist.check_facts(found, 0.0, "10.0.0.7", missing_gpus(host.pk, found))
        }["GPUs"]
        seen.append((Gpu.objects.get(uuid="GPU-2").present, item.text.partition("not used: ")[2]))
    gone = "GPU 1 (GPU-2) was here before and is not listed any more"
    reset = "GPU 1 (GPU-2) needs a reset"
    assert seen == [(True, ""), (False, gone), (False, gone), (False, reset), (True, "")]
    kinds = HostEvent.objects.filter(kind__startswith="gpu_").order_by("pk").values_list("kind", flat=True)
    assert list(kinds) == ["gpu_missing", "gpu_back"]


@pytest.fixture
def checked(monkeypatch):
    """checked(host, probe, now) checks a host; the probe is the given function. Returns the new row."""
    monkeypatch.setattr(enrolment, "fingerprint", lambda line: "SHA256:x")
    monkeypatch.setattr(enrolment.keys, "private_key", lambda: None)
    monkeypatch.setattr(enrolment, "dial", lambda target, key: SimpleNamespace(close=lambda: None))

    def check(host, probe, now):
        monkeypatch.setattr(enrolment, "_probe", probe)
        enrolment.check_host(host.pk, now)
        return Host.objects.get(pk=host.pk)

    return check


@pytest.mark.django_db
def test_an_unusable_host_is_checked_again_soon_and_then_less_and_less_often(checked):
    """A probe that was slow, or whose file was deleted, must not keep a host out of use for half an hour."""

    def slow(host, transport, now):
        raise SshdBusy("the host did not finish an answer within 30 s")

    now = start = timezone.now()
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    waits = []
    while now - start < timedelta(hours=2):
        host = checked(host, slow, now)
        assert host.status == HostStatus.UNUSABLE
        waits.append(host.due_at - now)
        now = host.due_at
    assert waits[0] == timedelta(minutes=1) and waits == sorted(waits) and waits[-1] == enrolment.RECHECK
    assert len(waits) < 12
    host = checked(host, lambda *_: list(judged().values()), now)
    assert (host.status, host.due_at - now) == (HostStatus.UP, enrolment.RECHECK)


@pytest.mark.django_db
def test_a_host_is_not_due_while_it_is_checked(checked):
    """Otherwise the sweep would start the same check beside it. A check that is lost is due again later."""
    now, due = timezone.now(), []
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    assert host.due_at == now

    def probe(host, transport, now):
        due.append(Host.objects.get().due_at)
        return list(judged().values())

    checked(host, probe, now)
    assert due == [now + enrolment.CHECK_LOST]


@pytest.mark.django_db
def test_a_host_keeps_its_whole_checklist_while_it_is_checked_again(checked):
    """Otherwise a host whose link comes back during the check would not count as usable."""
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", timezone.now())
    seen = []

    def probe(host, transport, now):
        [rows] = Host.objects.filter(pk=host.pk).values_list("checklist", flat=True)
        seen.append((len(rows), checklist.is_usable(rows)))
        return list(judged().values())

    for _ in range(2):
        checked(host, probe, timezone.now())
    assert seen == [(3, False), (len(checklist.ORDER), True)]


@pytest.mark.django_db
@pytest.mark.parametrize("status", [HostStatus.UP, HostStatus.CHECKING])
@pytest.mark.parametrize(("ago_s", "unreachable"), [(5, False), (60, True)])
def test_a_check_that_cannot_log_in_keeps_the_status_of_a_host_whose_link_works(
    checked, monkeypatch, status, ago_s, unreachable
):
    """A refused start causes a check too: no job may end as if the host did not answer."""

    def too_busy(target, key):
        raise SshdBusy("no login within 30 s")

    now = timezone.now()
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    Host.objects.filter(pk=host.pk).update(status=status, seen_at=now - timedelta(seconds=ago_s))
    monkeypatch.setattr(enrolment, "dial", too_busy)
    host = checked(host, None, now)
    assert host.status == (HostStatus.UNREACHABLE if unreachable else status)
    assert host.due_at == now + enrolment.RETRY_CHECK


OLD_KEY, KEY = "ssh-ed25519 AAAA", "ssh-ed25519 BBBB"


@pytest.fixture
def accepted_meanwhile(monkeypatch):
    """A host whose key a person accepts while a check is shown it; and the keys that each dial knew as accepted."""
    monkeypatch.setattr(enrolment.keys, "private_key", lambda: None)
    now = timezone.now()

    def host_with(pinned):
        host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
        Host.objects.filter(pk=host.pk).update(pinned_key=pinned)
        seen = []

        def dial(target, key):
            seen.append(target.pinned_key)
            if len(seen) > 1:
                raise SshdBusy("no login within 30 s")
            Host.objects.filter(pk=host.pk).update(offered_key=KEY)
            enrolment.accept_host_key(host.pk, fingerprint(KEY), "ada", now)
            raise HostKeyChanged(pinned, KEY) if pinned else HostKeyUnknown(KEY)

        monkeypatch.setattr(enrolment, "dial", dial)
        return host, seen

    return host_with


@pytest.mark.django_db
@pytest.mark.parametrize("pinned", ["", OLD_KEY])
@pytest.mark.parametrize("check", [enrolment.fetch_host_key, enrolment.check_host])
def test_a_key_that_is_accepted_during_a_check_does_not_wait_again(accepted_meanwhile, check, pinned):
    """Otherwise every page would warn of a changed key, with the same fingerprint twice."""
    host, seen = accepted_meanwhile(pinned)
    check(host.pk, timezone.now())
    row = Host.objects.get(pk=host.pk)
    assert (row.pinned_key, row.offered_key) == (KEY, "")
    assert row.status not in (HostStatus.NEW, HostStatus.BLOCKED)
    # A check goes on with the accepted key; to fetch a key ends here.
    assert seen == ([pinned, KEY] if check is enrolment.check_host else [pinned])
    assert not HostEvent.objects.filter(kind="key_offered").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("pinned", ["", OLD_KEY])
@pytest.mark.parametrize("check", [enrolment.fetch_host_key, enrolment.check_host])
def test_a_key_that_is_accepted_as_soon_as_it_is_offered_is_no_trouble(monkeypatch, check, pinned):
    """The check that found it writes nothing more about the key that waited: the next one is due now."""
    now = timezone.now()
    host = add_host("gpu01", "10.0.0.1", 22, "gpu", "", "", "ada", now)
    Host.objects.filter(pk=host.pk).update(pinned_key=pinned)
    save = enrolment._save_offered_key

    def accepted_then(*told, **more):
        saved = save(*told, **more)
        enrolment.accept_host_key(host.pk, fingerprint(KEY), "ada", now)
        return saved

    def dial(target, key):
        raise HostKeyChanged(pinned, KEY) if pinned else HostKeyUnknown(KEY)

    monkeypatch.setattr(enrolment, "_save_offered_key", accepted_then)
    monkeypatch.setattr(enrolment, "dial", dial)
    check(host.pk, now)
    row = Host.objects.get(pk=host.pk)
    assert (row.status, row.last_error, row.due_at) == (HostStatus.CHECKING, "", now)
