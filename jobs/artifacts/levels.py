"""How near the stored files of projects are to their quotas: measured by the sweep, told at each level."""

from __future__ import annotations

from jobs.artifacts import room
from jobs.models import FileStorage, Quota
from jobs.projects.log_storage import Crossing
from jobs.rules.scheduling import file_storage as rules
from jobs.rules.scheduling.log_storage import level_of
from jobs.rules.scheduling.quota import Metric


def measure() -> list[Crossing]:
    """Measure every project with a quota. Returns the levels that were reached since the last time. In the caller's
    transaction."""
    limits = Quota.objects.filter(metric=Metric.STORAGE_GB, user=None, each=False).select_related("project")
    rows = list(limits.order_by("project"))
    FileStorage.objects.exclude(project__in=[row.project_id for row in rows]).delete()
    if not rows:
        return []
    known = {row.project_id: row.level for row in FileStorage.objects.select_for_update(no_key=True)}
    taken = room.stored_bytes([row.project_id for row in rows])
    crossings = []
    for row in rows:
        stored, before = taken.get(row.project_id, 0), known.get(row.project_id, 0)
        level = level_of(stored, row.value, before, rules.LEVELS)
        if level != before or row.project_id not in known:
            FileStorage.objects.update_or_create(project_id=row.project_id, defaults={"level": level})
        if level > before:
            text = rules.text(row.project.name, level, stored, row.value)
            crossings.append(Crossing(row.project, level, text))
    return crossings
