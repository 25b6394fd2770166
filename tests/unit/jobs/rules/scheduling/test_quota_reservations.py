"""Quota that is kept for waiting jobs: a job behind gets what is left then, or must end before."""

from __future__ import annotations

import pytest

from jobs.rules.scheduling.quota import Limits, QuotaAccount, QuotaLedger, Use
from jobs.rules.scheduling.quota_reservations import QuotaReservations
from jobs.rules.scheduling.running_jobs import HostClaim, RunningJob, RunningJobs

VISION, SPEECH, ADA, BOB = 1, 2, 11, 12
SOON, LATER, FOR_EVER = 100.0, 200.0, 10_000.0


def holds(job, gpus, ends, owner=ADA, project=VISION, kind="H100"):
    return RunningJob(job, ends, (HostClaim(job, 1.0, 0, kind, gpus),), project=project, owner=owner)


def project_vision(*running, members=(), **limits):
    """Project vision with these limits, in which these run; so do those of `members` (owner → limits)."""

    def account(who, of_them, own):
        used = Use(running=0)
        found = QuotaAccount(who, own, used)
        for one in of_them:
            found.change(one.by_kind, 1)
        return found

    in_vision = [one for one in running if one.project == VISION]
    projects = {VISION: account("vision", in_vision, Limits(**limits))}
    people = {
        (VISION, owner): account(f"member {owner}", [one for one in in_vision if one.owner == owner], own)
        for owner, own in dict(members).items()
    }
    return QuotaReservations(QuotaLedger(projects, people), RunningJobs(running))


def need(gpus, kind="H100"):
    return {kind: gpus}


def test_a_job_that_ends_at_the_reserved_moment_has_given_its_quota_back():
    reservations = project_vision(holds(1, 8, SOON), gpus={"H100": 16})
    reservations.reserve(VISION, ADA, need(8), SOON)
    assert not reservations.kept(VISION, ADA, need(8), FOR_EVER), "8 are left beside those that are kept"
    assert reservations.kept(VISION, ADA, need(9), FOR_EVER)


def test_a_job_that_ends_after_the_reserved_moment_still_holds_its_quota():
    reservations = project_vision(holds(1, 8, LATER), gpus={"H100": 16})
    reservations.reserve(VISION, ADA, need(8), SOON)
    assert reservations.kept(VISION, ADA, need(1), FOR_EVER)


def test_a_job_that_ends_by_the_reserved_moment_may_start_and_one_that_ends_later_may_not():
    reservations = project_vision(gpus={"H100": 8})
    reservations.reserve(VISION, ADA, need(8), SOON)
    assert not reservations.kept(VISION, ADA, need(8), SOON)
    assert reservations.kept(VISION, ADA, need(1), SOON + 1)
    assert not reservations.kept(SPEECH, BOB, need(8), FOR_EVER), "another project is not concerned"


def test_quota_left_beside_a_reservation_is_given_away_once():
    reservations = project_vision(gpus={"H100": 16})
    reservations.reserve(VISION, ADA, need(8), SOON)
    assert not reservations.kept(VISION, BOB, need(8), FOR_EVER)
    reservations.take(VISION, BOB, need(8), FOR_EVER)
    assert reservations.kept(VISION, BOB, need(1), FOR_EVER)


def test_quota_is_kept_for_the_first_job_over_quota_until_enough_is_given_back():
    """Two jobs end one after the other: only after the second is there enough quota."""
    reservations = project_vision(holds(1, 4, SOON), holds(2, 4, LATER), gpus={"H100": 8})
    reservations.wait(VISION, ADA, need(8))
    assert not reservations.kept(VISION, ADA, need(4), LATER)
    assert reservations.kept(VISION, ADA, need(1), LATER + 1)


def test_quota_is_kept_from_the_first_moment_at_which_it_suffices():
    reservations = project_vision(holds(1, 4, SOON), holds(2, 4, LATER), gpus={"H100": 8})
    reservations.wait(VISION, ADA, need(2))
    assert not reservations.kept(VISION, ADA, need(4), SOON)
    assert not reservations.kept(VISION, ADA, need(2), FOR_EVER), "2 of the 4 that come back first are left"
    assert reservations.kept(VISION, ADA, need(3), SOON + 1) and reservations.kept(
        VISION, ADA, need(3), FOR_EVER
    )


def test_quota_is_kept_only_for_the_first_job_of_a_kind():
    """The second must not reserve again what is kept for the first."""
    reservations = project_vision(holds(1, 8, SOON), gpus={"H100": 8})
    reservations.wait(VISION, ADA, need(4))
    reservations.wait(VISION, BOB, need(8))
    assert not reservations.kept(VISION, ADA, need(4), FOR_EVER), "4 are left beside the first one's"


def test_no_quota_is_kept_for_a_job_that_no_end_helps():
    """A job that is larger than the quota, or whose GPU-hours of the month are used up, waits for an admin and holds
    up no other job."""
    reservations = project_vision(holds(1, 8, SOON), gpus={"H100": 8})
    reservations.wait(VISION, ADA, need(9))
    assert not reservations.kept(VISION, ADA, need(8), FOR_EVER)
    reservations.wait(VISION, ADA, need(8))
    assert reservations.kept(VISION, ADA, need(1), FOR_EVER), "the next one can be helped"
    used_up = project_vision(holds(1, 8, SOON), gpu_hours=1.0)
    used_up._ledger.projects[VISION].use.gpu_hours = 2.0
    used_up.wait(VISION, ADA, need(1))
    assert not used_up._of


def test_a_limit_of_running_jobs_is_kept_for_jobs_without_gpus_too():
    reservations = project_vision(holds(1, 8, SOON), running=1)
    reservations.wait(VISION, ADA, {})
    assert reservations.kept(VISION, ADA, {}, FOR_EVER) and not reservations.kept(VISION, ADA, {}, SOON)


def test_without_a_limit_nothing_is_kept():
    reservations = project_vision(gpus={"A100": 8})
    reservations.reserve(VISION, ADA, need(8), SOON)
    assert not reservations._of


@pytest.mark.parametrize(("whose", "kept"), [(ADA, True), (BOB, False)])
def test_quota_that_other_members_give_back_does_not_help_a_members_own_limit(whose, kept):
    """Ada's own limit is 8. The 8 GPUs that Bob gives back do not help her; her own 8 do."""
    running = holds(1, 8, LATER, owner=ADA), holds(2, 8, SOON, owner=BOB)
    reservations = project_vision(*running, members={ADA: Limits(gpus={"H100": 8})}, gpus={"H100": 64})
    reservations.wait(VISION, ADA, need(8))
    assert not reservations.kept(VISION, ADA, need(8), LATER), (
        "until Ada's own end there was no room for her anyway"
    )
    assert reservations.kept(VISION, whose, need(1), LATER + 1) is kept
