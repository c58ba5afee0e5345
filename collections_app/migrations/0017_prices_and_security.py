"""Prices of models that go before the kept table; what findings in a collection lead to."""

import django.core.validators
import django.utils.timezone
from django.db import migrations, models


ADD_COLUMNS = "ALTER TABLE collections ADD COLUMN IF NOT EXISTS security jsonb NOT NULL DEFAULT '{}'"


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0016_audit_subjects'),
    ]

    operations = [
        migrations.RunSQL(
            ADD_COLUMNS,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddField("collection", "security", models.JSONField(blank=True, default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='ModelPrice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('system', models.CharField(blank=True, default='', max_length=100)),
                ('model', models.CharField(max_length=200)),
                ('input_per_million', models.FloatField(validators=[django.core.validators.MinValueValidator(0.0)])),
                ('output_per_million', models.FloatField(default=0.0, validators=[django.core.validators.MinValueValidator(0.0)])),
                ('cached_input_per_million', models.FloatField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(0.0)])),
                ('note', models.CharField(blank=True, default='', max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'model_prices',
                'ordering': ['model', 'system'],
                'constraints': [models.UniqueConstraint(fields=('system', 'model'), name='modelprice_once')],
            },
        ),
    ]
