"""Home, the palette, and the pages of who keeps the server."""

from __future__ import annotations

from django.urls import path

from collections_app.access.rules import one_address
from collections_app.http import settings_views
from evaluation_app.telemetry.evidence import pages as evidence
from evaluation_app.telemetry.metrics import pages as metrics_pages
from ragd_site.operations import retention_page, settings_page, views

OPERATIONS = one_address(
    views.operations, cluster=views.cluster, leak_probe=views.leak_probe, conformance=views.status,
    field_coverage=evidence.evidence,
)  # fmt: skip
SETTINGS = one_address(
    settings_page.server_settings, retention=retention_page.retention, period=retention_page.change_period,
    mail=settings_views.mail, collector=metrics_pages.collector,
)  # fmt: skip

app_name = "operations"
urlpatterns = [
    path("", views.home, name="home"),
    path("operations/", OPERATIONS, name="operations"),
    path("go/", views.palette, name="palette"),
    path("settings/server/", SETTINGS, name="server-settings"),
]
