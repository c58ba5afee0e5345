"""Of which collection an entry of the audit log tells, and who it was where no user did it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("collections_app", "0015_quarantined"),
    ]

    operations = [
        migrations.CreateModel(
            name="AuditSubject",
            fields=[
                (
                    "entry",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="audit_subject",
                        serialize=False,
                        to="admin.logentry",
                    ),
                ),
                ("collection_name", models.TextField(blank=True, db_collation="C", default="")),
                ("actor", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "audit_subjects",
                "indexes": [
                    models.Index(fields=["collection_name", "-entry"], name="audit_subjects_collection_idx"),
                    models.Index(fields=["actor", "-entry"], name="audit_subjects_actor_idx"),
                ],
            },
        ),
    ]
