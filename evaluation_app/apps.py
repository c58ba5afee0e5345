from __future__ import annotations

from django.apps import AppConfig


class EvaluationConfig(AppConfig):
    name = "evaluation_app"
    verbose_name = "Evaluation and telemetry"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from evaluation_app.curation.registration import register_curation
        from evaluation_app.golden.question_parts import register_parts
        from evaluation_app.scoring.sampling_parts import register_sampling

        register_parts()
        register_sampling()
        register_curation()
