"""What was released before usage was accounted gets its rows. Data only; runs after the code too: each run has one row."""

from __future__ import annotations

from django.db import migrations

BATCH = 500


def account(apps, schema_editor):
    run_model, usage_model = apps.get_model("jobs", "Run"), apps.get_model("jobs", "Usage")
    kinds = dict(apps.get_model("agents", "Gpu").objects.values_list("uuid", "accelerator_type"))
    released = run_model.objects.filter(released_at__isnull=False, usage=None).select_related("job")
    rows = []
    for run in released.defer("order", "log_proof").iterator(chunk_size=BATCH):
        rows.append(
            usage_model(
                run=run,
                job=run.job,
                project_id=run.job.project_id,
                owner_id=run.job.owner_id,
                owner_name=run.job.owner_name,
                accelerator_type=kinds.get(run.gpu_uuids[0], "") if run.gpu_uuids else "",
                gpus=len(run.gpu_uuids),
                cpus=run.cpus,
                began_at=run.created_at,
                ended_at=max(run.created_at, run.released_at),
            )
        )
    usage_model.objects.bulk_create(rows, batch_size=BATCH)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_projects_quotas_usage_audit"), ("agents", "0001_initial")]
    operations = [migrations.RunPython(account, migrations.RunPython.noop)]
