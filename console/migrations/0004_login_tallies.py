"""A row for each thing that was tried within an hour, so that the audit has logins folded."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("console", "0003_token_expiry"),
    ]

    operations = [
        migrations.CreateModel(
            name="LoginTally",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("what", models.CharField(max_length=40)),
                ("name", models.CharField(max_length=150)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("since", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("more", models.PositiveIntegerField(default=0)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("what", "name", "address"), name="login_tally_of_one")
                ],
            },
        ),
    ]
