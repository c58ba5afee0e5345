"""What the promotion gate said of a generation, and who let it serve nevertheless."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0019_chunk_findings'),
    ]

    operations = [
        migrations.AddField(
            model_name='generation',
            name='gate_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='generation',
            name='gate_by',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='generation',
            name='gate_reason',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='generation',
            name='gate_report',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name='generation',
            name='gate_state',
            field=models.CharField(blank=True, choices=[('passed', 'Passed'), ('held', 'Held'), ('overruled', 'Overruled')], default='', max_length=10),
        ),
    ]
