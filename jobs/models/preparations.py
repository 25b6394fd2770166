"""Preparations: what a host must have before runs that need it may start there. One row for each host, kind and key."""

from __future__ import annotations

from django.db import models

from agents.infra.sentences import SentenceField
from agents.models import Host
from jobs.models.runs import Run
from jobs.rules.lifecycle.preparation_states import PreparationState


class Preparation(models.Model):
    """Something that one host (a login) is asked for once, whoever needs it: an image, a tree, an environment."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="preparations")
    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=80)
    what = models.JSONField(
        help_text="what the host is told (agents/README.md, frame prepare), without secrets"
    )
    title = SentenceField(help_text="what it is, for people")
    phase = models.CharField(
        max_length=8,
        choices=[(phase.value, phase.value) for phase in PreparationState],
        default=PreparationState.WANTED,
    )
    asked = models.PositiveIntegerField(default=1, help_text="how often it was asked for anew")
    lost = models.PositiveIntegerField(
        default=0, help_text="how often its process was lost since it was asked for"
    )

    # As the host reports it.
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(null=True, blank=True)
    unit = models.CharField(max_length=20, blank=True)
    message = models.TextField(blank=True, help_text="the words of the program that prepares")
    tail = models.TextField(blank=True, help_text="the end of its output")
    fault = models.CharField(max_length=4, blank=True, help_text="of a failure: user or host")
    result = models.JSONField(default=dict)

    created_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["host", "kind", "key"], name="preparation_once"),
        ]


class PreparationNeed(models.Model):
    """A run needs this preparation on its host."""

    preparation = models.ForeignKey(Preparation, on_delete=models.CASCADE, related_name="needs")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="needs")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "preparation"], name="need_once")]
