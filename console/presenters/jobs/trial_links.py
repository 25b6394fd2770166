"""From the job of a trial to its study, in place of the long label that says the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.urls import reverse

from agents.infra.sql import Parameter, SelectStatement
from jobs.models import Trial
from jobs.rules.tuning.study import LABEL

# So many trials the page of a study shows at once.
PAGE = 50
_trials = SelectStatement(
    lambda: (
        Trial.objects.filter(job__among=Parameter("jobs"), tuning_job__deleted_at=None)
        .order_by()
        .values_list("job", "number", "tuning_job", "tuning_job__display_name")
    )
)


@dataclass(frozen=True, slots=True)
class TrialLink:
    """`study`: the name of the study. `url`: its page, at the row of the trial."""

    study: str
    url: str


def trial_links(labels: Iterable[tuple[int, str]]) -> dict[int, TrialLink]:
    """By the job. `labels`: jobs, each with the key of a label: only those that have that of a trial are looked for."""
    jobs = [job for job, key in labels if key == LABEL]
    rows = _trials(jobs=jobs) if jobs else []
    return {job: TrialLink(name, _address(study, number)) for job, number, study, name in rows}


def _address(study: int, number: int) -> str:
    page = (number - 1) // PAGE + 1
    asked = f"?page={page}" if page > 1 else ""
    return f"{reverse('study', args=[study])}{asked}#trial-{number}"
