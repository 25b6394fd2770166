"""The body of the page of a study as markup, drawn once for all who look at the same.

A body of a thousand trials takes many times as long to draw as all else of its page. It is kept under all that it is
made of, so it is never older than what the database says at each view.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import get_language

from agents.infra.shared_answers import SharedAnswers
from console.presenters.studies import asked as asked_names
from console.presenters.studies import study_page
from console.presenters.studies.read_trials import version_of
from console.presenters.studies.trial_rows import TrialRow
from jobs.models import TuningJob

# The bodies of so many pages are kept, for so long. One of a thousand trials has 200 kB.
MOST_KEPT, KEPT = 30, timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """`ticks`: it says how long a trial has been running, or held GPUs, which is another text a second later."""

    html: SafeString
    ticks: bool


_kept: SharedAnswers[Hashable, _Drawn] = SharedAnswers(KEPT, MOST_KEPT)


def drawn_body(tuning_job: TuningJob, trials: Sequence[TrialRow], query: Mapping[str, str]) -> SafeString:
    """`trials`: all of the study (`read_trials.py`), read just now. `query`: what the address asks for."""
    known = asked_names.kept(query)
    asked = {**known, "page": query["page"]} if query.get("page") else known

    def draw() -> _Drawn:
        body = study_page.body(tuning_job, trials, asked)
        runs = any(row.trial.started_at and not row.trial.ended_at for row in body.table.rows)
        ticks = runs or body.table.growing
        return _Drawn(render_to_string("studies/_body.html", {"body": body}), ticks)

    made_of = (tuning_job.pk, tuning_job.updated_at, tuning_job.state, version_of(trials))
    drawn = (*made_of, get_language(), tuple(asked.items()))
    return _kept.get(drawn, draw, keep=lambda found: not found.ticks).html
