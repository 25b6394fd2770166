"""The commit that a branch was when the hosts of a job checked it out: one for all of them, stored with the job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from agents.infra.texts import said
from jobs.models import Job, Preparation, PreparationNeed
from jobs.preparations.brought import TREE
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.secrets.of_jobs import pool_of


def settle(jobs: Collection[int]) -> None:
    """Store the commit of each tree. If a branch has moved between two checkouts, the second one fails.

    The caller holds the locks of the jobs.
    """
    found: dict[tuple[int, str], list[PreparationNeed]] = defaultdict(list)
    needs = PreparationNeed.objects.filter(
        run__job__in=jobs,
        run__preparing=True,
        preparation__kind=TREE,
        preparation__phase=PreparationState.READY,
        preparation__result__has_key="commit",
    )
    for need in needs.select_related("run", "preparation__host").order_by("preparation"):
        found[need.run.job_id, need.preparation.key].append(need)
    for (job, _), of_tree in found.items():
        pools = {str(pool_of(need.run_id)) for need in of_tree}
        _settle(job, pools, [need.preparation for need in of_tree])


def _settle(job: int, pools: Collection[str], trees: list[Preparation]) -> None:
    first = trees[0]
    commit = first.result["commit"]
    other = next((tree for tree in trees if tree.result["commit"] != commit), None)
    if other is not None:
        moved = said(
            "the branch moved while it was fetched: {first} has {commit}, {second} has {other}. Submit the job "
            "again, or name a commit.",
            first=first.host.name,
            commit=commit[:12],
            second=other.host.name,
            other=str(other.result["commit"])[:12],
        )
        Preparation.objects.filter(pk=other.pk).update(
            phase=PreparationState.FAILED, fault="user", message=moved
        )
        return
    row = Job.every.only("resolved").get(pk=job)
    brought: dict[str, Any] = row.resolved["pools"]
    if any(brought[pool]["code"].get("commit") != commit for pool in pools):
        for pool in pools:
            brought[pool]["code"]["commit"] = commit
        Job.every.filter(pk=job).update(resolved=row.resolved)
