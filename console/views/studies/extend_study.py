"""More trials for a study, from the form on its page."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from console.auth.person import person
from console.forms.studies import ExtendStudyForm
from console.views.studies.studies import found, show
from jobs.rules.spec.json_fields import InvalidDocument
from jobs.rules.spec.parse import Violation
from jobs.services import Refused
from jobs.tuning import extending


@require_POST
@login_required
def extend(request: HttpRequest, tuning_id: int) -> HttpResponse:
    study = found(request, tuning_id, "cancel")
    form = ExtendStudyForm.from_post(request.POST)
    if form.is_valid():
        try:
            with transaction.atomic():
                extending.extend(study.pk, form.document(), person(request).username, timezone.now())
        except InvalidDocument as refused:
            form.add_violations(refused.violations)
        except Refused as refused_:
            form.add_violations([Violation(refused_.field, refused_.message)])
        else:
            messages.success(request, _("“{name}” goes on.").format(name=study.display_name))
            return redirect("study", tuning_id=tuning_id)
    return show(request, study, form)
