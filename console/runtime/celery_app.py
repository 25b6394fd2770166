"""The Celery application: worker, dispatcher and beat. Tasks are hints; rows in the database are the truth."""

from __future__ import annotations

import os
import warnings

import django
from celery import Celery
from django.apps import apps
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# `trainyard up` runs Django's checks once; each worker would read every page and form for them, and keep those.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# Root in a container is usual, and nothing but JSON is accepted from the broker.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

app = Celery("trainyard")
app.conf.update(settings.CELERY)
app.conf.beat_schedule = {
    # A poke that nobody took is worth nothing a moment later.
    "sweep": {"task": "jobs.tasks.sweep", "schedule": settings.TRAINYARD.tick_s, "options": {"expires": 10}},
}
app.autodiscover_tasks(["console.runtime", "jobs"])

# The first of two ways in: Celery imports this, and then worker.py or dispatcher.py, which import models. On the second
# way Django itself imports this (console/apps.py), half way through its own setup.
if not (apps.ready or apps.loading):
    django.setup()
