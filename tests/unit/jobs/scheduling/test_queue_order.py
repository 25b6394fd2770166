"""The order that people are shown is the one in which the scheduler offers places."""

from __future__ import annotations

import random

import pytest
from django.utils import timezone

from jobs.models import Job, Project
from jobs.rules.scheduling import policy
from jobs.scheduling import queue_order, scheduler
from tests.unit.jobs.conftest import gang, pool_of


@pytest.fixture
def queue(submit, project):
    """Jobs of three projects, of which one may use more; of all priorities and sizes; some are SPOT."""
    dice = random.Random(3)
    projects = [project, *(Project.objects.create(name=f"p{n}", created_at=timezone.now()) for n in (1, 2))]
    Project.objects.filter(pk=projects[1].pk).update(weight=3.0)
    for number in range(24):
        job = submit(gang(pool_of(), pool_of(count=dice.choice((1, 2)))), place=False)
        Job.objects.filter(pk=job.pk).update(
            project=dice.choice(projects),
            priority=dice.choice((-100, 0, 100)),
            spot=number % 7 == 0,
            reason="",
        )
    return projects


def offered(monkeypatch):
    """The order in which a pass offers places."""
    seen = []
    offer = policy._QueueDecider.offer
    monkeypatch.setattr(
        policy._QueueDecider, "offer", lambda decider, job: (seen.append(job.job), offer(decider, job))[1]
    )
    scheduler.schedule(timezone.now())
    return seen


def test_the_page_shows_the_order_in_which_places_are_offered(add_host, queue, monkeypatch):
    add_host(cpus=3)
    scheduler.schedule(timezone.now())
    assert Job.objects.exclude(state="QUEUED").exists(), "what runs is charged to its project"
    shown = queue_order.read_order(timezone.now()).ids
    assert shown == offered(monkeypatch) and shown != sorted(shown) and len(shown) > 15


def test_the_first_of_the_order_are_placed_first(add_host, queue):
    shown = queue_order.read_order(timezone.now()).ids
    sizes = dict(Job.objects.values_list("pk", "replica_count"))
    add_host(cpus=sum(sizes[pk] for pk in shown[:5]))
    scheduler.schedule(timezone.now())
    placed = set(Job.objects.exclude(state="QUEUED").values_list("pk", flat=True))
    assert placed >= set(shown[:5])


def test_jobs_of_one_project_wait_in_the_order_of_their_age(submit, project):
    ids = [submit(place=False).pk for _ in range(3)]
    assert queue_order.read_order(timezone.now()).ids == ids


def test_a_job_that_is_set_aside_is_not_in_the_order(submit):
    first, second = submit(place=False), submit(place=False)
    Job.objects.filter(pk=first.pk).update(rests_until=timezone.now())
    assert queue_order.read_order(timezone.now()).ids == [second.pk]
