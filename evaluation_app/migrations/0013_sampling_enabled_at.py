from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0012_promotion_gates")]

    operations = [
        migrations.AddField("sampling", "enabled_at", models.DateTimeField(blank=True, null=True)),
    ]
