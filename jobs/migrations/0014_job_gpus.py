import json
from collections import defaultdict

from django.conf import settings
from django.db import migrations, models

from jobs.models.guards import make_guards

BATCH = 1_000


def count(apps, schema_editor):
    """Count the GPUs of the jobs that are there. A job whose request was never read has it read with the count."""
    jobs = apps.get_model("jobs", "Job").objects
    found = jobs.order_by("pk").exclude(resource_request="").values_list("pk", "resource_request")
    last = 0
    while some := list(found.filter(pk__gt=last)[:BATCH]):
        by_count = defaultdict(list)
        for job, request in some:
            by_count[gpus_of(request)].append(job)
        by_count.pop(0, None)
        for gpus, ids in by_count.items():
            jobs.filter(pk__in=ids).update(gpu_count=gpus)
        last = some[-1][0]


def gpus_of(request):
    """Each group of replicas is [pool, replicas, cpus, memory_mb, accelerator_type, gpus of a replica]."""
    return sum(group[1] * group[5] for group in json.loads(request))


def guard(apps, schema_editor):
    make_guards(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0013_job_labels"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="gpu_count",
            field=models.PositiveIntegerField(db_default=0, default=0, help_text="of all replicas together"),
        ),
        migrations.RunPython(count, migrations.RunPython.noop),
        migrations.RemoveIndex(model_name="job", name="job_counts"),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                fields=["state", "project", "owner", "gpu_count", "deleted_at"], name="job_totals"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["gpu_count", "id"], name="job_by_gpus"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["display_name", "id"], name="job_by_name"),
        ),
        # SQLite makes the table anew, without its triggers.
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
