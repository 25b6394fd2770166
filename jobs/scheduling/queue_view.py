"""The whole queue and the cluster as a pass would see them now, for those who look ahead. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from agents.infra.shared_answers import SharedAnswers
from jobs.projects import claim_holders, quotas, usage
from jobs.rules.scheduling.order import WaitingJob, in_order
from jobs.rules.scheduling.policy import ClusterView
from jobs.rules.scheduling.quota import QuotaLedger
from jobs.scheduling import capacity, queue_snapshot

# The rows of the whole queue are read once for all who look in this time.
RELIED_FOR = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class QueueView:
    """`waiting` is in the order in which places are offered."""

    cluster: ClusterView
    waiting: list[WaitingJob]
    ledger: QuotaLedger
    read_at: datetime

    def of_first(self, number: int) -> list[WaitingJob]:
        return self.waiting[:number]


def read_queue_view(now: datetime) -> QueueView:
    held = claim_holders.read_holders()
    here = capacity.read_capacity(held)
    queue = queue_snapshot.read_queue(here, now)
    running = queue_snapshot.read_running(held, here.kinds, now)
    cluster = ClusterView(
        here.views,
        capacity.ports(),
        running.running,
        usage.shares(now, held) if queue.has_several_projects else {},
        running.held,
        settings.TRAINYARD.preempt_grace_s + queue_snapshot.AFTER_STOP_S,
    )
    waiting = in_order(queue.waiting, cluster.shares, cluster.held)
    return QueueView(cluster, waiting, quotas.read_ledger(now), now)


_recent: SharedAnswers[str, QueueView] = SharedAnswers(RELIED_FOR, 1)


def recent_queue_view(now: datetime) -> QueueView:
    """The same, up to three seconds old."""
    return _recent.get("", lambda: read_queue_view(now))


def forget_recent() -> None:
    """The queue was changed by this process: the next who looks sees it."""
    _recent.clear()
