"""How busy the Reduction Server of a job is, in sentences: what its replicas last reported of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.lifecycle.snapshot import spec_of
from jobs.models import Job, MetricSeries
from jobs.rules.spec import reduction

# As agents/runner/reduction/ names them.
SENT, WAITING, IDLE = (
    "reduction/trainer_sent_mb",
    "reduction/trainer_waiting_percent",
    "reduction/reducer_idle_percent",
)
# Shares of the time, in percent.
WAITS_LONG, WAITS_LITTLE, MOSTLY_IDLE = 30, 10, 80


def sentences(job: Job, found: Sequence[MetricSeries]) -> tuple[str, ...]:
    """Nothing for a job without reducers."""
    # Most jobs have no third pool, and their documents are not read for that.
    has_third = len(job.spec.get("workerPoolSpecs") or ()) > reduction.POOL
    pool = reduction.reducers(spec_of(job)) if has_third else None
    if pool is None:
        return ()
    sent, waiting, idle = (_newest(found, name) for name in (SENT, WAITING, IDLE))
    if not waiting:
        return (_("Reduction Server: no gradients have gone through it yet."),)
    waits, rests = (round(sum(shares) / len(shares)) if shares else 100 for shares in (waiting, idle))
    return (
        ngettext(
            "Reduction Server: {count} replica has sent {megabytes} MB, and lately waited {waits} of its time for "
            "sums; the reducers were idle {rests} of theirs.",
            "Reduction Server: {count} replicas have sent {megabytes} MB, and lately waited {waits} of their time "
            "for sums; the reducers were idle {rests} of theirs.",
            len(sent),
        ).format(count=len(sent), megabytes=f"{sum(sent):.0f}", waits=f"{waits} %", rests=f"{rests} %"),
        *_advice(pool.replica_count, len(idle), waits, rests),
    )


def _newest(found: Sequence[MetricSeries], name: str) -> list[float]:
    """The last value of each replica: the later run of a replica comes later."""
    values = {
        each.run.replica_id: each.value for each in found if each.name == name and each.value is not None
    }
    return list(values.values())


def _advice(reducers: int, heard: int, waits: int, rests: int) -> Iterator[str]:
    if heard < reducers:
        yield ngettext(
            "{number} reducer gets no gradients.", "{number} reducers get no gradients.", reducers - heard
        ).format(number=reducers - heard)
    if waits >= WAITS_LONG and rests < MOSTLY_IDLE:
        yield _("More reducers, or bf16 on the wire, would make the steps shorter.")
    elif waits >= WAITS_LONG:
        yield _(
            "The reducers have time left: the replicas wait for the slowest among them, or for the network."
        )
    elif waits < WAITS_LITTLE and rests >= MOSTLY_IDLE:
        yield _("Fewer reducers would do.")
