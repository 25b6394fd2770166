"""The summary beside the new-study form, in words: how large the space is, and what the study may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agents.infra.sentences import shown
from console.presenters import sizes
from console.presenters.studies.study_page import points_words
from jobs.rules.scheduling.quota import gpus_of
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import parse_custom_job
from jobs.rules.time_text import time_text
from jobs.rules.tuning.parse_study import parse_study
from jobs.rules.tuning.parse_tuning_job import MAX_TRIALS, parse_tuning_job
from jobs.rules.tuning.space import flat, size
from jobs.rules.tuning.study_advice import study_advice
from jobs.scheduling import capacity
from jobs.scheduling.machine_types import of_location


@dataclass(frozen=True, slots=True)
class StudySummary:
    """`space`, `budget`: a sentence each. They say too where the form is not complete yet. `advice`: what may not do
    what the person wants, of a form that is complete."""

    space: str
    budget: str
    advice: tuple[str, ...] = ()


def of(document: Mapping[str, Any], location: str) -> StudySummary:
    """What can be said of a form that may not be complete: its metrics, for one, change nothing of this."""
    parameters = document.get("studySpec", {}).get("parameters", [])
    asked = {"metrics": [{"metricId": "any", "goal": "MINIMIZE"}], "parameters": parameters}
    points: int | None = None
    try:
        space = parse_study(asked).parameters
    except InvalidDocument:
        words = _("The space: not complete yet.") if parameters else _("The space: no parameters yet.")
    else:
        points = size(space)
        words = ngettext(
            "The space: {number} parameter, {size}.",
            "The space: {number} parameters, {size}.",
            len(list(flat(space))),
        ).format(
            number=len(list(flat(space))), size=_("continuous") if points is None else points_words(points)
        )
    return StudySummary(words, _budget(document, location, points), _advice(document, location))


def _advice(document: Mapping[str, Any], location: str) -> tuple[str, ...]:
    try:
        asked = parse_tuning_job(document, of_location(location))
    except InvalidDocument:
        return ()
    return tuple(map(shown, study_advice(asked.study, asked.trial_spec)))


def _budget(document: Mapping[str, Any], location: str, points: int | None) -> str:
    trials = document.get("maxTrialCount")
    if not isinstance(trials, int) or trials < 1:
        return _("The budget: say how many trials there may be.")
    trials = min(trials, MAX_TRIALS) if points is None else min(trials, points, MAX_TRIALS)
    try:
        job = {"displayName": "any", "jobSpec": document.get("trialJobSpec", {})}
        types = of_location(location)
        spec = parse_custom_job(job, types).job_spec
    except InvalidDocument:
        return _("The budget: the job of each trial is not complete yet.")
    gpus = sum(gpus_of(request.needs for request in capacity.replica_requests(spec, types)).values())
    known = {
        "trials": trials,
        "gpus": gpus,
        "length": shown(time_text(spec.timeout_s)),
        "total": _hours(trials * gpus * spec.timeout_s / 3600),
    }
    if not gpus:
        text = ngettext(
            "The budget: no GPU; {trials} trial of at most {length}.",
            "The budget: no GPU; {trials} trials of at most {length} each.",
            trials,
        )
    else:
        text = ngettext(
            "The budget: at most {total} GPU-hours: {trials} trial with {gpus} GPUs for at most {length}.",
            "The budget: at most {total} GPU-hours: {trials} trials with {gpus} GPUs for at most {length} each.",
            trials,
        )
    return text.format(**known)


def _hours(hours: float) -> str:
    return sizes.localized(f"{hours:.3g}" if hours < 1000 else f"{hours:.0f}")
