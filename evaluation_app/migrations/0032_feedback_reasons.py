"""What is wrong with an answer, of who asked."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('evaluation_app', '0031_content_gaps'),
    ]

    operations = [
        migrations.AddField(
            model_name='review',
            name='reason',
            field=models.CharField(blank=True, choices=[('facts', 'Wrong facts'), ('incomplete', 'Incomplete'), ('sources', 'Wrong or missing sources'), ('outdated', 'Outdated'), ('other_question', 'Answers another question')], default='', max_length=20),
        ),
    ]
