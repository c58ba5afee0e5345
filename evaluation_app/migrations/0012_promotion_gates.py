"""What golden questions must say of a generation before it serves, per collection."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('evaluation_app', '0011_golden_set_bands'),
    ]

    operations = [
        migrations.CreateModel(
            name='PromotionGate',
            fields=[
                ('collection_name', models.TextField(db_collation='C', primary_key=True, serialize=False)),
                ('set_name', models.CharField(max_length=200)),
                ('measure', models.CharField(default='recall', max_length=20)),
                ('k', models.IntegerField(default=10)),
                ('margin', models.FloatField(default=0.02)),
                ('updated_by', models.TextField(blank=True, default='')),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('golden_set', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='gates', to='evaluation_app.goldenset')),
            ],
            options={
                'db_table': 'promotion_gates',
                'ordering': ['collection_name'],
            },
        ),
    ]
