from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings

from collections_app.audit.origin import Channel, set_process_channel


class SiteConfig(AppConfig):
    """registrations: modules that say at their import what they add to the apps below: checks, parts of exports, gates.

    The Celery app is among them: it makes itself the one that tasks are sent through.
    """

    name = "ragd_site"
    verbose_name = "ragd"
    registrations = (
        "ragd_site.celery",
        "ragd_site.checks",
        "retrieval_app.plans.services",
        "retrieval_app.transfer_parts",
        "evaluation_app.transfer_parts",
        "evaluation_app.curation.expectations",
        "evaluation_app.curation.gate",
        "evaluation_app.telemetry.search.language",
    )

    channels = {"web": Channel.WEB, "worker": Channel.WORKER}  # of what a process does by itself

    def ready(self) -> None:
        set_process_channel(self.channels.get(settings.PROCESS, Channel.CLI))
        if settings.PROCESS != "prepare":
            for name in self.registrations:
                import_module(name)
