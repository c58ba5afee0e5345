from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation_app", "0025_golden_set_rubrics")]

    operations = [
        migrations.RenameModel("FixDecision", "TriedFix"),
        migrations.AlterModelTable("TriedFix", "evaluation_tried_fixes"),
        migrations.AlterModelOptions("TriedFix", {"ordering": ["run"]}),
        migrations.AddField("TriedFix", "mode", models.CharField(blank=True, default="", max_length=40)),
        migrations.AddField("TriedFix", "fix", models.CharField(blank=True, default="", max_length=40)),
        migrations.AlterField(
            "TriedFix",
            "outcome",
            models.CharField(
                choices=[("open", "Open"), ("kept", "Kept"), ("discarded", "Discarded")], default="open", max_length=10
            ),
        ),
        migrations.AlterField("TriedFix", "decided_at", models.DateTimeField(blank=True, null=True)),
        migrations.AlterField(
            "TriedFix",
            "run",
            models.OneToOneField(
                on_delete=models.deletion.CASCADE,
                primary_key=True,
                related_name="tried_fix",
                serialize=False,
                to="evaluation_app.evaluationrun",
            ),
        ),
    ]
