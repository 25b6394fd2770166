"""The Celery application of the worker, the dispatcher and beat. Tasks are hints; the state is in the database."""

from __future__ import annotations

import os
import warnings
from datetime import datetime
from typing import Any

import django
from celery import Celery
from celery.app.task import Task
from django.apps import apps
from django.conf import settings

from agents.infra import clock

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# `trainyard up` runs Django's checks once. In a worker they would load all pages and forms, and keep them in memory.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# Processes in containers usually run as root, and only JSON is accepted from the broker.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")


class TrainyardTask(Task[Any, Any]):
    # By name: only workers need it.
    Request = "console.runtime.timed_request:TimedRequest"


class Application(Celery):
    """Celery by Trainyard's clock: when beat sends, and until when a message is of use."""

    task_cls = f"{__name__}:{TrainyardTask.__name__}"

    def now(self) -> datetime:
        return clock.now()


app = Application("trainyard", fixups=["console.runtime.task_connections:fixup"])
app.conf.update(settings.CELERY)
app.conf.beat_schedule = {
    # A message that no worker took in 10 s is useless: the next one is already there.
    "sweep": {"task": "jobs.tasks.sweep", "schedule": settings.TRAINYARD.tick_s, "options": {"expires": 10}},
    "tidy": {"task": "console.runtime.tasks.tidy", "schedule": 60.0, "options": {"expires": 50}},
}
app.autodiscover_tasks(["console.runtime", "jobs"])

# This module is imported in two ways. Celery imports it first and then worker.py or dispatcher.py, which import models:
# Django must be set up here. Or Django imports it (console/apps.py) in the middle of its own setup.
if not (apps.ready or apps.loading):
    django.setup()
