from __future__ import annotations

from django.apps import AppConfig


class EvaluationConfig(AppConfig):
    name = "evaluation_app"
    verbose_name = "Evaluation and telemetry"
    default_auto_field = "django.db.models.BigAutoField"
