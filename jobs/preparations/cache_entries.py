"""Trees and Python environments: a run needs the code and the packages of its job on its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import F

from agents.infra.texts import said
from jobs.models import Preparation, PreparationNeed, Run
from jobs.preparations import brought
from jobs.preparations.need import Need
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.secret_variables import GIT_CREDENTIAL
from jobs.secrets import of_jobs

# In an order: the log of the run begins with what pip printed.
INSTALL_LOG = "install_log"
# With many replicas an order is long, and a job has as many of them.
BATCH = 100


class TreeKind:
    name = brought.TREE

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        if "code" in run.order:
            what = brought.tree_of(run.job, run.replica.pool)
            yield Need(self.name, what["key"], what, said("the code of the job"))
        if brought.PACKAGES in run.order:
            what = brought.packages_of(brought.pool_of(run.job, run.replica.pool))
            yield Need(self.name, what["key"], what, said("the Python packages of the job"))

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        """The credential of the repository, of the last job that needs this tree and is not over."""
        if "git" not in preparation.what:
            return {}
        needs = preparation.needs.exclude(run__job__state__in=TERMINAL).order_by("-pk")
        run = needs.values_list("run", flat=True).first()
        if run is None:
            return {}
        value = of_jobs.value_of(of_jobs.job_of(run), of_jobs.pool_of(run), GIT_CREDENTIAL)
        return {"credential": value} if value else {}


class EnvironmentKind:
    name = brought.ENVIRONMENT

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        if (run.order.get("runtime") or {}).get("kind") == "python":
            what = brought.environment_of(
                brought.pool_of(run.job, run.replica.pool), brought.index_of(run.job), pool.task.interpreter
            )
            yield Need(self.name, what["key"], what, said("the Python packages of the job"))

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        """The address of the index: it may have a password in it."""
        need = preparation.needs.order_by("-pk").select_related("run__job").first()
        return {"index": brought.index_of(need.run.job)} if need is not None else {}


def show_installs(runs: Sequence[str]) -> None:
    """Of these runs, which are about to start, let the logs of those begin with the output of pip that have waited for
    it. An environment that was there before tells the others in a line (agents/runner/cache/install_log.py): also one
    that the host was asked for anew, and had."""
    waited = PreparationNeed.objects.filter(
        run__in=runs,
        preparation__kind=brought.ENVIRONMENT,
        preparation__ended_at__gte=F("run__created_at"),
        preparation__result__made="now",
    )
    names = list(waited.order_by("run").values_list("run", flat=True))
    for first in range(0, len(names), BATCH):
        found = list(Run.objects.filter(pk__in=names[first : first + BATCH]).only("order").order_by("pk"))
        for run in found:
            run.order[INSTALL_LOG] = True
        Run.objects.bulk_update(found, ["order"])
