"""The page that changes how a host is reached, and its location."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from agents.hosts.moving import Way
from agents.infra.refusals import Refused
from agents.infra.sentences import shown
from agents.models import Host, Location
from console.auth import access
from console.auth.person import person
from console.forms.hosts import EditHost
from console.views.confirmation import asked_again
from jobs.maintenance.edit_host import Place, edit_host


@require_http_methods(["GET", "POST"])
@login_required
def edit(request: HttpRequest, host_id: int) -> HttpResponse:
    machines = Host.machines.select_related("location")
    row = access.get_or_404(request.user, "manage", machines, pk=host_id)
    form = EditHost(row, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        keys = [form.cleaned_data["jump_key"]] if form.cleaned_data["jump_key"] else []
        if keys and (page := asked_again(request, _("accept the key of a jump host"))):
            return page
        try:
            changed = edit_host(
                row, _wanted(form), _seen(form), keys, person(request).username, timezone.now()
            )
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else None, shown(refused.message))
        else:
            if changed:
                messages.success(request, _("{name} is changed. Its runs go on.").format(name=row.name))
            return redirect("host", host_id=host_id)
    context = {"host": row, "form": form, "locations": Location.objects.all()}
    return render(request, "hosts/edit.html", context)


def _wanted(form: EditHost) -> Place:
    typed = form.cleaned_data
    way = Way(typed["address"], typed["port"], typed["user"], typed["jump"])
    return Place(way, typed["location"])


def _seen(form: EditHost) -> Place:
    """What the form showed. Somebody else may have changed the host since."""
    typed = form.cleaned_data
    way = Way(typed["seen_address"], typed["seen_port"], typed["seen_user"], typed["seen_jump"])
    return Place(way, typed["seen_location"])
