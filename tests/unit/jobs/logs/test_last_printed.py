"""When runs last printed, according to the clocks of hosts, which may be wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Host
from jobs.logs.last_printed import last_printed
from jobs.models import LogPiece, Run
from tests.unit.console.log_rows import write
from tests.unit.jobs.conftest import spec

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("wall", "offset"), [(1e300, 0.0), (3e11, 0.0), (-1e300, 0.0), (1.7e9, 1e300), (1.7e9, -1e300)]
)
def test_an_impossible_clock_of_a_host_is_ignored(add_host, submit, wall, offset):
    add_host()
    run = submit(spec()).runs.get()
    write(run, b"a line\n", wall=wall)
    Host.objects.filter(pk=run.host_id).update(clock_offset_s=offset)
    now = timezone.now()
    assert last_printed([run.pk], now).get(run.pk, now) <= now


def test_a_time_in_the_future_counts_as_now(add_host, submit):
    add_host()
    run = submit(spec()).runs.get()
    now = timezone.now()
    write(run, b"a line\n", wall=(now + timedelta(days=1)).timestamp())
    assert last_printed(list(Run.objects.values_list("pk", flat=True)), now) == {run.pk: now}


def test_of_many_marks_the_last_one_counts_and_a_log_without_marks_tells_nothing(add_host, submit):
    add_host()
    run, now = submit(spec()).runs.get(), timezone.now()
    write(run, b"one\n", wall=(now - timedelta(seconds=90)).timestamp())
    LogPiece.objects.filter(run=run).update(at=[])
    assert last_printed([run.pk], now) == {}
    walls = [[0, (now - timedelta(seconds=90)).timestamp()], [2, (now - timedelta(seconds=30.5)).timestamp()]]
    LogPiece.objects.filter(run=run).update(at=walls)
    Host.objects.filter(pk=run.host_id).update(clock_offset_s=0.5)
    assert abs(last_printed([run.pk], now)[run.pk] - (now - timedelta(seconds=31))) < timedelta(
        milliseconds=1
    )
