"""Rows of the tables of trials. A template takes six times as long for a page of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext as _

from console.presenters.studies.study_cost import StoppedTrial
from console.presenters.studies.trial_rows import EXPECTED, ShownTrial, TrialRow, TrialTable
from console.templatetags.display import badge, took

register = template.Library()
NONE = '<span class="none">–</span>'


@dataclass(frozen=True, slots=True)
class _Words:
    """What each row says again, in the language of the page. `hours` and `expected` begin these cells; without them
    there are none."""

    ran_for: str
    hours: str
    expected: str
    expects: str
    best: str


@register.simple_tag
def trial_rows(table: TrialTable) -> SafeString:
    """The rows of a page of all trials."""
    words = _Words(
        ran_for=f'<td class="number nowrap" data-label="{escape(_("Ran for"))}">',
        hours=f'<td class="number nowrap" data-label="{escape(_("GPU-hours"))}">' if table.has_hours else "",
        expected=f'<td class="nowrap" data-label="{escape(_("Expected before"))}">' if table.expects else "",
        expects=gettext(EXPECTED),
        best=f' <span class="chip">{escape(_("best"))}</span>',
    )
    return SafeString("".join(_row(row, words) for row in table.rows))


def _row(row: ShownTrial, words: _Words) -> str:
    trial = row.trial
    note = f'<div class="why">{escape(trial.note)}</div>' if trial.note else ""
    is_best, mark = (' class="best"', words.best) if row.best else ("", "")
    hours = f"{words.hours}{row.hours or NONE}</td>" if words.hours else ""
    before = f"{words.expected}{_expected(trial, words)}</td>" if words.expected else ""
    return (
        f'<tr id="trial-{trial.number}"{is_best}><th scope="row" class="nowrap">{_number(trial)}{mark}</th>'
        f"<td>{badge(trial.badge)}{note}</td>{row.cells}"
        f"{words.ran_for}{took(trial.started_at, trial.ended_at)}</td>{hours}{before}</tr>"
    )


def _number(trial: TrialRow) -> str:
    if trial.job is not None:
        return f'<a href="{reverse("job", args=[trial.job])}">{trial.number}</a>'
    return f'{trial.number} <span class="muted small">{escape(_("job deleted"))}</span>'


def _expected(trial: TrialRow, words: _Words) -> str:
    return escape(trial.expected(words.expects)) or NONE


@register.simple_tag
def stopped_rows(trials: Iterable[StoppedTrial]) -> SafeString:
    """The rows of the trials that a rule would have stopped."""
    ran_for, by = escape(_("Ran for")), escape(_("Would have been stopped by"))
    return SafeString(
        "".join(
            f'<tr><th scope="row">{trial.number}</th><td data-label="{ran_for}">{escape(trial.ran)}</td>'
            f'<td data-label="{by}">{escape("; ".join(trial.verdicts))}</td></tr>'
            for trial in trials
        )
    )
