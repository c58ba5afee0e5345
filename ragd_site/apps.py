from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """registrations: modules that say at their import what they add to the apps below: checks, parts of exports, gates.

    The Celery app is among them: it makes itself the one that tasks are sent through.
    """

    name = "ragd_site"
    verbose_name = "ragd"
    registrations = (
        "ragd_site.celery",
        "ragd_site.checks",
        "retrieval_app.transfer_parts",
        "evaluation_app.transfer_parts",
        "evaluation_app.curation.expectations",
        "evaluation_app.curation.gate",
        "evaluation_app.spans.search.scores",
    )

    def ready(self) -> None:
        for name in self.registrations:
            import_module(name)
