"""What a query run found in other collections than its own."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('retrieval_app', '0010_chats'),
    ]

    operations = [
        migrations.AddField(
            model_name='queryrun',
            name='elsewhere',
            field=models.JSONField(blank=True, default=dict, db_default=models.Value({}, models.JSONField())),
        ),
    ]
