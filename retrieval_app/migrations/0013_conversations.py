"""Query runs know the conversation that they belong to; those of the chat's threads are filled in."""

from django.db import migrations, models

FILL = """
UPDATE retrieval_app_queryrun AS run SET conversation_id = message.thread_id::text
FROM chat_messages AS message WHERE message.run = run.id
"""


class Migration(migrations.Migration):

    dependencies = [
        ('retrieval_app', '0012_assistants'),
    ]

    operations = [
        migrations.AddField(
            model_name='queryrun',
            name='conversation_id',
            field=models.TextField(blank=True, default='', db_default=''),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='queryrun',
            index=models.Index(condition=models.Q(('conversation_id', ''), _negated=True), fields=['conversation_id', 'created_at', 'id'], name='queryrun_conversation'),
        ),
    ]
