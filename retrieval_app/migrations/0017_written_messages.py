from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("retrieval_app", "0016_defaults_of_runs")]

    operations = [
        migrations.AddField("chatmessage", "writing_until", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("chatmessage", "stop_requested", models.BooleanField(db_default=False, default=False)),
    ]
