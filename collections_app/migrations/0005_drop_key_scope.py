from django.db import migrations


class Migration(migrations.Migration):
    safe = {"removed": "the scope follows from the scopes, and nothing was released that reads the column"}

    dependencies = [
        ("collections_app", "0004_drop_contradictions"),
    ]

    operations = [
        migrations.RunSQL("ALTER TABLE api_keys DROP COLUMN scope", migrations.RunSQL.noop),
        migrations.RemoveField(model_name="apikey", name="scope"),
    ]
