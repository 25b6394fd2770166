"""What forms say of capacity is read again when something of it has changed."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra import shared_answers
from jobs.maintenance import cordon_and_drain
from jobs.models import Run
from jobs.scheduling import changes, host_shapes
from tests.unit.jobs.conftest import spec
from tests.unit.jobs.fake_hosts import settle

pytestmark = pytest.mark.django_db


def seen():
    """The stamp of now, which is otherwise up to a second old."""
    changes._recent.clear()
    return changes.stamp()


def test_what_takes_or_gives_back_a_place_changes_the_stamp(add_host, submit, control_plane):
    stamps = [seen()]
    assert seen() == stamps[0]
    host = add_host(gpus=1)
    stamps.append(seen())
    submit(spec(gpus=1))
    stamps.append(seen())
    settle(control_plane, host)
    stamps.append(seen())
    host.end(control_plane, Run.objects.get().pk, exit_code=0)
    settle(control_plane, host)
    stamps.append(seen())
    cordon_and_drain.cordon(host.row, "", "ada", timezone.now())
    stamps.append(seen())
    assert len(set(stamps)) == len(stamps)


def test_the_shapes_of_a_form_are_read_again_after_a_change(add_host, submit, control_plane, monkeypatch):
    monkeypatch.setattr(host_shapes._both, "_kept_s", 0.0)
    monkeypatch.setattr(changes._recent, "_kept_s", 0.0)
    shared_answers.forget_all()
    host = add_host(gpus=1)
    before = host_shapes.recent_shapes("default")
    assert host_shapes.recent_shapes("default") is before
    submit(spec(gpus=1))
    settle(control_plane, host)
    assert host_shapes.recent_shapes("default")[1] != before[1]
