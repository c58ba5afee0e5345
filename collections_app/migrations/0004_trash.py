"""A deleted collection can be restored from the trash."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0003_sql")]
    operations = [
        migrations.RunSQL("ALTER TABLE collections ADD COLUMN trash jsonb", migrations.RunSQL.noop),
    ]
