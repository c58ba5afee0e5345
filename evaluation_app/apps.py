from __future__ import annotations

from django.apps import AppConfig


class EvaluationConfig(AppConfig):
    name = "evaluation_app"
    verbose_name = "Evaluation and telemetry"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from evaluation_app.curation.registering import register_curation
        from evaluation_app.scoring.travelling import register_sampling
        from evaluation_app.travelling import register_parts

        register_parts()
        register_sampling()
        register_curation()
