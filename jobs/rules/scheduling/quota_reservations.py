"""What of a quota is kept for those who wait, so that whoever comes behind them does not take it first.

Two kinds of jobs are kept for: one that has a reservation, which must find its project within quota at that moment; and
the first of its project (or person) that is over quota. By timeouts it is known when enough will have been given back.
Who comes behind may have what is left at that moment, or be over by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.rules.scheduling.quota import QuotaAccount, QuotaLedger, Use
from jobs.rules.scheduling.running_jobs import RunningJob, RunningJobs


@dataclass(frozen=True, slots=True)
class QuotaReservation:
    """`then` is the account as it will be at that moment, the one who waits included."""

    at: float
    then: QuotaAccount


class QuotaReservations:
    def __init__(self, ledger: QuotaLedger, running: RunningJobs) -> None:
        self._ledger, self._running = ledger, running
        self._of: dict[str, list[QuotaReservation]] = {}
        self._waiting: set[tuple[str, tuple[str, ...]]] = set()

    def reserve(self, project: int, owner: int | None, gpus: Mapping[str, int], at: float) -> None:
        """Somebody will have a place then, at the latest."""
        for account in self._ledger.accounts(project, owner):
            then = _copy(account)
            for one in self._holders(project, owner, account):
                if one.ends <= at:
                    then.change(one.by_kind, -1)
            self._keep(account, then, gpus, at)

    def wait(self, project: int, owner: int | None, gpus: Mapping[str, int]) -> None:
        """Somebody is over quota. Only the first of each kind that can be helped is kept for, and only by the
        account that is full.
        """
        account = next((one for one in self._ledger.accounts(project, owner) if one.refusal(gpus)), None)
        key = (account.who, tuple(sorted(gpus))) if account else None
        if account is None or key is None or key in self._waiting:
            return
        if QuotaAccount(account.who, account.limits, Use(gpu_hours=account.use.gpu_hours)).refusal(gpus):
            return  # it waits for an admin, or for the next month
        self._waiting.add(key)
        then = _copy(account)
        for one in self._holders(project, owner, account):
            then.change(one.by_kind, -1)
            if then.refusal(gpus) is None:
                self._keep(account, then, gpus, one.ends)
                return

    def kept(self, project: int, owner: int | None, gpus: Mapping[str, int], ends: float) -> bool:
        """Would a job that may stay until `ends` take what is kept for one before it?"""
        return bool(self._of) and any(
            reservation.then.refusal(gpus) for reservation in self._outlived(project, owner, ends)
        )

    def take(self, project: int, owner: int | None, gpus: Mapping[str, int], ends: float) -> None:
        """It was placed."""
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
        """Whose places count against this account."""
        all_of_it = self._running.of(project)
        if account is self._ledger.projects.get(project):
            return all_of_it
        return (one for one in all_of_it if one.owner == owner)


def _copy(account: QuotaAccount) -> QuotaAccount:
    use = account.use
    return QuotaAccount(account.who, account.limits, Use(dict(use.gpus), use.running, use.gpu_hours))
