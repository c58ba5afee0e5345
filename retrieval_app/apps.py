from __future__ import annotations

from django.apps import AppConfig


class RetrievalConfig(AppConfig):
    name = "retrieval_app"
    verbose_name = "Retrieval"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from retrieval_app.corrective import export_parts as corrective_travelling
        from retrieval_app.runs.export_parts import register_parts

        register_parts()
        corrective_travelling.register_parts()
