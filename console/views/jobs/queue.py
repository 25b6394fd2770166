"""The page of the queue, and jobs that are moved in it: what a move would change is shown, confirmed, and then done."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from agents.infra.refusals import Conflict, Refused
from agents.infra.sentences import shown
from console.auth.person import person
from console.presenters.jobs.job_filters import cursor_number
from console.presenters.queue import moves, queue_page
from console.views.fragments import page_or_fragment
from console.views.projects.switch import chosen_list
from jobs.rules.scheduling.reorder import Move, To
from jobs.scheduling import reorder

# Of those that start at another time, so many are named.
SHOWN = 20
MAX_QUERY = 200


@require_safe
@login_required
def queue(request: HttpRequest) -> HttpResponse:
    if elsewhere := chosen_list(request):
        return elsewhere
    found = queue_page.queue(person(request), request.GET.dict())
    return page_or_fragment(request, "jobs/queue.html", "jobs/_queue_exchange.html", {"queue": found})


@require_POST
@login_required
def move(request: HttpRequest) -> HttpResponse:
    """Without `stamp`, show what the move would change. With it, do what was shown."""
    user = person(request)
    try:
        asked = _asked(request, user)
        if stamp := request.POST.get("stamp", ""):
            return _confirmed(request, user, asked, stamp[:100])
        return _ask(request, user, asked)
    except Refused as refused:
        messages.error(request, shown(refused.message))
        return redirect(_back(request))


def _confirmed(request: HttpRequest, user: User, asked: Move, stamp: str) -> HttpResponse:
    """Do what was shown. Where the queue has changed since, show what the move would do now."""
    try:
        reorder.move(asked, stamp, user.username, timezone.now())
    except Conflict as conflict:
        messages.error(request, shown(conflict.message))
        return _ask(request, user, asked)
    queue_page.forget_order()
    messages.success(request, _done(asked))
    return redirect(_back(request))


def _asked(request: HttpRequest, user: User) -> Move:
    """A button of a row names its job and the way, as in `up-17…`. Buttons for many leave the jobs to their ticks."""
    one, dash, job = request.POST.get("one", "").partition("-")
    ids = [job] if dash else request.POST.getlist("job")
    to = one if dash else request.POST.get("act", "")
    if to not in tuple(To):
        raise Refused("act", _("Choose where to move the selected jobs."))
    numbers = [number for number in map(cursor_number, ids) if number is not None]
    before = _before(request) if to == To.BEFORE else None
    return moves.wanted(user, list(dict.fromkeys(numbers)), To(to), before, "within" in request.POST)


def _before(request: HttpRequest) -> int:
    """The job before which the others are put: named by itself, or by its place in the queue."""
    named = cursor_number(request.POST.get("before", ""))
    place = cursor_number(request.POST.get("place", ""))
    found = named or (queue_page.place_of(place) if place else None)
    if found is None:
        raise Refused("place", _("Say before which place of the queue to put them."))
    return found


def _ask(request: HttpRequest, user: User, asked: Move) -> HttpResponse:
    preview = moves.preview(user, asked, timezone.now())
    context = {
        "preview": preview,
        "move": asked,
        "within": asked.project is not None,
        "back": _back(request),
        "query": request.POST.get("query", "")[:MAX_QUERY],
        "sooner": preview.sooner[:SHOWN],
        "later": preview.later[:SHOWN],
        "sooner_more": len(preview.sooner[SHOWN:]) + preview.sooner_hidden,
        "later_more": len(preview.later[SHOWN:]) + preview.later_hidden,
    }
    return render(request, "jobs/queue_move.html", context)


def _done(asked: Move) -> str:
    if asked.to == To.AUTOMATIC:
        return _("They are back in the automatic order.")
    count = len(asked.jobs)
    return ngettext("{number} job is moved.", "{number} jobs are moved.", count).format(number=count)


def _back(request: HttpRequest) -> str:
    query = request.POST.get("query", "")[:MAX_QUERY]
    return f"{reverse('queue')}?{query.lstrip('?')}".rstrip("?")
