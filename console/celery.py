"""The Celery application: worker, dispatcher and beat. Tasks are hints; rows in the database are the truth."""

from __future__ import annotations

import os

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("trainyard")
app.conf.update(settings.CELERY)
app.conf.beat_schedule = {
    "sweep": {"task": "jobs.tasks.sweep", "schedule": settings.TRAINYARD.tick_s, "options": {"expires": 5}},
}
app.autodiscover_tasks(["jobs"])
