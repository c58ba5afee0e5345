"""Runs that the security action of their collection turned away."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('retrieval_app', '0005_cost_and_findings'),
    ]

    operations = [
        migrations.AlterField(
            model_name='queryrun',
            name='status',
            field=models.CharField(
                choices=[('ok', 'OK'), ('abstained', 'Abstained'), ('error', 'Error'), ('refused', 'Refused')],
                default='ok',
                max_length=10,
            ),
        ),
    ]
