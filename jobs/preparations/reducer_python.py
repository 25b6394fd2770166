"""numpy of the reducers: a reducer sums with it, so its host is asked for it before any replica of the job starts.

Their Python is that of the primary (rules/spec/reduction.py): on the host, in an environment, or in an image. So the
question comes when these are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Exists, OuterRef, Q

from agents.infra.texts import said
from jobs.models import Preparation, PreparationNeed, Run
from jobs.preparations.brought import PACKAGES, make_key
from jobs.preparations.images import ImageKind
from jobs.preparations.need import Need
from jobs.rules.lifecycle.preparation_states import PreparationState
from jobs.rules.spec import reduction
from jobs.rules.spec.custom_job import CustomJobSpec, Pool

NUMPY = "numpy"
# Variables that change which Python it is, and what that imports.
_MATTERS = re.compile(r"PATH|HOME|PYTHON[A-Z]+|LD_[A-Z_]+|VIRTUAL_ENV|CONDA_[A-Z_]+", re.ASCII)
# What lies there is put there for the run alone. It may have numpy, too.
_OF_RUN = re.compile(r"/gcs/|gs://", re.ASCII)


class NumpyKind:
    name = NUMPY

    def needs(self, run: Run, spec: CustomJobSpec, pool: Pool) -> Iterable[Need]:
        if run.order.get("reduction") != reduction.REDUCER:
            return
        if PACKAGES in run.order:
            return  # they may bring numpy, and are installed when the container starts
        environment = (run.order.get("runtime") or {}).get("environment")
        what: dict[str, Any] = {"python": pool.task.argv[0]}
        what["env"] = {name: value for name, value in pool.task.env if _MATTERS.fullmatch(name)}
        if _OF_RUN.search(" ".join([what["python"], *what["env"].values()])):
            return  # its keeper asks, when the run has its directories
        parts: list[Any] = [what["python"], sorted(what["env"].items())]
        for image in ImageKind().needs(run, spec, pool):
            what |= {name: image.what[name] for name in ("engine", "image", "id") if name in image.what}
            parts.append(image.key)
        if environment:
            what["environment"] = environment
            parts.append(environment)
        elif pool.task.interpreter:
            what["interpreter"] = pool.task.interpreter
            parts.append(pool.task.interpreter)
        yield Need(NUMPY, make_key(NUMPY, *parts), what, said("numpy for the reducers"))

    def secrets(self, preparation: Preparation) -> Mapping[str, Any]:
        return {}


def waits_for_others(runs: Sequence[str]) -> Q:
    """Of preparations: it is asked in what other ones make, and one of these is not ready for one of the runs."""
    others = PreparationNeed.objects.filter(run__in=runs, run__needs__preparation=OuterRef("pk"))
    others = others.exclude(preparation__kind=NUMPY).exclude(preparation__phase=PreparationState.READY)
    return Q(Exists(others), kind=NUMPY)
