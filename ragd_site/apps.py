from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "ragd_site"
    verbose_name = "ragd"

    def ready(self) -> None:
        """Make the Celery app the one that tasks are sent through, in every process that sets Django up."""
        import_module("ragd_site.celery")
        import_module("ragd_site.checks")
