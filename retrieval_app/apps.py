from __future__ import annotations

from django.apps import AppConfig


class RetrievalConfig(AppConfig):
    name = "retrieval_app"
    verbose_name = "Retrieval"
    default_auto_field = "django.db.models.BigAutoField"
