"""Trees and Python environments: a run needs the code and the packages of its job on its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents.infra.texts import said
from jobs.models import Preparation, Run
from jobs.preparations import brought
from jobs.preparations.need import Need
from jobs.rules.lifecycle.states import TERMINAL
from jobs.rules.spec.custom_job import CustomJobSpec, Pool
from jobs.rules.spec.secret_variables import GIT_CREDENTIAL
from jobs.secrets import of_jobs


class TreeKind:
    name = brought.TREE

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        if "code" in run.order:
            what = brought.tree_of(run.job, run.replica.pool)
            yield Need(self.name, what["key"], what, said("the code of the job"))

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
                brought.pool_of(run.job, run.replica.pool), brought.index_of(run.job)
            )
            yield Need(self.name, what["key"], what, said("the Python packages of the job"))

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        """The address of the index: it may have a password in it."""
        need = preparation.needs.order_by("-pk").select_related("run__job").first()
        return {"index": brought.index_of(need.run.job)} if need is not None else {}
