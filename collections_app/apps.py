from __future__ import annotations

from django.apps import AppConfig


class CollectionsConfig(AppConfig):
    name = "collections_app"
    verbose_name = "Collections"
    default_auto_field = "django.db.models.BigAutoField"
