"""Hides the ids of other tenants' jobs in what everybody reads about a host: its history, its errors, its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib.auth.models import User
from django.utils.translation import gettext, gettext_noop

from agents.models import Host
from console.auth import access
from jobs.models import Job

# Finds every text that names a job, and perhaps others: for the database.
MAYBE_JOB = "[0-9]{18}"
# The id of a job (services.new_id), alone or as the beginning of the name of one of its runs.
_JOB = re.compile(r"(?<![0-9])([0-9]{18,19})(?:-workerpool[0-9]+-[0-9]+(?:-a[0-9]+)?(?:-r[0-9]+)?)?(?![0-9])")
HIDDEN = gettext_noop("a job of another project")


class JobIdFilter:
    """Replaces the ids of jobs that the person may not see. It asks once about all ids of the texts of a page."""

    def __init__(self, user: User, texts: Iterable[str]) -> None:
        ids = {int(found) for text in texts for found in _JOB.findall(text)}
        self.any = bool(ids)
        self._all = not ids or access.can(user, "manage", Host)
        # A host may say any number. SQLite raises OverflowError for one that its column cannot hold.
        possible = [number for number in ids if number < 2**63]
        rows = Job.every.none() if self._all else Job.every.filter(pk__in=possible)
        self._seen = {str(pk) for pk in access.visible(user, rows).values_list("pk", flat=True)}

    def clean(self, text: str) -> str:
        return (
            text
            if self._all
            else _JOB.sub(lambda found: found[0] if found[1] in self._seen else gettext(HIDDEN), text)
        )


def without_foreign_jobs(user: User, text: str) -> str:
    """The text for this person, where one text is all that there is."""
    return JobIdFilter(user, [text]).clean(text)
