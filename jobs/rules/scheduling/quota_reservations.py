"""The part of a quota that is kept for a waiting job, so that jobs behind it do not take it first.

Quota is kept for two kinds of jobs: a job with a reservation, whose project must be within quota when the reservation
starts; and the first job of a project (or member) that is over quota. Timeouts tell when enough will have been given
back. A job behind may take what is left at that moment, or must end before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.rules.scheduling.quota import QuotaAccount, QuotaLedger, Use
from jobs.rules.scheduling.running_jobs import RunningJob, RunningJobs


@dataclass(frozen=True, slots=True)
class QuotaReservation:
    """`then` is the account as it will be at `at`, with what the waiting job needs."""

    at: float
    then: QuotaAccount


class QuotaReservations:
    def __init__(self, ledger: QuotaLedger, running: RunningJobs) -> None:
        self._ledger, self._running = ledger, running
        self._of: dict[str, list[QuotaReservation]] = {}
        self._waiting: set[tuple[str, tuple[str, ...]]] = set()

    def reserve(self, project: int, owner: int | None, gpus: Mapping[str, int], at: float) -> None:
        """Keep quota for a job that starts at `at` at the latest."""
        for account in self._ledger.accounts(project, owner):
            then = _copy(account)
            for one in self._holders(project, owner, account):
                if one.ends <= at:
                    then.change(one.by_kind, -1)
            self._keep(account, then, gpus, at)

    def wait(self, project: int, owner: int | None, gpus: Mapping[str, int]) -> None:
        """Keep quota for a job that is over quota: only for the first of each kind whose wait will end, and only in the
        account that is full.
        """
        account = next((one for one in self._ledger.accounts(project, owner) if one.refusal(gpus)), None)
        key = (account.who, tuple(sorted(gpus))) if account else None
        if account is None or key is None or key in self._waiting:
            return
        if QuotaAccount(account.who, account.limits, Use(gpu_hours=account.use.gpu_hours)).refusal(gpus):
            return  # only an admin, or the next month, can help this job
        self._waiting.add(key)
        then = _copy(account)
        for one in self._holders(project, owner, account):
            then.change(one.by_kind, -1)
            if then.refusal(gpus) is None:
                self._keep(account, then, gpus, one.ends)
                return

    def kept(self, project: int, owner: int | None, gpus: Mapping[str, int], ends: float) -> bool:
        """Would a job that may run until `ends` take quota that is kept for a job before it?"""
        return bool(self._of) and any(
            reservation.then.refusal(gpus) for reservation in self._outlived(project, owner, ends)
        )

    def take(self, project: int, owner: int | None, gpus: Mapping[str, int], ends: float) -> None:
        """Note that a job was placed."""
        for reservation in self._outlived(project, owner, ends):
            reservation.then.change(gpus, 1)

    def _outlived(self, project: int, owner: int | None, ends: float) -> Iterable[QuotaReservation]:
        if not self._of:
            return ()
        accounts = self._ledger.accounts(project, owner)
        return [one for account in accounts for one in self._of.get(account.who, ()) if ends > one.at]

    def _keep(self, account: QuotaAccount, then: QuotaAccount, gpus: Mapping[str, int], at: float) -> None:
        limits = account.limits
        if limits.running is None and limits.gpus.keys().isdisjoint(gpus):
            return
        then.change(gpus, 1)
        self._of.setdefault(account.who, []).append(QuotaReservation(at, then))

    def _holders(self, project: int, owner: int | None, account: QuotaAccount) -> Iterable[RunningJob]:
        """The running jobs that count against this account."""
        all_of_it = self._running.of(project)
        if account is self._ledger.projects.get(project):
            return all_of_it
        return (one for one in all_of_it if one.owner == owner)


def _copy(account: QuotaAccount) -> QuotaAccount:
    use = account.use
    return QuotaAccount(account.who, account.limits, Use(dict(use.gpus), use.running, use.gpu_hours))
