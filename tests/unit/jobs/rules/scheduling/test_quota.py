"""Which jobs have to wait for quota, and the reason that they get."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.rules.scheduling.quota import Limits, QuotaAccount, QuotaLedger, Use, gpus_of, queue_refusal
from jobs.rules.scheduling.usage_months import by_month, in_month, month_of
from jobs.rules.spec.machine_types import Needs

H100 = "NVIDIA_H100_80GB"

WAITS_FOR_LIMIT = ": it cannot start before an admin of the deployment raises the limit"


def one(limits, running=0, hours=0.0, **gpus):
    return QuotaLedger({1: QuotaAccount("project default", limits, Use(gpus, running, hours))})


@pytest.mark.parametrize(
    ("ledger", "gpus", "text"),
    [
        (one(Limits({H100: 2}), **{H100: 2}), {H100: 1}, f"project default uses 2 of 2 {H100}"),
        (
            one(Limits({H100: 4}), **{H100: 3}),
            {H100: 2},
            f"project default uses 3 of 4 {H100}, and this job needs 2",
        ),
        (one(Limits({H100: 2}), **{H100: 5}), {H100: 1}, f"project default uses 5 of 2 {H100}"),
        (
            one(Limits({H100: 2})),
            {H100: 3},
            f"project default may use 2 {H100} at once, and this job needs 3{WAITS_FOR_LIMIT}",
        ),
        (
            one(Limits({H100: 0})),
            {H100: 1},
            f"project default may use 0 {H100} at once, and this job needs 1{WAITS_FOR_LIMIT}",
        ),
        (one(Limits({H100: 2}), **{H100: 1}), {H100: 1}, None),
        (one(Limits({H100: 2}), **{H100: 2}), {"NVIDIA_L4": 9}, None),
        (one(Limits({H100: 2}), **{H100: 2}), {}, None),
        (one(Limits({H100: 0})), {H100: 0}, None),
        (one(Limits(running=1), running=1), {}, "project default runs 1 of 1 job"),
        (one(Limits(running=5), running=7), {}, "project default runs 7 of 5 jobs"),
        (one(Limits(running=5), running=4), {H100: 8}, None),
        (
            one(Limits(gpu_hours=100), hours=100.04),
            {H100: 1},
            "project default has used 100.0 of the 100 GPU-hours of this month",
        ),
        (one(Limits(gpu_hours=100), hours=99.9), {H100: 8}, None),
        (one(Limits(gpu_hours=0)), {}, None),
        (QuotaLedger(), {H100: 64}, None),
    ],
)
def test_over_quota_gives_a_reason(ledger, gpus, text):
    assert ledger.refusal(1, 7, gpus) == text
    assert ledger.refusal(2, 7, gpus) is None


def test_what_no_use_can_make_possible_is_told_from_what_waits():
    """More than the limit itself, not more than what is left of it."""
    full = QuotaAccount("project default", Limits({H100: 16}), Use({H100: 16}))
    assert full.never_allowed({H100: 16}) is None and full.refusal({H100: 16})
    never = full.never_allowed({H100: 24, "NVIDIA_L4": 99})
    assert never is not None and never.kind == H100
    assert never.text == (
        f"The quota of {H100} at once is 16 for project default, and this job asks for 24: it could never start. Ask "
        "for 16 or fewer in all replicas together, or let an admin of the deployment raise the limit."
    )
    none = QuotaAccount("project default", Limits({H100: 0})).never_allowed({H100: 1})
    assert none is not None and "Choose other GPUs, or let an admin" in none.text
    paused = QuotaAccount("project default", Limits(running=0, gpu_hours=0))
    assert paused.never_allowed({H100: 8}) is None and paused.refusal({H100: 8})


def test_a_members_limit_is_named_first_and_holds_for_that_member_alone():
    ledger = QuotaLedger(
        {1: QuotaAccount("project default", Limits({H100: 2}), Use({H100: 2}))},
        {(1, 7): QuotaAccount("alice in project default", Limits({H100: 1}), Use({H100: 1}))},
    )
    assert ledger.refusal(1, 7, {H100: 1}) == f"alice in project default uses 1 of 1 {H100}"
    assert ledger.refusal(1, 8, {H100: 1}) == ledger.refusal(1, None, {H100: 1})
    assert ledger.refusal(1, None, {H100: 1}) == f"project default uses 2 of 2 {H100}"


def test_replacing_a_limit_keeps_the_others():
    base, own = Limits({H100: 2, "NVIDIA_L4": 8}, 5, 50, 100), Limits({H100: 4}, queued=9)
    assert own.over(base) == Limits({H100: 4, "NVIDIA_L4": 8}, 5, 9, 100)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=40))
def test_no_limit_is_ever_exceeded_and_everything_is_given_back(offers):
    limits, own = Limits({H100: 6}, running=4), Limits({H100: 3})
    ledger = QuotaLedger(
        {1: QuotaAccount("one", limits), 2: QuotaAccount("two", limits)},
        {(1, 1): QuotaAccount("a in one", own), (1, 2): QuotaAccount("b in one", own)},
    )
    taken = []
    for project, owner, gpus in offers:
        if ledger.refusal(project, owner, {H100: gpus}) is None:
            ledger.take(project, owner, {H100: gpus})
            taken.append((project, owner, {H100: gpus}))
        for account in (*ledger.projects.values(), *ledger.members.values()):
            assert account.use.gpus.get(H100, 0) <= account.limits.gpus[H100]
        assert all(account.use.running <= 4 for account in ledger.projects.values())
    for one_taken in taken:
        ledger.give(*one_taken)
    accounts = [*ledger.projects.values(), *ledger.members.values()]
    assert all(account.use.running == 0 and not any(account.use.gpus.values()) for account in accounts)


def test_the_queue_may_be_full():
    assert queue_refusal("project default", None, 9) is None and queue_refusal("x", 3, 2) is None
    assert "3 jobs wait already for project default, which may have 3." in str(
        queue_refusal("project default", 3, 3)
    )


def test_a_job_needs_what_its_replicas_need_together():
    needs = [Needs(4, 0, H100, 2), Needs(4, 0, H100, 2), Needs(1), Needs(1, 0, "NVIDIA_L4", 1)]
    assert gpus_of(needs) == {H100: 4, "NVIDIA_L4": 1}


MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC))


@given(MOMENTS, MOMENTS)
def test_months_share_an_interval_out_and_lose_nothing(one, other):
    began, ended = sorted((one, other))
    shares = dict(by_month(began, ended))
    assert sum(shares.values()) == pytest.approx((ended - began).total_seconds())
    assert all(in_month(month, began, ended) == pytest.approx(seconds) for month, seconds in shares.items())
    assert in_month(date(2031, 1, 1), began, ended) == 0 and month_of(began) in {*shares, month_of(began)}
