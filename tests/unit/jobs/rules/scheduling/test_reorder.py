"""Jobs that are moved by hand: where they come to stand, what stays as it was, and who is passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling import reorder
from jobs.rules.scheduling.fairness import Share
from jobs.rules.scheduling.order import in_order
from jobs.rules.scheduling.reorder import ImpossibleMove, Move, To, passed_by, pinned, pins
from tests.unit.jobs.rules.simulated_cluster import SimulatedCluster, host, job
from tests.unit.jobs.rules.views import examples

SHARES = {1: Share(1.0, 900.0), 2: Share(2.0)}


def queue_of(*jobs):
    return in_order(jobs, SHARES, {})


def after(queue, move):
    return in_order(pinned(queue, pins(queue, move), move), SHARES, {})


def ids(queue):
    return [each.job for each in queue]


FIVE = [job(number) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("move", "order"),
    [
        (Move((4,), To.TOP), [4, 1, 2, 3, 5]),
        (Move((4, 2), To.TOP), [2, 4, 1, 3, 5]),
        (Move((3,), To.UP), [1, 3, 2, 4, 5]),
        (Move((1,), To.UP), [1, 2, 3, 4, 5]),
        (Move((3, 4), To.UP), [1, 3, 4, 2, 5]),
        (Move((3,), To.DOWN), [1, 2, 4, 3, 5]),
        (Move((1, 2), To.DOWN), [3, 1, 2, 4, 5]),
        (Move((5,), To.DOWN), [1, 2, 3, 4, 5]),
        (Move((5,), To.BEFORE, 2), [1, 5, 2, 3, 4]),
        (Move((1,), To.BEFORE, 5), [2, 3, 4, 1, 5]),
    ],
)
def test_where_the_moved_jobs_come_to_stand(move, order):
    assert ids(after(queue_of(*FIVE), move)) == order


def test_a_move_holds_against_jobs_that_come_later_and_is_undone():
    queue = after(queue_of(*FIVE), Move((4,), To.BEFORE, 2))
    assert ids(in_order([*queue, job(6, priority=100)], SHARES, {})) == [1, 4, 6, 2, 3, 5]
    back = after(queue, Move((1, 4), To.AUTOMATIC))
    assert ids(back) == [1, 2, 3, 4, 5] and back == queue_of(*FIVE)


def test_spot_jobs_stay_behind_all_others():
    queue = queue_of(job(1, spot=True), job(2), job(3, spot=True))
    assert ids(after(queue, Move((3,), To.TOP))) == [2, 3, 1]
    with pytest.raises(ImpossibleMove, match="SPOT jobs come after"):
        pins(queue, Move((2, 3), To.TOP))
    with pytest.raises(ImpossibleMove, match="not among those that they pass"):
        pins(queue, Move((3,), To.BEFORE, 2))


def test_a_priority_is_passed_in_the_whole_queue_and_not_within_a_project():
    queue = queue_of(job(1, priority=100), job(2), job(3))
    assert ids(after(queue, Move((3,), To.TOP))) == [3, 1, 2]
    assert ids(after(queue, Move((3,), To.TOP, project=1))) == [1, 3, 2]


def test_what_is_not_possible_is_refused():
    queue = queue_of(job(1), job(2, project=2), job(3, priority=100), job(4, pin=1.0))
    for move, words in (
        (Move((9,), To.TOP), "does not wait"),
        (Move((), To.TOP), "does not wait"),
        (Move((2,), To.TOP, project=1), "only its own jobs"),
        (Move((1, 3), To.TOP, project=1), "one priority"),
        (Move((4,), To.TOP, project=1), "stays there"),
        (Move((4,), To.AUTOMATIC, project=1), "stays there"),
        (Move((1, 4), To.AUTOMATIC, project=1), "stays there"),
        (Move((2,), To.AUTOMATIC, project=1), "only its own jobs"),
        (Move((1,), To.BEFORE, 2, project=1), "not among those"),
        (Move((1,), To.BEFORE, 1), "not among those"),
    ):
        with pytest.raises(ImpossibleMove, match=words):
            pins(queue, move)


def test_places_far_behind_are_not_set_by_hand():
    queue = queue_of(*(job(number) for number in range(1, 401)))
    with pytest.raises(ImpossibleMove, match="first 200 places"):
        pins(queue, Move((1,), To.BEFORE, 399))
    assert pins(queue, Move((399,), To.TOP)).order == (399,)


@st.composite
def moves(draw):
    jobs = [
        job(
            number,
            (draw(st.integers(1, 3)), 1),
            project=draw(st.integers(1, 3)),
            priority=draw(st.sampled_from([0, 0, 100])),
            spot=draw(st.integers(0, 4)) == 0,
        )
        for number in range(1, draw(st.integers(2, 14)))
    ]
    return queue_of(*jobs), draw(st.sampled_from(jobs))


@examples(150)
@given(moves(), st.booleans())
def test_within_a_project_the_turns_of_others_stay(drawn, up):
    """The k-th place of each project in its class stays one of that project as long as its jobs are equal; and the
    jobs of all other projects keep their order."""
    queue, chosen = drawn
    moved = after(queue, Move((chosen.job,), To.TOP if up else To.DOWN, project=chosen.project))
    others = [each.job for each in queue if each.project != chosen.project]
    assert [each.job for each in moved if each.project != chosen.project] == others
    equal = len({each.request for each in queue}) == 1
    assert not equal or [each.project for each in moved] == [each.project for each in queue]


@examples(150)
@given(moves())
def test_a_move_to_the_top_leaves_the_order_of_those_that_it_passes(drawn):
    queue, chosen = drawn
    moved = after(queue, Move((chosen.job,), To.TOP))
    assert next(each.job for each in moved if each.spot == chosen.spot) == chosen.job
    spots = [each.spot for each in moved]
    assert spots == sorted(spots), "SPOT jobs come last"
    alone = [
        [each.job for each in order if each.project == 1 and each.job != chosen.job]
        for order in (queue, moved)
    ]
    assert alone[0] == alone[1], "each project keeps its own order"


@examples(150)
@given(moves())
def test_nobody_is_passed_silently(drawn):
    """Each job that has a moved job ahead of it only because of the move is told so, and nobody else."""
    queue, chosen = drawn
    moved = after(queue, Move((chosen.job,), To.TOP))
    place, new_place = ({pk: n for n, pk in enumerate(ids(order))} for order in (queue, moved))
    passed = passed_by(moved, SHARES, {}, 500)
    for each in ids(queue):
        put_back = place[each] < place[chosen.job] and new_place[each] > new_place[chosen.job]
        assert passed.get(each, []) == ([chosen.job] if put_back else [])


def test_without_moves_nobody_is_passed():
    assert passed_by(queue_of(*FIVE), SHARES, {}, 500) == {}


def test_the_owner_of_what_was_moved_is_charged():
    """Fair share goes on behind the moved jobs: their project has had its turn."""
    jobs = [job(number, project=1 + number % 2) for number in range(1, 9)]
    plain = in_order(jobs, {}, {})
    first = [each for each in plain if each.project == 2][-1]
    moved = in_order([each._replace(pin=1.0) if each == first else each for each in jobs], {}, {})
    assert moved[0].job == first.job and moved[1].project == 1


def test_a_moved_gang_gets_its_reservation_and_small_jobs_still_pass_it_where_they_do_not_delay_it():
    cluster = SimulatedCluster([host(1), host(2)])
    cluster.submit(job(1, (1, 4), timeout_s=3_600.0))
    cluster.step()
    for each in (job(2, (1, 4), timeout_s=7_200.0), job(3, (2, 4)), job(4, (1, 1), timeout_s=600.0)):
        cluster.submit(each)
    cluster.waiting[3] = cluster.waiting[3]._replace(pin=1.0)
    decision = cluster.decide()
    assert [each.job for each, _ in decision.placed] == [4], "the moved gang is not delayed by job 4"
    assert 3 in decision.starts and reorder.MOST_PINNED == 200
