"""Adding, accepting and removing a host is in the audit, with who and what; what is refused is not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from django.utils import timezone

from agents.infra.refusals import Refused
from agents.models import Host
from agents.ssh.host_keys import fingerprint
from jobs.maintenance import enrol_host
from jobs.maintenance.remove_host import remove_host
from jobs.models import AuditEntry

ROOT = Path(__file__).resolve().parents[4]
# Only well-formed, so that fingerprints can be made of them.
ONE, TWO = "ssh-ed25519 b25lIGtleQ==", "ssh-ed25519 YW5vdGhlciBrZXk="


def told():
    rows = AuditEntry.objects.order_by("id").values_list("actor", "what", "subject", "before", "after")
    return [tuple(row) for row in rows]


def offer(host, key, at=""):
    Host.objects.filter(pk=host.pk).update(offered_key=key, offered_at=at)


def test_the_life_of_a_host_is_in_the_audit(db):
    now, way = timezone.now(), {"login": "gpu@10.0.0.7:2222", "location": "lab", "jump": "ada@gate"}
    host = enrol_host.add_host("gpu-1", "10.0.0.7", 2222, "gpu", "lab", "ada@gate", "alice", now)
    offer(host, ONE)
    enrol_host.accept_host_key(host, fingerprint(ONE), "bob", now)
    offer(host, TWO)
    enrol_host.accept_host_key(host, fingerprint(TWO), "alice", now)
    offer(host, ONE, at="gate:22")
    enrol_host.accept_host_key(host, fingerprint(ONE), "alice", now)
    remove_host(host, "carol", now)
    remove_host(host, "carol", now)
    first, second = ({"machine": "10.0.0.7", "key": fingerprint(key)} for key in (ONE, TWO))
    assert told() == [
        ("alice", "host.add", "gpu-1", None, way),
        ("bob", "host.accept_key", "gpu-1", None, first),
        ("alice", "host.accept_key", "gpu-1", first, second),
        ("alice", "host.accept_key", "gpu-1", None, {"machine": "gate:22", "key": fingerprint(ONE)}),
        ("carol", "host.remove", "gpu-1", way, None),
    ]


def test_what_was_refused_is_not_in_the_audit(db):
    now = timezone.now()
    with pytest.raises(Refused):
        enrol_host.add_host("gpu-1", "10.0.0.7", 0, "gpu", "", "", "alice", now)
    host = enrol_host.add_host("gpu-1", "10.0.0.7", 22, "gpu", "", "", "alice", now)
    offer(host, ONE)
    with pytest.raises(Refused):
        enrol_host.accept_host_key(host, fingerprint(TWO), "alice", now)
    with pytest.raises(Refused):
        enrol_host.add_host("gpu-1", "10.0.0.8", 22, "gpu", "", "", "alice", now)
    assert [row[1] for row in told()] == ["host.add"]


def test_nothing_in_the_console_goes_around_the_audit():
    """`adding.add_host` and `enrolment.accept_host_key` know no audit: only jobs/maintenance may call them."""
    around = []
    for path in [*(ROOT / "console").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = f"{node.value.id}.{node.attr}"
                if called in ("adding.add_host", "enrolment.accept_host_key"):
                    around.append(path.relative_to(ROOT).as_posix())
    assert set(around) == {"jobs/maintenance/enrol_host.py"}
