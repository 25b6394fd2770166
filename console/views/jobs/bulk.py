"""Jobs that are selected in the list: what will be done is shown and confirmed with its number, and then done."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from agents.infra.sentences import shown
from console.auth import access
from console.auth.person import person
from console.presenters.jobs import selection
from console.presenters.jobs.job_filters import Filters, cursor_number
from console.presenters.jobs.selection import Selection
from console.views.jobs import compare
from jobs import bulk as acts
from jobs.bulk import Outcome
from jobs.rules.list_text import list_text

SHOWN, SHOWN_REFUSALS = 20, 3
# Changes nothing, so it is not asked about.
COMPARE = "compare"
MAX_LABELS = 1_000


@require_POST
@login_required
def bulk(request: HttpRequest) -> HttpResponse:
    act, user = request.POST.get("act", ""), person(request)
    filters = Filters.of(QueryDict(request.POST.get("filters", "")[:2_000]).dict())
    if act == COMPARE:
        return redirect(compare.address(_ids(request, user, filters)[0]))
    if act not in selection.VERBS:
        messages.error(request, _("Choose what to do with the selected jobs."))
        return _back(filters)
    ids, more = _ids(request, user, filters)
    if not ids:
        messages.error(request, _("Select the jobs first: tick the boxes beside them."))
        return _back(filters)
    found = selection.select(user, act, ids)
    wrong = _missing_labels(request, act) if "confirm" in request.POST else ""
    # Jobs end all the time: what is done is done to as many as the person was asked about.
    if request.POST.get("confirm") != str(len(found.jobs)) or wrong:
        return _ask(request, act, filters, found, more, wrong)
    outcome = _do(request, act, user, found)
    _tell(request, act, outcome)
    return _back(filters)


def _ids(request: HttpRequest, user: User, filters: Filters) -> tuple[Sequence[int], bool]:
    """The selected jobs, or all of the list. Also returns whether there are more than can be selected at once."""
    if "all" in request.POST:
        return selection.of_filters(user, filters)
    found = [cursor_number(text) for text in request.POST.getlist("job")]
    ids = list(dict.fromkeys(pk for pk in found if pk is not None))
    return ids[: selection.MOST], len(ids) > selection.MOST


def _ask(
    request: HttpRequest, act: str, filters: Filters, found: Selection, more: bool, wrong: str
) -> HttpResponse:
    context = {
        "act": act,
        "filters": filters.address,
        "back": _address(filters),
        "found": found,
        "shown": found.jobs[:SHOWN],
        "not_shown": max(len(found.jobs) - SHOWN, 0),
        "most": selection.MOST if more else 0,
        # Sent twice, the form makes no second copies.
        "request_id": request.POST.get("request_id", "")[:60] or f"form-{uuid4()}",
        "labels": request.POST.get("labels", "")[:MAX_LABELS],
        "remove": request.POST.get("remove", "")[:MAX_LABELS],
        "wrong": wrong,
    }
    return render(request, "jobs/bulk.html", context)


def _missing_labels(request: HttpRequest, act: str) -> str:
    given, taken = _labels(request)
    missing = act == selection.LABEL and not given and not taken
    return _("Say which labels to give or to take away.") if missing else ""


def _labels(request: HttpRequest) -> tuple[dict[str, str], list[str]]:
    words = (
        request.POST.get(name, "")[:MAX_LABELS].replace(",", " ").split() for name in ("labels", "remove")
    )
    given, taken = words
    return {key: value for key, _, value in (word.partition("=") for word in given)}, taken


def _do(request: HttpRequest, act: str, user: User, found: Selection) -> Outcome:
    now = timezone.now()
    if act == selection.CANCEL:
        return acts.cancel(found.jobs, user.username, now)
    if act == selection.DELETE:
        return acts.delete(found.jobs, user.username, now)
    if act == selection.LABEL:
        return acts.label(found.jobs, *_labels(request), user.username, now)
    prioritized = [project.pk for project in access.projects_allowing(user, "prioritize")]
    return acts.copy(found.jobs, user, request.POST.get("request_id", "")[:60], now, prioritized)


def _tell(request: HttpRequest, act: str, outcome: Outcome) -> None:
    if outcome.done:
        messages.success(request, _done(act, len(outcome.done)))
    if outcome.refused:
        named = list_text(
            [f"{job.display_name}: {shown(why)}" for job, why in outcome.refused], SHOWN_REFUSALS
        )
        words = _("Not done for {number}: {jobs}").format(number=len(outcome.refused), jobs=shown(named))
        messages.error(request, words)


def _done(act: str, count: int) -> str:
    sentences = {
        selection.CANCEL: ngettext("{number} job is cancelled.", "{number} jobs are cancelled.", count),
        selection.DELETE: ngettext(
            "{number} job and its logs are deleted.", "{number} jobs and their logs are deleted.", count
        ),
        selection.LABEL: ngettext("{number} job is labelled.", "{number} jobs are labelled.", count),
        selection.CLONE: ngettext("{number} copy is submitted.", "{number} copies are submitted.", count),
    }
    return sentences[act].format(number=count)


def _address(filters: Filters) -> str:
    return f"{reverse('jobs')}?{filters.address}".rstrip("?")


def _back(filters: Filters) -> HttpResponse:
    return redirect(_address(filters))
