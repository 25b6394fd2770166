"""Moving jobs in the queue, on rows: what the preview says is what then happens; who did it is told everywhere."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.infra.refusals import Conflict, Refused
from agents.models import Location
from jobs.models import AuditEntry, Job, LocationBinding, Project, QueuePin, Transition
from jobs.rules.scheduling.reorder import Move, To
from jobs.scheduling import queue_order, reorder, scheduler
from jobs.scheduling.what_if import what_if
from tests.unit.jobs.conftest import gang, pool_of

pytestmark = pytest.mark.django_db
ADMIN = "root"


@pytest.fixture
def queue(add_host, submit):
    """One host of four GPUs: the first job holds all of them; the others wait in the order of their ids."""
    add_host(cpus=16, gpus=4)
    document = gang(pool_of(gpus=4))
    document["jobSpec"]["scheduling"] = {"timeout": "3600s"}
    first, *waiting = [submit(document) for _ in range(5)]
    assert first.state == "PENDING"
    Job.objects.filter(pk=first.pk).update(state="RUNNING", started_at=timezone.now())
    return [job.pk for job in waiting]


def order():
    return queue_order.read_order(timezone.now()).ids


def moved(jobs, to=To.TOP, before=None, project=None):
    move = Move(tuple(jobs), to, before, project)
    seen = what_if(move, timezone.now())
    reorder.move(move, seen.stamp, ADMIN, timezone.now())

    return seen


def test_the_preview_of_a_move_is_what_then_happens(queue):
    one, two, three, four = queue
    seen = moved([three])
    assert order() == [three, one, two, four]
    assert [(each.job, each.place, each.new_place) for each in seen.moved] == [(three, 3, 1)]
    assert [each.job for each in seen.later] == [one, two] and seen.sooner == () and seen.held == 0
    assert seen.moved[0].new_start == seen.later[0].start < seen.later[0].new_start
    Job.objects.filter(state="RUNNING").update(state="SUCCEEDED", ended_at=timezone.now())
    ended = Job.objects.get(state="SUCCEEDED")
    ended.runs.update(released_at=timezone.now(), closed_at=timezone.now(), phase="CLOSED")
    for run in ended.runs.all():
        run.gpu_claims.update(released_at=timezone.now())
    scheduler.schedule(timezone.now())
    assert Job.objects.get(state="PENDING").pk == three
    assert not QueuePin.objects.filter(job=three).exists(), "its place was used"


def test_the_next_pass_follows_and_says_who_was_put_back_by_whom(queue):
    one, two, three, four = queue
    moved([three, four])
    scheduler.schedule(timezone.now())
    reasons = dict(Job.objects.values_list("pk", "reason"))
    assert all(reasons[pk].endswith("root placed 2 jobs ahead of it.") for pk in (one, two)), reasons
    assert "placed" not in reasons[three] + reasons[four]
    moved([three, four], To.AUTOMATIC)
    scheduler.schedule(timezone.now())
    assert order() == queue and not QueuePin.objects.exists()
    assert not Job.objects.filter(reason__contains="placed").exists()


def test_a_move_is_in_the_history_of_the_job_and_in_the_audit(queue):
    one, two, three, _ = queue
    moved([three], To.BEFORE, two)
    line = Transition.objects.get(kind="move")
    assert (line.job_id, line.actor, line.cause) == (three, ADMIN, "It was moved to place 2 of the queue.")
    entry = AuditEntry.objects.get(what="queue.reorder")
    assert entry.before[:3] == [str(one), str(two), str(three)] and entry.after[:2] == [str(one), str(three)]
    assert entry.actor == ADMIN and str(three) in entry.subject and entry.project is None
    pins = {pin.job_id: (pin.rank, pin.moved) for pin in QueuePin.objects.all()}
    assert pins == {one: (1.0, False), three: (2.0, True)}
    moved([three], To.AUTOMATIC)
    back = Transition.objects.filter(kind="move").order_by("pk").last()
    assert back.cause == "It is back in the automatic order of the queue, at place 3."


def test_a_queue_that_changed_meanwhile_is_noticed(queue):
    one, two, three, four = queue
    move = Move((four,), To.BEFORE, three)
    seen = what_if(move, timezone.now())
    moved([two])
    with pytest.raises(Conflict, match="has changed since you looked"):
        reorder.move(move, seen.stamp, ADMIN, timezone.now())
    assert order() == [two, one, three, four]
    Job.objects.filter(pk=four).update(state="CANCELLED", ended_at=timezone.now())
    with pytest.raises(Refused, match="does not wait"):
        reorder.move(move, seen.stamp, ADMIN, timezone.now())


def test_a_job_that_starts_meanwhile_far_ahead_does_not_disturb_a_move_to_the_top(queue):
    one, two, three, four = queue
    move = Move((four,), To.TOP)
    seen = what_if(move, timezone.now())
    Job.objects.filter(pk=one).update(state="CANCELLED", ended_at=timezone.now())
    reorder.move(move, seen.stamp, ADMIN, timezone.now())
    assert order() == [four, two, three]


def test_jobs_that_their_location_does_not_serve_are_no_part_of_the_queue(queue):
    """The move keeps a job ahead of the moved one; the first of the queue is offered no place at all."""
    one, two, three, four = queue
    other = Project.objects.create(name="other", created_at=timezone.now())
    Job.objects.filter(pk=one).update(project=other)
    served = Job.objects.get(pk=two).project
    LocationBinding.objects.create(location=Location.objects.get(name="default"), project=served)
    seen = moved([four], To.BEFORE, three)
    assert order() == [two, four, three]
    assert [(each.place, each.new_place) for each in seen.moved] == [(3, 2)]
    with pytest.raises(Refused, match="does not wait"):
        moved([one])


def test_within_a_project_other_projects_keep_their_turns(queue, alice):
    one, two, three, four = queue
    other = Project.objects.create(name="other", created_at=timezone.now())
    Job.objects.filter(pk__in=(one, three)).update(project=other)
    before = order()
    moved([four], project=Job.objects.get(pk=four).project_id)
    after = order()
    assert [pk for pk in after if pk in (one, three)] == [pk for pk in before if pk in (one, three)]
    assert after.index(four) < after.index(two) and before.index(two) < before.index(four)
    assert [before.index(pk) for pk in (one, three)] == [after.index(pk) for pk in (one, three)]
    entry = AuditEntry.objects.get(what="queue.reorder")
    assert entry.project.name == "default" and not {str(one), str(three)} & {*entry.before, *entry.after}


def test_pins_of_jobs_that_wait_no_more_go_with_the_next_move(queue):
    one, two, three, four = queue
    moved([three])
    Job.objects.filter(pk=three).update(state="CANCELLED", ended_at=timezone.now())
    moved([two])
    assert set(QueuePin.objects.values_list("job", flat=True)) == {two}


def test_a_preview_changes_nothing(queue):
    before = order()
    what_if(Move((queue[-1],), To.TOP), timezone.now())
    assert order() == before and not QueuePin.objects.exists()
    assert not Transition.objects.filter(kind="move").exists()
