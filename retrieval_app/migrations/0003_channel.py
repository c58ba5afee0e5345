"""A run keeps the channel that it came by; the column was named door."""

from django.db import migrations


class Migration(migrations.Migration):

    safe = {'renamed': 'nothing was released with this column'}

    dependencies = [
        ('retrieval_app', '0002_sql'),
    ]

    operations = [
        migrations.RenameField(model_name='queryrun', old_name='door', new_name='channel'),
    ]
