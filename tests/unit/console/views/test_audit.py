"""The audit has every act, in words; its filters; its export is what the page shows."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console.auth.login import login_audit
from console.presenters.projects import audit as presenter
from console.presenters.projects import audit_export
from jobs.maintenance import gpus
from jobs.models import AuditEntry
from jobs.projects import audit

ROOT = Path(__file__).resolve().parents[4]
KIND = re.compile(r"^[a-z_]+\.[a-z_]+$")


def kinds_in_the_code():
    """Every kind that a call of `audit.record`, or of a helper named `_audit`, may write."""
    found = set(presenter.LOGINS)
    for path in (*ROOT.glob("console/**/*.py"), *ROOT.glob("jobs/**/*.py")):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        if not any(_is_record(call) for call in calls):
            continue
        for call in calls:
            if _is_record(call) or (isinstance(call.func, ast.Name) and call.func.id == "_audit"):
                found |= _kinds(call, path)
    return found


def _is_record(call):
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "audit.record"


def _kinds(call, path):
    words = {
        node.value
        for argument in call.args
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    if path.name == "cordon_and_drain.py" and not _is_record(call):
        return {f"host.{word}" for word in words}
    return {word for word in words if KIND.match(word)}


def test_every_kind_has_words():
    kinds = kinds_in_the_code() | {f"gpu.{act}" for act in gpus.ACTS}
    assert len(kinds) > 50 and {"host.network", "host.check", "template.make", "quota.set"} <= kinds
    assert kinds - set(presenter.WORDS) == set()
    assert set(presenter.WORDS) - kinds == set(), "words of kinds that nobody writes"


@pytest.fixture
def entries(project, cast):
    """Three entries: of a host in November, of a project, and a login."""
    at = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
    audit.record("root", "host.edit", "host", "gpu-03", {"login": "a@b"}, {"login": "=cmd|'/C calc'!A0"}, at)
    later = datetime(2026, 11, 21, 0, 30, tzinfo=UTC)
    audit.record("alice", "quota.set", "quota", "@SUM(1)", None, 4, later, project)
    audit.record("bob", login_audit.LOGIN, "user", "bob", None, {"address": "10.0.0.1"}, later)


def body(answer):
    return b"".join(answer.streaming_content).decode()


def test_export_is_what_the_page_shows(browser, entries):
    root = browser("root")
    for query in (
        "",
        "what=any",
        "actor=alice",
        "kind=host",
        "since=2026-11-21",
        "until=2026-11-20",
        "subject=gpu",
    ):
        page = root.get(f"/audit/?{query}").context["page"]
        shown = [(entry.actor, entry.slug, entry.subject) for entry in page.entries]
        (_, as_csv), (_, as_lines) = page.exports
        found = [json.loads(line) for line in body(root.get(as_lines)).splitlines()]
        assert [(one["actor"], one["what"], one["subject"]) for one in found] == shown, query
        table = list(csv.DictReader(io.StringIO(body(root.get(as_csv)))))
        assert [(one["actor"], one["what"]) for one in table] == [(who, what) for who, what, _ in shown]
    assert [one["actor"] for one in found] == ["root"]


@pytest.mark.parametrize(
    ("query", "actors"),
    [
        ("", ["alice", "root"]),
        ("what=any", ["bob", "alice", "root"]),
        ("since=2026-11-21", ["alice"]),
        ("until=2026-11-20", ["root"]),
        ("since=2026-11-20&until=2026-11-20", ["root"]),
        ("kind=host", ["root"]),
        ("since=yesterday&until=2026-99-99", ["alice", "root"]),
        ("since=0001-01-01&until=9999-12-31", ["alice", "root"]),
    ],
)
def test_the_audit_is_filtered_by_day_and_by_kind_of_subject(browser, entries, query, actors):
    page = browser("root").get(f"/audit/?{query}").context["page"]
    assert [entry.actor for entry in page.entries] == actors


def test_a_last_day_without_a_next_one_is_no_filter(browser, cast, entries):
    query, root = "until=9999-12-31", browser("root")
    assert len(body(root.get(f"/audit/export?format=jsonl&{query}")).splitlines()) == 2
    assert len(root.get(f"/api/v1/audit?{query}").json()["entries"]) == 3
    assert len(presenter.stamp(cast.root, {"until": "9999-12-31"})[0]) == 2


def test_a_page_names_the_changed_fields_in_words(browser, cast, project):
    project.record_shells, project.highest_priority = None, "normal"
    project.save()
    root = browser("root")
    form = {"name": "default", "title": "", "weight": "1", "highest_priority": "high", "record_shells": "no"}
    root.post("/projects/default/settings", form)
    (shown,) = root.get("/audit/?what=project.change").context["page"].entries
    # PostgreSQL has an order of its own for the fields.
    assert "Highest priority of its jobs: high" in shown.after
    assert "Recordings of shells: not recorded" in shown.after
    assert "Recordings of shells: as the deployment says" in shown.before
    audit.record("root", "host.declare_gone", "host", "x", None, {"runs_given_up": 2}, datetime.now(UTC))
    assert "runs given up: 2" in root.get("/audit/").content.decode()
    lines = body(root.get("/audit/export?format=jsonl"))
    assert '"record_shells"' in lines and '"runs_given_up"' in lines, "scripts get the names of fields"


def test_no_cell_of_the_csv_is_a_formula(browser, entries):
    text = body(browser("root").get("/audit/export?format=csv&what=any"))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == list(audit_export.HEADER) and "'@SUM(1)" in text
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert rows[2][3:5] == ["quota.set", "Quota"]


def test_a_long_audit_is_exported_part_by_part(browser, cast, monkeypatch, django_assert_num_queries):
    now = datetime(2026, 11, 20, tzinfo=UTC)
    for number in range(7):
        audit.record("root", "host.edit", "host", f"gpu-{number}", None, None, now)
    monkeypatch.setattr(audit_export, "PART", 3)
    rows = presenter.found(cast.root, {})
    with django_assert_num_queries(3):
        parts = list(audit_export.json_parts(rows))
    assert len(parts) == 3
    names = [json.loads(line)["subject"] for line in "".join(parts).splitlines()]
    assert names == [f"gpu-{number}" for number in reversed(range(7))]


def test_an_admin_of_a_project_exports_its_entries_only(browser, entries):
    assert [
        json.loads(line)["actor"]
        for line in body(browser("alice").get("/audit/export?format=jsonl")).splitlines()
    ] == ["alice"]


def test_scripts_export_by_the_same_filters(browser, entries):
    root = browser("root")
    lines = body(root.get("/api/v1/audit?format=jsonl&kind=host"))
    assert json.loads(lines) == root.get("/api/v1/audit?kind=host").json()["entries"][0]
    assert "gpu-03" in body(root.get("/api/v1/audit?format=csv"))
    assert root.get("/api/v1/audit?format=xml").status_code == 400


def test_the_live_part_follows_new_entries_of_its_filters(cast, entries):
    before = presenter.stamp(cast.root, {"kind": "host"})
    audit.record("root", "quota.set", "quota", "x", None, 1, datetime(2026, 11, 22, tzinfo=UTC))
    assert presenter.stamp(cast.root, {"kind": "host"}) == before
    audit.record("root", "host.check", "host", "gpu-03", None, None, datetime(2026, 11, 22, tzinfo=UTC))
    assert presenter.stamp(cast.root, {"kind": "host"}) != before
    assert AuditEntry.objects.count() == 5


def test_a_page_of_older_entries_that_was_reached_from_its_end_stays_as_it_is(cast, entries, monkeypatch):
    """Else it would be sent anew at each entry of anybody."""
    monkeypatch.setattr(presenter, "SIZE", 1)
    at = datetime(2026, 11, 22, tzinfo=UTC)
    audit.record("root", "quota.set", "quota", "x", None, 1, at)
    oldest = AuditEntry.objects.order_by("pk").first()
    query = {"ahead": str(oldest.pk)}
    before, shown = presenter.stamp(cast.root, query), presenter.page(cast.root, query).entries
    audit.record("root", "host.check", "host", "gpu-03", None, None, at)
    assert presenter.page(cast.root, query).entries == shown
    assert presenter.stamp(cast.root, query) == before
