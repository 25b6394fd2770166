"""The live parts of the pages of studies: what each shows, and its stamp."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User
from django.db.models import Count, Max, Q, Sum
from django.template.loader import render_to_string

from console.auth import access
from console.presenters.stamps import digest
from console.presenters.studies import (
    contour,
    parameter_plots,
    scatter_matrix,
    study_cost,
    study_curves,
    study_list,
    study_page,
    trial_times,
)
from console.presenters.studies.drawn_body import drawn_body
from console.presenters.studies.read_trials import read_trials
from jobs.models import MetricSeries, Trial, TuningJob
from jobs.rules.tuning.trials import RUNNING

Query = Mapping[str, str]


def list_stamp(user: User, query: Query) -> str:
    return digest([*study_list.stamp(user, query), access.jobs_key(user)])


def list_live(user: User, query: Query) -> str:
    return render_to_string("studies/_list.html", {"list": study_list.study_list(user, query)})


def study_stamp(pk: int) -> str:
    """Parameters are drawn without a change of the study's own row."""
    of_pipeline = [f"training_pipeline__{name}" for name in ("deleted_at", "version", "version__deleted_at")]
    columns = ("updated_at", "state", "cancel_requested_at", *of_pipeline)
    row = TuningJob.objects.filter(pk=pk).values_list(*columns).first()
    trials = Trial.objects.filter(tuning_job=pk).order_by()
    counted = trials.aggregate(
        *(Count(name) for name in ("pk", "parameters", "final")),
        Max("ended_at"),
        stopped=Count("pk", filter=~Q(stopped_early="")),
    )
    states = list(trials.values_list("state").annotate(number=Count("pk")).order_by("state"))
    deleted = trials.exclude(job__deleted_at=None).count()
    return digest([row, counted, states, deleted])


def curves_stamp(pk: int) -> str:
    """What the running trials report; the rest follows from the study."""
    running = MetricSeries.objects.filter(
        run__job__trial_row__tuning_job=pk, run__job__trial_row__state__in=RUNNING
    )
    return digest([study_stamp(pk), running.aggregate(Count("pk"), Sum("reports"), Max("at"))])


def head_live(user: User, pk: int) -> str:
    row = _row(user, pk)
    return "" if row is None else render_to_string("studies/_head.html", {"head": study_page.head(row, user)})


def body_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    return drawn_body(row, read_trials(row), query)


def cost_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    cost = study_cost.study_cost(row, read_trials(row), query)
    return render_to_string("studies/_cost.html", {"cost": cost})


def cost_stamp(pk: int) -> str:
    """Verdicts and outlooks are noted after the trials have changed."""
    known = Trial.objects.filter(tuning_job=pk, shadow__isnull=False).count()
    outlook = TuningJob.objects.filter(pk=pk).values_list("outlook", flat=True).first()
    return digest([study_stamp(pk), known, outlook])


def parameters_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    return render_to_string(
        "studies/_parameters.html", {"parameters": parameter_plots.parameter_plots(row, query)}
    )


def contour_stamp(pk: int) -> str:
    """The model learns again only when there are a tenth more results."""
    results = Trial.objects.filter(tuning_job=pk, final__isnull=False).order_by().count()
    return digest([TuningJob.objects.filter(pk=pk).exists(), contour.grown(results)])


def contour_context(row: TuningJob, query: Query) -> dict[str, object]:
    return {"contour": contour.contour(row, query), "contour_of": row.pk}


def contour_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    return "" if row is None else render_to_string("studies/_contour.html", contour_context(row, query))


def curves_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    return render_to_string("studies/_curves.html", {"curves": study_curves.study_curves(row, query)})


def scatter_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    return render_to_string("studies/_scatter.html", {"scatter": scatter_matrix.scatter_matrix(row, query)})


def timeline_live(user: User, pk: int, query: Query) -> str:
    row = _row(user, pk)
    if row is None:
        return ""
    return render_to_string("studies/_timeline.html", {"times": trial_times.trial_times(row, query)})


def _row(user: User, pk: int) -> TuningJob | None:
    return access.visible(user, TuningJob.objects.select_related("project").filter(pk=pk)).first()
