"""What a run cost, and what was found in its texts."""


from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('retrieval_app', '0004_fill_retrieved_chunks'),
    ]

    operations = [
        migrations.AddField(
            model_name='queryrun',
            name='cost_usd',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='queryrun',
            name='findings',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='queryrun',
            name='risk_score',
            field=models.FloatField(blank=True, null=True),
        ),
    ]
